"""The ledger's database: tables, rollups, queries, keys, retention."""
