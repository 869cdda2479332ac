"""What a cell comes to: each limit of the budget is held, and each miss is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.bench.selftest.plan import SCENARIOS, SelftestCell, budget
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
    beyond_ns=(0, 0),
    beyond_speed=0.0,
    unsure=False,
    pacing_ns=(10_000, 200_000),
)
CELL = SelftestCell(SCENARIOS[0], 1, 10, 3, "kernel")


@pytest.fixture
def ten(measured: Measure, shape: type[Shape]) -> list[Finished]:
    """Ten requests of one worker, back to back."""
    return [measured(shape(send_ms=221.0 * number)) for number in range(10)]


def misses(done: list[Finished], *bad: RequestErrors, cell: SelftestCell = CELL) -> tuple[str, ...]:
    errors = [*bad, *[GOOD] * (len(done) - len(bad))]
    return summarise(cell, done, errors, budget(cell, 80_000), cpu_ns=1000).misses


def test_a_good_cell(ten: list[Finished]) -> None:
    result = summarise(CELL, ten, [GOOD] * 10, budget(CELL, 0), cpu_ns=3_000_000)
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
        (GOOD._replace(wrong_kind=True), "1 wrong first-token kinds"),
        (GOOD._replace(wrong_tokens=True), "1 wrong token counts"),
        (
            GOOD._replace(wrong_outcome="ok instead of empty"),
            "1 wrong outcomes (ok instead of empty)",
        ),
        (GOOD._replace(unmeasured=True), "1 good answers without a ttft, speed or e2e"),
        (GOOD._replace(send_ns=-50_000), "1 requests that had arrived before their t_send"),
    ],
)
def test_one_bad_request_is_a_miss(ten: list[Finished], bad: RequestErrors, said: str) -> None:
    assert misses(ten, bad) == (said,)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            GOOD._replace(beyond_ns=(250_000,) * 2),
            "truth outside the bounds by p99 at least 0.250 ms > 0.2 ms",
        ),
        (
            GOOD._replace(beyond_speed=0.006),
            "true speed outside the bounds by p99 at least 0.60% > 0.5%",
        ),
    ],
)
def test_a_sample_out_of_the_row_misses_nothing_and_several_do(
    ten: list[Finished], bad: RequestErrors, said: str
) -> None:
    single = bad._replace(beyond_ns=bad.beyond_ns[:1])
    assert misses(ten, single) == ()
    assert misses(ten, bad, bad) == (said,)


def test_a_bad_median(ten: list[Finished]) -> None:
    bad = [GOOD._replace(ttft_ns=-150_000)] * 8
    assert misses(ten, *bad) == ()
    assert misses(ten, *bad, bad[0]) == ("ttft error p50 at least 0.150 ms > 0.1 ms",)
    slow = [GOOD._replace(send_ns=300_000)] * 9
    assert misses(ten, *slow) == ("time from t_send to arrival p50 at least 0.300 ms > 0.2 ms",)


def test_a_busy_machine_is_held_to_its_bounds(
    ten: list[Finished], measured: Measure, shape: type[Shape]
) -> None:
    late = GOOD._replace(ttft_ns=9 * MS)
    assert misses(ten, *[late] * 10) == ("ttft error p50 at least 9.000 ms > 0.1 ms",)
    assert misses(ten, *[late._replace(unsure=True)] * 10) == ()
    idle = [measured(shape(send_ms=440.0 * number)) for number in range(10)]
    assert misses(idle, late._replace(unsure=True)) == ("offered 52.6% of the concurrency < 98%",)
    assert misses(idle, *[late._replace(unsure=True)] * 2) == ()


def test_read_stamps_have_the_time_that_a_reader_needs_to_wake(ten: list[Finished]) -> None:
    cell = CELL._replace(stamps="read")
    assert misses(ten, *[GOOD._replace(ttft_ns=250_000)] * 10, cell=cell) == ()
    assert misses(ten, *[GOOD._replace(ttft_ns=270_000)] * 10, cell=cell) == (
        "ttft error p50 at least 0.270 ms > 0.26 ms",
    )


def test_beside_a_hog_only_the_bounds_are_held(
    ten: list[Finished], measured: Measure, shape: type[Shape]
) -> None:
    cell = CELL._replace(hog=True)
    late = GOOD._replace(ttft_ns=9 * MS, e2e_ns=9 * MS, speed=0.2, send_ns=MS)
    assert misses(ten, *[late] * 10, cell=cell) == ()
    idle = [measured(shape(send_ms=440.0 * number)) for number in range(10)]
    assert misses(idle, cell=cell) == ()
    outside = late._replace(beyond_ns=(MS, MS))
    assert misses(ten, *[outside] * 10, cell=cell) == (
        "truth outside the bounds by p99 at least 1.000 ms > 0.2 ms",
    )


def test_requests_that_nobody_logged(ten: list[Finished]) -> None:
    result = summarise(CELL, ten, [GOOD] * 8, budget(CELL, 0), cpu_ns=1000)
    assert result.lost == 2
    assert result.misses == ("2 requests that the simulator did not log",)


def test_a_concurrency_that_was_not_offered(measured: Measure, shape: type[Shape]) -> None:
    idle = [measured(shape(send_ms=440.0 * number)) for number in range(10)]
    assert misses(idle) == ("offered 52.6% of the concurrency < 98%",)


def test_shares_and_absent_numbers(ten: list[Finished]) -> None:
    nothing = GOOD._replace(ttft_ns=None, e2e_ns=None, speed=None, beyond_ns=(), pacing_ns=())
    some = [nothing._replace(unsure=True)] * 4 + [nothing] * 6
    result = summarise(CELL, ten, some, budget(CELL, 0), cpu_ns=1000)
    assert (result.ttft_ms, result.speed, result.e2e_ms) == (None, None, None)
    assert result.pacing_p99_ms is None
    assert result.unsure_share == 0.4


def test_an_empty_cell_is_no_division_by_zero() -> None:
    result = summarise(CELL, [], [], budget(CELL, 0), cpu_ns=1000)
    assert (result.requests, result.tokens, result.offered) == (0, 0, None)
