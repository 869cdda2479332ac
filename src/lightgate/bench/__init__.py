"""The harness: driving load through provider.call and proving the clock."""
