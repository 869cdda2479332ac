"""Records of forms that meet: what each number becomes; and speeds in bad weather."""

from __future__ import annotations

from math import e, exp, log

import msgspec
import pytest

from lightgate.route.form.prior import Z95, Prior
from lightgate.route.form.state import (
    FormState,
    SizeState,
    TargetState,
    merge,
    moved,
    record,
)
from lightgate.route.form.target import NEVER, Form
from lightgate.route.form.wait import WaitCurve

S = 1_000_000_000


def form(weight: float = 5.0) -> Form:
    """First tokens of a second with sigma 0.5, and 100 tokens/s with sigma 0.2."""
    late, slow = exp(0.5 * Z95), exp(-0.2 * Z95)
    return Form(Prior(1e3, 1e3 * late, 100.0, 100.0 * slow, weight))


def seen(now_ns: int = 180 * S) -> Form:
    """A form of ten samples, the last of them now."""
    found = form()
    found.sizes[0].seen, found.last_ns, found.speed_last_ns = 10, now_ns, now_ns
    found.speed_seen, found.errors, found.ends = 10, 1.0, 5.0
    found.deviation, found.speed_deviation = 0.2, -0.2
    return found


def told(last_ns: int = 180 * S, **facts: object) -> TargetState:
    """A worker's record: thirty samples, twice the time, half the speed."""
    sizes = tuple(SizeState(log(2.0), 0.5, 30 if place == 0 else 0, ()) for place in range(3))
    found = TargetState(sizes, 0.6, 0.5, 0.7, last_ns, log(50.0), 0.08, -0.4, 30, last_ns, 3.0, 9.0)
    return msgspec.structs.replace(found, **facts)


def test_two_of_the_same_age_meet_in_the_middle_and_long_runs_by_their_samples() -> None:
    mine = seen()
    mine.until_ns = 500 * S  # what was worked out before is good no more
    merge(mine, told(), 180 * S)
    assert mine.sizes[0].long == pytest.approx(0.75 * log(2.0))
    assert mine.sizes[0].variance == pytest.approx(0.25 * 0.25 + 0.75 * 0.5)
    assert mine.sizes[0].seen == 30
    assert mine.sizes[0].long + mine.deviation == pytest.approx((0.2 + log(2.0) + 0.6) / 2)
    assert (mine.variance, mine.noise) == pytest.approx((0.375, 0.6))
    assert (mine.errors, mine.ends) == pytest.approx((2.0, 7.0))
    assert mine.speed_long == pytest.approx(0.25 * log(100.0) + 0.75 * log(50.0))
    assert mine.speed_variance == pytest.approx(0.25 * 0.04 + 0.75 * 0.08)
    belief = (log(100.0) - 0.2 + log(50.0) - 0.4) / 2
    assert mine.speed_long + mine.speed_deviation == pytest.approx(belief)
    assert (mine.speed_seen, mine.last_ns, mine.until_ns) == (30, 180 * S, NEVER)


def test_what_is_three_minutes_older_counts_for_a_third() -> None:
    mine = seen()
    merge(mine, told(0), 180 * S)
    share = (1 / e) / (1 + 1 / e)
    assert mine.errors == pytest.approx(1.0 + share * 2.0)
    assert (mine.last_ns, mine.speed_last_ns) == (180 * S, 180 * S)
    mine = seen(0)
    merge(mine, told(180 * S), 180 * S)
    assert mine.errors == pytest.approx(1.0 + (1 - share) * 2.0)
    assert (mine.last_ns, mine.speed_last_ns) == (180 * S, 180 * S)


@pytest.mark.parametrize("now_ns", [180 * S, 30 * 86_400 * S])
def test_a_speed_that_is_three_minutes_older_counts_for_a_third(now_ns: int) -> None:
    mine = seen(now_ns)
    merge(mine, told(now_ns - 180 * S), now_ns)
    own, its = log(100.0) - 0.2, log(50.0) - 0.4
    share = (1 / e) / (1 + 1 / e)
    assert mine.speed_long + mine.speed_deviation == pytest.approx(own + share * (its - own))


