"""What a cell comes to: each limit of the budget is held, and each miss is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.bench.selftest.plan import SCENARIOS, SelftestCell
from lightgate.bench.selftest.result import RequestErrors, summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.conftest import Shape
    from lightgate.bench.load.drive import Finished

    Measure = Callable[[Shape], Finished]

MS = 1_000_000
GOOD = RequestErrors(
    send_ns=50_000,
    ttft_ns=20_000,
    e2e_ns=-30_000,
    speed=0.001,
    wrong_kind=False,
    wrong_tokens=False,
    wrong_outcome="",
    unmeasured=False,
    unsure=False,
    outside=False,
    pacing_ns=(10_000, 200_000),
)
CELL = SelftestCell(SCENARIOS[0], 1, 10, 3, "kernel")


@pytest.fixture
def ten(measured: Measure, shape: type[Shape]) -> list[Finished]:
    """Ten requests of one worker, back to back."""
    return [measured(shape(send_ms=221.0 * number)) for number in range(10)]


def misses(done: list[Finished], *bad: RequestErrors, cell: SelftestCell = CELL) -> tuple[str, ...]:
    errors = [*bad, *[GOOD] * (len(done) - len(bad))]
    return summarise(cell, done, errors, 1000).misses


def test_a_good_cell(ten: list[Finished]) -> None:
    result = summarise(CELL, ten, [GOOD] * 10, 3_000_000)
    assert result.misses == ()
    assert (result.requests, result.tokens, result.lost) == (10, 30, 0)
    assert result.cpu_us_per_token == 100.0
    assert result.ttft_ms is not None
    assert (result.ttft_ms.n, result.ttft_ms.p50, result.ttft_ms.max) == (10, 0.02, 0.02)
    assert result.e2e_ms is not None
    assert result.e2e_ms.max == 0.03
    assert result.pacing_p99_ms == 0.2
    assert result.offered == pytest.approx(220 / 221, abs=1e-3)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (GOOD._replace(ttft_ns=250_000), "ttft error p99 0.250 ms > 0.2 ms"),
        (GOOD._replace(ttft_ns=-250_000), "ttft error p99 0.250 ms > 0.2 ms"),
        (GOOD._replace(speed=-0.006), "speed error p99 0.60% > 0.5%"),
        (GOOD._replace(e2e_ns=2_200_000, unsure=True), "e2e error p99 2.200 ms > 2.1 ms"),
        (GOOD._replace(wrong_kind=True), "1 wrong first-token kinds"),
        (GOOD._replace(wrong_tokens=True), "1 wrong token counts"),
        (
            GOOD._replace(wrong_outcome="ok instead of empty"),
            "1 wrong outcomes (ok instead of empty)",
        ),
        (GOOD._replace(unmeasured=True), "1 good answers without a ttft, speed or e2e"),
        (GOOD._replace(outside=True), "1 samples whose bounds do not hold the truth"),
    ],
)
def test_one_bad_request_is_a_miss(ten: list[Finished], bad: RequestErrors, said: str) -> None:
    assert misses(ten, bad) == (said,)


def test_a_bad_median(ten: list[Finished]) -> None:
    bad = [GOOD._replace(ttft_ns=150_000)] * 5
    assert misses(ten, *bad) == ()
    assert misses(ten, *bad, bad[0]) == ("ttft error p50 0.150 ms > 0.1 ms",)


def test_read_stamps_are_held_to_their_median_and_their_bounds(ten: list[Finished]) -> None:
    cell = CELL._replace(stamps="read")
    off = GOOD._replace(ttft_ns=9 * MS, e2e_ns=9 * MS, speed=0.2)
    assert misses(ten, off._replace(outside=True), cell=cell) == (
        "1 samples whose bounds do not hold the truth",
    )
    assert misses(ten, off, cell=cell) == ()
    assert misses(ten, *[GOOD._replace(ttft_ns=150_000)] * 6, cell=cell) == (
        "ttft error p50 0.150 ms > 0.1 ms",
    )


def test_requests_that_nobody_logged(ten: list[Finished]) -> None:
    result = summarise(CELL, ten, [GOOD] * 8, 1000)
    assert result.lost == 2
    assert result.misses == ("2 requests that the simulator did not log",)


def test_a_concurrency_that_was_not_offered(measured: Measure, shape: type[Shape]) -> None:
    idle = [measured(shape(send_ms=440.0 * number)) for number in range(10)]
    assert misses(idle) == ("offered 52.6% of the concurrency < 98%",)


def test_shares_and_absent_numbers(ten: list[Finished]) -> None:
    nothing = GOOD._replace(ttft_ns=None, e2e_ns=None, speed=None, pacing_ns=())
    result = summarise(CELL, ten, [nothing._replace(unsure=True)] * 4 + [nothing] * 6, 1000)
    assert (result.ttft_ms, result.speed, result.e2e_ms) == (None, None, None)
    assert result.pacing_p99_ms is None
    assert result.unsure_share == 0.4


def test_an_empty_cell_is_no_division_by_zero() -> None:
    result = summarise(CELL, [], [], 1000)
    assert (result.requests, result.tokens, result.offered) == (0, 0, None)
