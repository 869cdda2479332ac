"""The pace of a target under load: what a batch costs is found, and weather is kept apart."""

from __future__ import annotations

import math
import random

import pytest

from lightgate.route.form.forms import Forms, FormState
from lightgate.route.form.pace import ALWAYS, FEWEST, KNOWN, STEEPEST, UNKNOWN, PaceCurve
from lightgate.route.form.prior import Prior
from lightgate.route.form.slo import LevelsAsked, ServiceLevels, excess
from lightgate.route.form.state import record
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.finish import ExpectedAnswer, Rival, waits_ns

S = 1_000_000_000
A, B = "a/m", "b/m"


def fed(drag: float, most: float, *, answers: int = 200, noise: float = 0.1) -> PaceCurve:
    """A curve that has met a target of this drag; a token takes 10 ms alone."""
    dice, curve = random.Random(7), PaceCurve()  # noqa: S311 - the same every time
    for _ in range(answers):
        beside = dice.uniform(0.0, most)
        token_s = 0.01 * (1.0 + drag * beside) * math.exp(dice.gauss(0.0, noise))
        curve.saw(beside, token_s, calm=True)
    return curve


@pytest.mark.parametrize(("drag", "most"), [(0.25, 12.0), (0.1, 10.0), (0.03, 60.0), (0.01, 100.0)])
def test_the_drag_is_found(drag: float, most: float) -> None:
    curve = fed(drag, most)
    assert curve.slower(most) == pytest.approx(1.0 + drag * most, rel=0.15)
    assert curve.free == ALWAYS
    assert curve.usual == pytest.approx(most / 2.0, rel=0.2)


def test_noise_is_no_drag() -> None:
    for most in (2.0, 10.0, 50.0):
        curve = fed(0.0, most, noise=0.3)
        assert curve.drag * most < 0.05
    assert fed(0.2, 10.0, answers=int(FEWEST) - 1).drag == 0.0


def test_a_stall_in_the_middle_of_an_answer_is_no_drag() -> None:
    curve = fed(0.0, 6.0)
    for _ in range(3):
        curve.saw(6.0, 1.0, calm=True)  # a hundred times as long
    assert curve.slower(6.0) < 1.5


def test_an_engine_that_serves_one_at_a_time_is_the_steepest() -> None:
    assert fed(5.0, 20.0).drag == STEEPEST


def test_what_was_never_tried_has_a_price() -> None:
    curve = PaceCurve()
    assert curve.more(KNOWN) == 0.0
    assert curve.more(2.0 * KNOWN) == pytest.approx(UNKNOWN * math.log(2.0))
    curve.flying = KNOWN + 1.0
    curve.streams[5] = 0.0, 0
    assert curve.ended(5, 10, 0.01, calm=True) == (0.0, 0.0)
    assert curve.more(2.0 * KNOWN) == 0.0
    assert curve.free == curve.known == 2.0 * KNOWN
    curve.flying = 1.0
    curve.ended(5, 10, 0.01, calm=True)
    assert curve.known == 2.0 * KNOWN
    assert curve.ended(6, 10, 0.01, calm=True) == (0.0, 0.0)  # unknown


def test_the_mean_number_beside_an_answer_is_that_of_its_whole_time() -> None:
    forms = Forms({A: prior()})
    form = forms.form(A)
    form.pace.known = 0.0  # so that the number itself is told
    forms.started(A, 10 * S)
    forms.first(A, 0, 20 * S, 10 * S)
    forms.started(A, 30 * S)
    forms.started(A, 30 * S + 1)  # two beside it for half of the time
    forms.finished(A, 40 * S, 200, 20 * S, 30 * S)
    assert form.pace.known == pytest.approx(2.0 * 1.0)
    assert form.pace.learning
    forms.ended(A, 10 * S, 40 * S)
    assert form.pace.flying == 2
    assert not form.pace.streams


def test_without_anybody_beside_it_nothing_is_learned() -> None:
    forms = Forms({A: prior()})
    now = 0
    for _ in range(40):
        now = serve(forms, now, 1, 0.0, 1.0)
    assert not forms.form(A).pace.learning
    assert forms.form(A).pace.usual == 0.0


def prior(tps: float = 100.0) -> Prior:
    return Prior(300.0, 450.0, tps, 0.8 * tps)


def batched(drag: float, *, tps: float = 100.0, rounds: int = 60, slow: float = 1.0) -> Forms:
    """A worker whose target A was asked by one to twelve at once, in turn; all end together."""
    forms, now = Forms({A: prior(), B: prior()}), 0
    for number in range(rounds):
        now = serve(forms, now, 1 + number * 5 % 12, drag, slow * 100.0 / tps)
    return forms


def serve(forms: Forms, now: int, count: int, drag: float, slow: float) -> int:
    """So many answers of 200 tokens at once; return when they are over."""
    begun = [now + S + number for number in range(count)]
    for at in begun:
        forms.started(A, at)
    now = begun[-1] + 3 * S // 10
    for at in begun:
        forms.first(A, 0, now, now - at)
    decode = int(200 * 0.01 * slow * (1.0 + drag * (count - 1)) * S)
    now += decode
    for at in begun:
        forms.finished(A, now, 200, decode, now - at)
    for at in begun:
        forms.ended(A, at, now)
    return now


