"""The HTTP/1.1 client: pooled connections, dialling, one roundtrip at a time."""
