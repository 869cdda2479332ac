"""Self-hosted providers of a speed report: what their hours cost, and how much of them was used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.report.tables.figures import clean, dollars, number, percent
from lightgate.report.tables.layout import TextColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.ledger.store.hourly import HourlyRow

HEADS: Final = (
    "self-hosted", "$/hour", "hours", "cost", "in use", "idle cost", "requests", "tokens out",
    "$/Mtok out",
)  # fmt: skip
MEANS: Final = (
    "Self-hosted providers cost their hours, used or not. In use: the share of spans of 5 minutes "
    "with a request. $/Mtok out: the whole cost, idle hours too, for a million output tokens."
)


def hour_cells(row: HourlyRow) -> tuple[str, ...]:
    """Return the cells of one provider."""
    return (
        clean(row.provider),
        dollars(row.usd_per_hour),
        number(row.hours),
        dollars(row.cost_usd),
        percent(row.in_use),
        dollars(row.idle_usd),
        f"{row.attempts:,}",
        f"{row.tokens_out:,}",
        dollars(row.usd_per_mtok),
    )


def hour_columns(rows: Sequence[HourlyRow]) -> list[list[TextColumn]]:
    """Return the table for a terminal, in groups that stay together."""
    cells = [hour_cells(row) for row in rows]
    columns = [
        TextColumn(title, tuple(shown), right=title != HEADS[0])
        for title, shown in zip(HEADS, zip(*cells, strict=True), strict=True)
    ]
    return [columns[:1], columns[1:6], columns[6:]]
