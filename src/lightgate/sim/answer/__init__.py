"""Simulated answers: what is asked, the plan of the answer, its script and its playing."""
