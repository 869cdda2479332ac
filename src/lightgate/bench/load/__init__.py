"""Load: when each request is sent, by how many workers and processes."""