def test_a_record_of_the_future_tells_of_its_long_run_alone() -> None:
    mine = seen()
    merge(mine, told(181 * S), 180 * S)
    assert (mine.errors, mine.last_ns) == (1.0, 180 * S)
    assert mine.deviation == 0.2
    assert mine.sizes[0].long == pytest.approx(0.75 * log(2.0))


def test_a_form_that_has_seen_nothing_takes_all() -> None:
    mine = form()
    merge(mine, told(), 180 * S)
    assert [one.long for one in mine.sizes] == pytest.approx([log(2.0)] * 3)
    assert (mine.errors, mine.last_ns) == (3.0, 180 * S)


def test_limits_and_slopes_of_the_last_and_of_the_one_that_saw_more() -> None:
    mine = seen(0)
    mine.slowdown.moved, mine.slowdown.squares = 1.0, 2.0
    merge(mine, told(limit=7.0, slowdown=(9.0, 2.0)), 180 * S)
    assert (mine.limit.most, mine.slowdown.moved) == (7.0, 1.0)
    merge(mine, told(0, limit=3.0, slowdown=(9.0, 2.1)), 180 * S)
    assert (mine.limit.most, mine.slowdown.moved) == (7.0, 9.0)  # an older limit is none


@pytest.mark.parametrize(
    ("own", "its", "newer", "taken"),
    [(19, 20, True, True), (50, 20, True, True), (50, 19, True, False), (50, 60, False, False),
     (19, 20, False, True), (5, 4, False, False), (4, 5, False, True), (5, 5, False, False)],
)  # fmt: skip
def test_the_last_samples_are_those_of_the_newer_or_the_many(
    own: int, its: int, newer: bool, taken: bool
) -> None:
    mine = seen(100 * S)
    for _ in range(own):
        mine.sizes[0].recent.append(1.0)
    sizes = (SizeState(0.0, 0.25, 10, (2.0,) * its), *told().sizes[1:])
    merge(mine, told(180 * S if newer else 50 * S, sizes=sizes), 180 * S)
    assert (mine.sizes[0].recent[0] == 2.0) is taken


def test_a_record_holds_the_form_and_its_instants_move_with_the_clock() -> None:
    mine = seen()
    mine.limit.refused(8, 0)
    found = record(mine)
    assert (found.limit, found.last_ns, found.deviation) == (7.0, 180 * S, 0.2)
    assert record(form()).limit is None
    state = FormState({"a": found, "b": record(form())}, ())
    later = moved(state, 10)
    assert (later.targets["a"].last_ns, later.targets["a"].speed_last_ns) == (
        180 * S + 10,
        180 * S + 10,
    )
    assert (later.targets["b"].last_ns, later.targets["b"].speed_last_ns) == (NEVER, NEVER)


# Speeds in bad weather


def slow_form(deviation: float, last_ns: int, since: int = 9) -> Form:
    """At instant 0 it was a whole log slower than its long run."""
    found = form()
    found.speed_deviation, found.speed_last_ns = -1.0, 0
    found.deviation, found.last_ns, found._speed_since = deviation, last_ns, since
    found.changed_ns = 0
    return found


@pytest.mark.parametrize(
    ("deviation", "last_ns", "since", "weight"),
    [
        (0.0, 180 * S, 9, 1 / e),
        (0.7, 180 * S, 9, 1 / e),  # not more than twice as slow
        (0.71, 180 * S, 9, 1.0),  # the trouble lasts, and so does the speed that was seen in it
        (0.71, 180 * S, 2, 1.0),
        (0.71, 180 * S, 1, e**-0.5),  # one that was only guessed is forgotten half as fast
        (1.0, 0, 9, 1 / e),  # nobody has seen the trouble of late
    ],
)
def test_a_speed_is_remembered_while_first_tokens_say_that_the_trouble_lasts(
    deviation: float, last_ns: int, since: int, weight: float
) -> None:
    found = slow_form(deviation, last_ns, since)
    assert found.log_speed(180 * S) == pytest.approx(log(100.0) - weight)


