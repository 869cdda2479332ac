"""Answers that several requests share: the exact cache in memory and on disk, single-flight."""
