"""The scenes of load and trouble: what each is for is there, and the marks see it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from bench.rehearse.stages import played, policy
from lightgate.bench.rehearse.gateway_policy import GatewayPolicy, PolicySettings
from lightgate.bench.rehearse.rehearsal import Rehearsal
from lightgate.bench.rehearse.rehearse import (
    HINDSIGHT,
    NamedPolicy,
    WorldSource,
    baseline,
    each_fixed,
    rehearse,
)
from lightgate.bench.rehearse.scene import SceneChanges, built_in, capacity, scene
from lightgate.bench.rehearse.tally import CENSORED_S, figures
from lightgate.bench.rehearse.truth import BORN_NS
from lightgate.errors import UsageError
from lightgate.route.health.failure import RATE_LIMITED

if TYPE_CHECKING:
    from lightgate.bench.rehearse.baselines import RehearsedPolicy, RehearsedRequest
    from lightgate.bench.rehearse.rehearse import RehearsalSource
    from lightgate.bench.rehearse.truth import Truth
    from lightgate.route.plan.plan import Plan

NS = 1_000_000_000
LOADS = [name for name in built_in() if not name.startswith("T")]


def world(name: str, requests: int = 400, **changes: float) -> WorldSource:
    return WorldSource(scene(name, SceneChanges(requests=requests, **changes)))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("name", LOADS)
def test_every_scene_is_played_to_the_end(name: str) -> None:
    where = world(name, 300)
    for role in (baseline("oracle, hedge p90"), policy("fastest", "auto"), policy("cheapest")):
        tally = played(where, role)
        assert tally.ends == [1] * 300
        again = played(where, role)
        assert tally.ttft_s.tobytes() == again.ttft_s.tobytes()


def test_the_rate_is_a_share_of_what_the_slots_can_serve() -> None:
    small, large = scene("queue", SceneChanges(slots=2)), scene("queue", SceneChanges(slots=24))
    assert large.traffic.rate == pytest.approx(12 * small.traffic.rate)
    assert small.traffic.rate == pytest.approx(0.8 * capacity(small))
    half = scene("queue", SceneChanges(share=0.4))
    assert half.traffic.rate == pytest.approx(scene("queue").traffic.rate / 2)
    assert scene("queue", SceneChanges(rate=3.0)).traffic.rate == 3.0
    with pytest.raises(UsageError, match="no slots"):
        scene("T4", SceneChanges(share=0.5))


def test_above_its_capacity_a_queue_grows_and_below_it_does_not() -> None:
    rows = [
        figures(played(world("queue", 1500, share=share), baseline("oracle")))
        for share in (0.4, 0.8, 1.3)
    ]
    assert rows[0].ttft_s[1] < rows[1].ttft_s[1] < 1.5
    assert rows[2].ttft_s[1] > 5.0


def test_the_oracle_knows_the_queue_exactly() -> None:
    given = world("queue", 200).drawn(3)()
    truth = given.truth
    for number in range(40):
        seen = truth.outlook(number % 2, BORN_NS, 512)
        fate = truth.fate(number, number % 2, BORN_NS, 200)
        alone = world("queue", 200).drawn(3)().truth.fate(number, number % 2, BORN_NS, 200)
        assert fate.first_ns - alone.first_ns == round(seen.wait_s * NS)
    assert truth.outlook(0, BORN_NS, 512).wait_s > 1.0
    assert truth.outlook(2, BORN_NS, 512).wait_s == 0.0
    assert truth.busy(0, BORN_NS) == 20


def test_the_oracle_of_ends_knows_the_length_of_the_answer() -> None:
    where = world("mixed", 600)
    tally = played(where, baseline("oracle-end"))
    given = where.drawn(1)()
    short = [w for w, tokens in zip(tally.winner, given.tokens_out, strict=True) if tokens < 10]
    long = [w for w, tokens in zip(tally.winner, given.tokens_out, strict=True) if tokens > 600]
    assert set(short) == {0}  # the first token is soonest there
    assert set(long) == {1}  # and the last one here
    assert set(played(where, baseline("oracle")).winner) == {0}


def test_both_oracles_are_the_best_of_their_kind_in_a_queue() -> None:
    names = ("oracle", "oracle-end", "least-in-flight", "mean-of-last-10", "random")
    rows = {
        row.policy: row
        for row in rehearse(world("queue", 1200), [baseline(name) for name in names], (1, 2))
    }
    assert min(rows.values(), key=lambda row: row.ttft_p95_s.mean).policy == "oracle"
    assert min(rows.values(), key=lambda row: row.done_p95_s.mean).policy == "oracle-end"
    assert (rows["oracle"].x_oracle, rows["oracle-end"].x_oracle_end) == (1.0, 1.0)
    least = rows["least-in-flight"]
    assert least.x_oracle == least.ttft_p95_s.mean / rows["oracle"].ttft_p95_s.mean
    assert rehearse(world("queue", 50), [baseline("random")], (1,))[0].x_oracle is None


def test_an_oracle_that_thinks_of_its_followers_serves_all_of_them_better() -> None:
    names = ("oracle-end", "oracle-all")
    alone, shared = rehearse(world("queue", 1500), [baseline(name) for name in names], (1, 2))
    assert shared.done_p95_s.mean < alone.done_p95_s.mean
    assert shared.ttft_p95_s.mean < 0.8 * alone.ttft_p95_s.mean
    calm = [played(world("T1", 200), baseline(name)).done_s.tobytes() for name in names]
    assert calm[0] == calm[1]  # where nothing waits they are one


def test_strangers_take_slots_and_only_the_engine_counts_them() -> None:
    alone = world("queue", 800, share=0.4)
    crowd = world("strangers", 800)
    assert crowd.drawn(1)().arrivals_ns == alone.drawn(1)().arrivals_ns
    waits = [
        figures(played(where, baseline("least-in-flight"))).ttft_s[1] for where in (alone, crowd)
    ]
    assert waits[1] > 1.5 * waits[0]
    given = crowd.drawn(1)()
    assert given.truth.busy(0, given.arrivals_ns[400]) > 0  # and none of them is ours


def told(name: str) -> list[tuple[int, int, int]]:
    """What a policy hears of the engines' own counts: place, requests, instant."""
    heard: list[tuple[int, int, int]] = []

    def make(truth: Truth, seed: int, source: RehearsalSource) -> RehearsedPolicy:
        inner = baseline("least-in-flight").make(truth, seed, source)
        inner.engine = lambda *said: heard.append(said)  # type: ignore[method-assign]  # listens
        return inner

    played(world(name, 200), NamedPolicy("told", make))
    return heard


