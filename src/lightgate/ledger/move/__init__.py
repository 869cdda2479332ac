"""A ledger moved to another database, and its old days written to files."""
