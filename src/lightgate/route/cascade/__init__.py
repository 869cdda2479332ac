"""Cascades: how hard a request is, which tier answers it, and whether the answer passes."""
