"""The dialects of simulated answers, written apart from `dialect`: each checks the other."""
