"""The views work out what the clock's formulas say, for new notes and for rows of older ledgers."""

from __future__ import annotations

import shutil
import sqlite3
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from alembic import command
from alembic.config import Config
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.notes import MS, T0, attempt_note, exchange_note, settled
from lightgate.clock.outcome import Outcome
from lightgate.ledger.journal.notes import Settled
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store import schema
from lightgate.ledger.store.queries import attempts_of, exchange_by_id, recent
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.store.exchange import ExchangeRecord

instant = st.none() | st.integers(0, 200 * MS)
part = st.none() | st.integers(0, 20 * MS)
count = st.none() | st.integers(0, 5000)
ATTEMPT = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from(list(Outcome)), "streamed": st.booleans(),
        **dict.fromkeys(
            ("plan", "send", "headers", "event", "first", "answer", "last", "end", "first_since",
             "last_since"), instant,
        ),
        **dict.fromkeys(("pool_wait_ns", "dns_ns", "tcp_ns", "tls_ns"), part),
        "stamp_source": st.sampled_from(["read", "kernel"]),
        "dispatch_lag_ns": st.sampled_from([0, MS, MS + 1, 4 * MS, 10**9]),
        **dict.fromkeys(("resent", "void", "hidden_reasoning"), st.booleans()),
        "ended_by": st.sampled_from([None, "marker", "finish"]),
        "provider_request_id": st.none() | st.sampled_from(["req_011CPJ", "", "o'id"]),
        **dict.fromkeys(("tokens_out", "tokens_streamed", "tokens_in"), count),
        "first_burst": st.none() | st.integers(1, 40).map(float),
        "bursts": st.lists(st.integers(0, 10**9), max_size=4).map(
            lambda stamps: b"".join(stamp.to_bytes(8, "little") for stamp in sorted(stamps))
        ),
    }
)  # fmt: skip
EXCHANGE = st.fixed_dictionaries(
    {
        **dict.fromkeys(
            ("received_ns", "sent_ns", "first_out_ns", "last_in_ns", "last_out_ns"), instant
        ),
        "streamed": st.booleans(),
        "traceparent": st.none() | st.just(f"00-{'0a' * 16}-{'b7' * 8}-01"),
        **dict.fromkeys(
            ("predicted_ttft_ns", "predicted_low_ns", "predicted_high_ns"),
            st.none() | st.integers(0, 10**12),
        ),
        "in_flight": st.none() | st.integers(0, 1000),
        "fingerprint": st.none() | st.integers(-(2**63), 2**63 - 1),
        "wall_ns": st.integers(0, 4 * 10**18),
        "cost_nano": st.none() | st.integers(0, 10**15),
        "loser_cost_nano": st.none() | st.integers(0, 10**15),
    }
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path_factory.mktemp("views")) as opened:
        yield opened


def put(ledger: Ledger, note: Settled) -> None:
    with ledger.writing() as connection:
        for table in (schema.exchange_notes, schema.attempt_notes):
            connection.execute(table.delete())
        ledger.insert(connection, schema.exchange_notes, [note.exchange.row(len(note.attempts))])
        ledger.insert(
            connection, schema.attempt_notes, [attempt.row() for attempt in note.attempts]
        )


@settings(max_examples=400)
@given(ATTEMPT, EXCHANGE)
def test_views_have_the_numbers_of_the_clock(
    ledger: Ledger, attempt: dict[str, Any], exchange: dict[str, Any]
) -> None:
    one = msgspec.structs.replace(attempt_note("x-1"), **attempt)
    note = settled("x-1", one, **exchange)
    put(ledger, note)
    found = exchange_by_id(ledger, "x-1")
    assert found == (note.exchange.record(1), [one.attempt()])


def test_a_client_that_leaves_has_no_overhead(ledger: Ledger) -> None:
    left = settled("x-1", outcome="cancelled", last_in_ns=200 * MS, last_out_ns=150 * MS)
    put(ledger, left)
    found = exchange_by_id(ledger, "x-1")
    assert found is not None
    assert found[0].overhead_ms is None
    assert left.exchange.overhead_ms() is None


