"""What is made of rows that say how fast and how long answers were, without a database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lightgate.clock.sketch import DDSketch
from lightgate.ledger.store.lengths import _lengths
from lightgate.ledger.store.seen import (
    ENOUGH,
    FEWEST,
    _least_loaded,
    _newest,
    _of_cell,
    _of_sketches,
    _seen,
)


def test_hours_are_taken_newest_first_until_there_are_enough_answers() -> None:
    rows = [("a", 5, ENOUGH - 1), ("b", 5, ENOUGH), ("a", 4, 1), ("b", 4, 1), ("a", 3, 9)]
    assert _newest(rows) == {"a": [5, 4], "b": [5]}
    assert _newest([]) == {}


def test_an_unknown_tail_is_the_median_and_a_known_one_is_no_better() -> None:
    bare = _seen((100.0, None, 50.0, None), FEWEST, 7.0)
    assert bare is not None
    assert (bare.ttft_ms, bare.ttft_p95_ms, bare.speed_tps, bare.speed_slow_tps) == (
        100.0, 100.0, 50.0, 50.0,
    )  # fmt: skip
    assert (bare.n, bare.age_s) == (FEWEST, 7.0)
    known = _seen((100.0, 300.0, 50.0, 20.0), FEWEST, 0.0)
    assert known is not None
    assert (known.ttft_p95_ms, known.speed_slow_tps) == (300.0, 20.0)
    odd = _seen((100.0, 90.0, 50.0, 60.0), FEWEST, 0.0)
    assert odd is not None
    assert (odd.ttft_p95_ms, odd.speed_slow_tps) == (100.0, 50.0)


@pytest.mark.parametrize(
    ("ttft", "speed", "n"),
    [(None, 50.0, FEWEST), (100.0, None, FEWEST), (0.0, 50.0, FEWEST), (1.0, 5.0, FEWEST - 1)],
)
def test_without_a_median_or_with_few_answers_nothing_is_known(
    ttft: float | None, speed: float | None, n: int
) -> None:
    assert _seen((ttft, None, speed, None), n, 0.0) is None


def sketch(*values: float) -> bytes:
    made = DDSketch()
    made.add_many(values)
    return made.to_bytes()


def test_sketches_of_several_hours_are_merged_and_the_fewer_answers_count() -> None:
    waits, speeds = [100.0] * FEWEST, [50.0] * (FEWEST - 1)
    assert _of_sketches([(sketch(*waits), sketch(*speeds))], 3.0) is None
    more = [(sketch(*waits), sketch(*speeds)), (None, sketch(50.0)), (sketch(400.0), None)]
    found = _of_sketches(more, 3.0)
    assert found is not None
    assert (found.n, found.age_s) == (FEWEST, 3.0)
    assert found.ttft_ms == pytest.approx(100.0, rel=0.02)
    assert found.speed_tps == pytest.approx(50.0, rel=0.02)


def metric(name: str, n: int = FEWEST, **quantiles: float) -> Any:
    rows = [
        SimpleNamespace(q=int(key[1:]) / 100, value=value, n=n) for key, value in quantiles.items()
    ]
    return SimpleNamespace(name=name, quantiles=rows)


def test_a_cell_of_a_run_tells_its_medians_and_the_tails_that_it_has() -> None:
    def of(*metrics: Any) -> Any:
        return _of_cell(cast("Any", SimpleNamespace(metrics=metrics)), 9.0)

    whole = of(metric("ttft_ms", p50=100.0, p95=300.0), metric("speed_tps", p5=20.0, p50=50.0))
    assert (whole.ttft_ms, whole.ttft_p95_ms, whole.speed_tps, whole.speed_slow_tps) == (
        100.0, 300.0, 50.0, 20.0,
    )  # fmt: skip
    assert (whole.n, whole.age_s) == (FEWEST, 9.0)
    bare = of(metric("ttft_ms", p50=100.0), metric("speed_tps", 30, p50=50.0))
    assert (bare.ttft_p95_ms, bare.speed_slow_tps) == (100.0, 50.0)
    assert of(metric("ttft_ms", p50=100.0)) is None
    assert of(metric("speed_tps", p50=100.0), metric("ttft_ms", p95=1.0)) is None


def test_cells_of_a_run_that_are_not_in_doubt_come_by_their_load_and_those_without_last() -> None:
    def cell(load: int | None, *doubts: str) -> Any:
        return SimpleNamespace(concurrency=load, doubts=lambda: doubts)

    cells = [cell(None), cell(8), cell(1, "clock"), cell(2)]
    found = _least_loaded(cast("Any", SimpleNamespace(cells=cells)))
    assert [one.concurrency for one in found] == [2, 8, None]


def row(tokens: int, target: str, finish: str | None = "stop", speed: float | None = None) -> Any:
    return SimpleNamespace(tokens_out=tokens, target=target, finish_reason=finish, speed_tps=speed)


def test_lengths_of_answers_are_quantiles_of_what_was_observed() -> None:
    rows = [row(at, f"t{at % 2}", speed=float(at)) for at in range(1, 101)]
    rows += [row(500, "t0", "LENGTH"), row(7, "t0", None)]
    found = _lengths("m", "k", rows)
    assert (found.model, found.key_id, found.n, found.cut) == ("m", "k", 102, 1)
    assert (found.p50, found.p99, found.longest) == (50, 100, 500)
    assert (found.speed_p50, found.targets) == (50.0, ("t0", "t1"))
    bare = _lengths("m", None, [row(3, "t", "length")])
    assert (bare.p50, bare.p99, bare.longest, bare.cut, bare.speed_p50) == (3, 3, 3, 1, None)
