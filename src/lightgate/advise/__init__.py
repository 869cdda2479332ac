"""Advice: what would make this traffic faster or cheaper, with the evidence for it."""
