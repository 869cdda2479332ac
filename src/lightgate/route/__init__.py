"""Who is asked, in which order, and who is left alone: decisions without I/O, time passed in."""
