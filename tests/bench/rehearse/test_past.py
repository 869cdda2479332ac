from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from bench.rehearse.stages import policy
from ledger.notes import MS, T0, attempt_note, marks, settled
from lightgate.bench.rehearse.past import FEWEST, PastPeriod, PastSource, past
from lightgate.bench.rehearse.queue import ServiceQueue
from lightgate.bench.rehearse.rehearse import FIXED, HINDSIGHT, baseline, each_fixed, play, rehearse
from lightgate.clock.outcome import Outcome
from lightgate.errors import UsageError
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import Settled

S = 1_000_000_000
START = datetime.fromtimestamp(T0 / S, UTC)
DAY = PastPeriod(since=START - timedelta(hours=1), until=START + timedelta(days=1))
NEAR, FAR = "lab/s1", "far/s1"


def history(n: int = 240) -> list[Settled]:
    """Two targets in turn; `near` is quick in the first half and slow in the second."""
    draw = random.Random(5)  # noqa: S311 - the same history every time
    notes = []
    for at in range(n):
        target, wall_ns = (NEAR, FAR)[at % 2], T0 + at * 10 * S
        slow = target == NEAR and at >= n // 2
        stamps = marks(20, draw.randrange(80, 120) * (5 if slow else 1 + at % 2), 10)
        note = attempt_note(f"x-{at}", stamps, wall_ns=wall_ns)
        facts = msgspec.structs.replace(note.facts, target=target, provider=target[:3])
        outcome = Outcome.RATE_LIMITED if at % 40 == 1 else note.outcome
        failed = msgspec.structs.replace(note, facts=facts, outcome=outcome)
        notes.append(settled(f"x-{at}", failed, wall_ns=wall_ns, tokens_out=20 + at % 3))
    return notes


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


def keep(ledger: Ledger, folder: Path, notes: list[Settled]) -> None:
    journal = Journal(folder / "journal", 0)
    for note in notes:
        journal.write(note)
    journal.close()
    Shipper(ledger, folder / "journal").drain(50)


@pytest.fixture
def stage(ledger: Ledger, tmp_path: Path) -> PastSource:
    keep(ledger, tmp_path, history())
    return past(ledger, DAY, None)


def test_traffic_and_targets_are_those_of_the_ledger(stage: PastSource) -> None:
    assert (stage.model, stage.requests, stage.usual_tokens) == ("fast", 240, 21)
    assert {offer.target for offer in stage.offers} == {NEAR, FAR}
    cast = stage.drawn(1)()
    gaps = np.diff(cast.arrivals_ns)
    assert set(gaps.tolist()) == {10 * S}
    assert list(cast.tokens_out[:3]) == [20, 21, 22]
    assert stage.stretched() == 0.0


