"""The sums that a batch of notes adds to the tables, made here without a database."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import T0, Called, attempt_note, exchange_note, marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.sketch import DDSketch
from lightgate.ledger.store.rollup import (
    DAY_S,
    FINE_S,
    HOUR_S,
    Rollup,
    _KeySums,
    _merged,
    _sketch,
    _TargetSums,
    _widened,
)
from lightgate.ledger.store.schema import METRICS, OUTCOMES, key_rollups, rollups

if TYPE_CHECKING:
    from lightgate.ledger.journal.notes import AttemptNote

NANO = Decimal("1e-9")
UNKNOWN = {"tokens_in": None, "tokens_out": None, "cost_nano": None, "loser_cost_nano": None}


def key_sums(*changes: dict[str, Any], sign: int = 1) -> dict[str, Any]:
    notes = [exchange_note(f"x-{at}", **change) for at, change in enumerate(changes)]
    names = [column.name for column in key_rollups.columns][4:]
    return dict(zip(names, _KeySums(notes, sign).values(None), strict=True))


def test_what_is_unknown_of_an_exchange_adds_nothing_to_its_key() -> None:
    found = key_sums(UNKNOWN | {"outcome": "timeout", "cache": "miss"})
    assert found == {
        "exchanges": 1, "ok": 0, "cached": 0, "tokens_in": 0, "tokens_out": 0,
        "cost_usd": 0, "loser_cost_usd": 0,
    }  # fmt: skip


def test_each_sum_of_a_key_is_of_its_own_fact() -> None:
    known = {"tokens_in": 2, "tokens_out": 3, "cost_nano": 5, "loser_cost_nano": 7}
    found = key_sums(known | {"cache": "hit"}, known | {"cache": "join", "outcome": "cut"}, known)
    assert found == {
        "exchanges": 3, "ok": 2, "cached": 2, "tokens_in": 6, "tokens_out": 9,
        "cost_usd": 15 * NANO, "loser_cost_usd": 21 * NANO,
    }  # fmt: skip


def test_what_is_taken_back_is_what_was_added() -> None:
    known = {"loser_cost_nano": 7, "cache": "hit"}
    assert key_sums(known, sign=-1) == {name: -sum_ for name, sum_ in key_sums(known).items()}


def test_sums_of_a_key_are_joined_and_added_to_those_before() -> None:
    one, two = (_KeySums([exchange_note("x", tokens_in=count)]) for count in (5, 7))
    one.join(two)
    assert one.values(None)[3] == 12
    assert one.values([10, 20, 30, 40, 50, Decimal(60), Decimal(70)])[:4] == [12, 22, 30, 52]


def tried(*attempts: AttemptNote, **changes: Any) -> _TargetSums:
    return _TargetSums([(one, exchange_note("x", **changes)) for one in attempts])


def columns(found: list[Any]) -> dict[str, Any]:
    names = [column.name for column in rollups.columns][3:]
    return dict(zip(names, found, strict=True))


def test_what_is_unknown_of_an_attempt_adds_nothing_to_its_target() -> None:
    failed = Called(outcome=Outcome.TIMEOUT, status=None)
    found = columns(tried(attempt_note("x", called=failed, cost_nano=None)).values(None))
    assert (found["provider"], found["model"]) == ("lab", "s1")
    assert (found["attempts"], found["measured"]) == (1, 0)
    assert {name: found[name] for name in OUTCOMES if found[name]} == {"timeout": 1}
    assert (found["tokens_in"], found["tokens_out"], found["cost_usd"]) == (0, 0, 0)
    assert [found[f"{metric}_sketch"] for metric in METRICS] == [None] * len(METRICS)


def test_each_sum_of_a_target_is_of_its_own_fact() -> None:
    found = columns(tried(attempt_note("x"), attempt_note("y", marks(3))).values(None))
    assert (found["attempts"], found["measured"], found["ok"]) == (2, 2, 2)
    assert (found["tokens_in"], found["tokens_out"]) == (24, 7)
    assert found["cost_usd"] == 3000 * NANO
    sketch = DDSketch.from_bytes(found["ttft_ms_sketch"])
    assert sketch.count == 2


@pytest.mark.parametrize(
    ("changes", "counted"),
    [({}, 1), ({"winner": "far/s1"}, 0), ({"winner": None}, 0), ({"outcome": "cut"}, 0)],
    ids=["the winner of a whole answer", "another's", "no winner", "an answer that was cut"],
)
def test_overhead_is_that_of_the_winner_of_a_whole_answer(
    changes: dict[str, Any], counted: int
) -> None:
    found = columns(tried(attempt_note("x"), **changes).values(None))
    sketch = found["overhead_ms_sketch"]
    assert (0 if sketch is None else DDSketch.from_bytes(sketch).count) == counted


def test_sums_of_a_target_are_joined_under_its_last_name_and_added_to_those_before() -> None:
    one = tried(attempt_note("x"))
    one.join(tried(attempt_note("y", model="s2")))
    first = columns(one.values(None))
    assert (first["model"], first["attempts"]) == ("s2", 2)
    assert DDSketch.from_bytes(first["ttft_ms_sketch"]).count == 2
    again = columns(tried(attempt_note("z", model="s3")).values(list(first.values())))
    assert (again["model"], again["attempts"], again["tokens_in"]) == ("s3", 3, 36)
    assert again["cost_usd"] == 4500 * NANO
    assert DDSketch.from_bytes(again["e2e_ms_sketch"]).count == 3


def test_a_batch_is_sorted_by_five_minutes_key_model_and_target() -> None:
    batch = Rollup()
    last_ns = T0 + FINE_S * 1_000_000_000 - 1
    batch.add(
        exchange_note("x", key_id=None), [attempt_note("x"), attempt_note("x", wall_ns=last_ns)]
    )
    batch.add(exchange_note("y", wall_ns=last_ns))
    batch.add(exchange_note("z", wall_ns=last_ns + 1), [attempt_note("z", wall_ns=last_ns + 1)])
    batch.take_back(exchange_note("w", key_id=None, wall_ns=last_ns))
    begin = T0 // 1_000_000_000
    assert {key: len(of) for key, of in batch._exchanges.items()} == {
        (begin, "", "fast"): 1,
        (begin, "k-1", "fast"): 1,
        (begin + FINE_S, "k-1", "fast"): 1,
    }
    assert {key: len(of) for key, of in batch._attempts.items()} == {
        (begin, "lab/s1"): 2,
        (begin + FINE_S, "lab/s1"): 1,
    }
    assert {key: len(of) for key, of in batch._taken_back.items()} == {(begin, "", "fast"): 1}


@pytest.mark.parametrize("width", [HOUR_S, DAY_S])
def test_wider_sums_are_those_of_the_buckets_within(width: int) -> None:
    begin = 3 * DAY_S
    counts = {begin: 1, begin + width - 1: 2, begin + width: 4, begin - 1: 8}
    sums = [
        ((at, "k"), _KeySums([exchange_note("x", tokens_in=count)])) for at, count in counts.items()
    ]
    wide = _widened(sums, width)
    assert {key: of.values(None)[3] for key, of in wide.items()} == {
        (width, begin, "k"): 3,
        (width, begin + width, "k"): 4,
        (width, begin - width, "k"): 8,
    }


def test_a_sketch_takes_times_that_are_known_and_not_below_zero() -> None:
    assert _sketch([None, -0.1, 0.0, 5.0]).count == 2


def test_sketches_are_merged_with_those_before_and_an_empty_one_changes_nothing() -> None:
    before = _sketch([1.0]).to_bytes()
    assert _merged(before, DDSketch()) is before
    assert _merged(None, DDSketch()) is None
    assert DDSketch.from_bytes(_merged(before, _sketch([2.0])) or b"").count == 2
    assert DDSketch.from_bytes(_merged(None, _sketch([2.0])) or b"").count == 1


def test_an_attempt_that_lost_or_was_sent_twice_is_summed_and_not_measured() -> None:
    lost = attempt_note("x", won=False)
    stamps = marks()
    stamps.void = True
    found = columns(tried(lost, attempt_note("y", stamps)).values(None))
    assert (found["attempts"], found["measured"], found["ttft_ms_sketch"]) == (2, 0, None)
