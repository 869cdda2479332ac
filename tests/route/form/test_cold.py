"""Cold starts: learned by the pause before them, and kept out of everything else."""

from __future__ import annotations

import pytest

from lightgate.route.form.cold import ColdStarts
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.target import Form
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide

S = 1_000_000_000
MS = 1_000_000
A, B = "a/m", "b/m"


def test_a_cold_start_is_expected_after_each_pause_as_long_and_after_none_shorter() -> None:
    cold = ColdStarts()
    assert cold.saw(70.0, 20.0, 0.3)
    assert cold.wait_s(70.0) == pytest.approx(10.0)
    assert cold.wait_s(4000.0) == pytest.approx(10.0)
    assert cold.wait_s(50.0) == 0.0
    assert cold.wait_s(1.0) == 0.0


def test_an_answer_that_was_warm_after_a_pause_says_so_of_shorter_ones() -> None:
    cold = ColdStarts()
    assert cold.saw(70.0, 20.0, 0.3)
    for _ in range(9):
        assert not cold.saw(400.0, 0.3, 0.3)
    assert cold.wait_s(70.0) < 2.0
    assert cold.wait_s(1000.0) > 5.0


def test_what_is_late_without_a_pause_or_only_a_little_is_not_cold() -> None:
    cold = ColdStarts()
    assert not cold.saw(14.0, 20.0, 0.3)
    assert not cold.saw(70.0, 1.9, 0.3)
    assert not cold.saw(70.0, 2.5, 0.6)
    assert cold.seconds == 0.0


def answer(forms: Forms, target: str, at_ns: int, first_ns: int) -> None:
    forms.started(target, at_ns)
    forms.first(target, 0, at_ns + first_ns, first_ns)
    forms.finished(target, at_ns + first_ns + S, 100, S, first_ns + S)
    forms.ended(target, at_ns)


def seen(first_ns: int) -> tuple[Forms, int]:
    """Two targets; the first one is quicker, and takes so long for an answer after a pause."""
    forms = Forms({A: Prior(200.0, 300.0, 100.0, 90.0), B: Prior(400.0, 600.0, 100.0, 90.0)})
    now = 1000 * S
    for _ in range(3):
        for _ in range(20):
            now += 2 * S
            answer(forms, A, now, 200 * MS)
            answer(forms, B, now, 400 * MS)
        now += 90 * S
        answer(forms, A, now, first_ns)
    return forms, now


def first(forms: Forms, now_ns: int) -> tuple[str, float]:
    alias = Alias(name="m", targets=(A, B), policy="fastest", hedge="off")
    plan = decide(
        PlanAsk(alias=alias, max_tokens=100), Breakers(Rules(), lambda: 0.5), now_ns, 0.5, forms
    )
    return plan.steps[0].target, (plan.predicted_ttft_ns or 0) / S


def test_the_other_target_is_asked_after_a_pause_and_this_one_while_it_is_warm() -> None:
    forms, now = seen(20 * S)
    target, predicted_s = first(forms, now + 30 * S)
    assert target == A
    assert predicted_s == pytest.approx(0.2, rel=0.2)  # no start is taken for weather
    assert first(forms, now + 100 * S)[0] == B
    warm, now = seen(200 * MS)
    assert first(warm, now + 100 * S)[0] == A


def test_requests_that_waited_for_the_same_start_say_nothing_either() -> None:
    forms, now = seen(20 * S)
    now += 100 * S
    for n in range(3):
        forms.started(A, now + n * S)
    for n in range(3):
        forms.first(A, 0, now + 20 * S, (20 - n) * S)
    assert forms.form(A).deviation < 0.1


def test_a_cold_target_that_was_closed_while_it_was_silent_is_known_for_it() -> None:
    forms, now = seen(200 * MS)
    forms.started(A, now + 100 * S)
    forms.waited(A, 0, now + 105 * S, 5 * S)
    forms.ended(A, now + 100 * S)
    assert forms.form(A).cold.seconds == pytest.approx(6.5)
    assert forms.form(A).deviation < 0.1


def test_an_attempt_after_a_pause_that_never_spoke_is_forgotten() -> None:
    form = Form(Prior(1e3, 2e3, 100.0, 80.0))
    form.started(1 * S)
    form.ended(1 * S)
    assert form.cold.pauses == {}  # the first of all comes after no pause
    form.started(100 * S)
    assert form.cold.pauses == {100 * S: 99.0}
    form.ended(100 * S)
    assert form.cold.pauses == {}
