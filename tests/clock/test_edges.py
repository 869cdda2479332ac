"""Words and defaults of records, bounds of quantiles, windows and sketches at their edges."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest

from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.ids import Ids
from lightgate.clock.load import (
    Span,
    Window,
    cost_1k,
    cost_out,
    grade,
    inflight,
    little,
    retain,
    speed_per_dollar,
)
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import Interval, at_least, compat, ranks, smallest_n
from lightgate.clock.sketch import TINY, DDSketch, merge_all
from lightgate.clock.source import ManualClock
from lightgate.clock.timing import Timing, e2e_plan, ms, ms_between
from lightgate.clock.tokens import Tokens

S = 1_000_000_000


def test_the_words_of_outcomes_are_a_contract_with_every_reader() -> None:
    words = "ok empty http_error rate_limited stream_error truncated reset timeout cancelled cut"
    assert [outcome.value for outcome in Outcome] == words.split()


def facts() -> AttemptFacts:
    return AttemptFacts(
        id="a",
        exchange_id="x",
        source="bench",
        target="p/m",
        provider="p",
        model="m",
        dialect="openai",
        outcome=Outcome.OK,
        wall_ns=0,
    )


def test_facts_that_nobody_stated() -> None:
    made = facts()
    assert (made.seq, made.role, made.won, made.streamed) == (0, "only", None, True)
    assert (made.bytes_in, made.bytes_out, made.end) == (0, 0, None)
    record = AttemptRecord.of(made, Marks(), Tokens())
    assert (record.seq, record.bytes_in, record.bytes_out) == (0, 0, 0)


def test_a_line_of_an_older_writer_lacks_the_last_fields() -> None:
    whole = AttemptRecord.of(facts(), Marks(), Tokens())
    row = msgspec.json.decode(whole.to_line())
    later = {"hidden_reasoning", "void", "resent", "end", "provider_request_id"}
    later |= {"first_bound_ms", "last_bound_ms"}
    older = msgspec.json.encode({name: row[name] for name in row if name not in later})
    read = AttemptRecord.from_line(older)
    assert (read.hidden_reasoning, read.void, read.resent) == (False, False, False)
    assert (read.end, read.provider_request_id) == (None, None)
    assert (read.first_bound_ms, read.last_bound_ms) == (None, None)


def test_marks_that_nobody_set() -> None:
    marks = Marks()
    assert (marks.stamp_source, marks.headers_since, marks.dispatch_lag_ns) == ("read", 0, 0)
    assert (marks.resent, marks.void, marks.finish, marks.closed) == (False, False, None, None)
    marks.burst(5, 4, 1, 2)
    assert (marks.burst_tokens[0], marks.burst_kinds[0]) == (-1, 0)
    marks.burst(6, 5, 1, 2, 3, 4)
    assert (marks.burst_tokens[1], marks.burst_kinds[1]) == (3, 4)
    assert Marks(3, "kernel").stamp_source == "kernel"


def test_milliseconds_between_instants() -> None:
    assert ms_between(1_000_000, 3_500_000) == 2.5
    assert ms_between(None, 1) is None
    assert ms_between(1, None) is None
    assert [ms(None), ms(0), ms(2_500_000)] == [None, 0.0, 2.5]
    marks = Marks(plan=10)
    assert e2e_plan(marks) is None
    marks.burst(25, 20, 1, 1)
    assert e2e_plan(marks) == 15
    marks.plan = None
    assert e2e_plan(marks) is None


def test_speeds_at_the_edge_of_time() -> None:
    marks = Marks()
    marks.send = 5
    marks.burst(5, 5, 1, 4)
    assert Timing.of(marks, Tokens(out=3)).speed_total_tps is None  # no time passed
    marks.burst(6, 6, 1, 4)
    found = Timing.of(marks, Tokens(out=3, streamed=3, first_burst=2.0))
    assert (found.speed_total_tps, found.speed_tps) == (3e9, 1e9)
    assert Timing.of(marks, Tokens(out=3, streamed=3, first_burst=3.0)).speed_tps is None
    assert Timing.of(marks, Tokens(out=0)).speed_total_tps is None
    assert found.stall_ms == 1e-6


def test_an_interval_holds_its_ends() -> None:
    one = Interval(1.0, 2.0)
    assert [one.spans(at) for at in (0.9, 1.0, 1.5, 2.0, 2.1)] == [False, True, True, True, False]
    assert one.confidence == 0.95


def test_a_one_sided_bound_is_the_highest_rank_that_is_sure() -> None:
    assert at_least([], 0.5) == -math.inf
    for n in (1, 4, 5, 6, 20, 59, 60, 100):
        for share in ("0.05", "0.5", "0.9"):
            q, tail = Fraction(share), Fraction(1, 20)
            below, low = Fraction(0), 0
            for k in range(
                n
            ):  # below: the probability that fewer than k + 1 lie under the quantile
                below += math.comb(n, k) * q**k * (1 - q) ** (n - k)
                if below > tail:
                    break
                low = k + 1
            expected = float(low) if low else -math.inf
            values = [float(value) for value in range(n, 0, -1)]
            assert at_least(values, float(share)) == expected
    assert at_least([3.0] * 5, 0.5, 0.9) == 3.0
    assert at_least([3.0] * 3, 0.5, 0.9) == -math.inf


def test_windows_of_no_length_and_spans_outside_of_them() -> None:
    window = Window(10 * S, 20 * S)
    assert inflight([Span(0, 10 * S), Span(20 * S, 30 * S), Span(0, 5)], window) == 0.0
    assert little([Span(5, 6)], Window(5, 5)) is None
    assert little([Span(10 * S, 12 * S)], window) == 0.2
    assert little([Span(20 * S, 22 * S)], window) is None
    assert str(grade(70.0, 70.0)) == "2"


def test_the_first_id_and_its_random_bits() -> None:
    asked: list[int] = []

    def bits(count: int) -> int:
        asked.append(count)
        return 0

    ids = Ids(ManualClock(wall_ns=0), bits)
    assert ids.new() == "00000000-0000-7000-8000-000000000001"  # the clock's first millisecond
    assert asked == [64, 16]


def test_samples_of_one_value_are_so_many_samples() -> None:
    many, one = DDSketch(), DDSketch()
    many.add(2.5, 4)
    for _ in range(4):
        one.add(2.5)
    assert many.to_bytes() == one.to_bytes()
    assert (many.total, many.mean, many.count) == (10.0, 2.5, 4)


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ([1.0], [1.0]),
        ([1.0, 100.0], [1.0]),
        ([1.0, 100.0], [100.0]),
        ([1.0], [0.5, 1.0]),
        ([1.0], [1.02, 0.98]),
        ([1e-8], [1e8]),
        ([1e8], [1e-8]),
        ([1e-8, 1e8, 1.0], [1e-8, 3.0, 1e8]),
    ],
)
def test_a_merge_is_the_same_as_adding_all(mine: list[float], others: list[float]) -> None:
    one, other, together = DDSketch(), DDSketch(), DDSketch()
    one.add_many(mine)
    other.add_many(others)
    together.add_many(mine + others)
    merged = merge_all([one, other])
    for sketch in (merged, one):
        if sketch is one:
            one.merge(other)
        assert sketch.count == together.count
        assert (sketch.low, sketch.high) == (together.low, together.high)
        assert sketch.total == pytest.approx(together.total)
        for q in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
            assert sketch.quantile(q) == pytest.approx(together.quantile(q), rel=1e-12)
        assert DDSketch.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


@pytest.mark.parametrize("count", [1, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**40])
def test_counts_of_every_width_come_back(count: int) -> None:
    made = DDSketch()
    made.add(3.0, count)
    made.add(TINY)
    read = DDSketch.from_bytes(made.to_bytes())
    assert (read.count, read.at_most(2.0)) == (count + 1, 1)
    width = next(size for size in (1, 2, 4, 8) if count < 256**size)
    short = DDSketch()
    short.add(3.0)
    alone = DDSketch()
    alone.add(3.0, count)
    assert len(alone.to_bytes()) - len(short.to_bytes()) == width - 1


def test_the_ends_of_the_linear_quantile_are_the_extremes() -> None:
    assert [compat([3.0, 1.0, 2.0], q) for q in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert compat([1.0, 2.0], 0.25) == 1.25
    assert compat([1.0, 2.0], 0.75) == 1.75


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99, 0.01])
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999])
def test_the_smallest_number_of_samples_is_the_first_that_has_an_interval(
    q: float, confidence: float
) -> None:
    n = smallest_n(q, confidence)
    assert ranks(n, q, confidence) is not None
    assert n == 1 or ranks(n - 1, q, confidence) is None


def test_costs_of_nothing_are_undefined() -> None:
    assert cost_1k(Decimal(3), 2) == Decimal(1500)
    assert cost_1k(Decimal(3), 0) is None
    assert cost_out(Decimal(3), 1.5) == Decimal(2_000_000)
    assert cost_out(Decimal(3), 1) == Decimal(3_000_000)
    assert cost_out(Decimal(3), 0) is None
    assert speed_per_dollar(10.0, Decimal(1)) == 10.0
    assert speed_per_dollar(10.0, Decimal(0)) is None
    assert (retain(1.0, 0.5), retain(1.0, 0.0)) == (2.0, None)


def test_a_rank_is_given_up_where_its_tail_is_just_as_likely_as_is_allowed() -> None:
    """Of two samples, both lie above the median in one case of four."""
    assert at_least([1.0, 2.0], 0.5, 0.75) == 1.0
    assert ranks(2, 0.5, 0.5) == (1, 2)
    assert ranks(1, 0.5, 0.5) is None
