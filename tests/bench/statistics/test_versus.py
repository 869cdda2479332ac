from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from lightgate.bench.statistics.versus import Contest, Field, contest, said
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.compare import Comparison, blocks_for
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import Interval
from lightgate.clock.tokens import Tokens
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import TargetFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Draws = Mapping[str, NDArray[np.float64]]

PER_BLOCK = 10
ROUNDS = 400
BLANK = AttemptRecord.of(
    AttemptFacts(
        id="",
        exchange_id="",
        source="bench",
        target="",
        provider="p",
        model="m",
        dialect="openai",
        outcome=Outcome.OK,
        wall_ns=0,
    ),
    Marks(),
    Tokens(),
)


def targets(*names: str, twin: str | None = None) -> list[TargetFacts]:
    row = TargetFacts(name="", provider="p", model="m", base_url="http://h", dialect="openai")
    rows = [msgspec.structs.replace(row, name=name) for name in names]
    if twin is not None:
        rows.append(msgspec.structs.replace(row, name=f"{twin} (again)", twin_of=twin))
    return rows


def played(
    draws: Draws, facts: list[TargetFacts], *, metric: str = "ttft_ms", seed: int = 0
) -> Contest:
    """Hold targets against each other by what they drew, ten requests a block."""
    attempts, recordings = [], {}
    for name, values in draws.items():
        for at, value in enumerate(values.tolist()):
            key = f"{name} {at}"
            change = {"id": key, "target": name, "seq": at, metric: value}
            attempts.append(msgspec.structs.replace(BLANK, **change))
            recordings[key] = Recording(id=key, block=at // PER_BLOCK)
    rng = np.random.default_rng(seed)
    return contest([Field("c=8", attempts)], recordings, facts, rng=rng, rounds=ROUNDS)


def ttfts(rng: np.random.Generator, median: float, n: int = 300) -> NDArray[np.float64]:
    return rng.lognormal(np.log(median), 0.25, n)


def weather(rng: np.random.Generator, n: int = 300) -> NDArray[np.float64]:
    """What a block does to all targets alike."""
    return np.repeat(rng.lognormal(0.0, 0.3, n // PER_BLOCK), PER_BLOCK)


def test_alike_targets_are_called_different_in_at_most_one_run_of_twenty() -> None:
    rng = np.random.default_rng(11)
    claimed = 0
    for seed in range(80):
        air = weather(rng)
        draws = {name: ttfts(rng, 200.0) * air for name in ("a", "b")}
        (row,) = played(draws, targets("a", "b"), seed=seed).versus
        claimed += row.verdict in {"a faster", "b faster"}
    assert claimed <= 6


def test_fifteen_percent_is_found() -> None:
    rng = np.random.default_rng(12)
    found = 0
    for seed in range(25):
        air = weather(rng)
        draws = {
            "a": ttfts(rng, 200.0) * air,
            "b": ttfts(rng, 230.0) * air,
            "c": ttfts(rng, 600.0) * air,
        }
        rows = played(draws, targets("a", "b", "c"), seed=seed).versus
        found += next(row for row in rows if (row.a, row.b) == ("a", "b")).verdict == "a faster"
    assert found >= 24


def test_all_pairs_with_holm_and_a_board() -> None:
    rng = np.random.default_rng(1)
    draws = {"a": ttfts(rng, 200.0), "b": ttfts(rng, 205.0), "c": ttfts(rng, 400.0)}
    result = played(draws, targets("a", "b", "c"))
    assert [(row.a, row.b) for row in result.versus] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [row.verdict for row in result.versus][1:] == ["a faster", "a faster"]
    assert all(row.p_adjusted >= row.comparison.p_value for row in result.versus)
    (board,) = result.boards
    assert (board.load, board.metric, board.void) == ("c=8", "ttft_ms", False)
    assert board.standings[-1].name == "c"
    assert (board.standings[-1].best, board.standings[-1].worst) == (3, 3)
    assert result.versus[1].comparison.ratio == pytest.approx(0.5, rel=0.1)


def test_of_speeds_the_larger_is_the_better() -> None:
    rng = np.random.default_rng(2)
    draws = {"slow": ttfts(rng, 50.0), "quick": ttfts(rng, 100.0)}
    result = played(draws, targets("slow", "quick"), metric="speed_tps")
    (row,) = result.versus
    assert row.verdict == "b faster"
    assert row.comparison.ratio == pytest.approx(0.5, rel=0.1)
    assert row.comparison.interval is not None
    assert row.comparison.interval.spans(row.comparison.ratio)
    assert row.comparison.p_less > 0.95  # a sample of `slow` is below one of `quick`
    (board,) = result.boards
    assert [one.name for one in board.standings] == ["quick", "slow"]
    assert board.standings[0].median == pytest.approx(100.0, rel=0.1)


def test_a_twin_that_differs_makes_the_board_void() -> None:
    rng = np.random.default_rng(3)
    facts = targets("a", "b", twin="a")
    draws = {"a": ttfts(rng, 200.0), "b": ttfts(rng, 400.0), "a (again)": ttfts(rng, 300.0)}
    result = played(draws, facts)
    assert {row.verdict for row in result.versus} == {"void"}
    assert [board.void for board in result.boards] == [True]
    honest = played({**draws, "a (again)": ttfts(rng, 200.0)}, facts)
    assert [row.verdict for row in honest.versus] == ["tie", "a faster"]
    assert [board.void for board in honest.boards] == [False]
    assert [one.name for one in honest.boards[0].standings] == ["a", "b"]


def test_twins_void_a_run_in_at_most_one_of_twenty() -> None:
    rng = np.random.default_rng(4)
    void = 0
    for seed in range(60):
        air = weather(rng, 100)
        draws = {name: ttfts(rng, 200.0, 100) * air for name in ("a", "a (again)")}
        void += played(draws, targets("a", twin="a"), seed=seed).versus[0].verdict == "void"
    assert void <= 3


def test_too_few_blocks_say_nothing() -> None:
    rng = np.random.default_rng(5)
    draws = {"a": ttfts(rng, 200.0, 50), "b": ttfts(rng, 900.0, 50)}
    result = played(draws, targets("a", "b", twin="a"))
    assert [row.verdict for row in result.versus] == ["n too small"]


def test_too_few_blocks_for_so_many_pairs_are_no_tie() -> None:
    """Twelve targets in ten blocks: 66 pairs, and no p-value of ten blocks is below 0.05 / 66."""
    rng = np.random.default_rng(5)
    names = "abcdefghijkl"
    draws = {name: ttfts(rng, 100.0 * 1.5**at, 100) for at, name in enumerate(names)}
    result = played(draws, targets(*names))
    assert len(result.versus) == 66
    assert {row.verdict for row in result.versus} == {"too few blocks"}
    assert {row.comparison.among for row in result.versus} == {66}


def test_twelve_targets_in_their_blocks_are_told_apart() -> None:
    """The first and the last differ 4.7 times; neighbours by 15 %."""
    rng = np.random.default_rng(7)
    names = "abcdefghijkl"
    n = PER_BLOCK * blocks_for(12)
    air = weather(rng, n)
    draws = {name: ttfts(rng, 100.0 * 1.15**at, n) * air for at, name in enumerate(names)}
    result = played(draws, targets(*names))
    assert [row.verdict for row in result.versus].count("a faster") >= 63
    assert "tie" not in {row.verdict for row in result.versus if ord(row.b) - ord(row.a) > 1}


def test_few_blocks_leave_no_rank_excluded() -> None:
    rng = np.random.default_rng(5)
    draws = {"a": ttfts(rng, 200.0, 50), "b": ttfts(rng, 900.0, 50)}
    result = played(draws, targets("a", "b", twin="a"))
    assert result.boards[0].standings[0].p_fastest is None


def test_without_blocks_there_are_no_pairs() -> None:
    attempts = [msgspec.structs.replace(BLANK, id=name, target=name, ttft_ms=1.0) for name in "ab"]
    recordings = {name: Recording(id=name) for name in "ab"}
    rng = np.random.default_rng(0)
    nothing = contest([Field("c=1", attempts)], recordings, targets("a", "b"), rng=rng)
    assert nothing == Contest((), ())


def test_warm_up_and_failures_are_in_no_pair_and_shift_no_other() -> None:
    rng = np.random.default_rng(6)
    base = ttfts(rng, 200.0, 100)
    attempts, recordings = [], {}
    for name, factor in (("a", 1.0), ("b", 2.0)):
        for at, value in enumerate(base.tolist()):
            key = f"{name}{at}"
            failed = name == "a" and at % 7 == 0
            one = msgspec.structs.replace(
                BLANK,
                id=key,
                target=name,
                seq=at,
                ttft_ms=None if failed else value * factor,
                outcome=Outcome.RESET if failed else Outcome.OK,
            )
            attempts.append(one)
            recordings[key] = Recording(id=key, block=at // PER_BLOCK, warmup=at < PER_BLOCK)
    rng = np.random.default_rng(0)
    result = contest(
        [Field("c=8", attempts)], recordings, targets("a", "b"), rng=rng, rounds=ROUNDS
    )
    (row,) = result.versus
    assert row.comparison.n == 90 - 13
    # Every pair is the same draw, doubled: a pair that had slipped would show.
    assert row.comparison.ratio == pytest.approx(0.5)
    assert row.comparison.interval is not None
    assert row.comparison.interval.low == pytest.approx(0.5)
    assert row.comparison.interval.high == pytest.approx(0.5)


def test_a_target_that_mostly_failed_takes_no_samples_from_the_others() -> None:
    rng = np.random.default_rng(8)
    draws = {"a": ttfts(rng, 200.0), "b": ttfts(rng, 400.0), "broken": ttfts(rng, 100.0, 20)}
    (board,) = played(draws, targets("a", "b", "broken")).boards
    assert [one.name for one in board.standings] == ["a", "b"]


def test_an_open_loop_is_ranked_from_the_planned_instant() -> None:
    rng = np.random.default_rng(9)
    attempts, recordings = [], {}
    for name in "ab":
        for at, value in enumerate(ttfts(rng, 200.0, 80).tolist()):
            key = f"{name}{at}"
            change = {"id": key, "target": name, "seq": at, "ttft_ms": 1.0, "ttft_plan_ms": value}
            attempts.append(msgspec.structs.replace(BLANK, **change))
            recordings[key] = Recording(id=key, block=at // PER_BLOCK)
    fields = [Field("20/s", attempts, open_loop=True)]
    result = contest(fields, recordings, targets("a", "b"), rng=rng, rounds=ROUNDS)
    assert {row.metric for row in result.versus} == {"ttft_plan_ms"}


@pytest.mark.parametrize(
    ("ratio", "ends", "p", "rate", "verdict"),
    [
        (0.8, (0.7, 0.9), 0.01, False, "a faster"),
        (0.8, (0.7, 0.9), 0.01, True, "b faster"),
        (1.2, (1.1, 1.3), 0.01, False, "b faster"),
        (0.8, (0.7, 0.9), 0.06, False, "unsure"),
        (0.8, (0.7, 1.1), 0.01, False, "tie"),
        (0.8, None, 0.01, False, "n too small"),
    ],
)
def test_what_a_comparison_comes_to(
    ratio: float, ends: tuple[float, float] | None, p: float, rate: bool, verdict: str
) -> None:
    comparison = Comparison(
        n=100,
        blocks=10,
        ratio=ratio,
        interval=None if ends is None else Interval(*ends),
        p_value=p,
        p_less=0.5,
    )
    assert said(comparison, larger_is_better=rate) == verdict
