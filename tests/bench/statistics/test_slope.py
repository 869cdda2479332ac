from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lightgate.bench.statistics.slope import prompt_slope
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens

FACTS = AttemptFacts(
    id="1",
    exchange_id="1",
    source="bench",
    target="lab",
    provider="lab",
    model="m",
    dialect="openai",
    outcome=Outcome.OK,
    wall_ns=0,
)


def attempt(tokens_in: int, ttft_ms: float) -> AttemptRecord:
    marks = Marks()
    marks.plan = marks.send = 0
    stamp = int(ttft_ms * 1e6)
    marks.burst(stamp, stamp, 1, 4)
    return msgspec.structs.replace(AttemptRecord.of(FACTS, marks, Tokens()), tokens_in=tokens_in)


def line(n: int, *, slope: float, noise: float, seed: int = 1) -> list[AttemptRecord]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(100, 8000, n)
    return [
        attempt(int(length), 150.0 + slope * length / 1000.0 + rng.exponential(noise))
        for length in lengths
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_slope_of_a_known_line(seed: int) -> None:
    found = prompt_slope(line(200, slope=40.0, noise=20.0, seed=seed))
    assert found is not None
    assert found.ms_per_1k == pytest.approx(40.0, rel=0.08)
    assert found.interval.low < 40.0 < found.interval.high
    assert found.n == 200
    assert 100 <= found.shortest < found.longest <= 8000


def test_a_tenth_that_waited_in_a_queue_does_not_move_it() -> None:
    attempts = line(200, slope=40.0, noise=5.0)
    attempts[::10] = [attempt(a.tokens_in or 0, 9000.0) for a in attempts[::10]]
    found = prompt_slope(attempts)
    assert found is not None
    assert found.ms_per_1k == pytest.approx(40.0, rel=0.08)


def test_prompts_that_are_alike_or_few_have_no_slope() -> None:
    assert prompt_slope([attempt(512, 200.0 + n) for n in range(100)]) is None
    assert prompt_slope(line(19, slope=40.0, noise=1.0)) is None
    assert prompt_slope([]) is None


def test_cached_prompts_are_left_out() -> None:
    warm = [msgspec.structs.replace(a, tokens_cached=50) for a in line(100, slope=40.0, noise=1.0)]
    assert prompt_slope(warm) is None
