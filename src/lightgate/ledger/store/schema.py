"""The tables and views of the ledger: one schema for SQLite and PostgreSQL.

`attempt_notes` and `exchange_notes` have the rows as workers noted them: whole numbers of
nanoseconds and nano-dollars. `attempts` and `exchanges` are views of them with the columns of the
records, in their order: what follows from the notes is worked out when it is read.
The migrations make tables and views; what is here is what they must come to.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from lightgate.clock.attempt import AttemptRecord
from lightgate.clock.outcome import Outcome
from lightgate.ledger.journal.notes import ATTEMPT_COLUMNS, EXCHANGE_COLUMNS
from lightgate.ledger.store.exchange import ExchangeRecord

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

_NANO: Final = Decimal("0.000000001")
METRICS: Final = ("ttft_ms", "ttfa_ms", "speed_tps", "speed_total_tps", "e2e_ms", "overhead_ms")
OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
_FLAGS: Final = frozenset({"won", "streamed", "hidden_reasoning", "void", "resent", "may_race"})
_COUNTS: Final = frozenset(
    {"seq", "concurrency", "status", "bursts", "attempts", "worker", "flags", "in_flight"}
)
_BIG: Final = frozenset(
    {"bytes_in", "bytes_out", "tokens_in", "tokens_out", "tokens_streamed", "tokens_reasoning",
     "tokens_cached", "fingerprint"}
)  # fmt: skip
_NULL_NEVER: Final = frozenset(
    {"id", "exchange_id", "source", "target", "provider", "model", "dialect", "role", "outcome",
     "wall_ns", "request_id", "model_asked", "policy", "plan", "cache", "flags"}
)  # fmt: skip


class Money(sa.types.TypeDecorator[Decimal]):
    """Dollars, exactly: NUMERIC, and text where a database has no exact numbers."""

    impl = sa.Numeric(28, 12)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> sa.types.TypeEngine[Any]:
        """SQLite's NUMERIC is a float."""
        exact = dialect.name != "sqlite"
        return dialect.type_descriptor(sa.Numeric(28, 12) if exact else sa.Text())

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        """Hand a number to the database."""
        return money_text(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """Take one from it: NUMERIC comes with all its decimals, of which nano-dollars need 9."""
        del dialect
        if value is None or not isinstance(value, Decimal):
            return None if value is None else Decimal(value)
        plain = value.quantize(_NANO)
        return plain if plain == value else value


def whole_sum(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """The sum of whole numbers as a whole number; PostgreSQL's own is a decimal."""
    return sa.cast(sa.func.sum(column), sa.BigInteger)


def without_null(value: Any) -> Any:
    """A value that PostgreSQL takes: none of its texts has a null character."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def money_text(value: Decimal | None) -> str | None:
    """Dollars as text without an exponent."""
    return None if value is None else format(value, "f")


def _kind(name: str) -> sa.types.TypeEngine[Any]:
    if name in _FLAGS:
        return sa.Boolean()
    if name in _COUNTS:
        return sa.Integer()
    if name in _BIG or name.endswith(("_ns", "_nano")):
        return sa.BigInteger()
    if name.endswith("_usd"):
        return Money()
    return sa.Double() if name.endswith(("_ms", "_tps", "_burst")) else sa.Text()


def _of_record(fields: tuple[str, ...]) -> list[sa.Column[Any]]:
    """The columns of a view: those of a record, then what it is found and added up by."""
    money = [name.replace("_usd", "_nano") for name in fields if name.endswith("_usd")]
    names = (*fields, "wall_ns", *money)
    return [sa.Column(name, _kind(name), primary_key=name == "id") for name in names]


def _of_notes(names: tuple[str, ...], identity: tuple[str, ...]) -> list[sa.Column[Any]]:
    return [
        sa.Column(name, _kind(name), primary_key=name in identity, nullable=name not in _NULL_NEVER)
        for name in names
    ]


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _sum(name: str) -> sa.Column[Decimal]:
    return sa.Column(name, Money, nullable=False)


def _failed(name: str, failed: sa.TextClause, *columns: str) -> sa.Index:
    """An index of the rows that failed; a query that uses it says the same words."""
    return _partial(name, failed, *columns)


def _partial(name: str, where: sa.TextClause, *columns: str) -> sa.Index:
    """An index of some rows; PostgreSQL's side of it is said where PostgreSQL is used.

    To say it here would load all of PostgreSQL's drivers beside a file's.
    """
    index = sa.Index(name, *columns, sqlite_where=where)
    PARTIAL.append((index, where))
    return index


# What failed is looked for among many more rows that did not.
EXCHANGE_FAILED: Final = sa.text("outcome <> 'ok'")
ATTEMPT_FAILED: Final = sa.text("outcome NOT IN ('ok', 'cancelled', 'cut')")

metadata: Final = sa.MetaData()
PARTIAL: Final[list[tuple[sa.Index, sa.TextClause]]] = []  # indexes of some rows, and of which

exchange_notes: Final = sa.Table(
    "exchange_notes",
    metadata,
    *_of_notes(EXCHANGE_COLUMNS, ("id",)),
    # A request that has no id of its client's has ours, and is found by that.
    _partial("exchange_notes_by_request", sa.text("request_id <> id"), "request_id"),
    sa.Index("exchange_notes_by_time", "wall_ns"),
    _failed("exchange_notes_failed", EXCHANGE_FAILED, "wall_ns"),
)

attempt_notes: Final = sa.Table(
    "attempt_notes",
    metadata,
    *_of_notes(ATTEMPT_COLUMNS, ("exchange_id", "id")),
    sa.Index("attempt_notes_by_time", "wall_ns"),
    _failed("attempt_notes_failed", ATTEMPT_FAILED, "target", "wall_ns"),
)

views: Final = sa.MetaData()
exchanges: Final = sa.Table("exchanges", views, *_of_record(ExchangeRecord.__struct_fields__))
attempts: Final = sa.Table("attempts", views, *_of_record(AttemptRecord.__struct_fields__))

# Sums of attempts at a target: over 5 minutes and, the same again, over an hour and over a day.
rollups: Final = sa.Table(
    "rollups",
    metadata,
    sa.Column("width_s", sa.Integer, primary_key=True),
    sa.Column("bucket_s", sa.BigInteger, primary_key=True),
    sa.Column("target", sa.Text, primary_key=True),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    _count("attempts"),
    *(_count(outcome) for outcome in OUTCOMES),
    _count("measured"),
    _count("tokens_in"),
    _count("tokens_out"),
    _sum("cost_usd"),
    *(sa.Column(f"{metric}_sketch", sa.LargeBinary) for metric in METRICS),
)

# Sums of exchanges of a key: over 5 minutes and, the same again, over a day.
key_rollups: Final = sa.Table(
    "key_rollups",
    metadata,
    sa.Column("width_s", sa.Integer, primary_key=True),
    sa.Column("bucket_s", sa.BigInteger, primary_key=True),
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("model_asked", sa.Text, primary_key=True),
    _count("exchanges"),
    _count("ok"),
    _count("cached"),
    _count("tokens_in"),
    _count("tokens_out"),
    _sum("cost_usd"),
    _sum("loser_cost_usd"),
)

keys: Final = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("expires", sa.Text),
    sa.Column("revoked", sa.Text),
    sa.Column("models", sa.JSON, nullable=False),
    sa.Column("budget_usd", Money),
    sa.Column("budget_period", sa.Text, nullable=False),
    sa.Column("rpm", sa.Integer),
    sa.Column("tpm", sa.Integer),
    sa.Column("max_tokens", sa.Integer),
    sa.Column("may_race", sa.Boolean, nullable=False),
    sa.Column("max_fanout", sa.Integer, nullable=False),
    sa.Column("tags", sa.Text),
)

# Who has changed what; rows are added and never changed. Its ids sort by time.
audit: Final = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("wall_ns", sa.BigInteger, nullable=False),
    sa.Column("via", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("object", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
)

# How far each journal file has been read; the row outlives the file by one pass.
shipped: Final = sa.Table(
    "shipped",
    metadata,
    sa.Column("journal", sa.Text, primary_key=True),
    sa.Column("offset", sa.BigInteger, nullable=False),
    sa.Column("finished", sa.Boolean, nullable=False),
    # Whose journal it is: the id of a folder of journals, "" in rows of before there were ids.
    sa.Column("node", sa.Text, nullable=False, server_default=""),
)

# What was announced in a journal and has not been settled yet.
reservations: Final = sa.Table(
    "reservations",
    metadata,
    sa.Column("exchange_id", sa.Text, primary_key=True),
    sa.Column("life", sa.Text, nullable=False),
    sa.Column("worker", sa.Integer, nullable=False),
    sa.Column("key_id", sa.Text),
    sa.Column("wall_ns", sa.BigInteger, nullable=False),
    sa.Column("nano_usd", sa.BigInteger),
    sa.Column("targets", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("model_asked", sa.Text, nullable=False),
    sa.Column("dialect", sa.Text, nullable=False),
    sa.Index("reservations_by_life", "life"),
)

# What an hour of a self-hosted provider costs, from a time on; null: it is self-hosted no more.
hourly_prices: Final = sa.Table(
    "hourly_prices",
    metadata,
    sa.Column("provider", sa.Text, primary_key=True),
    sa.Column("since_s", sa.BigInteger, primary_key=True),
    sa.Column("usd", Money),
)

meta: Final = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# Complete answers that equal requests may get again; empty unless a model's cache is on.
cache: Final = sa.Table(
    "cache",
    metadata,
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("key_id", sa.Text),
    sa.Column("model_asked", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("kept_ns", sa.BigInteger, nullable=False),
    sa.Column("expires_ns", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
    sa.Index("cache_by_time", "kept_ns"),
    sa.Index("cache_by_end", "expires_ns"),
)