def test_a_fate_is_one_of_the_targets_own_near_that_time(stage: PastSource) -> None:
    cast = stage.drawn(1)()
    near = [offer.target for offer in stage.offers].index(NEAR)
    early, late = cast.arrivals_ns[10], cast.arrivals_ns[-10]
    quick = {cast.truth.fate(i, near, early, 20).first_ns // MS for i in range(100)}
    slow = {cast.truth.fate(i, near, late, 20).first_ns // MS for i in range(100)}
    assert max(quick) < 121
    assert min(slow) >= 400
    assert cast.truth.outlook(near, early, 512)[0] < 0.13
    fate = cast.truth.fate(3, near, early, 41)
    assert fate.decode_ns == pytest.approx(40 * 10 * MS, rel=0.1)


def test_failures_of_the_past_happen_again(stage: PastSource) -> None:
    cast = stage.drawn(1)()
    far = [offer.target for offer in stage.offers].index(FAR)
    fates = [cast.truth.fate(i, far, cast.arrivals_ns[i], 20) for i in range(240)]
    failed = [fate for fate in fates if fate.failure is not None]
    assert 0 < len(failed) < 40


def test_policies_are_rehearsed_on_it(stage: PastSource) -> None:
    rows = rehearse(stage, [baseline(FIXED), policy("voice", "auto"), baseline("oracle")], (1, 2))
    fixed, voice, oracle = rows
    assert fixed.requests == 240
    assert oracle.ttft_p50_s.mean <= fixed.ttft_p50_s.mean
    assert voice.ttft_p95_s.mean < fixed.ttft_p95_s.mean
    tally = play(stage, policy("voice"), stage.drawn(1)(), 1)
    assert tally.ends == [1] * 240


def loaded(n: int = 900) -> list[Settled]:
    """One engine with three slots and a queue, taken by most; and one that is never crowded."""
    dice = random.Random(7)  # noqa: S311 - the same history every time
    queue, at, notes = ServiceQueue(3), 0.0, []
    for number in range(n):
        at += dice.expovariate(2.2)
        now = int(at * S)
        near = number % 12 != 0
        own_ms, gap_ms = dice.randrange(150, 250), dice.randrange(150, 250)
        wait_ms = 0
        if near:
            entry = queue.enter(number, now, (own_ms + 5 * gap_ms) * MS)
            wait_ms = (entry.start_ns - now) // MS
        stamps = marks(6, wait_ms + own_ms, gap_ms)
        target = NEAR if near else FAR
        note = attempt_note(f"x-{number}", stamps, wall_ns=T0 + now)
        facts = msgspec.structs.replace(note.facts, target=target, provider=target[:3])
        note = msgspec.structs.replace(note, facts=facts)
        model = "other" if number % 5 == 1 else "fast"
        about = {"wall_ns": T0 + now, "tokens_out": 6, "key_id": f"k-{number % 3}"}
        notes.append(settled(f"x-{number}", note, model_asked=model, **about))
    return notes


@pytest.fixture
def crowd(ledger: Ledger, tmp_path: Path) -> PastSource:
    keep(ledger, tmp_path, loaded())
    return past(ledger, DAY, None)


def test_the_load_of_the_past_is_learned_where_it_was_seen(crowd: PastSource) -> None:
    near, far = sorted(crowd.loads, key=lambda load: load.target != NEAR)
    assert near.target == NEAR
    assert 2 <= near.first.hinge <= 5
    assert near.first.slope_s == pytest.approx(1.2 / 3, rel=0.4)
    assert "each one more delays the first token" in near.says
    assert far.first.slope_s == 0.0
    assert "not known and not played" in far.says


def test_more_load_than_the_past_had_is_slower_and_said_to_be_a_guess(crowd: PastSource) -> None:
    place = [offer.target for offer in crowd.offers].index(NEAR)
    given = crowd.drawn(1)()
    at = given.arrivals_ns[300]
    fates = [given.truth.fate(300, place, at, 6) for _ in range(40)]
    firsts = [fate.first_ns for fate in fates]
    assert firsts == sorted(firsts)
    assert firsts[30] - firsts[10] == pytest.approx(20 * 0.4 * S, rel=0.4)
    assert not fates[0].beyond
    assert fates[-1].beyond
    before = given.truth.busy(place, at)
    given.truth.over(place, fates[0], at, gone=True)
    assert given.truth.busy(place, at) == before - 1


def test_traffic_of_other_models_stays_where_it_was(crowd: PastSource) -> None:
    place = [offer.target for offer in crowd.offers].index(NEAR)
    given = crowd.drawn(1)()
    assert crowd.requests == 720
    beside = [given.truth.busy(place, at) for at in given.arrivals_ns]
    assert max(beside) >= 1  # none of the rehearsal's own has started
    assert {key for key, _ in given.asked} == {"k-0", "k-1", "k-2"}


def test_a_policy_that_spreads_is_better_than_one_that_queues(crowd: PastSource) -> None:
    near = [offer.target for offer in crowd.offers].index(NEAR)
    roles = [each_fixed(2)[near], baseline("oracle"), baseline("random"), baseline(HINDSIGHT)]
    fixed, oracle, drawn, best = rehearse(crowd, roles, (1,))
    assert oracle.ttft_p95_s.mean < 0.7 * min(fixed.ttft_p95_s.mean, drawn.ttft_p95_s.mean)
    # Hindsight would send everything where nothing was ever slow, and that is said to be a guess.
    assert best.wins[FAR] == 1.0
    assert best.beyond.mean > 0.5
    assert fixed.beyond.mean < 0.2


def test_the_last_requests_only(ledger: Ledger, tmp_path: Path) -> None:
    keep(ledger, tmp_path, history())
    some = past(ledger, msgspec.structs.replace(DAY, requests=50), None)
    assert some.requests == 50


@pytest.mark.parametrize(
    ("notes", "period"),
    [
        (history(2 * FEWEST - 2), DAY),
        (history()[::2], DAY),
        (history(), msgspec.structs.replace(DAY, model="slow")),
        ([], DAY),
    ],
    ids=["few", "one target", "other model", "empty"],
)
def test_too_little_is_said(
    ledger: Ledger, tmp_path: Path, notes: list[Settled], period: PastPeriod
) -> None:
    keep(ledger, tmp_path, notes)
    with pytest.raises(UsageError, match="ledger has"):
        past(ledger, period, None)
