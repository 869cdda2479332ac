"""A late first token is a sign of a slow answer, until whole answers say otherwise."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.form.change import STEEPEST, USUAL_SLOPE, Slowdown
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior

S = 1_000_000_000
A = "a/m"
NUMBERS = st.floats(-4.0, 4.0)


def calm(seconds: int = 60) -> Forms:
    """A target at 200 ms and 200 tokens/s, asked every second."""
    dice = random.Random(1)  # noqa: S311 - a test's own draws
    forms = Forms({A: Prior(200.0, 300.0, 200.0, 150.0)})
    for second in range(seconds):
        answer(forms, second, dice.lognormvariate(math.log(0.2), 0.2), 200.0)
    return forms


def answer(forms: Forms, second: float, ttft_s: float, tps: float, tokens: int = 200) -> None:
    first_ns = int((second + ttft_s) * S)
    forms.first(A, 0, first_ns, int(ttft_s * S))
    decode_ns = int(tokens / tps * S)
    forms.finished(A, first_ns + decode_ns, tokens, decode_ns)


def late(forms: Forms, since: int, times: int = 3) -> None:
    for number in range(times):
        forms.first(A, 0, (since + number) * S, S)


def speed(forms: Forms, now_s: float) -> float:
    return forms.predict(A, 0, int(now_s * S)).speed_tps


def test_who_gets_late_is_taken_for_slow_before_an_answer_has_shown_it() -> None:
    forms = calm()
    late(forms, 70)
    assert speed(forms, 73) == pytest.approx(200.0 * 5**-USUAL_SLOPE, rel=0.1)


def test_answers_that_began_before_the_change_do_not_speak_against_it() -> None:
    forms = calm()
    late(forms, 70)
    guess = speed(forms, 73)
    forms.finished(A, 73 * S, 4600, 23 * S)  # at 200 tokens/s, begun in second 50
    assert speed(forms, 73) == pytest.approx(guess, rel=0.02)


def test_answers_of_now_do() -> None:
    forms = calm()
    late(forms, 70)
    for number in range(3):
        answer(forms, 75 + number, 1.0, 200.0)
    assert speed(forms, 79) > 170.0


def test_who_recovers_gets_its_speed_back_though_nobody_has_seen_it() -> None:
    forms = calm()
    for number in range(6):
        answer(forms, 70 + 5 * number, 1.0, 40.0)
    assert speed(forms, 100) < 60.0
    for number in range(4):  # probes: first tokens only
        forms.first(A, 0, (120 + 10 * number) * S, S // 5)
    assert speed(forms, 151) > 170.0


def test_a_target_whose_speed_does_not_go_along_is_learned() -> None:
    slowdown = Slowdown()
    assert slowdown.slope == USUAL_SLOPE
    for _ in range(20):
        slowdown.saw(1.6, 0.0)
    assert slowdown.slope < 0.1
    before = slowdown.slope
    slowdown.saw(0.1, 3.0)  # in calm weather nothing is learned
    assert slowdown.slope == before


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=200), NUMBERS, NUMBERS, NUMBERS)
def test_the_guess_is_bounded_whatever_was_seen(
    seen: list[tuple[float, float]], speed_log: float, late_log: float, jump: float
) -> None:
    slowdown = Slowdown()
    for pair in seen:
        slowdown.saw(*pair)
    assert 0.0 <= slowdown.slope <= STEEPEST
    guess = slowdown.guess(speed_log, late_log, jump)
    if jump > 0.0:
        assert guess <= speed_log
    else:
        assert min(speed_log, 0.0) <= guess <= max(speed_log, 0.0)
