"""Advice for a period of a ledger: what is read of it, and what could be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.advise.advise import advise
from lightgate.advise.history import MOST, ledger_history
from lightgate.advise.rehearsed import rehearse_advice
from lightgate.advise.scope import AdviceScope
from lightgate.ledger.store.hourly import hourly_rows, machine_uses

if TYPE_CHECKING:
    from datetime import datetime

    from lightgate.advise.advise import AdviceReport
    from lightgate.config.model import Config
    from lightgate.ledger.runs.run import Run
    from lightgate.ledger.store.store import Ledger


def scope_of(
    ledger: Ledger,
    period: tuple[datetime, datetime],
    config: Config | None,
    checks: Run | None = None,
    most: int | None = None,
) -> AdviceScope:
    """Read a period of a ledger; of more than `most` requests the newest."""
    tables = {} if config is None else config.providers
    prices = {name: t.hourly_cost for name, t in tables.items() if t.hourly_cost is not None}
    last = period[1] - period[0]
    hourly = hourly_rows(ledger, last, period[1], prices)
    machines = machine_uses(ledger, hourly, last, period[1])
    return AdviceScope(ledger_history(ledger, *period, most or MOST), config, machines, checks)


def advise_ledger(
    ledger: Ledger, scope: AdviceScope, model: str | None = None, *, rehearse: bool = True
) -> AdviceReport:
    """Find what could be changed in a period of a ledger."""
    report = advise(scope, model)
    if not rehearse:
        return report
    return msgspec.structs.replace(
        report, advice=tuple(rehearse_advice(ledger, scope, report.advice))
    )
