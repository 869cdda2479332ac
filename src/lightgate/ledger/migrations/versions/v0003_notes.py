"""Requests and attempts are kept as they were noted; what follows from that, two views work out."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

from lightgate.ledger.migrations.versions import v0001_tables

if TYPE_CHECKING:
    from collections.abc import Callable

revision = "0003"
down_revision = "0002"

AT_ONCE = 1000  # rows converted at a time
STREAMED, REPLAYED, VOID, HIDDEN_REASONING, LATE = 1, 2, 4, 8, 16  # the bits of `flags`
INSTANTS = ("plan", "send", "headers", "event", "first", "answer", "last", "end")
PARTS = ("pool_wait", "dns", "tcp", "tls")
SAME_OF_ATTEMPT = (
    "id", "exchange_id", "target", "provider", "model", "dialect", "seq", "role", "won",
    "cost_source", "price_as_of", "source", "outcome", "status", "error", "finish_reason",
    "bytes_in", "bytes_out", *(f"t_{name}_ns" for name in INSTANTS), "stamp_source", "tokens_out",
    "tokens_streamed", "tokens_reasoning", "tokens_cached", "tokens_in", "tokens_source", "bursts",
)  # fmt: skip
SAME_OF_EXCHANGE = (
    "id", "request_id", "key_id", "model_asked", "policy", "plan", "winner", "cache", "status",
    "outcome", "error", "dialect", "streamed", "accepted_ns", "first_byte_ns", "received_ns",
    "routed_ns", "sent_ns", "first_in_ns", "first_out_ns", "last_in_ns", "last_out_ns",
    "closed_ns", "tokens_in", "tokens_out", "cost_source", "tags", "worker", "attempts",
)  # fmt: skip
# What the views have beside the columns of the tables that they replace.
MORE_OF_ATTEMPT = ("wall_ns", "cost_nano")
MORE_OF_EXCHANGE = ("wall_ns", "cost_nano", "loser_cost_nano")

# Where databases differ: a wall time as text and exact dollars. The rest is said in plain SQL.
WALL_TIME = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%S', wall_ns / 1000000000, 'unixepoch')"
              " || printf('.%06dZ', wall_ns / 1000 % 1000000)",
    "postgresql": "to_char(to_timestamp(wall_ns / 1000000000) AT TIME ZONE 'UTC',"
                  " 'YYYY-MM-DD\"T\"HH24:MI:SS') || '.'"
                  " || lpad((wall_ns / 1000 % 1000000)::text, 6, '0') || 'Z'",
}  # fmt: skip
DOLLARS = {
    "sqlite": "CASE WHEN {0} IS NOT NULL THEN"
              " printf('%d.%09d', {0} / 1000000000, {0} % 1000000000) END",
    "postgresql": "{0} * 0.000000001",
}  # fmt: skip
ONLY = f"flags & {STREAMED | VOID} = {STREAMED}"  # streamed, and no clock stepped
SOUND = f"flags & {VOID} = 0"
WHOLE = f"{SOUND} AND outcome = 'ok'"
TOTAL_NS = "(t_last_ns - t_send_ns" + "".join(f" + coalesce({part}_ns, 0)" for part in PARTS) + ")"


def upgrade() -> None:
    """Make the tables of notes, carry every row over, and put views where the tables were."""
    connection = op.get_bind()
    for table, make, convert in (
        ("exchanges", _exchange_notes, _exchange),
        ("attempts", _attempt_notes, _attempt),
    ):
        op.rename_table(table, f"{table}_0002")
        _carry(connection, f"{table}_0002", make(), convert)
        op.drop_table(f"{table}_0002")
    dialect = connection.dialect.name
    op.execute(make_view("exchanges", "exchange_notes", exchange_columns(dialect)))
    op.execute(make_view("attempts", "attempt_notes", attempt_columns(dialect)))


def downgrade() -> None:
    """Put tables with every column where the views were."""
    dialect = op.get_bind().dialect.name
    for view, notes, columns, make in (
        ("attempts", "attempt_notes", attempt_columns(dialect), v0001_tables.attempts),
        ("exchanges", "exchange_notes", exchange_columns(dialect), v0001_tables.exchanges),
    ):
        names = ", ".join(f'"{name}"' for name in columns if name not in MORE_OF_EXCHANGE)
        op.execute(f"CREATE TABLE kept AS SELECT * FROM {view}")  # noqa: S608 - own names
        op.execute(f"DROP VIEW {view}")
        make()
        op.execute(f"INSERT INTO {view} ({names}) SELECT {names} FROM kept")  # noqa: S608 - own names
        op.drop_table("kept")
        op.drop_table(notes)


def _exchange_notes() -> sa.Table:
    big = ("accepted_ns", "first_byte_ns", "received_ns", "routed_ns", "sent_ns", "first_in_ns",
           "first_out_ns", "last_in_ns", "last_out_ns", "closed_ns", "tokens_in", "tokens_out",
           "cost_nano")  # fmt: skip
    table = op.create_table(
        "exchange_notes",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text()),
        sa.Column("model_asked", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("winner", sa.Text()),
        sa.Column("cache", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("dialect", sa.Text(), nullable=False),
        sa.Column("streamed", sa.Boolean()),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.BigInteger()) for name in big),
        sa.Column("cost_source", sa.Text()),
        sa.Column("loser_cost_nano", sa.BigInteger()),
        sa.Column("tags", sa.Text()),
        sa.Column("worker", sa.Integer()),
        sa.Column("attempts", sa.Integer()),
    )
    op.create_index(
        "exchange_notes_by_request",
        "exchange_notes",
        ["request_id"],
        sqlite_where=sa.text("request_id <> id"),
    )
    op.create_index("exchange_notes_by_time", "exchange_notes", ["wall_ns"])
    return table


def _attempt_notes() -> sa.Table:
    table = op.create_table(
        "attempt_notes",
        sa.Column("exchange_id", sa.Text(), primary_key=True),
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("dialect", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("won", sa.Boolean()),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano", sa.BigInteger()),
        sa.Column("cost_source", sa.Text()),
        sa.Column("price_as_of", sa.Text()),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("finish_reason", sa.Text()),
        sa.Column("bytes_in", sa.BigInteger()),
        sa.Column("bytes_out", sa.BigInteger()),
        *(sa.Column(f"t_{name}_ns", sa.BigInteger()) for name in INSTANTS),
        *(sa.Column(f"{part}_ns", sa.BigInteger()) for part in PARTS),
        sa.Column("stamp_source", sa.Text()),
        sa.Column("stamp_bound_ns", sa.BigInteger()),
        sa.Column("tokens_out", sa.BigInteger()),
        sa.Column("tokens_streamed", sa.BigInteger()),
        sa.Column("tokens_reasoning", sa.BigInteger()),
        sa.Column("tokens_cached", sa.BigInteger()),
        sa.Column("tokens_in", sa.BigInteger()),
        sa.Column("tokens_source", sa.Text()),
        sa.Column("first_burst", sa.Double()),
        sa.Column("flags", sa.Integer(), nullable=False),
        sa.Column("stall_ns", sa.BigInteger()),
        sa.Column("bursts", sa.Integer()),
    )
    op.create_index("attempt_notes_by_time", "attempt_notes", ["wall_ns"])
    return table


def make_view(name: str, notes: str, columns: dict[str, str]) -> str:
    """The statement that makes a view of notes with these columns."""
    chosen = ", ".join(f'{meant} AS "{column}"' for column, meant in columns.items())
    return f"CREATE VIEW {name} AS SELECT {chosen} FROM {notes}"  # noqa: S608 - own names


def exchange_columns(dialect: str) -> dict[str, str]:
    """The columns of `exchanges`, each with the expression that it is."""
    money = DOLLARS[dialect].format
    order = (*SAME_OF_EXCHANGE[:7], "attempts", *SAME_OF_EXCHANGE[7:13], "wall_time",
             *SAME_OF_EXCHANGE[13:23], "overhead_ms", "ttft_ms", "e2e_ms", "tokens_in",
             "tokens_out", "cost_usd", "cost_source", "loser_cost_usd", "tags", "worker",
             *MORE_OF_EXCHANGE)  # fmt: skip
    worked_out = {
        "wall_time": WALL_TIME[dialect],
        "overhead_ms": _ms("(sent_ns - received_ns) + (last_out_ns - last_in_ns)"),
        "ttft_ms": f"CASE WHEN streamed THEN {_ms('first_out_ns - received_ns')} END",
        "e2e_ms": _ms("last_out_ns - received_ns"),
        "cost_usd": money("cost_nano"),
        "loser_cost_usd": money("loser_cost_nano"),
    }
    return {name: worked_out.get(name, f'"{name}"') for name in order}


def attempt_columns(dialect: str) -> dict[str, str]:
    """The columns of `attempts`, each with the expression that it is."""
    order = (
        "id", "exchange_id", "run_id", "source", "target", "provider", "model", "dialect", "seq",
        "concurrency", "role", "won", "outcome", "status", "error", "streamed", "wall_time",
        *(f"t_{name}_ns" for name in INSTANTS), *(f"{part}_ms" for part in PARTS),
        "ttft_ms", "ttft_plan_ms", "ttfa_ms", "tte_ms", "tth_ms", "e2e_ms", "speed_tps",
        "speed_total_tps", "stall_ms", "bursts", "tokens_in", "tokens_out", "tokens_streamed",
        "tokens_reasoning", "tokens_cached", "tokens_source", "cost_usd", "cost_source",
        "price_as_of", "finish_reason", "stamp_source", "late", "bytes_in", "bytes_out",
        "stamp_bound_ms", "hidden_reasoning", "void", "replayed", *MORE_OF_ATTEMPT,
    )  # fmt: skip
    worked_out = {
        "run_id": "CAST(NULL AS TEXT)",
        "concurrency": "CAST(NULL AS INTEGER)",
        "streamed": f"(flags & {STREAMED}) <> 0",
        "wall_time": WALL_TIME[dialect],
        **{f"{part}_ms": _ms(f"{part}_ns") for part in PARTS},
        "ttft_ms": _when(ONLY, _ms("t_first_ns - t_send_ns")),
        "ttft_plan_ms": _when(ONLY, _ms("t_first_ns - t_plan_ns")),
        "ttfa_ms": _when(ONLY, _ms("t_answer_ns - t_send_ns")),
        "tte_ms": _when(ONLY, _ms("t_event_ns - t_send_ns")),
        "tth_ms": _when(SOUND, _ms("t_headers_ns - t_send_ns")),
        "e2e_ms": _when(WHOLE, _ms("t_last_ns - t_send_ns")),
        "speed_tps": _when(
            f"{ONLY} AND t_last_ns > t_first_ns AND tokens_streamed > first_burst",
            "(tokens_streamed - first_burst) * 1000000000 / (t_last_ns - t_first_ns)",
        ),
        "speed_total_tps": _when(
            f"{WHOLE} AND tokens_out <> 0 AND {TOTAL_NS} > 0",
            f"CAST(tokens_out * 1000000000 AS DOUBLE PRECISION) / {TOTAL_NS}",
        ),
        "stall_ms": _when(ONLY, _ms("stall_ns")),
        "cost_usd": DOLLARS[dialect].format("cost_nano"),
        "late": f"(flags & {LATE}) <> 0",
        "stamp_bound_ms": _ms("stamp_bound_ns"),
        "hidden_reasoning": f"(flags & {HIDDEN_REASONING}) <> 0",
        "void": f"(flags & {VOID}) <> 0",
        "replayed": f"(flags & {REPLAYED}) <> 0",
    }  # fmt: skip
    return {name: worked_out.get(name, f'"{name}"') for name in order}


def _ms(nanoseconds: str) -> str:
    return f"CAST({nanoseconds} AS DOUBLE PRECISION) / 1000000"


def _when(condition: str, value: str) -> str:
    return f"CASE WHEN {condition} THEN {value} END"


# The rows that are there


def _carry(
    connection: sa.Connection, old: str, notes: sa.Table, convert: Callable[[Any], dict[str, Any]]
) -> None:
    """Convert every row, oldest first."""
    rows = connection.execute(
        sa.text(f"SELECT * FROM {old} ORDER BY wall_time, id")  # noqa: S608 - own names
    ).mappings()
    for some in rows.partitions(AT_ONCE):
        connection.execute(notes.insert(), [convert(row) for row in some])


def _exchange(row: Any) -> dict[str, Any]:
    return {
        **{name: row[name] for name in SAME_OF_EXCHANGE},
        "streamed": bool(row["streamed"]),
        "wall_ns": _wall_ns(row["wall_time"]),
        "cost_nano": _nano(row["cost_usd"]),
        "loser_cost_nano": _nano(row["loser_cost_usd"]),
    }


def _attempt(row: Any) -> dict[str, Any]:
    """The note of an attempt; the tokens of the first burst are those that give its speed."""
    first, last, speed = row["t_first_ns"], row["t_last_ns"], row["speed_tps"]
    before = None
    if speed is not None:
        before = float(row["tokens_streamed"] - round(speed * (last - first) / 1e9))
    flags = ("streamed", "replayed", "void", "hidden_reasoning", "late")  # from the lowest bit
    return {
        **{name: row[name] for name in SAME_OF_ATTEMPT},
        **{f"{part}_ns": _ns(row[f"{part}_ms"]) for part in PARTS},
        "won": None if row["won"] is None else bool(row["won"]),
        "wall_ns": _wall_ns(row["wall_time"]),
        "cost_nano": _nano(row["cost_usd"]),
        "stamp_bound_ns": _ns(row["stamp_bound_ms"]),
        "first_burst": before,
        "flags": sum(bool(row[name]) << bit for bit, name in enumerate(flags)),
        "stall_ns": _ns(row["stall_ms"]),
    }


def _ns(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1_000_000)


def _nano(usd: Any) -> int | None:
    return None if usd is None else int(Decimal(usd).scaleb(9))


def _wall_ns(text: str) -> int:
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
