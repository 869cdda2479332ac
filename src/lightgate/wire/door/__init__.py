"""The HTTP/1.1 server: connections of clients, requests in, replies out."""
