from __future__ import annotations

import typing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.bench.judge.verdict import LIMITS, Signs, VerdictLimits, degrades, diagnose, modes
from lightgate.bench.statistics.summary import DURATION_QS, RATE_QS, estimates
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, VerdictName

N = 300
Z95 = 1.6448536269514722
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "verdicts.md"


class Point(NamedTuple):
    """A load of a world: medians and the bad 5 % of TTFT (ms) and speed (tok/s)."""

    c: int
    ttft: tuple[float, float]
    speed: tuple[float, float]


class World(NamedTuple):
    cells: list[CellSummary]
    signs: Signs


def world(points: list[Point], *, scale: float = 1.0, seed: int = 1, **facts: Any) -> World:
    """Draw lognormal samples for every load; `scale` stretches all times."""
    rng = np.random.default_rng(seed)
    cells, singles = [], {}
    for point in points:
        ttfts = _draw(rng, *point.ttft) * scale
        speeds = _draw(rng, *point.speed) / scale
        singles[f"c={point.c}"] = tuple(ttfts.tolist())
        cells.append(cell(point.c, ttfts.tolist(), speeds.tolist(), **facts))
    return World(cells, Signs(ttft_ms=singles))


def _draw(rng: np.random.Generator, p50: float, bad: float) -> np.ndarray[Any, Any]:
    return rng.lognormal(np.log(p50), abs(np.log(bad / p50)) / Z95, N)


def cell(c: int, ttfts: list[float], speeds: list[float], **facts: Any) -> CellSummary:
    facts.setdefault("outcomes", {"ok": len(ttfts)})
    facts.setdefault("offered_share", 1.0)
    return CellSummary(
        target="lab",
        load=f"c={c}",
        concurrency=c,
        metrics=(
            Metric(name="ttft_ms", quantiles=estimates(ttfts, DURATION_QS)),
            Metric(name="speed_tps", quantiles=estimates(speeds, RATE_QS)),
        ),
        tokens_out_p50=512.0,
        **facts,
    )


HEALTHY = [Point(1, (180, 220), (310, 295)), Point(32, (280, 450), (245, 210))]
INTERMITTENT = [Point(1, (230, 290), (215, 200)), Point(32, (400, 2400), (180, 150))]
CONTENTION = [Point(1, (620, 1100), (65, 55)), Point(32, (1000, 1900), (30, 22))]
QUEUE = [
    Point(1, (200, 260), (100, 90)),
    Point(8, (210, 280), (99, 88)),
    Point(32, (4000, 5500), (97, 86)),
]
MIXED_QUEUE = [
    Point(1, (200, 260), (100, 90)),
    Point(8, (210, 280), (99, 88)),
    Point(32, (4000, 5500), (97, 86)),
]
MIXED_QUEUE = [Point(1, (200, 260), (100, 90)), Point(32, (60_000, 80_000), (60, 50))]
WORLDS: dict[str, tuple[list[Point], VerdictName]] = {
    "healthy": (HEALTHY, "healthy"),
    "intermittent": (INTERMITTENT, "intermittent queue"),
    "contention": (CONTENTION, "batch contention"),
    "queue": (QUEUE, "admission queue"),
    "a queue that also batches": (MIXED_QUEUE, "admission queue"),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("seed", range(12))
def test_the_name_of_a_world_does_not_depend_on_its_noise(name: str, seed: int) -> None:
    points, expected = WORLDS[name]
    verdict = diagnose(*world(points, seed=seed))
    assert verdict is not None
    assert verdict.name == expected
    assert verdict.evidence


@pytest.mark.parametrize("name", WORLDS)
@settings(max_examples=15, deadline=None)
@given(scale=st.floats(0.01, 100.0))
def test_the_unit_of_time_does_not_matter(name: str, scale: float) -> None:
    points, expected = WORLDS[name]
    verdict = diagnose(*world(points, scale=scale))
    assert verdict is not None
    assert verdict.name == expected


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (HEALTHY, "healthy"),
        (
            [Point(1, (230, 290), (215, 200)), Point(32, (610, 2400), (140, 105))],
            "intermittent queue",
        ),
        ([Point(1, (410, 580), (110, 95)), Point(32, (780, 1800), (72, 55))], "batch contention"),
        ([Point(1, (480, 720), (85, 75)), Point(32, (950, 2900), (52, 38))], "batch contention"),
        ([Point(1, (620, 1100), (65, 55)), Point(32, (1400, 4100), (30, 22))], "batch contention"),
    ],
)
def test_the_five_providers_of_the_2025_tables(points: list[Point], expected: str) -> None:
    verdict = diagnose(*world(points))
    assert verdict is not None
    assert verdict.name == expected