def test_engines_tell_what_they_count_where_the_scene_says_so() -> None:
    assert told("strangers") == []
    heard = told("strangers-told")
    assert {place for place, _, _ in heard} == {0, 1, 2, 3}
    assert max(busy for _, busy, _ in heard) > 4
    instants = sorted({at for _, _, at in heard})
    assert set(np.diff(instants).tolist()) == {NS}


def test_a_seventh_request_in_flight_is_refused() -> None:
    truth = world("refusals").drawn(1)().truth
    fates = [truth.fate(number, 0, BORN_NS, 200) for number in range(8)]
    assert [fate.failure is RATE_LIMITED for fate in fates] == [False] * 6 + [True] * 2
    assert math.isinf(truth.outlook(0, BORN_NS, 512).first_s)
    truth.over(0, fates[6], BORN_NS, gone=False)
    assert math.isinf(truth.outlook(0, BORN_NS, 512).first_s)  # a refusal that ends frees no place
    truth.over(0, fates[0], BORN_NS, gone=False)
    assert truth.outlook(0, BORN_NS, 512).first_s < 1.0
    assert truth.fate(20, 0, BORN_NS, 200).failure is None


def test_an_idle_engine_is_cold_and_a_start_is_shared() -> None:
    truth = world("cold").drawn(1)().truth
    warm = truth.fate(0, 0, BORN_NS, 10)
    assert warm.first_ns < 2 * NS
    truth.over(0, warm, BORN_NS + NS, gone=False)
    late = BORN_NS + 70 * NS
    assert truth.outlook(0, late, 512).wait_s == 20.0
    first = truth.fate(1, 0, late, 10)
    assert first.first_ns > 20 * NS
    truth.over(0, first, late + NS, gone=True)  # the start goes on
    assert truth.outlook(0, late + 15 * NS, 512).wait_s == pytest.approx(5.0)
    second = truth.fate(2, 0, late + 15 * NS, 10)
    assert 5 * NS < second.first_ns < 8 * NS
    assert truth.fate(3, 0, late + 30 * NS, 10).first_ns < 2 * NS
    assert truth.fate(4, 2, late, 10).first_ns < 4 * NS  # this one never stops


def test_stalls_of_pareto_have_their_law() -> None:
    truth = world("pareto", 4000).drawn(1)().truth
    seconds = np.array([truth.fate(number, 0, BORN_NS, 10).first_ns / NS for number in range(4000)])
    law = scene("pareto").conditions.pareto
    assert law is not None
    tail = [float(np.mean(seconds - 0.05 > 0.12 * times)) for times in (2.0, 8.0)]
    assert tail == pytest.approx([2.0**-1.3, 8.0**-1.3], rel=0.25)
    capped = np.minimum(seconds - 0.05, 10.0)
    assert float(np.mean(capped)) == pytest.approx(law.mean_s(), rel=0.1)


def test_a_flapping_engine_is_slow_every_other_stretch() -> None:
    truth = world("flapping").drawn(1)().truth
    medians = [truth.outlook(0, BORN_NS + at * NS, 512).first_s for at in (10, 40, 70, 100)]
    assert medians == pytest.approx([0.15, 1.5, 0.15, 1.5])


