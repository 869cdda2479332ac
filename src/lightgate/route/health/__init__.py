"""Health: what a failure means, when a target is left alone, how many retries there may be."""
