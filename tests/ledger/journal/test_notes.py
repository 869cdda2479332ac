from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.notes import MS, T0, Called, attempt_note, exchange_note, facts, marks, settled
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage, count
from lightgate.errors import HttpRefused
from lightgate.ledger.journal.notes import Announced, AttemptNote, Note, Reserved, Settled
from lightgate.ledger.store.exchange import ExchangeRecord, dollars, wall_ns_of

instant = st.none() | st.integers(0, 2**62)


def again(note: Settled) -> Settled:
    decoded: Settled = msgspec.msgpack.decode(msgspec.msgpack.encode(note), type=Note)
    return decoded


@given(
    bursts=st.integers(0, 30),
    streamed=st.booleans(),
    void=st.booleans(),
    outcome=st.sampled_from(list(Outcome)),
    plan=instant,
    lag=st.integers(0, 10**9),
    tokens_out=st.none() | st.integers(0, 5000),
    running=st.integers(-1, 5000),
    stamp_source=st.sampled_from(["read", "kernel"]),
)
def test_a_note_has_the_numbers_of_the_clock(
    *, bursts: int, streamed: bool, void: bool, outcome: Outcome, plan: int | None, lag: int,
    tokens_out: int | None, running: int, stamp_source: str,
) -> None:  # fmt: skip
    stamps = marks(bursts)
    stamps.plan, stamps.void, stamps.dispatch_lag_ns = plan, void, lag
    stamps.stamp_source = "kernel" if stamp_source == "kernel" else "read"
    tokens = count(stamps, Usage(tokens_out=tokens_out, tokens_reasoning=3), running=running)
    ended = Called(
        outcome=outcome, streamed=streamed, tokens=tokens, end="finish",
        provider_request_id="req_1",
    )  # fmt: skip
    made = facts("x-1", won=False, role="hedge", seq=2)
    about = AttemptFacts(
        id=made.id, exchange_id="x-1", source="gateway", target="lab/s1", provider="lab",
        model="s1", dialect="openai-chat", seq=2, role="hedge", won=False, outcome=outcome,
        status=200, streamed=streamed, wall_ns=T0, cost_usd=Decimal("0.0000015"),
        cost_source="list", price_as_of="2026-09-01", finish_reason="stop", bytes_in=900,
        bytes_out=700, end="finish", provider_request_id="req_1",
    )  # fmt: skip
    note = again(Settled(exchange_note("x-1"), (AttemptNote.of(made, stamps, ended),)))
    assert note.attempts[0].attempt() == AttemptRecord.of(about, stamps, tokens)


def test_an_error_is_its_sentence_cut_short() -> None:
    refused = HttpRefused("x" * 4000, code=500)
    note = attempt_note("x-1", called=Called(outcome=Outcome.HTTP_ERROR, error=refused, status=500))
    record = note.attempt()
    assert (record.outcome, record.status, record.error) == (Outcome.HTTP_ERROR, 500, "x" * 500)


def test_the_record_of_an_exchange_has_what_follows_from_its_instants() -> None:
    record = exchange_note("x-1", loser_cost_nano=2_000_000_001).record(2)
    assert record.attempts == 2
    assert record.overhead_ms == pytest.approx(1.0 + 0.5)  # before sending, after the last byte
    assert record.ttft_ms == pytest.approx(102.0)
    assert record.e2e_ms == pytest.approx(131.5)
    assert record.cost_usd == Decimal("0.0000015")
    assert record.loser_cost_usd == Decimal("2.000000001")
    assert record.wall_time == "2026-09-21T14:15:00.000000Z"
    assert exchange_note("x-1").__struct_fields__[:4] == record.__struct_fields__[:4]


def test_what_did_not_happen_is_null() -> None:
    record = exchange_note("x-1", sent_ns=None, last_out_ns=None, cost_nano=None).record(0)
    assert (record.overhead_ms, record.e2e_ms, record.cost_usd) == (None, None, None)
    assert exchange_note("x-1", streamed=False).record(1).ttft_ms is None


def test_every_field_of_the_note_is_in_the_record_under_its_name() -> None:
    note = exchange_note("x-1")
    record = note.record(1)
    predicted = {"predicted_ttft", "predicted_low", "predicted_high"}
    derived = {"wall_ns", "cost_nano", "loser_cost_nano", *(f"{name}_ns" for name in predicted)}
    for name in set(note.__struct_fields__) - derived:
        assert getattr(record, name) == getattr(note, name), name
    assert set(ExchangeRecord.__struct_fields__) - set(note.__struct_fields__) == {
        "attempts", "wall_time", "overhead_ms", "ttft_ms", "e2e_ms", "cost_usd", "loser_cost_usd",
        *(f"{name}_ms" for name in predicted),
    }  # fmt: skip


