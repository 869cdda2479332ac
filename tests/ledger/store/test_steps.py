"""What each step makes of the tables, compared with a text, and what it makes of their rows.

A step that was released never changes. After a new one:
    cd tests && ../.venv/bin/python -m ledger.store.test_steps
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from lightgate.clock.sketch import DDSketch
from lightgate.ledger.migrations.versions import v0003_notes, v0009_days
from lightgate.ledger.store.schema import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = Path(__file__).with_name("steps.sql")
STEPS: Final = [f"{number:04}" for number in range(1, 12)]


@contextmanager
def empty() -> Iterator[sa.Connection]:
    """A database without any table."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        yield connection
        connection.rollback()
    engine.dispose()


def go(connection: sa.Connection, version: str, *, up: bool = True) -> None:
    config = Config()
    config.set_main_option("script_location", "lightgate.ledger:migrations")
    config.attributes["connection"] = connection
    (command.upgrade if up else command.downgrade)(config, version)


def statements(connection: sa.Connection) -> dict[str, str]:
    """What made each table, view and index, in one line."""
    query = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    rows = connection.execute(sa.text(query)).all()
    return {name: " ".join(made.split()) for name, made in rows if "alembic" not in name}


def shape(connection: sa.Connection) -> dict[str, Any]:
    """Tables by their columns, in any order, and views and indexes by what made them."""
    found: dict[str, Any] = {}
    for name, made in statements(connection).items():
        kind, _, bare = name.partition(" ")
        if kind == "table":
            rows = connection.execute(sa.text(f"PRAGMA table_info({bare})"))
            found[name] = {(row.name, row.type, row.notnull, row.pk) for row in rows}
        else:
            found[name] = made
    return found


def told() -> str:
    """Every step and what differs behind it."""
    lines: list[str] = []
    with empty() as connection:
        before: dict[str, str] = {}
        for version in STEPS:
            go(connection, version)
            after = statements(connection)
            lines.append(f"-- {version}")
            lines += [f"-- gone: {name}" for name in sorted(before.keys() - after.keys())]
            lines += [made for name, made in sorted(after.items()) if before.get(name) != made]
            before = after
    lines.append("-- the views of 0003 on PostgreSQL")
    for view, columns in (
        ("exchanges", v0003_notes.exchange_columns("postgresql")),
        ("attempts", v0003_notes.attempt_columns("postgresql")),
    ):
        lines.append(v0003_notes.make_view(view, "notes", columns))
    return "\n".join(lines).replace(", ", ",\n  ") + "\n"


def test_each_step_makes_what_it_made_when_it_was_released() -> None:
    assert told() == GOLDEN.read_text("utf-8")


def test_each_step_can_be_taken_back() -> None:
    with empty() as connection:
        up: dict[str, dict[str, Any]] = {}
        for version in STEPS:
            go(connection, version)
            up[version] = shape(connection)
        for version in reversed(STEPS[:-1]):
            go(connection, version, up=False)
            assert shape(connection) == up[version], version
        go(connection, "base", up=False)
        assert statements(connection) == {}


