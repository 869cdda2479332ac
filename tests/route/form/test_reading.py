"""What longer prompts cost at a target: found where it is so, and nowhere else."""

from __future__ import annotations

import random
from itertools import pairwise
from math import exp, log

import pytest

from lightgate.route.form.forms import Forms, FormState
from lightgate.route.form.prior import Prior
from lightgate.route.form.reading import STEEPEST, STEPS, ReadingCurve
from lightgate.route.form.size import SIZES, bucket, size_of
from lightgate.route.form.state import record
from lightgate.route.plan.hedge import due_by_ns

S = 1_000_000_000
A = "a/m"
PRIOR = Prior(100.0, 160.0, 100.0, 80.0)
PROBE, PAGE = size_of(16), size_of(600)


@pytest.mark.parametrize(
    ("tokens_in", "size", "step"),
    [
        (0, 0, 0), (16, 0, 0), (31, 0, 0), (32, 0, 1), (127, 0, 2), (512, 0, 5), (1023, 0, 5),
        (1024, 1, 0), (2047, 1, 0), (2048, 1, 1), (8191, 1, 2), (8192, 2, 0), (16_384, 2, 1),
        (262_144, 2, 5), (10_000_000, 2, 5),
    ],
)  # fmt: skip
def test_a_prompt_has_a_size_and_a_step(tokens_in: int, size: int, step: int) -> None:
    assert size_of(tokens_in) == size + SIZES * step
    assert bucket(tokens_in) == size


def told(forms: Forms, *first: tuple[int, float], every_s: float = 10.0) -> float:
    """Tell of first tokens one after the other, each alone; return the second of the last."""
    now_s = 0.0
    for size, ttft_s in first:
        now_s += every_s
        forms.started(A, int(now_s * S))
        forms.first(A, size, int((now_s + ttft_s) * S), int(ttft_s * S))
        forms.ended(A, int(now_s * S))
    return now_s + 5.0


def expected_s(forms: Forms, size: int, now_s: float) -> float:
    return forms.predict(A, size, int(now_s * S)).ttft_ns / S


def test_slow_pages_between_quick_probes_are_believed_and_probes_stay_quick() -> None:
    forms = Forms({A: PRIOR})
    now_s = told(forms, *[(PROBE, 0.1)] * 3, *[(PAGE, 4.0), (PROBE, 0.1)] * 3)
    assert expected_s(forms, PAGE, now_s) > 2.0
    assert expected_s(forms, PROBE, now_s) < 0.3
    now_s = told(forms, (PROBE, 0.1), *[(PAGE, 4.0), (PROBE, 0.1)] * 8)
    assert expected_s(forms, PAGE, now_s) == pytest.approx(4.0, rel=0.2)
    assert expected_s(forms, PROBE, now_s) == pytest.approx(0.1, rel=0.15)


def test_a_target_that_was_asked_for_pages_only_is_as_slow_for_them_after_a_probe() -> None:
    """What is compared moves the short prompts, not those that were seen all the time."""
    forms = Forms({A: Prior(4000.0, 6000.0, 100.0, 80.0)})
    now_s = told(forms, *[(PAGE, 4.0)] * 30, *[(PROBE, 0.1), (PAGE, 4.0)] * 3)
    assert not forms.form(A).sizes[0].reading.flat
    assert expected_s(forms, PAGE, now_s) == pytest.approx(4.0, rel=0.3)
    assert expected_s(forms, PROBE, now_s) < 0.5


def test_a_hedge_waits_as_long_as_a_prompt_of_its_length_is_read() -> None:
    forms = Forms({A: PRIOR})
    now_s = told(forms, *[(PROBE, 0.1), (PAGE, 4.0)] * 30)
    form = forms.form(A)
    form.look(int(now_s * S))
    assert due_by_ns(form, PAGE, 0.88) > 3.5 * S
    assert due_by_ns(form, PROBE, 0.88) < 0.2 * S