@pytest.mark.parametrize(("alone_ns", "speed"), [(10 * S, -1.0), (10 * S + 1, -0.88)])
def test_probes_alone_bring_the_speed_back_with_the_first_tokens(
    alone_ns: int, speed: float
) -> None:
    """Half a log late becomes 0.44: the same part of the slowness is left."""
    found = form(weight=50.0)
    found.deviation, found.last_ns = 0.5, alone_ns
    found.speed_deviation, found.speed_last_ns = -1.0, 0
    found.first(0, alone_ns, 1.0)
    assert found.deviation == pytest.approx(0.44)
    assert found.speed_deviation == pytest.approx(speed)


def test_a_change_of_first_tokens_is_one_of_speed_as_far_as_is_known() -> None:
    found = form()
    found.failed(0, S, 0.0)
    found.failed(0, S, 0.0)
    assert found.deviation == pytest.approx(log(5.0))
    assert found.speed_deviation == pytest.approx(-0.4 * log(5.0))


def test_after_a_change_the_short_run_is_a_mean_of_the_three_that_showed_it() -> None:
    found = form(weight=50.0)
    found.failed(0, S, 0.0)
    found.failed(0, S, 0.0)
    assert found.deviation == pytest.approx(log(5.0))
    found.failed(0, S, 10.0)  # twice as late: the fourth
    assert found.deviation == pytest.approx(log(5.0) + log(2.0) / 4)


def test_a_change_of_speed_is_followed_at_once() -> None:
    found = form(weight=50.0)
    assert not found.finished(S, 400, 1.0)
    assert found.finished(S, 400, 1.0)
    first = 1 / 51  # the long run after one answer, above 100 tokens/s
    long = first + 1 / 52
    assert found.speed_long == pytest.approx(log(100.0) + long)
    assert found.speed_deviation == pytest.approx(log(4.0) - first)
    believed = log(100.0) + long + log(4.0) - first
    assert not found.finished(S, 800, 1.0)
    off = log(800.0) - believed
    assert found.log_speed(S) == pytest.approx(believed + off / 4)


# Curves that are wrong for a while


@pytest.mark.parametrize("extra_s", [3.0, -3.0])
def test_a_fourth_sample_far_off_in_one_direction_makes_the_curve_forget(extra_s: float) -> None:
    """Each counts for three usual errors, less 0.7: the fourth makes it 9.2."""
    curve = WaitCurve()
    for _ in range(3):
        curve.saw(1, extra_s, 0.5)
    assert curve._unit == pytest.approx(0.99**-3)
    curve.saw(1, extra_s, 0.5)
    assert curve._unit == pytest.approx(5.0 * 0.99**-4)


def test_samples_off_in_turns_are_no_change() -> None:
    curve = WaitCurve()
    for number in range(12):
        curve.saw(1, 3.0 if number % 2 else -3.0, 0.5)
    assert curve._unit == pytest.approx(0.99**-12)


def test_failures_are_no_first_tokens_for_other_workers_either() -> None:
    """A prediction leaves them out, and still does where the record was taken over."""
    mine, its = form(), form()
    for second in range(1, 5):
        its.failed(0, second * S, 0.0)
    mine.look(5 * S)
    its.look(5 * S)
    alone_s = mine.answered_s(0, 5 * S)
    assert its.ttfts_s[0] > 2.0 * alone_s
    assert its.answered_s(0, 5 * S) == pytest.approx(alone_s, rel=0.05)
    merge(mine, record(its), 5 * S)
    mine.look(5 * S)
    assert mine.ttfts_s[0] == pytest.approx(its.ttfts_s[0])
    assert mine.answered_s(0, 5 * S) == pytest.approx(its.answered_s(0, 5 * S))
