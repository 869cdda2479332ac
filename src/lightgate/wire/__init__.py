"""HTTP/1.1 on sockets, both sides, with a stamp on every read: links, client, door, SSE."""
