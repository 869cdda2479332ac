from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.rehearse.stages import played, policy, stage
from lightgate.bench.rehearse.gateway_policy import (
    GatewayPolicy,
    PolicySettings,
    SharedWorkers,
    gateway_policy,
)
from lightgate.bench.rehearse.rehearsal import Rehearsal
from lightgate.bench.rehearse.rehearse import (
    EDGES,
    FIXED,
    HINDSIGHT,
    OTHERS,
    WorldSource,
    baseline,
    each_fixed,
)
from lightgate.bench.rehearse.scene import SceneChanges, scene

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.bench.rehearse.rehearse import NamedPolicy

EVERYONE = (
    *(baseline(name) for name in (*EDGES, *OTHERS) if name != HINDSIGHT),
    each_fixed(4)[2],
    policy("fastest", "auto"),
    policy("voice", "p75"),
    policy("cheapest", "800ms"),
    policy("fastest", race=3),
    policy("voice", race=2),
    policy("ordered"),
    policy("weighted"),
)


@pytest.mark.parametrize("role", EVERYONE, ids=lambda role: role.name)
def test_every_request_ends_exactly_once(role: NamedPolicy) -> None:
    tally = played(stage("T5", 400), role)
    assert tally.ends == [1] * 400
    answered = int(np.count_nonzero(~np.isnan(tally.done_s)))
    assert answered + tally.failures == 400
    assert sum(tally.wins) >= answered
    assert np.all(tally.done_s[~np.isnan(tally.done_s)] >= tally.ttft_s[~np.isnan(tally.done_s)])
    assert tally.attempts >= 400


@pytest.mark.parametrize("role", EVERYONE, ids=lambda role: role.name)
def test_the_same_seed_gives_the_same_run(role: NamedPolicy) -> None:
    one, two, other = (played(stage(requests=200), role, seed) for seed in (3, 3, 4))
    assert one.ttft_s.tobytes() == two.ttft_s.tobytes()
    assert one.bills.mixed == two.bills.mixed
    assert one.ttft_s.tobytes() != other.ttft_s.tobytes()


def test_all_policies_meet_the_same_luck() -> None:
    where = stage("T1", 800)
    fixed, oracle = (played(where, baseline(name)) for name in (FIXED, "oracle"))
    # In a calm world the oracle sends everybody to the same target as the table.
    assert fixed.ttft_s.tobytes() == oracle.ttft_s.tobytes()
    voice = played(where, policy("voice"))
    same = [
        number
        for number in range(800)
        if voice.first_target[number] == voice.winner[number] == fixed.winner[number]
        and fixed.first_target[number] == fixed.winner[number]
    ]
    assert len(same) > 400
    assert voice.ttft_s[same].tolist() == fixed.ttft_s[same].tolist()


def test_luck_does_not_depend_on_what_was_sent_before() -> None:
    where = stage("T4", 50)
    one, two = where.drawn(1)(), where.drawn(1)()
    assert one.arrivals_ns == two.arrivals_ns
    for number in range(40):
        one.truth.fate(number, 2, 10**12, 512)
    assert one.truth.fate(45, 2, 10**12, 512) == two.truth.fate(45, 2, 10**12, 512)


@pytest.mark.parametrize(("hedge", "name"), [("auto", "T4"), ("p75", "T2"), ("50ms", "T5")])
def test_hedges_keep_their_budgets(hedge: str, name: str) -> None:
    tally = played(stage(name, 1500), policy("voice", hedge))
    assert 0 < tally.duplicates <= 0.15 * 1500 + 20
    assert 0.0 < tally.bills.extra <= 0.10 * tally.bills.mixed
    assert tally.bills.honoured <= tally.bills.mixed


@settings(max_examples=12)
@given(
    st.sampled_from(("T1", "T3", "T5", "providers-2026")),
    st.sampled_from((0.02, 0.5, 20.0)),
    st.sampled_from((0.0, 0.9)),
    st.sampled_from((16, 512, 9000)),
    st.integers(1, 99),
)
def test_no_world_makes_hedges_or_probes_spend_more(
    name: str, rate: float, correlation: float, tokens_in: int, seed: int
) -> None:
    wish = SceneChanges(requests=300, rate=rate, correlation=correlation, tokens_in=tokens_in)
    where = WorldSource(scene(name, wish))
    tally = played(where, policy("voice", "p75"), seed)
    assert tally.duplicates <= 0.15 * 300 + 20
    assert tally.bills.extra <= 0.10 * tally.bills.mixed
    assert tally.bills.probes <= 0.01 * tally.bills.mixed
    assert tally.ends == [1] * 300


