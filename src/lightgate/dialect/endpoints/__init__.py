"""Endpoints that hold no conversation: completions, embeddings, counts of tokens, sound."""
