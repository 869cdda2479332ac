from __future__ import annotations

import math
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.quantile import quantile
from lightgate.clock.sketch import LIMIT, RELATIVE_ERROR, TINY, DDSketch, merge_all

VALUES = st.lists(
    st.one_of(
        st.floats(min_value=1e-6, max_value=1e9), st.just(0.0), st.just(math.inf), st.just(1.0)
    ),
    max_size=80,
)
SHARES = (0.0, 0.01, 0.05, 0.5, 0.9, 0.95, 0.99, 1.0)
WITHIN = 0.01 * (1 + 1e-9)


def sketch_of(values: list[float]) -> DDSketch:
    made = DDSketch()
    for value in values:
        made.add(value)
    return made


def answers(sketch: DDSketch) -> list[float | None]:
    return [sketch.quantile(q) for q in SHARES]


@settings(derandomize=True, max_examples=250)
@given(VALUES)
def test_every_quantile_is_within_one_percent_of_the_nearest_rank(values: list[float]) -> None:
    made = sketch_of(values)
    assert made.count == len(values)
    for q in SHARES:
        exact, found = quantile(values, q), made.quantile(q)
        if exact is None or math.isinf(exact):
            assert found == exact
        else:
            assert found == pytest.approx(exact, rel=WITHIN, abs=0.0)


@settings(derandomize=True, max_examples=150)
@given(st.lists(VALUES, max_size=5))
def test_merging_is_the_same_as_seeing_everything(groups: list[list[float]]) -> None:
    merged = merge_all(sketch_of(group) for group in groups)
    whole = sketch_of([value for group in groups for value in group])
    assert answers(merged) == answers(whole)
    assert (merged.count, merged.zeros, merged.infinities) == (
        whole.count,
        whole.zeros,
        whole.infinities,
    )
    assert (merged.low, merged.high) == (whole.low, whole.high)
    assert merged.total == pytest.approx(whole.total)


@settings(derandomize=True, max_examples=150)
@given(st.lists(VALUES, max_size=5))
def test_merging_bytes_is_the_same_as_merging_sketches(groups: list[list[float]]) -> None:
    made = merge_all(sketch_of(group) for group in groups)
    read = DDSketch.from_many([sketch_of(group).to_bytes() for group in groups])
    assert read.to_bytes() == made.to_bytes()


@settings(derandomize=True, max_examples=150)
@given(VALUES)
def test_an_array_at_once_is_the_same_as_one_by_one(values: list[float]) -> None:
    at_once = DDSketch()
    at_once.add_many(values)
    assert answers(at_once) == answers(sketch_of(values))
    assert at_once.count == len(values)


@settings(derandomize=True, max_examples=150)
@given(VALUES)
def test_bytes_bring_everything_back(values: list[float]) -> None:
    made = sketch_of(values)
    back = DDSketch.from_bytes(made.to_bytes())
    assert answers(back) == answers(made)
    assert (back.count, back.total, back.low, back.high) == (
        made.count,
        made.total,
        made.low,
        made.high,
    )
    assert back.to_bytes() == made.to_bytes()
    back.add(5.0)  # and it is a live sketch, not a view of the bytes
    assert back.count == made.count + 1


def test_it_is_a_sketch() -> None:
    made = DDSketch()
    assert made.quantile(0.5) is None
    made.add(3.0)
    assert made.quantile(0.5) == 3.0


def test_the_extremes_and_the_mean_are_exact() -> None:
    made = sketch_of([3.0, 5.0, 10.0, math.inf])
    assert (made.quantile(0.0), made.quantile(0.75)) == (3.0, 10.0)
    assert made.mean == 6.0
    assert DDSketch().mean is None


def test_a_count_stands_for_many_samples() -> None:
    made = DDSketch()
    made.add(2.0, 1000)
    made.add(50.0)
    assert made.count == 1001
    assert made.quantile(0.99) == pytest.approx(2.0, rel=WITHIN)


def test_wide_counts_survive_the_bytes() -> None:
    for count in (200, 60_000, 2**31, 2**40):
        made = DDSketch()
        made.add(7.0, count)
        assert DDSketch.from_bytes(made.to_bytes()).count == count


def test_space_is_bounded_and_the_high_quantiles_stay_right() -> None:
    values = [10.0 ** (n / 10) for n in range(-80, 281)]  # 36 decades
    for order in (values, values[::-1]):
        made = sketch_of(order)
        assert len(made._buckets) <= LIMIT
        assert made.count == len(values)
        for q in (0.7, 0.9, 0.99):
            exact = quantile(values, q)
            assert exact is not None
            assert made.quantile(q) == pytest.approx(exact, rel=WITHIN)
        lowest = made.quantile(0.0)
        assert lowest is not None
        assert lowest >= values[0]


def test_merging_across_the_bound_loses_no_sample() -> None:
    small, large = sketch_of([1e-8, 1e-7]), sketch_of([1e20, 1e25])
    for first, second in ((small, large), (large, small)):
        merged = merge_all([first, second])
        assert merged.count == 4
        assert merged.quantile(1.0) == 1e25
        assert merged.quantile(0.75) == pytest.approx(1e20, rel=WITHIN)


def test_merging_collapses_only_what_is_below_the_bound() -> None:
    merged = merge_all([sketch_of([1e25] * 2), sketch_of([1e-8, 1e10, 1e15, 1e20])])
    assert merged.count == 6
    for at, exact in ((2, 1e10), (3, 1e15), (4, 1e20), (5, 1e25)):
        assert merged.quantile(at / 6) == pytest.approx(exact, rel=WITHIN)


