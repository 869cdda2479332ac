"""Workloads: what is sent, with prompts of a known size."""
