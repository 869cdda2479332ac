"""Prompts: shorter ones that say the same, and the key under which an answer is cached."""