def test_form_learns_the_speed_alone_and_not_that_of_the_batch() -> None:
    forms = batched(0.2)
    form = forms.form(A)
    assert form.pace.drag == pytest.approx(0.2, rel=0.15)
    now = form.speed_last_ns
    assert math.exp(form.log_speed(now)) == pytest.approx(100.0, rel=0.1)
    assert form.longer(now) == 0.0
    for _ in range(5):
        forms.started(A, now)
    assert form.longer(now) == pytest.approx(5 * form.pace.drag)
    seen = forms.predict(A, 0, now).speed_tps
    assert seen == pytest.approx(math.exp(form.log_speed(now)) / (1.0 + 4 * form.pace.drag))


def test_bad_weather_is_no_drag() -> None:
    forms = batched(0.0)
    form = forms.form(A)
    now = form.last_ns
    for number in range(30):  # its first tokens are late, and it is asked less and less
        now += 10 * S
        forms.started(A, now - 9 * S)
        forms.first(A, 0, now, 9 * S)
        forms.finished(A, now + 5 * S, 200, 5 * S, 14 * S)
        forms.ended(A, now - 9 * S, now + 5 * S)
        assert form.pace.drag == 0.0, number


def test_the_busy_engine_is_left_in_time_and_the_end_is_foreseen() -> None:
    forms = batched(0.25)
    form, now = forms.form(A), forms.form(A).last_ns + S
    alias = Alias(name="m", targets=(A, B), policy="fastest", hedge="off")
    ask = PlanAsk(alias=alias, tokens_in=100, expected_tokens=400)

    def plan() -> tuple[str, dict[str, float]]:
        made = decide(ask, Breakers(Rules(), lambda: 0.5), now, 0.5, forms)
        return made.steps[0].target, {one.target: one.end_s for one in made.candidates}

    forms.form(B).speed_long = math.log(80.0)
    _, before = plan()
    for number in range(3):
        forms.started(A, now + number)
    first, after = plan()
    assert first == B
    more_s = 400 * form.slowness * 3 * form.pace.drag
    assert after[A] == pytest.approx(before[A] + more_s)
    assert after[B] == pytest.approx(before[B])


def test_a_service_level_of_speed_knows_the_batch() -> None:
    forms = batched(0.25)
    form, now = forms.form(A), forms.form(A).last_ns
    form.look(now)
    levels, asked = ServiceLevels(speed_p50=70.0), LevelsAsked(0, 200, now)
    assert excess(levels, form, asked) < 0.0
    for number in range(6):
        forms.started(A, now + number)
    assert excess(levels, form, asked) > 0.0


def test_the_attempt_in_the_smaller_batch_is_waited_for() -> None:
    forms = batched(0.25)
    now = forms.form(A).last_ns
    answer = ExpectedAnswer(0, 400, 0.0)
    spoke, silent = Rival(A, now), [Rival(B, now)]
    assert waits_ns(spoke, silent, forms, answer, now) is None
    for number in range(8):
        forms.started(A, now + number)
    assert waits_ns(spoke, silent, forms, answer, now) is not None


def test_other_workers_take_over_what_a_batch_costs_and_the_speed_with_it() -> None:
    known = batched(0.2)
    now = known.form(A).last_ns + S
    fresh = Forms({A: prior(30.0), B: prior()})
    fresh.adopt(FormState({A: record(known.form(A))}), now)
    mine, its = fresh.form(A), known.form(A)
    assert mine.pace.drag == its.pace.drag
    assert mine.pace.known == its.pace.known
    assert mine.log_speed(now) == pytest.approx(its.log_speed(now), abs=0.3)


def test_a_worker_with_answers_of_its_own_keeps_its_drag_and_reads_the_speed_with_it() -> None:
    flat, steep = batched(0.0), batched(0.2)
    now = flat.form(A).last_ns + S
    its = steep.form(A)
    expected = its.log_speed(its.speed_last_ns) - math.log(its.pace.slower(its.pace.usual))
    form = flat.form(A)
    before = form.speed_long
    flat.adopt(FormState({A: record(its)}), now)
    assert form.pace.drag == 0.0
    middle = (before + expected) / 2.0  # as many answers each
    assert form.speed_long == pytest.approx(middle, abs=0.15)


# The numbers themselves


def samples(count: int) -> list[tuple[float, float]]:
    """Answers of a target of drag 0.2: how many were beside them, and the time of a token."""
    dice = random.Random(3)  # noqa: S311 - the same every time
    beside = [dice.uniform(0.0, 8.0) for _ in range(count)]
    return [(x, 0.01 * (1.0 + 0.2 * x) * dice.uniform(0.9, 1.1)) for x in beside]