EXCHANGE: Final[dict[str, Any]] = {
    "id": "x-1", "request_id": "r-1", "key_id": "k-1", "model_asked": "fast", "policy": "race",
    "plan": "a,b", "winner": "lab/s1", "attempts": 2, "cache": "off", "status": 200,
    "outcome": "ok", "error": "no", "dialect": "openai-chat", "streamed": 1,
    "wall_time": "2026-11-16T10:11:12.345678Z", "accepted_ns": 1_000_000,
    "first_byte_ns": 2_000_000, "received_ns": 3_000_000, "routed_ns": 4_000_000,
    "sent_ns": 5_500_000, "first_in_ns": 6_000_000, "first_out_ns": 7_250_000,
    "last_in_ns": 8_000_000, "last_out_ns": 9_500_000, "closed_ns": 10_000_000,
    "overhead_ms": 4.0, "ttft_ms": 4.25, "e2e_ms": 6.5, "tokens_in": 11, "tokens_out": 12,
    "cost_usd": "1.000000025", "cost_source": "usage", "loser_cost_usd": "0.000000007",
    "tags": "t", "worker": 3,
}  # fmt: skip
ATTEMPT: Final[dict[str, Any]] = {
    "id": "a-1", "exchange_id": "x-1", "run_id": None, "source": "gateway", "target": "lab/s1",
    "provider": "lab", "model": "s1", "dialect": "openai-chat", "seq": 4, "concurrency": None,
    "role": "first", "won": 1, "outcome": "ok", "status": 201, "error": "e", "streamed": 1,
    "wall_time": "2026-11-16T10:11:12.345678Z", "t_plan_ns": 1_000_000, "t_send_ns": 2_000_000,
    "t_headers_ns": 3_500_000, "t_event_ns": 4_750_000, "t_first_ns": 6_000_000,
    "t_answer_ns": 7_125_000, "t_last_ns": 1_006_000_000, "t_end_ns": 1_007_000_000,
    "pool_wait_ms": 0.5, "dns_ms": 1.5, "tcp_ms": 2.5, "tls_ms": 3.5, "ttft_ms": 4.0,
    "ttft_plan_ms": 5.0, "ttfa_ms": 5.125, "tte_ms": 2.75, "tth_ms": 1.5, "e2e_ms": 1004.0,
    "speed_tps": 37.0, "speed_total_tps": 40 / 1.012, "stall_ms": 0.25, "bursts": 9,
    "tokens_in": 21, "tokens_out": 40, "tokens_streamed": 39, "tokens_reasoning": 5,
    "tokens_cached": 6, "tokens_source": "usage", "cost_usd": "0.000000001",
    "cost_source": "usage", "price_as_of": "2026-11-01", "finish_reason": "stop",
    "stamp_source": "kernel", "late": 0, "bytes_in": 31, "bytes_out": 32, "stamp_bound_ms": 0.75,
    "hidden_reasoning": 0, "void": 0, "replayed": 0,
}  # fmt: skip
NONE: Final = ("cost_usd", "won", "pool_wait_ms", "dns_ms", "tcp_ms", "tls_ms", "stall_ms")
CUT: Final = {"outcome": "cut", "e2e_ms": None, "speed_total_tps": None}
VOID: Final = {
    **CUT, "void": 1,
    **dict.fromkeys(("ttft_ms", "ttft_plan_ms", "ttfa_ms", "tte_ms", "tth_ms", "speed_tps")),
}  # fmt: skip
WHOLE: Final = {
    "streamed": 0, "stall_ms": None, "speed_total_tps": 40 / 1.012,
    **dict.fromkeys(("ttft_ms", "ttft_plan_ms", "ttfa_ms", "tte_ms", "speed_tps")),
}  # fmt: skip
ATTEMPTS: Final = (
    ATTEMPT,
    ATTEMPT | {"late": 1, "replayed": 1, "hidden_reasoning": 1, "won": 0},
    ATTEMPT | CUT | dict.fromkeys(NONE) | {"speed_total_tps": None},
    ATTEMPT | VOID | {"stall_ms": None},
    ATTEMPT | WHOLE,
)


def put(connection: sa.Connection, table: str, row: dict[str, Any]) -> None:
    names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    connection.execute(sa.text(f"INSERT INTO {table} ({names}) VALUES ({places})"), row)  # noqa: S608 - own names


def held(connection: sa.Connection, table: str) -> list[dict[str, Any]]:
    query = sa.text(f"SELECT * FROM {table} ORDER BY id")  # noqa: S608 - own names
    return [dict(row) for row in connection.execute(query).mappings()]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_rows_of_before_the_notes_are_read_as_they_were_written(attempt: dict[str, Any]) -> None:
    whole = EXCHANGE | {"id": "x-2", "streamed": 0, "ttft_ms": None}
    bare = EXCHANGE | {"id": "x-3", "cost_usd": None, "loser_cost_usd": None}
    with empty() as connection:
        go(connection, "0002")
        for row in (EXCHANGE, whole, bare):
            put(connection, "exchanges", row)
        put(connection, "attempts", attempt)
        go(connection, "0003")
        more = {"wall_ns": 1_794_823_872_345_678_000}
        nano = {"cost_nano": 1_000_000_025, "loser_cost_nano": 7}
        none = {"cost_nano": None, "loser_cost_nano": None}
        assert held(connection, "exchanges") == [
            EXCHANGE | more | nano,
            whole | more | nano,
            bare | more | none,
        ]
        (read,) = held(connection, "attempts")
        cost = {"cost_nano": None if attempt["cost_usd"] is None else 1}
        assert read == pytest.approx(attempt | more | cost)
        go(connection, "0002", up=False)
        assert held(connection, "exchanges") == [EXCHANGE, whole, bare]
        assert held(connection, "attempts") == [pytest.approx(attempt)]


