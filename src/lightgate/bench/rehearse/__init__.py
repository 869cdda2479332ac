"""Rehearsal: what each policy would have done with a world's traffic, in virtual time."""
