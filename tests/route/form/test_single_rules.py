"""Rules of what is learned of a target that a whole day hides, each by itself."""

from __future__ import annotations

import math

import pytest

from lightgate.route.admission.headers import RateFact
from lightgate.route.admission.rate import HOLD_S, RateGate
from lightgate.route.admission.stated import StatedLimits
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import DEFAULT, DOUBTFUL, Prior
from lightgate.route.form.size import ENOUGH, PromptSize
from lightgate.route.form.state import SizeState, _merge_size
from lightgate.route.form.target import NARROWEST, SOONEST_S, Form
from lightgate.route.form.wait import LEAST_WEIGHT, RESCALE, ROOMS, WaitCurve, _Fitted
from lightgate.route.health.failure import ODD_STATUS, SERVER, by_status

S = 1_000_000_000


@pytest.mark.parametrize(
    ("mine", "its", "newer", "takes"),
    [
        (ENOUGH - 1, ENOUGH, False, True), (ENOUGH, ENOUGH + 1, False, False),
        (3, 4, False, True), (4, 4, False, False),
        (ENOUGH + 5, ENOUGH, True, True), (ENOUGH + 5, ENOUGH - 1, True, False),
    ],
)  # fmt: skip
def test_samples_are_taken_from_a_worker_that_has_enough_or_more_of_few(
    mine: int, its: int, newer: bool, takes: bool
) -> None:
    own = PromptSize(0.0, 0.5)
    for _ in range(mine):
        own.add(1.0)
    _merge_size(own, SizeState(0.0, 0.25, its, (2.0,) * its), 9, newer=newer, blank=False)
    assert (own.recent[0] == 2.0) is takes


def test_a_number_in_flight_that_weighs_nothing_is_dropped_once_the_weights_are_large() -> None:
    curve = WaitCurve()
    curve._bins = {1: [LEAST_WEIGHT * RESCALE * 0.9, 1.0, 1.0], 2: [RESCALE, 4.0, 8.0]}
    curve._unit = RESCALE
    curve._tidy()
    assert (len(curve._bins), curve._unit) == (2, RESCALE)  # not yet
    curve._unit = unit = RESCALE * 1.001
    curve._tidy()
    assert curve._bins == {2: [RESCALE / unit, 4.0 / unit, 8.0 / unit]}
    assert curve._unit == 1.0


def test_numbers_in_flight_are_tidied_where_there_are_many() -> None:
    curve = WaitCurve()
    curve._bins = {n: [1.0, 0.0, 0.0] for n in range(2 * len(ROOMS))}
    curve._unit = 2000.0
    curve._tidy()
    assert len(curve._bins) == 2 * len(ROOMS)
    curve._bins[999] = [2000.0, 1.0, 1.0]
    curve._tidy()
    assert curve._bins == {999: [1.0, 1.0 / 2000.0, 1.0 / 2000.0]}


def test_samples_of_one_number_in_flight_are_added_up_from_nothing() -> None:
    curve = WaitCurve()
    curve.saw(2, 0.5, 1.0)
    unit = curve._unit
    assert curve._bins == {2: [unit, unit * 0.5, unit * 0.25]}
    for flying, kept in (
        (64, 64),
        (65, 64),
        (67, 64),
        (68, 68),
        (256, 256),
        (257, 256),
        (272, 272),
    ):
        curve.saw(flying, 0.0, 1.0)
        assert max(curve._bins) == kept


def test_of_two_lines_that_fit_as_well_that_of_the_smaller_room_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [_Fitted(0.0, 16.0, 0.3), _Fitted(0.0, 8.0, 0.2), _Fitted(0.0, 4.0, 0.1)]
    monkeypatch.setattr(WaitCurve, "_fits", lambda curve: lines)
    curve = WaitCurve()
    curve._fit()
    assert (curve.room, curve.slope) == (4.0, 0.1)


