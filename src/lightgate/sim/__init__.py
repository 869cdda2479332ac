"""Simulated providers on loopback whose every token has a known absolute instant."""
