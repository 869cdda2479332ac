"""Journals: append-only files of notes, and the shipper that reads them into the ledger."""
