"""How many may be in flight at a target, and what a target without room is used for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.admission.in_flight import HOLD_NS, InFlightLimit
from lightgate.route.form.forms import Forms, FormState
from lightgate.route.form.prior import Prior
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import RATE_LIMITED, SERVER
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide

if TYPE_CHECKING:
    from lightgate.route.plan.plan import Plan

S = 1_000_000_000
A, B, C = "a/m", "b/m", "c/m"


def forms() -> Forms:
    return Forms(
        {
            A: Prior(200.0, 300.0, 200.0, 150.0),
            B: Prior(400.0, 600.0, 100.0, 80.0),
            C: Prior(800.0, 999.0, 50.0, 40.0),
        }
    )


def plan(known: Forms, policy: str = "fastest", **alias: object) -> Plan:
    model = Alias(name="m", targets=(A, B, C), policy=policy, **alias)  # type: ignore[arg-type]
    return decide(PlanAsk(alias=model), Breakers(Rules(), lambda: 0.5), 0, 0.5, known)


def fill(known: Forms, target: str, flying: int = 4) -> None:
    """So many in flight, and one more that is refused."""
    for _ in range(flying + 1):
        known.started(target)
    known.failed(target, 0, 0, RATE_LIMITED, None)
    known.ended(target)
    known.started(target)


def test_without_a_complaint_there_is_no_limit() -> None:
    known = forms()
    for _ in range(1000):
        known.started(A)
    known.failed(A, 0, 0, SERVER, None)
    assert known.form(A).limit.most == math.inf
    assert not known.crowded


def test_an_answer_sets_no_limit() -> None:
    room = InFlightLimit()
    room.answered(1000, 0)
    assert (room.most, room.firm) == (math.inf, False)


def test_a_429_sets_it_to_what_was_in_flight_before() -> None:
    room = InFlightLimit()
    assert not room.firm
    for flying in (9, 8, 7, 12):  # sent together: the seventh was the first too many
        room.refused(flying, 0)
    assert (room.most, room.firm) == (6.0, True)
    room.refused(1, 0)
    room.refused(0, 0)
    assert room.most == 1.0


def test_one_more_is_tried_after_the_hold_and_later_if_that_was_refused() -> None:
    room = InFlightLimit()
    room.refused(7, 0)
    room.answered(6, HOLD_NS - 1)
    assert room.most == 6.0
    room.answered(4, HOLD_NS)  # the limit is not used: nothing would be learned
    assert room.most == 6.0
    room.answered(5, HOLD_NS)
    assert room.most == 7.0
    room.refused(7, HOLD_NS + S)  # below the limit: the one more that was tried
    assert room.most == 6.0
    room.answered(6, 3 * HOLD_NS + S - 1)
    assert room.most == 6.0
    room.answered(6, 3 * HOLD_NS + S)
    assert room.most == 7.0
    room.refused(4, 4 * HOLD_NS)  # far fewer than before: the target itself has changed
    assert room.most == 3.0
    room.answered(3, 5 * HOLD_NS)
    assert room.most == 4.0


def test_the_hold_doubles_up_to_five_minutes_and_a_large_limit_is_none() -> None:
    room = InFlightLimit()
    now = 0
    room.refused(3, now)
    for held in (30, 60, 120, 240, 300, 300):
        room.answered(2, now + held * S - 1)
        assert room.most == 2.0
        now += held * S
        room.answered(2, now)
        assert room.most == 3.0
        room.refused(3, now)
        assert room.most == 2.0
    room.take(1024.0)
    room.answered(1024, now + 400 * S)
    assert room.most == math.inf
    room.take(5.0)
    assert room.most == 5.0
    room.take(None)
    assert room.most == math.inf


def test_a_429_about_a_rate_sets_no_limit() -> None:
    known = forms()
    for number in range(5):
        known.started(A, number + 1)
    known.failed(A, 0, S, RATE_LIMITED, 2.5, 5)
    assert known.form(A).limit.most == math.inf
    known.failed(A, 0, S, RATE_LIMITED, 2.0, 4)  # the fourth: three were in flight before it
    assert known.form(A).limit.most == 3.0


def test_who_is_full_comes_behind_those_with_room() -> None:
    known = forms()
    assert plan(known).steps[0].target == A
    fill(known, A)
    found = plan(known)
    assert [step.target for step in found.steps] == [B, C, A]
    assert "1 full" in found.reason
    for _ in range(3):
        known.ended(A)
    assert plan(known).steps[0].target == A


def test_where_all_are_full_none_is_behind_another() -> None:
    known = forms()
    before = plan(known).reason
    for target in (A, B, C):
        fill(known, target)
    assert plan(known).reason == before


def test_who_is_full_is_nobodys_second() -> None:
    known = forms()
    fill(known, B)
    hedged = plan(known, hedge="500ms")
    assert [step.target for step in hedged.steps[:2]] == [A, C]
    assert hedged.steps[1].role == "hedge"
    raced = plan(known, race=3)
    racers = [step.target for step in raced.steps if step.role == "racer"]
    assert racers == [A, C]


def test_where_all_are_full_nobody_is_refused_and_nothing_is_doubled() -> None:
    known = forms()
    for target in (A, B, C):
        fill(known, target)
    found = plan(known, hedge="500ms")
    assert [step.target for step in found.steps] == [A, B, C]
    assert not found.overlaps
    assert not plan(known, race=2).overlaps


def test_the_limit_survives_and_old_files_have_none() -> None:
    known = forms()
    known.first(A, 0, 0, S // 5)
    fill(known, A, 8)
    state = known.export()
    other = forms()
    other.adopt(msgspec.json.decode(msgspec.json.encode(state), type=FormState), 0)
    assert other.form(A).limit.most == known.form(A).limit.most
    rows = msgspec.json.decode(msgspec.json.encode(state))
    old = {"targets": {name: row[:12] for name, row in rows["targets"].items()}}
    third = forms()
    third.adopt(msgspec.json.decode(msgspec.json.encode(old), type=FormState), 0)
    assert third.form(A).limit.most == math.inf


EVENTS = st.lists(st.sampled_from(["start", "end", "429", "done"]), max_size=300)


@given(EVENTS)
def test_who_is_full_is_known_at_every_moment(events: list[str]) -> None:
    known = Forms({A: Prior(200.0, 300.0, 200.0, 150.0)})
    form = known.form(A)
    for number, event in enumerate(events):
        now = number * S
        if event == "start":
            known.started(A)
        elif event == "end":
            known.ended(A)
        elif event == "429":
            known.failed(A, 0, now, RATE_LIMITED, None)
            known.ended(A)
        else:
            known.finished(A, now, 100, S)
            known.ended(A)
        assert form.limit.most >= 1.0
        assert (A in known.crowded) == form.full


def test_the_step_after_next_waits_for_its_own_hold() -> None:
    limit = InFlightLimit()
    limit.refused(5, 0)
    limit.answered(3, HOLD_NS)
    assert limit.most == 5.0
    limit.answered(4, 2 * HOLD_NS - 1)
    assert limit.most == 5.0
    limit.answered(4, 2 * HOLD_NS)
    assert limit.most == 6.0


def test_the_same_number_refused_again_keeps_the_longer_hold() -> None:
    room = InFlightLimit()
    room.refused(3, 0)
    room.answered(2, HOLD_NS)
    room.refused(3, HOLD_NS)  # the one more that was tried: twice as late the next time
    room.refused(3, HOLD_NS + S)
    room.answered(2, 3 * HOLD_NS + S - 1)
    assert room.most == 2.0
    room.answered(2, 3 * HOLD_NS + S)
    assert room.most == 3.0
