"""Providers and targets: the catalogue, keys, and the call of one target."""