class SaidEnds(GatewayPolicy):
    """The gateway's policy, which keeps the end that it expects of each request."""

    def __init__(self, where: WorldSource, settings: PolicySettings) -> None:
        super().__init__(where.offers, settings, where.usual_tokens, 5)
        self.ends_s: dict[int, float] = {}

    def plan(self, wanted: RehearsedRequest, now_ns: int) -> Plan:
        plan = super().plan(wanted, now_ns)
        self.ends_s[wanted.number] = plan.candidates[0].end_s
        return plan


@pytest.mark.parametrize("name", ["T1", "queue", "shared", "mixed", "reading"])
def test_ends_come_as_they_are_predicted(name: str) -> None:
    """`lightgate explain` shows them: their mean is right, whatever the length and the load."""
    where = world(name, 900)
    said = SaidEnds(where, PolicySettings(policy="fastest", hedge="off"))
    done_s = Rehearsal(where.drawn(5)(), said).run().done_s
    known = [number for number in range(150, 900) if done_s[number] < CENSORED_S]
    actual, expected = (sum(times[n] for n in known) for times in (done_s, said.ends_s))
    assert 0.9 < actual / expected < 1.12


@pytest.mark.parametrize("name", ["fastest", "chat", "voice"])
def test_a_small_engine_is_asked_for_short_prompts_and_spared_long_ones(name: str) -> None:
    """Its probes are short, and answered at once: they say nothing about a page."""
    where = world("reading", 1500)
    found, mark = (
        figures(played(where, role)) for role in (policy(name, "auto"), baseline("oracle"))
    )
    assert found.ttft_s[1] <= 1.2 * mark.ttft_s[1]
    assert found.ttft_s[0] <= 1.3 * mark.ttft_s[0]  # the small engine is not simply left alone
    assert found.ratio is not None
    assert 0.8 <= found.ratio <= 1.25


def test_a_long_prompt_is_read_first_and_the_oracle_knows_how_fast() -> None:
    where = world("prompts", 600)
    given = where.drawn(1)()
    long = given.tokens_in.index(16000)
    fresh, other = where.drawn(1)().truth, where.drawn(1)().truth
    fates = [fresh.fate(long, place, BORN_NS, 100).first_ns / NS for place in range(4)]
    probes = [other.probed(long, place, BORN_NS).first_ns / NS for place in range(4)]
    reads = [a - b for a, b in zip(fates, probes, strict=True)]
    assert reads == pytest.approx([15984 / speed for speed in (6000, 12000, 4000, 20000)])
    tally = played(where, baseline("oracle"))
    winners = [w for w, size in zip(tally.winner, given.tokens_in, strict=True) if size == 16000]
    assert winners.count(3) > 0.7 * len(winners)  # reads fastest, though its own token is last


def test_hindsight_takes_the_best_first_target_and_has_a_cooldown() -> None:
    where = world("bimodal", 800)
    best = rehearse(where, [baseline(HINDSIGHT)], (1, 2))[0]
    each = rehearse(where, each_fixed(4), (1, 2))
    assert best.ttft_p95_s == min((row.ttft_p95_s for row in each), key=lambda figure: figure.mean)
    assert best.wins["birch/m"] > 0.99  # not the quickest, which stalls
    # A provider that hangs is left alone after a few requests, not waited for by all of them.
    made = scene("bimodal", SceneChanges(requests=300))
    amber = made.world.providers["amber"]
    assert amber.weather is not None
    dead = msgspec.structs.replace(amber, weather=msgspec.structs.replace(amber.weather, hang=1.0))
    providers = {**made.world.providers, "amber": dead}
    sick = WorldSource(
        msgspec.structs.replace(
            made, world=msgspec.structs.replace(made.world, providers=providers)
        )
    )
    first, plain = (played(sick, role) for role in (each_fixed(4)[0], baseline("fixed-best")))
    assert np.mean(np.array(first.first_target) == 0) < 0.3
    assert np.mean(np.array(plain.first_target) == 0) > 0.9
    assert np.nanquantile(first.ttft_s, 0.5) < 1.0 < np.nanquantile(plain.ttft_s, 0.5)


def test_a_failure_counts_as_slower_than_every_answer() -> None:
    tally = played(world("queue", 400, share=3.0), baseline("random"))
    assert tally.failures > 20
    row = figures(tally)
    assert row.ttft_s[2] == row.done_s[2] == CENSORED_S
    assert float(np.nanquantile(tally.done_s, 0.99)) < CENSORED_S


def test_what_a_dearer_winner_cost_more_is_told_apart_from_losers() -> None:
    tally = played(world("dear", 1500), policy("cheapest", "p75"))
    bills = tally.bills
    assert bills.premium > 0.0
    assert bills.extra > 0.0
    least = scene("dear").offers[2]
    assert least.price_out == 4.0
    same = played(world("pareto", 600), policy("fastest", "p75"))
    assert same.bills.premium == 0.0  # all cost the same


def test_predictions_are_held_against_the_attempt_that_they_were_made_for() -> None:
    calm = figures(played(world("T1", 1500), policy("fastest", "auto")))
    assert calm.ratio == pytest.approx(1.0, abs=0.1)
    assert figures(played(world("T1", 200), baseline("oracle"))).ratio is None
