"""Byte streams with stamped reads: sockets, TLS, kernel stamps, timers."""
