"""Batch work: many requests from a file, answered as fast or as cheaply as the targets allow."""
