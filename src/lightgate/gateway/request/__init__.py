"""A client's request as records: endpoint, body, and the refusal that a client may be sent."""
