"""The databases that a ledger can be in, SQLite and PostgreSQL, behind the same methods."""
