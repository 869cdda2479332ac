"""The databases that a ledger can be in: SQLite and PostgreSQL, each behind the same few methods."""