def test_a_time_is_told_in_sigmas_and_no_sigma_is_below_the_narrowest() -> None:
    form = Form(DEFAULT)
    form.noise = 0.8
    usual = math.exp(form.sizes[0].long)
    assert form.sigmas(0, usual * math.exp(0.4)) == pytest.approx(0.5)
    form.noise = NARROWEST / 2
    assert form.sigmas(0, usual * math.exp(NARROWEST)) == pytest.approx(1.0)
    least = (math.log(SOONEST_S) - form.sizes[0].long) / NARROWEST
    assert form.sigmas(0, 0.0) == pytest.approx(least)


def test_a_first_token_or_a_failure_is_one_end_of_the_window_of_trouble() -> None:
    form = Form(DEFAULT)
    form.first(0, S, 0.2)
    assert (form.trouble.first, form.trouble.second) == (0, 1)
    form.failed(0, 2 * S, 0.0)
    assert (form.trouble.first, form.trouble.second) == (1, 2)


def test_a_target_that_had_to_start_is_watched_and_nothing_else_is_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = Form(DEFAULT)
    form.watched = False
    monkeypatch.setattr(type(form.cold), "explains", lambda *facts: True)
    before = form.sizes[0].long, form.ends, form.sizes[0].seen
    assert form.first(0, S, 9.0) is False
    assert form.watched
    form.watched = False
    form.waited(0, S, 9.0)
    assert form.watched
    assert (form.sizes[0].long, form.ends, form.sizes[0].seen) == before


def test_the_first_answer_of_a_newcomer_takes_the_place_of_what_was_guessed_of_its_speed() -> None:
    form = Form(Prior(500.0, 900.0, 70.0, 40.0, DOUBTFUL))
    form.deviation, form.last_ns, form.speed_deviation = 2.0, S, -1.0  # late: slow as well
    assert form.log_speed(S) < form.speed_long
    assert form.finished(S, 100, 2.0)
    assert form.speed_long == pytest.approx(math.log(50.0))
    assert form.speed_deviation == pytest.approx(0.0)


# Limits that are stated


def fact(left: float | None = 2.0) -> RateFact:
    return RateFact("requests", 10.0, left, 5.0, 60.0)


def test_requests_that_are_sent_count_where_limits_are_stated_and_their_start_is_known() -> None:
    forms = Forms({})
    forms.stated("a/m", S, S, [fact()], tokens=1, refused=False)
    forms.started("a/m", 2 * S)
    assert forms.closed(2 * S) == set()
    forms.started("a/m")  # nobody knows when
    assert forms.closed(2 * S) == set()
    version = forms.version
    forms.started("a/m", 3 * S)
    assert (forms.closed(3 * S), forms.version) == ({"a/m"}, version + 1)
    forms.started("a/m", 4 * S)  # it is closed: nothing more is counted
    assert forms.version == version + 1
    assert forms.closed(6 * S - 1) == {"a/m"}
    assert forms.closed(6 * S) == set()
    forms.started("b/m", 4 * S)  # which has stated nothing
    assert "b/m" not in forms.stated_by


def test_answers_that_are_under_way_count_against_what_an_older_one_says_is_left() -> None:
    for begun, closed in (((), False), ((2 * S,), True), ((S,), False)):
        forms = Forms({})
        for at_ns in begun:
            forms.started("a/m", at_ns)
        version = forms.version
        forms.stated("a/m", 3 * S, S, [fact(1.0)], tokens=1, refused=False)
        assert (forms.closed(3 * S) == {"a/m"}) is closed
        assert forms.version == version + closed


def test_a_refusal_without_any_stated_limit_closes_nothing() -> None:
    known = StatedLimits()
    known.told([], S, later=0, tokens=1, refused=True)
    assert known.closed_ns == 0


def test_a_bucket_holds_what_comes_in_a_while_and_one_request_at_least() -> None:
    gate = RateGate()
    gate.rate = 4.0
    assert gate.holds == 4.0 * HOLD_S
    gate.rate = 0.001
    assert gate.holds == 1.0


def test_a_status_of_500_and_above_is_the_servers() -> None:
    assert [by_status(status) for status in (499, 599)] == [ODD_STATUS, SERVER]
