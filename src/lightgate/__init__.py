"""Lightgate: one stopwatch for LLMs, in the benchmark harness and in the gateway."""

__version__ = "0.1.0"