def test_predictions_are_told_in_milliseconds() -> None:
    note = exchange_note(
        "x-1",
        predicted_ttft_ns=250_500_000,
        predicted_low_ns=200_000_000,
        predicted_high_ns=400_000_000,
        in_flight=3,
    )
    record = note.record(1)
    assert (record.predicted_ttft_ms, record.in_flight) == (250.5, 3)
    assert (record.predicted_low_ms, record.predicted_high_ms) == (200.0, 400.0)


@given(st.integers(-(10**15), 4 * 10**18))
def test_a_wall_time_goes_both_ways(wall_ns: int) -> None:
    record = exchange_note("x", wall_ns=wall_ns).record(0)
    assert wall_ns_of(record.wall_time) == wall_ns // 1000 * 1000


@given(st.none() | st.integers(0, 10**18))
def test_dollars_are_exact(nano_usd: int | None) -> None:
    made = dollars(nano_usd)
    assert made is None or made * 10**9 == nano_usd
    assert (made is None) == (nano_usd is None)


def test_a_note_of_an_older_writer_is_read() -> None:
    old = msgspec.msgpack.encode(["r", "x-1", "k-1", T0, 5, ["lab/s1"]])
    assert msgspec.msgpack.decode(old, type=Note) == Reserved("x-1", "k-1", T0, 5, ("lab/s1",))
    seen = msgspec.msgpack.encode(["i", "x-1", T0])
    assert msgspec.msgpack.decode(seen, type=Note) == Announced("x-1", T0)


def test_an_attempt_of_an_older_writer_is_read() -> None:
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(settled("x-1")))
    assert raw[2][0][-2:] == ["marker", None]
    raw[2][0] = raw[2][0][:-2]  # as it was before it said what ended an answer
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=Note)
    record = old.attempts[0].attempt()
    assert (record.outcome, record.end, record.provider_request_id) == (Outcome.OK, None, None)
    raw[2][0] += ["marker", None, "a later field"]
    new = msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=Note)
    assert new == settled("x-1")


def test_bursts_travel_as_they_are() -> None:
    stamps = marks(300, first_ms=7, gap_ms=3)
    note = again(settled("x-1", attempt_note("x-1", stamps)))
    assert note.attempts[0]._marks().burst_ns == stamps.burst_ns
    assert note.attempts[0].attempt().stall_ms == pytest.approx(3.0)
    assert note.attempts[0].attempt().ttft_ms == pytest.approx(7.0)
    assert stamps.burst_ns[0] == 5_008 * MS


@pytest.mark.parametrize("bursts", [0, 1, 2, 5])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("tokens_out", [None, 0, 1, 9])
@pytest.mark.parametrize(
    "connect", [(None,) * 4, (3, 5, 7, 11), (None, 5, None, 11), (3, None, 7, None)]
)
def test_the_numbers_for_sketches_are_those_of_the_record(
    bursts: int, streamed: bool, tokens_out: int | None, connect: tuple[int | None, ...]
) -> None:
    stamps = marks(bursts)
    parts = [None if part is None else part * MS for part in connect]
    stamps.pool_wait_ns, stamps.dns_ns, stamps.tcp_ns, stamps.tls_ns = parts
    stamps.answer = None if bursts < 2 else stamps.burst_ns[1]
    tokens = count(stamps, Usage(tokens_out=tokens_out))
    note = attempt_note("x", stamps, Called(tokens=tokens, streamed=streamed))
    record = note.attempt()
    expected = (
        record.ttft_ms,
        record.ttfa_ms,
        record.speed_tps,
        record.speed_total_tps,
        record.e2e_ms,
    )
    assert note.metrics() == tuple(
        None if one is None else pytest.approx(one, rel=1e-12) for one in expected
    )


@pytest.mark.parametrize(
    ("changes", "about", "measured"),
    [
        ({}, {}, True),
        ({"outcome": Outcome.TIMEOUT}, {}, False),
        ({"outcome": Outcome.CUT}, {}, False),
        ({}, {"won": True}, True),
        ({}, {"won": False}, False),
        ({}, {"source": "probe"}, False),
        ({}, {"source": "bench"}, False),
    ],
)
def test_attempts_that_say_how_fast_a_provider_is(
    changes: dict[str, Any], about: dict[str, Any], measured: bool
) -> None:
    note = attempt_note("x", None, Called(**changes), **about)
    assert note.measured() is measured
    assert not msgspec.structs.replace(note, void=True).measured()