def test_a_row_is_found_by_an_index(ledger: Ledger) -> None:
    base = sqlite3.connect(str(ledger._engine.url.database))
    for question, index in (
        ("exchanges WHERE id = 'x'", "sqlite_autoindex_exchange_notes_1"),
        ("exchanges WHERE request_id = 'x' AND request_id <> id", "exchange_notes_by_request"),
        ("exchanges ORDER BY wall_ns DESC LIMIT 5", "exchange_notes_by_time"),
        ("attempts WHERE exchange_id = 'x'", "sqlite_autoindex_attempt_notes_1"),
        ("attempts WHERE wall_ns >= 5", "attempt_notes_by_time"),
    ):
        plan = base.execute(f"EXPLAIN QUERY PLAN SELECT * FROM {question}").fetchall()  # noqa: S608
        assert index in plan[0][-1], (question, plan)
    base.close()


def step_back(folder: Path) -> None:
    """Bring the ledger of a folder to version 0002, as it was before there were notes."""
    config = Config()
    config.set_main_option("script_location", "lightgate.ledger:migrations")
    with Ledger.open("sqlite", folder) as ledger, ledger.writing() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a ledger as version 0002 left it, still empty."""
    folder = tmp_path_factory.mktemp("older")
    step_back(folder)
    return folder / FILE


# Fields that version 0002 did not have.
PREDICTED = ("predicted_ttft", "predicted_low", "predicted_high")
LATER = (
    "end", "provider_request_id", "first_bound_ms", "last_bound_ms", "traceparent", "in_flight",
    "fingerprint",
    *(f"{name}_ms" for name in PREDICTED),
)  # fmt: skip


def plain(record: ExchangeRecord | AttemptRecord) -> dict[str, Any]:
    """A record as the tables of that version had it."""
    return {
        {"resent": "replayed"}.get(name, name):
        format(value, "f") if isinstance(value, Decimal)
        else value.value if isinstance(value, Outcome) else value
        for name, value in msgspec.structs.asdict(record).items() if name not in LATER
    }  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(ATTEMPT, EXCHANGE), min_size=1, max_size=12))
def test_an_older_ledger_gives_the_same_answers(
    tmp_path_factory: pytest.TempPathFactory,
    older: Path,
    made: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    folder = tmp_path_factory.mktemp("older")
    notes = []
    for at, (attempt, exchange) in enumerate(made):
        before = attempt | dict.fromkeys(
            ("ended_by", "provider_request_id", "first_since", "last_since")
        )
        one = msgspec.structs.replace(attempt_note(f"x-{at}"), **before)
        new = ("traceparent", "in_flight", "fingerprint", *(f"{name}_ns" for name in PREDICTED))
        kept = exchange | dict.fromkeys(new)
        notes.append(Settled(exchange_note(f"x-{at}", **kept), (one,)))
    shutil.copy(older, folder)
    base = sqlite3.connect(folder / FILE)
    for note in notes:
        for table, record in (
            ("exchanges", note.exchange.record(1)), ("attempts", note.attempts[0].attempt()),
        ):  # fmt: skip
            row = plain(record)
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            base.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
                tuple(row.values()),
            )
    base.commit()
    base.close()
    with Ledger.open("sqlite", folder) as ledger:
        assert len(recent(ledger)) == len(notes)
        for note in notes:
            found = exchange_by_id(ledger, note.exchange.id)
            assert found == (note.exchange.record(1), [note.attempts[0].attempt()])


def test_a_step_back_keeps_every_row(tmp_path: Path) -> None:
    note = settled("x-1")
    with Ledger.open("sqlite", tmp_path) as ledger:
        put(ledger, note)
    step_back(tmp_path)
    base = sqlite3.connect(tmp_path / FILE)
    assert base.execute("SELECT * FROM exchanges").fetchall() == [
        tuple(plain(note.exchange.record(1)).values())
    ]
    base.close()
    with Ledger.open("sqlite", tmp_path) as ledger:
        kept = msgspec.structs.replace(
            note.attempts[0].attempt(), end=None, first_bound_ms=None, last_bound_ms=None
        )
        assert attempts_of(ledger, "x-1") == [kept]
        found = exchange_by_id(ledger, "x-1")
        assert found is not None
        assert found[0].wall_time == "2026-09-21T14:15:00.000000Z"
        assert note.exchange.wall_ns == T0
