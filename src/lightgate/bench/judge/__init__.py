"""Judgement: verdicts on load, service levels, use-case profiles, break-even."""
