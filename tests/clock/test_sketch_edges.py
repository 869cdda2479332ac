"""Sketches: buckets at the edges, and the bytes of an empty one."""

from __future__ import annotations

import math

import pytest

from lightgate.clock.marks import Marks
from lightgate.clock.sketch import LIMIT, TINY, DDSketch, merge_all
from lightgate.clock.timing import SHOWN


def sketch(*values: float, error: float = 0.01) -> DDSketch:
    made = DDSketch(error)
    for value in values:
        made.add(value)
    return made


def test_what_is_below_a_picosecond_counts_as_zero() -> None:
    made = sketch(0.0, TINY / 2, TINY)
    assert (made.zeros, made.count) == (2, 3)
    assert (made.at_most(TINY / 2), made.at_most(0.0), made.at_most(-0.1)) == (2, 2, 0)
    assert made.at_most(TINY * 1.1) == 3
    assert made.at_most(TINY) == 3
    many = DDSketch()
    many.add_many([0.0, TINY / 2, TINY])
    assert (many.zeros, many.count, many.low, many.high) == (2, 3, 0.0, TINY)
    assert made.quantile(0.5) == 0.0
    assert made.quantile(1.0) == pytest.approx(TINY, rel=0.011)


def test_samples_up_to_a_bound() -> None:
    made = sketch(1.0, 2.0, 4.0, math.inf)
    counts = [made.at_most(bound) for bound in (0.5, 1.02, 1.5, 2.05, 3.0, 4.1, 1e9, math.inf)]
    assert counts == [0, 1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("error", [1e-4, 0.5])
def test_errors_at_the_edges(error: float) -> None:
    assert sketch(5.0, error=error).quantile(0.5) == 5.0
    for wrong in (error * 0.99 if error < 0.1 else error * 1.01, math.nan, 0.0):
        with pytest.raises(ValueError, match="relative error"):
            DDSketch(wrong)


def test_a_merge_beside_above_and_below() -> None:
    for mine, others in (((), ()), ((1.0,), ()), ((), (2.0,)), ((1.0,), (1e6,)), ((1e6,), (1.0,))):
        one, other = sketch(*mine), sketch(*others)
        one.merge(other)
        assert one.count == len(mine) + len(others)
        assert one.total == sum(mine) + sum(others)
        together = sketch(*mine, *others)
        assert [one.at_most(b) for b in (0.5, 1.5, 2.5, 2e6)] == [
            together.at_most(b) for b in (0.5, 1.5, 2.5, 2e6)
        ]


def test_the_lowest_buckets_become_one_and_lose_no_sample() -> None:
    made = sketch(1e-8)
    made.add(1e12, 3)
    assert len(made._buckets) <= LIMIT
    assert (made.count, made.at_most(1.0)) == (4, 1)
    assert made.quantile(0.25) is not None
    low = sketch(1e-8, 1e-7)
    low.merge(made)
    made.merge(sketch(1e-8, 1e-7))
    assert (made.count, low.count) == (6, 6)


def test_the_bytes_of_few_samples() -> None:
    for values in ((), (0.0,), (math.inf,), (1.0,), (1.0, 1e9)):
        made = sketch(*values)
        again = DDSketch.from_bytes(made.to_bytes())
        assert (again.count, again.zeros, again.infinities) == (
            made.count, made.zeros, made.infinities,
        )  # fmt: skip
        assert (again.low, again.high, again.total) == (made.low, made.high, made.total)
        assert [again.quantile(q) for q in (0.1, 0.5, 1.0)] == [
            made.quantile(q) for q in (0.1, 0.5, 1.0)
        ]
    assert len(sketch(1.0).to_bytes()) == len(DDSketch().to_bytes()) + 1


@pytest.mark.parametrize(("count", "width"), [(255, 1), (256, 2), (65535, 2), (65536, 4)])
def test_counts_take_as_few_bytes_as_they_need(count: int, width: int) -> None:
    made = DDSketch()
    made.add(1.0, count)
    assert len(made.to_bytes()) == len(DDSketch().to_bytes()) + width


def test_the_mean_is_of_the_finite() -> None:
    assert DDSketch().mean is None
    assert sketch(math.inf).mean is None
    assert sketch(1.0, 3.0, math.inf).mean == 2.0


def test_nothing_merges_to_nothing() -> None:
    assert merge_all([]).count == 0
    assert merge_all([sketch(1.0), sketch(2.0)]).count == 2
    odd = merge_all([sketch(1.0, error=0.05)])
    assert (odd.relative_error, odd.count) == (0.05, 1)


@pytest.mark.parametrize(("value", "count"), [(-0.1, 1), (math.nan, 1), (1.0, 0)])
def test_no_sample_is_refused(value: float, count: int) -> None:
    with pytest.raises(ValueError, match="sample"):
        DDSketch().add(value, count)


def test_the_numbers_that_are_shown() -> None:
    assert list(SHOWN) == [
        "ttft_ms", "ttft_plan_ms", "ttfa_ms", "tth_ms", "e2e_ms", "e2e_plan_ms", "stall_ms",
        "gap_ms", "speed_tps", "speed_total_tps",
    ]  # fmt: skip
    titles = [one.title for one in SHOWN.values()]
    assert titles == [
        "TTFT", "TTFT from plan", "TTFA", "headers", "e2e", "e2e from plan", "stall", "gap",
        "speed", "total speed",
    ]  # fmt: skip


def test_fresh_marks_have_nothing_happened() -> None:
    marks = Marks(5)
    empty = {name: getattr(marks, name) for name in Marks.__slots__ if not name.startswith("burst")}
    assert empty.pop("plan") == 5
    assert empty.pop("stamp_source") == "read"
    for name in ("headers_since", "dispatch_lag_ns"):
        assert empty.pop(name) == 0
    for name in ("resent", "void"):
        assert empty.pop(name) is False
    assert set(empty.values()) == {None}
    marks.burst(10, 8, 2, 30)
    marks.burst(20, 18, 1, 5, 3, 4)
    assert (marks.first, marks.first_since, marks.last, marks.last_since) == (10, 8, 20, 18)
    found = [list(getattr(marks, name)) for name in sorted(Marks.__slots__) if "burst" in name]
    assert found == [[0, 4], [10, 20], [2, 1], [8, 18], [-1, 3], [30, 5]]


def test_a_connect_is_the_sum_of_its_parts() -> None:
    marks = Marks()
    seen = [marks.connect_ns]
    marks.pool_wait_ns = 0
    assert [*seen, marks.connect_ns] == [None, 0]
    marks.pool_wait_ns, marks.dns_ns, marks.tcp_ns, marks.tls_ns = 1, 20, 300, 4000
    assert marks.connect_ns == 4321


def test_a_merge_takes_in_a_sketch_of_one_bucket() -> None:
    """Bytes have no spare buckets: those of one value have one."""
    one = DDSketch()
    one.add(5.0)
    read = DDSketch.from_bytes(one.to_bytes())
    assert len(read._buckets) == 1
    merged = DDSketch()
    merged.merge(read)
    merged.merge(DDSketch.from_bytes(DDSketch().to_bytes()))
    assert (merged.count, merged.quantile(0.5)) == (1, 5.0)


def test_sketches_that_hold_nothing_take_no_room_from_those_that_do() -> None:
    """Buckets far below the first index would be collapsed if there were one at it."""
    low = DDSketch(1e-4)
    low.add_many([0.001, 0.0011])
    zeros = DDSketch(1e-4)
    zeros.add(0.0)
    both = DDSketch.from_many([low.to_bytes(), zeros.to_bytes(), DDSketch(1e-4).to_bytes()])
    assert both.quantile(0.5) == pytest.approx(0.001, rel=1e-3)
    assert (both.count, both.zeros) == (3, 1)


def test_samples_one_by_one_make_the_same_sketch_in_any_order() -> None:
    values = [5.0, 0.1, 900.0, 5.0, 0.0, 1.0]
    found = []
    for order in (values, values[::-1], sorted(values)):
        sketch = DDSketch()
        for value in order:
            sketch.add(value)
        found.append((sketch.count, sketch.zeros, sketch.quantiles([0.0, 0.3, 0.5, 0.9, 1.0])))
    assert found[0] == found[1] == found[2]


def test_an_empty_sketch_has_no_zeros_and_no_infinities() -> None:
    empty = DDSketch()
    assert (empty.zeros, empty.infinities, empty.count, empty.total) == (0, 0, 0, 0.0)
    assert empty.to_bytes() == DDSketch.from_bytes(empty.to_bytes()).to_bytes()


def test_counts_of_different_widths_are_added_up_index_by_index() -> None:
    """One value lies below the other two, one above, and one of them was seen 70,000 times."""
    low, middle, high = (DDSketch() for _ in range(3))
    low.add(0.5, 3)
    middle.add(1.0, 70_000)
    middle.add(40.0, 2)
    high.add(9.0, 300)
    many = DDSketch.from_many([one.to_bytes() for one in (middle, high, low)])
    assert many.count == 3 + 70_000 + 2 + 300
    assert [many.at_most(bound) for bound in (0.6, 1.1, 10.0, 41.0)] == [3, 70_003, 70_303, 70_305]
    again = DDSketch.from_many([one.to_bytes() for one in (low, middle)])
    assert [again.at_most(bound) for bound in (0.6, 1.1, 41.0)] == [3, 70_003, 70_005]
