"""The proof of the clock: what we measured against what the simulator is known to have sent."""
