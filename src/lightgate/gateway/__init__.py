"""The data plane: clients' requests in, providers' answers out, every one of them clocked."""
