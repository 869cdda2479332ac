"""Dialects: building and reading requests, reading, writing and assembling answers. No I/O."""
