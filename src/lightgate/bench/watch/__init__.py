"""What the engine and the GPU say of themselves during a run, beside our own clocks."""