def test_p90_stands_in_for_p95_where_samples_are_few() -> None:
    heavy = world(INTERMITTENT).cells[-1]
    rng = np.random.default_rng(2)
    few = cell(1, _draw(rng, 230, 290).tolist()[:40], _draw(rng, 215, 200).tolist()[:40])
    verdict = diagnose([few, heavy])
    assert verdict is not None
    assert verdict.name == "intermittent queue"
    assert verdict.evidence[0].startswith("TTFT p90 goes from")


def test_a_tail_that_explodes_while_the_median_stays_is_a_queue_already_at_8() -> None:
    """The first sign in the tables of 2025: p95 from 290 to 820 ms, p50 from 230 to 290."""
    for seed in range(12):
        points = [Point(1, (230, 279), (215, 200)), Point(8, (290, 860), (180, 145))]
        verdict = diagnose(*world(points, seed=seed))
        assert verdict is not None
        assert verdict.name == "intermittent queue"


def test_a_few_samples_are_not_called_healthy() -> None:
    rng = np.random.default_rng(3)
    few = [cell(c, rng.lognormal(5, 0.2, 24).tolist(), [100.0] * 24) for c in (1, 8)]
    verdict = diagnose(few, Signs(cpu_share=0.03))
    assert verdict is not None
    assert verdict.name == "not judged"
    assert verdict.evidence[0] == "c=1: 24 requests; the tail needs 36 to be seen"


def test_a_schedule_that_asks_for_too_much_is_overloaded() -> None:
    calm = [planned(n, 200.0 + n % 7) for n in range(90)]
    behind = [planned(n, 200.0 + 40.0 * n) for n in range(90)]
    at_rate = CellSummary(target="lab", load="20/s", rate=20.0, outcomes={"ok": 90})
    for attempts, expected in ((calm, None), (behind, "overloaded")):
        verdict = diagnose([at_rate], Signs.of({"20/s": attempts}))
        assert (verdict and verdict.name) == expected
    dropped = _with(at_rate, offered_share=0.7)
    verdict = diagnose([dropped], Signs.of({"20/s": calm}))
    assert verdict is not None
    assert verdict.evidence == ("20/s: 30% were never sent, since too many were in flight",)


def planned(n: int, wait_ms: float) -> AttemptRecord:
    marks = Marks()
    marks.plan = marks.send = n * 50_000_000
    stamp = marks.send + int(wait_ms * 1e6)
    marks.burst(stamp, stamp, 1, 4)
    facts = AttemptFacts(
        id=str(n),
        exchange_id=str(n),
        source="bench",
        target="lab",
        provider="lab",
        model="m",
        dialect="openai",
        outcome=Outcome.OK,
        wall_ns=0,
    )
    return AttemptRecord.of(facts, marks, Tokens())


def test_no_growth_that_the_intervals_do_not_show() -> None:
    rng = np.random.default_rng(3)
    few = [
        cell(1, rng.lognormal(5, 1.6, 40).tolist(), [100.0] * 40),
        cell(8, (rng.lognormal(5, 1.6, 40) * 1.8).tolist(), [100.0] * 40),
    ]
    verdict = diagnose(few)
    assert verdict is not None
    assert verdict.name == "healthy"
    assert "may be chance" in verdict.evidence[0]


def test_refusals_are_a_rate_limiter_whatever_else_is_seen() -> None:
    points = QUEUE
    plain = world(points)
    cells = [*plain.cells[:-1], _with(plain.cells[-1], outcomes={"ok": 290, "rate_limited": 10})]
    cells[-1] = _with(cells[-1], offered_share=0.5)  # the driver kept the pause that it was told
    verdict = diagnose(cells, plain.signs)
    assert verdict is not None
    assert verdict.name == "rate limiter"
    assert verdict.evidence == ("c=32: 3.3% of the requests were answered 429",)


