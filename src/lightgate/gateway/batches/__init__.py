"""Batches that clients leave with the gateway: files, jobs, and the answers about them."""
