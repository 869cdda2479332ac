"""Files and history of benchmark runs."""