def test_refusals_that_come_with_the_load_are_a_rate_limiter() -> None:
    light, heavy = world(HEALTHY).cells
    refused = {"ok": 200, "http_error": 100}
    verdict = diagnose([light, _with(heavy, outcomes=refused)])
    assert verdict is not None
    assert verdict.name == "rate limiter"
    everywhere = [_with(light, outcomes=refused), _with(heavy, outcomes=refused)]
    assert diagnose(everywhere) is None  # an endpoint that is broken has no name here


def test_a_fixed_step_in_ttft_is_a_rate_limiter() -> None:
    rng = np.random.default_rng(4)
    fast = rng.lognormal(np.log(200), 0.15, 200)
    slow = rng.lognormal(np.log(2200), 0.1, 60)
    ttfts = np.concatenate([fast, slow]).tolist()
    stepped = cell(8, ttfts, [100.0] * 260)
    light = cell(1, fast.tolist(), [100.0] * 200)
    signs = Signs(ttft_ms={"c=1": tuple(fast.tolist()), "c=8": tuple(ttfts)})
    verdict = diagnose([light, stepped], signs)
    assert verdict is not None
    assert verdict.name == "rate limiter"
    assert "two modes" in verdict.evidence[0]
    cached = _with(stepped, cold_ttft_p50_ms=2200.0, cached_ttft_p50_ms=200.0)
    explained = diagnose([light, cached], signs)
    assert explained is not None
    assert explained.name == "intermittent queue"  # a cache makes two modes; it is no limiter


def test_a_late_client_is_named_before_anything_else() -> None:
    points = world(QUEUE)
    doubtful = Estimate(q=0.95, n=99, value=519.0, low=209.4, high=519.0, doubtful=True)
    late = _with(points.cells[-1], metrics=(Metric(name="ttft_ms", quantiles=(doubtful,)),))
    signs = msgspec.structs.replace(points.signs, cpu_share=0.97)
    verdict = diagnose([*points.cells[:-1], late], signs)
    assert verdict is not None
    assert verdict.name == "client-bound"
    assert verdict.evidence == (
        "c=32: TTFT p95 lies between 209 and 519 ms",
        "the client used 97% of its processor",
    )


def doubted(found: CellSummary, metric: str, q: float, ends: tuple[float, float]) -> CellSummary:
    """The cell with one figure that its client was too late to know better."""
    low, high = ends
    metrics = tuple(
        msgspec.structs.replace(
            one,
            quantiles=tuple(
                msgspec.structs.replace(each, low=low, high=high, doubtful=True)
                if (one.name, each.q) == (metric, q)
                else each
                for each in one.quantiles
            ),
        )
        for one in found.metrics
    )
    return _with(found, metrics=metrics)


@pytest.mark.parametrize("points", [QUEUE, HEALTHY], ids=["queue", "healthy"])
def test_a_doubt_that_cannot_change_the_verdict_does_not(points: list[Point]) -> None:
    """A median between 2 % below and 1 % above leaves every ratio of the rules where it was."""
    light, *_, heavy = (sure := world(points)).cells
    plain = diagnose([light, heavy], sure.signs)
    assert plain is not None
    median = light.value("ttft_ms", 0.5)
    assert median is not None
    late = doubted(light, "ttft_ms", 0.5, (median * 0.98, median * 1.01))
    verdict = diagnose([late, heavy], sure.signs)
    assert verdict is not None
    assert verdict.name == plain.name != "client-bound"
    assert "read late" in verdict.evidence[-1]


def test_a_doubt_that_could_change_the_verdict_is_the_client() -> None:
    light, *_, heavy = (sure := world(QUEUE)).cells
    low, high = light.value("ttft_ms", 0.5), heavy.value("ttft_ms", 0.5)
    assert low is not None
    assert high is not None
    late = doubted(light, "ttft_ms", 0.5, (low, high))
    verdict = diagnose([late, heavy], sure.signs)
    assert verdict is not None
    assert verdict.name == "client-bound"
    assert verdict.evidence[0].startswith("c=1: TTFT p50 lies between")


