"""Runs: carrying a benchmark out from its order to its findings; doctor and schedules."""
