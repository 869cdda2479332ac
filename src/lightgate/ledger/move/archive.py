"""Write whole days of requests and attempts to Parquet files, which other programs read.

A day is one file of each view, `attempts/day=2026-11-16/rows.parquet`, with the view's columns. It
is written beside its place and put there when it is complete. A day of which the ledger has more
rows than the file is written anew: a node that was cut off ships its rows days later.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.errors import ConfigError, UsageError
from lightgate.ledger.failed import LedgerFailed
from lightgate.ledger.store.schema import (
    Money,
    attempt_notes,
    attempts,
    exchange_notes,
    exchanges,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.store.store import Ledger

DAY_NS: Final = 86_400 * 1_000_000_000
FILE: Final = "rows.parquet"
PATIENCE_S: Final = 3600.0  # for one statement: a day of millions of rows is counted and sorted
_ROWS_AT_ONCE: Final = 20_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ArchivedDay(msgspec.Struct, frozen=True):
    """One day of one view: its date, its rows, and the bytes of its file."""

    table: str
    day: str
    rows: int
    bytes: int


def archive_days(ledger: Ledger, folder: Path, now_ns: int) -> Iterator[ArchivedDay]:
    """Write every day before today of which no file has all rows yet, oldest first."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError(
            "Parquet files need the library pyarrow.", hint="pip install 'lightgate[archive]'"
        ) from None
    for view, table in ((exchanges, exchange_notes), (attempts, attempt_notes)):
        apart = ledger.days(table)
        days = _days(ledger, view, now_ns // DAY_NS) if apart is None else apart
        for day in days:
            date = f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"
            path = folder / view.name / f"day={date}" / FILE
            if day < now_ns // DAY_NS and _counted(ledger, view, day) > _written(path, pq):
                rows = _write(ledger, view, day, path, pa)
                yield ArchivedDay(view.name, date, rows, path.stat().st_size)


def _counted(ledger: Ledger, view: sa.Table, day: int) -> int:
    """How many rows of a day the ledger has."""
    query = sa.select(sa.func.count()).select_from(view).where(*_of_day(view, day))
    with ledger.reading() as connection:
        return connection.scalar(query) or 0


def _of_day(view: sa.Table, day: int) -> tuple[sa.ColumnElement[bool], ...]:
    return view.c.wall_ns >= day * DAY_NS, view.c.wall_ns < (day + 1) * DAY_NS


def _written(path: Path, pq: Any) -> int:
    """How many rows a file has; none where it is missing or cannot be read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, ValueError):  # the library's own errors are ValueErrors
        return 0


def _days(ledger: Ledger, view: sa.Table, today: int) -> list[int]:
    """The days of which a file's ledger has rows, oldest first; each is found behind the last."""
    found: list[int] = []
    at = view.c.wall_ns
    with ledger.reading() as connection:
        since = 0
        while True:
            query = sa.select(sa.func.min(at)).where(at >= since, at < today * DAY_NS)
            first = connection.scalar(query)
            if first is None:
                return found
            found.append(first // DAY_NS)
            since = (first // DAY_NS + 1) * DAY_NS


def _write(ledger: Ledger, view: sa.Table, day: int, path: Path, pa: Any) -> int:
    """Write one day; LedgerFailed where the file has not the rows of the ledger."""
    import pyarrow.parquet as pq

    kinds = pa.schema([(column.name, _kind(column.type, pa)) for column in view.columns])
    unborn = path.with_suffix(".new")
    here = _of_day(view, day)
    query = view.select().where(*here).order_by(view.c.wall_ns, view.c.id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            ledger.reading() as connection,
            pq.ParquetWriter(unborn, kinds, compression="zstd") as writer,
        ):
            counted = connection.scalar(sa.select(sa.func.count()).select_from(view).where(*here))
            chunks = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
            for rows in chunks.partitions():
                columns = list(zip(*rows, strict=True))
                arrays = [pa.array(*pair) for pair in zip(columns, kinds.types, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=kinds))
        written = int(pq.read_metadata(unborn).num_rows)
    except OSError as error:
        raise UsageError(f"{path.parent} cannot be written: {error.strerror}.") from None
    if written != counted:
        unborn.unlink()
        raise LedgerFailed(f"The file of {path.parent.name} has {written} of {counted} rows.")
    unborn.replace(path)
    return written


def _kind(kind: sa.types.TypeEngine[Any], pa: Any) -> Any:
    """The type of a column in a file."""
    if isinstance(kind, Money):
        return pa.decimal128(28, 12)
    for known, made in (
        (sa.Boolean, pa.bool_()), (sa.BigInteger, pa.int64()), (sa.Integer, pa.int32()),
        (sa.Double, pa.float64()),
    ):  # fmt: skip
        if isinstance(kind, known):
            return made
    return pa.string()