def test_a_client_that_did_not_offer_the_load() -> None:
    light, heavy = world(HEALTHY).cells
    short = [light, _with(heavy, offered_share=0.8)]
    verdict = diagnose(short, Signs(cpu_share=0.95))
    assert verdict is not None
    assert verdict.name == "client-bound"
    assert verdict.evidence[0] == "c=32: only 80% of the asked load was in flight"
    idle = diagnose(short, Signs(cpu_share=0.03))  # a client at 3 % was not what held it back
    assert idle is not None
    assert idle.name == "healthy"


FAR = [Point(1, (180, 200), (100, 95)), Point(32, (185, 210), (98, 92))]


def test_a_round_trip_that_is_most_of_the_wait() -> None:
    far = world(FAR)
    signs = msgspec.structs.replace(far.signs, round_trip_ms=150.0)
    verdict = diagnose(far.cells, signs)
    assert verdict is not None
    assert verdict.name == "network"
    assert verdict.evidence[0].startswith("one round trip takes 150 ms, 8")
    near = diagnose(far.cells, msgspec.structs.replace(signs, round_trip_ms=20.0))
    assert near is not None
    assert near.name == "healthy"


def test_timeouts_under_load_are_a_queue_longer_than_the_deadline() -> None:
    light, heavy = world(HEALTHY).cells
    verdict = diagnose([light, _with(heavy, outcomes={"ok": 200, "timeout": 100})])
    assert verdict is not None
    assert verdict.name == "admission queue"
    assert verdict.evidence[0] == "33% of the requests timed out at c=32"


def test_one_load_alone_earns_no_name() -> None:
    assert diagnose(world(HEALTHY).cells[:1]) is None
    assert diagnose([]) is None


def test_failures_without_a_name_are_not_healthy() -> None:
    light, heavy = world(HEALTHY).cells
    assert diagnose([light, _with(heavy, outcomes={"ok": 200, "reset": 100})]) is None


def test_the_sentence_has_the_numbers() -> None:
    light = cell(1, [230.0] * 100, [215.0] * 100, throughput_tps=196.0)
    heavy = cell(32, [610.0] * 100, [140.0] * 100, throughput_tps=3846.0, batch_eff=0.613)
    heavy = _with(heavy, outcomes={"ok": 99, "reset": 1})
    assert degrades([heavy, light]) == (
        "lab from c=1 to c=32: first token at p50 230 to 610 ms (2.7 times); "
        "at p95 230 to 610 ms (2.7 times); speed 215 to 140 tok/s (65%); "
        "throughput 196 to 3,846 tok/s, 61% of perfect scaling; failures 0.0% to 1.0%."
    )
    assert degrades([light]) == "lab was measured at c=1 only."
    assert degrades([]) == ""
    few = [cell(1, [1.0] * 3, [1.0] * 3), cell(8, [1.0] * 3, [1.0] * 3)]
    assert degrades(few) == "lab has too few samples to say how it degrades."


def test_one_mode_is_not_two() -> None:
    rng = np.random.default_rng(5)
    single = modes(rng.lognormal(5, 0.8, 1000).tolist())
    assert single is not None
    assert single.explained == pytest.approx(2 / np.pi, abs=0.03)
    double = modes([100.0] * 70 + [900.0] * 30)
    assert double is not None
    assert (double.fast, double.slow) == (100.0, 900.0)
    assert double.slow_share == pytest.approx(0.3)
    assert double.explained == pytest.approx(1.0)
    assert modes([100.0] * 50) is None
    assert modes([1.0, 2.0] * 9) is None


def test_signs_are_read_from_the_attempts() -> None:
    marks = Marks()
    marks.send, marks.tcp_ns = 0, 40_000_000
    marks.burst(200_000_000, 200_000_000, 1, 4)
    facts = AttemptFacts(
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
    attempt = AttemptRecord.of(facts, marks, Tokens())
    failed = msgspec.structs.replace(attempt, outcome=Outcome.RESET)
    signs = Signs.of({"c=1": [attempt, failed]}, cpu_share=0.2)
    assert signs == Signs(ttft_ms={"c=1": (200.0,)}, round_trip_ms=40.0, cpu_share=0.2)


def test_every_name_and_every_limit_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    for name in typing.get_args(VerdictName):
        assert f"| {name} |" in page
    for field in VerdictLimits._fields:
        assert f"| `{field}` | {getattr(LIMITS, field):g} |" in page


def _with(one: CellSummary, **change: Any) -> CellSummary:
    return msgspec.structs.replace(one, **change)
