"""What answers look like on the wire, written apart from `dialect`: each checks the other."""
