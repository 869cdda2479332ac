"""Prices and costs of tokens; importing this package loads no price list."""
