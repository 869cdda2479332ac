"""What simulated answers look like on the wire, written apart from `dialect` so that each checks the other."""
