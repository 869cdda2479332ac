"""The stopwatch: instants, every formula once, quantiles, sketches, statistics. No I/O."""