def test_the_largest_float_fits() -> None:
    made = sketch_of([1.7e308])
    assert made.quantile(0.5) == 1.7e308
    assert DDSketch.from_bytes(made.to_bytes()).quantile(0.5) == 1.7e308


def test_ten_thousand_sketches_merge() -> None:
    rng = np.random.default_rng(7)
    samples = rng.lognormal(5.0, 1.0, (10_000, 20))
    parts = []
    for row in samples:
        part = DDSketch()
        part.add_many(row)
        parts.append(part)
    merged = merge_all(parts)
    assert merged.count == 200_000
    exact = quantile(samples.ravel().tolist(), 0.99)
    assert exact is not None
    assert merged.quantile(0.99) == pytest.approx(exact, rel=WITHIN)


def test_it_is_compact() -> None:
    made = DDSketch()
    made.add_many(np.random.default_rng(8).lognormal(5.0, 1.0, 10_000))
    assert len(made.to_bytes()) < 1000


@pytest.mark.parametrize("value", [-1.0, math.nan, -math.inf])
def test_what_is_no_sample_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="a sample is"):
        DDSketch().add(value)
    with pytest.raises(ValueError, match="a sample is"):
        DDSketch().add_many([1.0, value])


def test_other_errors_do_not_merge() -> None:
    with pytest.raises(ValueError, match="do not merge"):
        DDSketch(0.01).merge(DDSketch(0.02))
    with pytest.raises(ValueError, match="do not merge"):
        DDSketch.from_many([DDSketch(0.01).to_bytes(), DDSketch(0.02).to_bytes()])
    with pytest.raises(ValueError, match="relative error"):
        DDSketch(0.0)


@settings(derandomize=True, max_examples=200)
@given(st.binary(max_size=200))
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="sketch"):
        DDSketch.from_bytes(data)


@settings(derandomize=True, max_examples=200)
@given(st.data())
def test_one_flipped_bit_is_a_value_error(data: st.DataObject) -> None:
    raw = bytearray(sketch_of([0.0, 1.0, 20.0, 300.0, math.inf]).to_bytes())
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[at // 8] ^= 1 << at % 8
    with pytest.raises(ValueError, match="sketch"):
        DDSketch.from_bytes(bytes(raw))


def signed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


@settings(derandomize=True, max_examples=300)
@given(st.data())
def test_a_forged_sketch_is_refused_or_answers(data: st.DataObject) -> None:
    body = bytearray(sketch_of([0.0, 1.0, 20.0, 300.0, math.inf]).to_bytes()[:-4])
    at = data.draw(st.integers(5, len(body) - 8))
    body[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    try:
        forged = DDSketch.from_bytes(signed(bytes(body)))
    except ValueError:
        return
    for q in SHARES:
        found = forged.quantile(q)
        assert found is None or found >= 0.0


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (5, "<d", 0.9, "relative error"),
        (5, "<d", math.nan, "relative error"),
        (13, "<i", 2**31 - 1, "beyond any number"),
        (13, "<i", -(2**31), "beyond any number"),
        (17, "<I", 2**32 - 1, "length"),
        (21, "<B", 3, "length"),
        (38, "<d", math.nan, "contradict"),
        (46, "<d", -1.0, "contradict"),
        (54, "<d", -1.0, "contradict"),
    ],
)
def test_a_forged_header_is_refused(at: int, layout: str, value: float, reason: str) -> None:
    body = bytearray(sketch_of([1.0, 20.0, 300.0]).to_bytes()[:-4])
    struct.pack_into(layout, body, at, value)
    with pytest.raises(ValueError, match=reason):
        DDSketch.from_bytes(signed(bytes(body)))


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=60), st.floats(0, 2e6))
def test_samples_up_to_a_bound_are_counted_within_the_error(
    values: list[float], bound: float
) -> None:
    sketch = DDSketch()
    sketch.add_many(values)
    surely = sum(value <= bound * (1 - 2 * RELATIVE_ERROR) for value in values)
    perhaps = sum(value <= max(bound * (1 + 2 * RELATIVE_ERROR), TINY) for value in values)
    assert surely <= sketch.at_most(bound) <= perhaps
    assert sketch.at_most(bound) <= sketch.at_most(2 * bound + 1) <= sketch.at_most(math.inf)
    assert sketch.at_most(math.inf) == len(values)
    assert sketch.at_most(-1.0) == 0


@pytest.mark.parametrize(("at", "value"), [(38, 1.0), (46, 1.0), (54, 0.5)])
def test_a_forged_sketch_of_nothing_has_no_extremes_and_no_sum(at: int, value: float) -> None:
    body = bytearray(sketch_of([]).to_bytes()[:-4])
    assert DDSketch.from_bytes(signed(bytes(body))).count == 0
    struct.pack_into("<d", body, at, value)
    with pytest.raises(ValueError, match="contradict"):
        DDSketch.from_bytes(signed(bytes(body)))


def test_a_bound_at_the_value_of_a_bucket_has_the_whole_of_it() -> None:
    made = sketch_of([5.0])
    value = made._value(made._index(5.0))
    assert made.at_most(value) == 1
    assert made.at_most(math.nextafter(value, 0.0)) == 0
