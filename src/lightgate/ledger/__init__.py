"""What was measured, kept: the records of runs and their files."""