def test_one_that_was_closed_in_its_silence_says_it_as_well() -> None:
    forms = Forms({A: PRIOR})
    for second in range(10, 60, 10):
        forms.started(A, second * S)
        forms.first(A, PROBE, second * S + S // 10, S // 10)
        forms.ended(A, second * S)
        forms.started(A, (second + 3) * S)
        forms.waited(A, PAGE, (second + 6) * S, 3 * S)
        forms.ended(A, (second + 3) * S)
    assert expected_s(forms, PAGE, 60.0) > 2.0
    assert expected_s(forms, PROBE, 60.0) < 0.25


def test_a_stall_is_no_reading() -> None:
    forms = Forms({A: PRIOR})
    now_s = told(forms, (PROBE, 0.1), (PAGE, 4.0), (PROBE, 0.1), *[(PAGE, 0.1)] * 3, (PROBE, 0.1))
    assert forms.form(A).sizes[0].reading.flat
    assert expected_s(forms, PAGE, now_s) == pytest.approx(expected_s(forms, PROBE, now_s))


def test_a_change_of_the_weather_is_no_reading() -> None:
    forms = Forms({A: PRIOR})
    told(forms, *[(PROBE, 0.1)] * 3, *[(PAGE, 2.0)] * 20, *[(PROBE, 2.0)] * 3)
    assert forms.form(A).sizes[0].reading.flat


def test_what_is_never_seen_again_is_forgotten_and_tried_again() -> None:
    """A target that is never asked for pages because of this would else never show otherwise."""
    curve = ReadingCurve()
    for second in (0, 20, 40):
        curve.saw(0, log(0.1), 0.3, second * S)
        curve.saw(5, log(0.5), 0.3, (second + 10) * S)
    assert curve.costs[5] > 0.5
    curve.saw(0, log(0.1), 0.3, 7200 * S)
    assert curve.flat


@pytest.mark.parametrize("seed", range(8))
def test_chance_costs_nothing(seed: int) -> None:
    dice, forms = random.Random(seed), Forms({A: PRIOR})  # noqa: S311 - the same every time
    sizes = [size_of(dice.randrange(1, 1000)) for _ in range(300)]
    told(forms, *[(size, 0.1 * exp(dice.gauss(0.0, 0.35))) for size in sizes])
    costs = forms.form(A).sizes[0].reading.costs
    assert max(map(abs, costs)) < 0.15


def test_beside_another_request_it_may_have_waited() -> None:
    forms = Forms({A: PRIOR})
    for second in range(10, 200, 10):
        forms.started(A, second * S)
        forms.first(A, PROBE, second * S + S // 10, S // 10)
        forms.started(A, (second + 3) * S)
        forms.first(A, PAGE, (second + 6) * S, 3 * S)
        forms.ended(A, (second + 3) * S)
        forms.ended(A, second * S)
    assert forms.form(A).sizes[0].reading.flat


def test_what_is_long_ago_met_another_weather() -> None:
    for pause_s, flat in ((59.0, False), (61.0, True)):
        curve = ReadingCurve()
        for number in range(3):
            curve.saw(0, log(0.1), 0.3, int(2 * number * pause_s * S))
            curve.saw(5, log(4.0), 0.3, int((2 * number + 1) * pause_s * S))
        assert curve.flat is flat


def test_steps_between_are_between_and_longer_ones_go_on_as_far_as_reading_can() -> None:
    curve = ReadingCurve()
    for second in range(40):
        curve.saw(0, log(0.2), 0.3, 2 * second * S)
        curve.saw(2, log(0.8), 0.3, (2 * second + 1) * S)
    low, middle, high, *beyond = curve.costs
    assert high - low == pytest.approx(log(4.0), rel=0.1)
    assert middle == pytest.approx((low + high) / 2)
    slope = curve.slope
    assert slope == pytest.approx(min(STEEPEST, (high - low) / 2))
    assert beyond == pytest.approx([high + slope * more for more in (1, 2, 3)])
    steep = ReadingCurve()
    for second in range(40):
        steep.saw(0, log(0.2), 0.3, 2 * second * S)
        steep.saw(1, log(3.0), 0.3, (2 * second + 1) * S)
    assert steep.slope == STEEPEST  # twice as long takes no more than twice as long


def test_a_step_that_is_compared_with_a_costly_one_costs_that_too() -> None:
    curve = ReadingCurve()
    for second in range(0, 400, 4):
        curve.saw(0, log(0.1), 0.3, second * S)
        curve.saw(2, log(0.4), 0.3, (second + 1) * S)
        curve.saw(2, log(0.4), 0.3, (second + 2) * S)
        curve.saw(5, log(3.2), 0.3, (second + 3) * S)
    assert curve.costs[2] == pytest.approx(log(4.0), rel=0.1)
    assert curve.costs[5] == pytest.approx(log(32.0), rel=0.1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_page_that_is_late_or_fails_makes_no_probe_slower_than_weather_would(
    fails: bool,
) -> None:
    forms = Forms({A: PRIOR})
    now_ns = int(told(forms, *[(PROBE, 0.1), (PAGE, 8.0)] * 20) * S)
    before_s = expected_s(forms, PROBE, now_ns / S)
    form = forms.form(A)
    if fails:
        form.failed(PAGE, now_ns, 0.0)  # slow as a page is: nothing new about probes
    else:
        form.waited(PAGE, now_ns, 9.0)
    form.look(now_ns)
    assert form.ttfts_s[PROBE] == pytest.approx(before_s, rel=0.09)


def test_shorter_prompts_gain_nothing_before_they_are_seen() -> None:
    curve = ReadingCurve()
    for second in range(40):
        curve.saw(3, log(0.2), 0.3, 2 * second * S)
        curve.saw(5, log(0.8), 0.3, (2 * second + 1) * S)
    assert curve.costs[:4] == [curve.costs[3]] * 4


def test_prompt_sizes_that_were_never_seen_go_on_from_the_longest() -> None:
    forms = Forms({A: PRIOR})
    now_s = told(forms, *[(PROBE, 0.1), (PAGE, 2.0)] * 20)
    assert expected_s(forms, PAGE, now_s) == pytest.approx(2.0, rel=0.15)
    four = [expected_s(forms, size_of(tokens), now_s) for tokens in (600, 1200, 2400, 9600)]
    assert [round(later / sooner, 1) for sooner, later in pairwise(four)] == (
        pytest.approx([four[1] / four[0], four[1] / four[0], (four[1] / four[0]) ** 2], rel=0.1)
    )
    assert four[1] / four[0] > 1.5


def test_the_first_of_another_prompt_size_is_its_own_and_no_weather() -> None:
    forms = Forms({A: PRIOR})
    now_s = told(forms, *[(PAGE, 0.1)] * 10, (size_of(4000), 3.0))
    assert expected_s(forms, PAGE, now_s) == pytest.approx(0.1, rel=0.2)
    assert expected_s(forms, size_of(4000), now_s) > 0.5


def test_a_deadline_is_known_once_prompts_that_long_were_seen() -> None:
    forms = Forms({A: PRIOR})
    told(forms, *[(PROBE, 0.1)] * 30)
    form = forms.form(A)
    form.look(400 * S)
    assert form.due_ns(PROBE) == 2 * S
    assert form.due_ns(PAGE) is None  # nobody knows: an engine may still be reading it
    told(forms, *[(PAGE, 0.1)] * 5)
    assert form.due_ns(PAGE) == 2 * S


def test_other_workers_and_a_restart_know_it() -> None:
    forms, other = Forms({A: PRIOR}), Forms({A: PRIOR})
    now_s = told(forms, *[(PROBE, 0.1), (PAGE, 4.0)] * 10)
    state = record(forms.form(A))
    other.adopt(FormState({A: state}), int(now_s * S))
    mine, its = forms.form(A).sizes[0].reading, other.form(A).sizes[0].reading
    assert its.known() == mine.known()
    assert expected_s(other, PAGE, now_s) == pytest.approx(expected_s(forms, PAGE, now_s), rel=0.1)
    other.adopt(FormState({A: state}), int(now_s * S))
    assert its.known() == mine.known()  # it does not count twice
    assert len(its.costs) == STEPS
