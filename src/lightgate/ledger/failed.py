"""Failures of the ledger: what a reader, a writer and the shipper are told."""

from __future__ import annotations

from lightgate.errors import ConfigError, LightgateError


class LedgerFailed(LightgateError):  # noqa: N818 - names the event
    """The ledger could not be read or written; what was in it stays."""

    status = 503
    label = "ledger"


class LedgerBusy(LedgerFailed):
    """Another process held the ledger for longer than we wait; later it will do."""


class LedgerConflict(LedgerFailed):
    """A row with this key is there already; nothing of the transaction was kept."""


class LedgerNoRoom(LedgerFailed):
    """The disk does not take what SQLite has to write, be it only to read; later it may."""


class LedgerDamaged(LedgerFailed):
    """The file of the ledger is damaged; the console puts it aside and makes another."""


class LedgerAway(LedgerFailed):
    """The database server cannot be reached or does not answer; later it may."""


class LedgerNewer(ConfigError):  # noqa: N818 - names the event
    """The tables are of a newer Lightgate: this node is upgraded next."""

    status = 503
    label = "ledger"
