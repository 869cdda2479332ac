"""Form: what the router believes about each target, and how attempts change it."""