def test_more_rows_than_are_carried_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v0003_notes, "AT_ONCE", 2)
    with empty() as connection:
        go(connection, "0002")
        for number in range(5):
            put(connection, "exchanges", EXCHANGE | {"id": f"x-{number}"})
        go(connection, "0003")
        assert [row["id"] for row in held(connection, "exchanges")] == [
            f"x-{number}" for number in range(5)
        ]


HOUR, DAY = 3600, 86_400
SKETCHES: Final = tuple(f"{metric}_sketch" for metric in METRICS)


def hour(target: str, at_s: int, count: int, usd: str, seen: float | None) -> dict[str, Any]:
    """The sums of one hour, with a number of their own each."""
    sketch = None
    if seen is not None:
        kept = DDSketch()
        kept.add(seen)
        sketch = kept.to_bytes()
    counts = (
        "attempts", "ok", "empty", "http_error", "rate_limited", "stream_error", "truncated",
        "reset", "timeout", "cancelled", "cut", "measured", "tokens_in", "tokens_out",
    )  # fmt: skip
    return {
        "width_s": HOUR, "bucket_s": at_s, "target": target, "provider": "lab", "model": "s1",
        **{name: count + place for place, name in enumerate(counts)},
        "cost_usd": usd, **dict.fromkeys(SKETCHES, sketch),
    }  # fmt: skip


def test_days_are_added_up_from_their_hours() -> None:
    with empty() as connection:
        go(connection, "0008")
        for row in (
            hour("lab/s1", 2 * DAY, 1, "0.1", 5.0),
            hour("lab/s1", 3 * DAY - HOUR, 10, "0.02", 50.0),
            hour("lab/s1", 3 * DAY, 100, "3", None),
            hour("lab/s2", 2 * DAY + HOUR, 1000, "0.000000001", 7.0),
            hour("lab/s2", 2 * DAY, 5, "7", 7.0) | {"width_s": 300},
        ):
            put(connection, "rollups", row)
        go(connection, "0009")
        query = f"SELECT * FROM rollups WHERE width_s = {DAY} ORDER BY target, bucket_s"  # noqa: S608 - own number
        days = [dict(row) for row in connection.execute(sa.text(query)).mappings()]
        sketches = [[row.pop(name) for name in SKETCHES] for row in days]
        plain = [
            hour("lab/s1", 2 * DAY, 1, "0.12", None),
            hour("lab/s1", 3 * DAY, 100, "3", None),
            hour("lab/s2", 2 * DAY, 1000, "0.000000001", None),
        ]
        other = hour("lab/s1", 2 * DAY, 10, "", None)
        plain[0] |= {k: plain[0][k] + other[k] for k in other if isinstance(plain[0][k], int)}
        plain[0] |= {"bucket_s": 2 * DAY}
        for row in plain:
            row["width_s"] = v0009_days.DAY_S
            for name in SKETCHES:
                del row[name]
        assert days == plain
        for first in sketches[0]:
            both = DDSketch.from_bytes(first)
            assert both.count == 2
            assert both.quantiles((0.0, 1.0)) == pytest.approx([5.0, 50.0], rel=0.02)
        assert sketches[1] == [None] * len(SKETCHES)
        assert [DDSketch.from_bytes(one).count for one in sketches[2]] == [1] * len(SKETCHES)
        go(connection, "0008", up=False)
        left = connection.execute(sa.text("SELECT DISTINCT width_s FROM rollups ORDER BY 1"))
        assert left.scalars().all() == [300, HOUR]


if __name__ == "__main__":
    GOLDEN.write_text(told(), "utf-8")