def test_a_race_starts_so_many_and_pays_for_the_losers() -> None:
    tally = played(stage("T1", 300), policy("voice", race=3))
    alone = played(stage("T1", 300), policy("voice"))
    assert tally.duplicates >= 590
    assert np.nanquantile(tally.ttft_s, 0.99) < np.nanquantile(alone.ttft_s, 0.99)
    # Two losers pay their prompts at least: 2 x 512 of 512 + 4 x 512.
    assert tally.bills.honoured > 1.39 * alone.bills.honoured


def test_a_whole_answer_may_wait_for_the_faster_decoder() -> None:
    first = played(stage("T1", 400), policy("voice", race=2))
    whole = played(stage("T1", 400), policy("fastest", race=2))
    assert np.nanquantile(whole.done_s, 0.9) < np.nanquantile(first.done_s, 0.9)
    assert np.nanquantile(whole.ttft_s, 0.5) > np.nanquantile(first.ttft_s, 0.5)


def test_losers_and_failures_teach() -> None:
    where = stage("T4", 800)
    cast = where.drawn(2)()
    brain = GatewayPolicy(where.offers, PolicySettings(policy="voice", hedge="p75"), 512, 2)
    play = Rehearsal(cast, brain)
    play.run()
    for offer in where.offers:
        form = brain.forms.form(offer.target)
        assert form.in_flight == 0
        assert form.last_ns > cast.arrivals_ns[0]
    paid, hedges, racers = brain.budgets.spent("")
    assert paid > 0.0
    assert racers == 0.0
    assert hedges == pytest.approx(play.tally.bills.extra * 1e9)


def test_probes_are_few_and_reach_everybody() -> None:
    tally = played(stage("T1", 600), policy("fastest"))
    assert tally.probes > 100
    assert 0.0 < tally.bills.probes <= 0.01 * tally.bills.mixed


def test_a_world_with_slots_and_a_rate_limit_is_played(tmp_path: Path) -> None:
    file = tmp_path / "narrow.toml"
    file.write_text(
        """
name = "narrow"
title = "a queue and a limit"
source = "made up"
[providers.queue]
slots = 1
[providers.queue.models.m]
exact = { ttft_ms = 100, gap_ms = 1 }
[providers.limit]
rate = { per_s = 0.5, burst = 1 }
[providers.limit.models.m]
exact = { ttft_ms = 50, gap_ms = 1 }
""",
        encoding="utf-8",
    )
    where = WorldSource(scene(str(file), SceneChanges(requests=200, rate=2.0, tokens_out=200)))
    tally = played(where, baseline(FIXED))
    assert tally.failures == 0
    assert tally.wins[1] < 120  # half a request a second of two, the others fail over
    assert float(np.nanmax(tally.ttft_s)) > 0.3  # somebody stood in the queue
    assert float(np.nanmin(tally.ttft_s)) == pytest.approx(0.05)


def test_machines_that_share_a_store_know_what_the_others_have_in_flight() -> None:
    where = stage("queue", 300)
    two = gateway_policy(PolicySettings(policy="fastest", machines=2))
    assert two.name == "fastest, hedge auto, 2 machines"
    given = where.drawn(1)()
    shared = two.make(given.truth, 1, where)
    assert isinstance(shared, SharedWorkers)
    tally = Rehearsal(given, shared).run()
    assert tally.ends == [1] * 300
    for worker in shared._workers:
        for offer in where.offers:
            form = worker.forms.form(offer.target)
            assert (form.in_flight, form.shared) == (0, True)
    assert played(where, two).ttft_s.tobytes() == tally.ttft_s.tobytes()


def test_workers_of_one_gateway_share_what_they_learn() -> None:
    where = stage("T4", 500)
    four = gateway_policy(PolicySettings(policy="voice", workers=4))
    assert four.name == "voice, hedge auto, 4 workers"
    given = where.drawn(1)()
    shared = four.make(given.truth, 1, where)
    assert isinstance(shared, SharedWorkers)
    tally = Rehearsal(given, shared).run()
    assert tally.ends == [1] * 500
    for worker in shared._workers:
        for offer in where.offers:
            form = worker.forms.form(offer.target)
            assert form.in_flight == 0
            assert form.last_ns > given.arrivals_ns[0]  # its own samples, or another worker's
    paid = [worker.budgets.spent("")[0] for worker in shared._workers]
    assert all(0.1 < nano / sum(paid) < 0.4 for nano in paid)
    again = played(where, four)
    assert again.ttft_s.tobytes() == tally.ttft_s.tobytes()