def line(seen: list[tuple[float, float]]) -> tuple[float, float]:
    """The drag and the usual number beside, by least squares, answer by answer.

    Each counts 0.99 of the one after it. Two squared requests hold the slope down, and nine of its
    squared errors are taken off.
    """
    weights = [0.99**age for age in reversed(range(len(seen)))]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, seen, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, seen, strict=True)) / total
    rows = [(w, x - mean_x, y - mean_y) for w, (x, y) in zip(weights, seen, strict=True)]
    squares = sum(w * x * x for w, x, _ in rows) + 2.0
    slope = sum(w * x * y for w, x, y in rows) / squares
    error = sum(w * (y - slope * x) ** 2 for w, x, y in rows) / (total - 2.0)
    slope -= 9.0 * error / squares / slope
    return slope / (mean_y - slope * mean_x), mean_x


@pytest.mark.parametrize("count", [24, 28, 100, 400])
def test_the_drag_is_the_line_of_the_least_squared_error(count: int) -> None:
    seen, curve = samples(count), PaceCurve()
    for beside, token_s in seen:
        faster, _ = curve.saw(beside, token_s, calm=True)
    drag, usual = line(seen)
    assert curve.drag == pytest.approx(drag)
    assert curve.usual == pytest.approx(usual)
    assert faster == pytest.approx(math.log(1.0 + drag * seen[-1][0]))
    assert curve.slower(3.0) == pytest.approx(1.0 + 3.0 * drag)
    assert curve.more(3.0) == pytest.approx(3.0 * drag)


def test_a_drag_is_fitted_after_twenty_four_answers_and_then_after_every_fourth() -> None:
    curve, drags = PaceCurve(), [0.0]
    for beside, token_s in samples(33):
        curve.saw(beside, token_s, calm=True)
        drags.append(curve.drag)
    changed = [place for place in range(1, 34) if drags[place] != drags[place - 1]]
    assert changed == [24, 28, 32]


def test_the_speed_with_as_many_beside_it_as_usual_stays_what_it_was() -> None:
    curve, before = PaceCurve(), 0.0
    for beside, token_s in samples(60):
        _, moved = curve.saw(beside, token_s, calm=True)
        told = (1.0 + curve.drag * curve.usual) / (1.0 + before * curve.usual)
        assert moved == pytest.approx(math.log(told))
        before = curve.drag
    assert before > 0.1


def test_what_came_in_bad_weather_is_told_and_not_learned() -> None:
    curve = fed(0.2, 8.0)
    drag, usual = curve.drag, curve.usual
    for _ in range(8):
        assert curve.saw(5.0, 1.0, calm=False) == pytest.approx((math.log(1.0 + 5.0 * drag), 0.0))
    assert (curve.drag, curve.usual) == (drag, usual)
    curve = PaceCurve()
    curve.saw(5.0, 1.0, calm=False)
    assert not curve.learning


def test_a_stall_counts_as_three_times_the_expected_time() -> None:
    """The line is the one of answers that took three times as long as was expected of them."""
    seen, curve = samples(80), PaceCurve()
    for beside, token_s in seen:
        curve.saw(beside, token_s, calm=True)
    for _ in range(4):
        weights = [0.99**age for age in reversed(range(len(seen)))]
        mean_s = sum(w * y for w, (_, y) in zip(weights, seen, strict=True)) / sum(weights)
        seen.append((6.0, 3.0 * mean_s * curve.slower(6.0) / curve.slower(curve.usual)))
        curve.saw(6.0, 100.0, calm=True)
    assert curve.drag == pytest.approx(line(seen)[0])
    assert 0.01 < curve.drag < STEEPEST


def test_what_another_worker_knows_counts_until_there_are_answers_of_ones_own() -> None:
    curve = PaceCurve()
    curve.take(0.3, 10.0)
    assert (curve.drag, curve.known, curve.free) == (0.3, KNOWN, ALWAYS)
    curve.take(7.0, 40.0)
    assert (curve.drag, curve.known, curve.free) == (STEEPEST, 40.0, ALWAYS)
    curve.take(-1.0, 40.0)
    assert (curve.drag, curve.known, curve.free) == (0.0, 40.0, 40.0)
    for _ in range(24):  # as many as are enough, with nobody beside them
        curve.saw(0.0, 0.01, calm=True)
    curve.take(0.3, 50.0)
    assert (curve.drag, curve.known, curve.free) == (0.0, 50.0, 50.0)


def test_an_answer_that_ends_with_its_first_token_tells_nothing() -> None:
    curve = PaceCurve()
    curve.streams[1] = 0.0, 10
    curve.flying = 100.0
    for now_ns in (9, 10):
        assert curve.ended(1, now_ns, 0.01, calm=True) == (0.0, 0.0)
    assert (curve.known, curve.learning) == (KNOWN, False)
    curve.since_ns = 10
    curve.ended(1, 11, 0.01, calm=True)
    assert (curve.known, curve.learning) == (2.0 * 99.0, True)


def test_an_answer_alone_has_nobody_beside_it() -> None:
    curve = PaceCurve()
    curve.streams[1] = 0.0, 0
    curve.flying = 1.0
    curve.ended(1, 10, 0.01, calm=True)
    curve.flying = 0.5  # by a count that was late
    curve.ended(1, 10, 0.01, calm=True)
    assert curve.usual == 0.0
    assert curve.learning
