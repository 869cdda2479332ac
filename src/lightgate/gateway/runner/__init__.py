"""The process that carries batches out: it sends their lines and keeps what came of each."""
