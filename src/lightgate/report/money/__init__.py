"""What production cost: second attempts, and machines of one's own beside APIs."""
