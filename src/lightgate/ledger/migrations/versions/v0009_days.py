"""Sums of targets over whole days, and indexes of what failed: for questions about many days."""

from __future__ import annotations

from decimal import Decimal
from itertools import groupby
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from lightgate.clock.sketch import DDSketch, merge_all

revision = "0009"
down_revision = "0008"

HOUR_S: Final = 3600
DAY_S: Final = 86_400
_NAMES: Final = ("width_s", "bucket_s", "target", "provider", "model")
_FAILED: Final = (
    ("exchange_notes_failed", "exchange_notes", ["wall_ns"], "outcome <> 'ok'"),
    (
        "attempt_notes_failed",
        "attempt_notes",
        ["target", "wall_ns"],
        "outcome NOT IN ('ok', 'cancelled', 'cut')",
    ),
)


def upgrade() -> None:
    """Add up the hours of every day that is there, and make the indexes."""
    connection = op.get_bind()
    table = sa.Table("rollups", sa.MetaData(), autoload_with=connection)
    here = table.c
    hours = table.select().where(here.width_s == HOUR_S).order_by(here.target, here.bucket_s)
    rows = connection.execute(hours).mappings()
    days = groupby(rows, key=lambda row: (row["target"], row["bucket_s"] // DAY_S * DAY_S))
    for (_, day), some in days:
        connection.execute(table.insert(), _day(day, list(some)))
    for name, table_name, columns, failed in _FAILED:
        where = sa.text(failed)
        op.create_index(name, table_name, columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """Take the days and the indexes away."""
    for name, table_name, _, _ in _FAILED:
        op.drop_index(name, table_name)
    op.execute(f"DELETE FROM rollups WHERE width_s = {DAY_S}")  # noqa: S608 - own number


def _day(day: int, hours: list[Any]) -> dict[str, Any]:
    """The row of a day, from its hours."""
    last = hours[-1]
    row = {name: last[name] for name in _NAMES}
    row |= {"width_s": DAY_S, "bucket_s": day}
    for name in last:
        if name.endswith("_sketch"):
            kept = [DDSketch.from_bytes(hour[name]) for hour in hours if hour[name] is not None]
            row[name] = merge_all(kept).to_bytes() if kept else None
        elif name == "cost_usd":
            total = sum((Decimal(hour[name]) for hour in hours), Decimal(0))
            row[name] = format(total, "f") if isinstance(last[name], str) else total
        elif name not in _NAMES:
            row[name] = sum(hour[name] for hour in hours)
    return row
