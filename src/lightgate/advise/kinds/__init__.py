"""The kinds of advice: each one looks at the same history for one sort of waste."""
