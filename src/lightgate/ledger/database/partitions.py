"""Days of PostgreSQL's two large tables: a partition for each day in UTC, made when it is needed.

A day that is too old is dropped as a whole, which takes as long for a million rows as for one. The
name of a partition says its day: `attempt_notes_d20261116`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterable

DAY_NS: Final = 86_400 * 1_000_000_000
PARTITIONED: Final = ("exchange_notes", "attempt_notes")
LOCK: Final = 0x6C67_7061  # advisory: one process makes or drops days at a time
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAME: Final = re.compile(r"(?P<table>\w+)_d(?P<day>\d{8})")
_DROP_MS: Final = 1000  # a drop waits for readers, and readers that come then wait for the drop


def partition_name(table: str, day: int) -> str:
    """The name of a day's partition; `day` counts from 1970."""
    return f"{table}_d{_EPOCH + timedelta(days=day):%Y%m%d}"


def partition_bounds(day: int) -> str:
    """The bounds of a day's partition, for a statement."""
    return f"FOR VALUES FROM ({day * DAY_NS}) TO ({(day + 1) * DAY_NS})"


class DayPartitions:
    """The days that are known to be there, and how more are made."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._known: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """Believe nothing any more: another process may have dropped a day."""
        self._known.clear()

    def make(self, table: str, days: Iterable[int]) -> None:
        """Make the days that are missing, in a transaction of their own.

        A table is made first and attached then: that keeps no reader of the others waiting.
        """
        missing = [day for day in days if (table, day) not in self._known]
        if not missing:
            return
        with self._engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
            for day in missing:
                name = partition_name(table, day)
                if connection.scalar(sa.select(sa.func.to_regclass(name))) is None:
                    like = f"(LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
                    connection.exec_driver_sql(f"CREATE TABLE {name} {like}")
                    bounds = partition_bounds(day)
                    connection.exec_driver_sql(
                        f"ALTER TABLE {table} ATTACH PARTITION {name} {bounds}"
                    )
        self._known |= {(table, day) for day in missing}

    def drop(self, table: str, before_ns: int) -> int:
        """Drop the days that ended before an instant; how many rows they had."""
        gone = 0
        for day, name in self.days(table):
            if (day + 1) * DAY_NS > before_ns:
                continue
            with self._engine.begin() as connection:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_DROP_MS}")
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                if connection.scalar(sa.select(sa.func.to_regclass(name))) is None:
                    continue  # another process was faster
                rows = sa.select(sa.func.count()).select_from(sa.table(name))
                counted = connection.scalar(rows) or 0
                connection.exec_driver_sql(f"DROP TABLE {name}")
                gone += counted
            self._known.discard((table, day))
        return gone

    def days(self, table: str) -> list[tuple[int, str]]:
        """The days that are there, oldest first, each with the name of its partition."""
        query = sa.text(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = to_regclass(:name)"
        )
        with self._engine.connect() as connection:
            names = connection.execute(query, {"name": table}).scalars().all()
        found = []
        for name in names:
            read = _NAME.fullmatch(name)
            if read is not None:
                day = datetime.strptime(read["day"], "%Y%m%d").replace(tzinfo=UTC)
                found.append(((day - _EPOCH).days, name))
        return sorted(found)
