"""The spend counters and the ledger, brought together before workers serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from lightgate.ledger.store.keys import Period, period_start
from lightgate.ledger.store.queries import spend_per_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.gateway.spend.counters import SpendCounters
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

_NANO: Final = 1_000_000_000


def restore(spend: SpendCounters, ledger: Ledger, keys: Iterable[KeyRecord], wall_ns: int) -> None:
    """Raise every spend to what the ledger knows, then drop what earlier lives had reserved.

    Call it while no worker of this data folder runs, after the journals were shipped and their
    orphans settled: then the ledger knows every cent, and no reservation is anybody's.
    """
    rows = [key for key in keys if key.budget_usd is not None]
    spend.add(rows)
    for period in get_args(Period):
        of_period = [key for key in rows if key.budget_period == period]
        spent = spend_per_key(ledger, period_start(period, wall_ns)) if of_period else {}
        for key in of_period:
            if key.id in spent:
                spend.load_spend(key.id, int(spent[key.id] * _NANO))
    for worker in range(spend.workers):
        spend.clear_worker(worker)
