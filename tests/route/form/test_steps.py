"""What a form does at each step of an attempt, with parts of it that say what they were asked."""

from __future__ import annotations

from math import e, exp, log, sqrt
from typing import Any

import pytest

from lightgate.route.form.prior import DOUBTFUL, Z95, Prior
from lightgate.route.form.target import NEVER, Form
from lightgate.route.plan.hedge import fit

S = 1_000_000_000


def form(weight: float = 5.0) -> Form:
    """First tokens of a second with sigma 0.5, and 100 tokens/s with sigma 0.2."""
    found = Form(Prior(1e3, 1e3 * exp(0.5 * Z95), 100.0, 100.0 * exp(-0.2 * Z95), weight))
    found.look(0)
    return found


class Waits:
    """A curve by which each request in flight waits ten seconds longer, from the second one on."""

    free = 1.0

    def __init__(self) -> None:
        self.taken: list[tuple[float, float, float]] = []

    def seconds(self, flying: float) -> float:
        return 10.0 * flying

    def hidden(self, flying: float) -> float:
        del flying
        return 0.0

    def saw(self, flying: float, wait_s: float, alone_s: float) -> None:
        self.taken.append((flying, wait_s, alone_s))


class Cold:
    """Cold starts that explain nothing, and keep what they were asked."""

    seconds = 0.0

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, float, float]] = []
        self.pauses: dict[int, float] = {}

    def began(self, now_ns: int, *, alone: bool) -> None:
        del now_ns, alone

    def explains(self, began_ns: int, now_ns: int, first_s: float, usual_s: float) -> bool:
        self.asked.append((began_ns, now_ns, first_s, usual_s))
        return False


def test_a_new_form_expects_nothing_out_of_the_ordinary() -> None:
    new = Form(Prior(1e3, 2e3, 100.0, 80.0))
    assert (new.far, new.tail, new.mean, new.load) == (1.0, 1.0, 1.0, 1.0)
    assert (new.slowness, new.p_error, new.deviation, new.penalty) == (0.0, 0.0, 0.0, 0.0)
    assert (new.shared, new.in_flight, new.speed_seen, new.waiting) == (False, 0, 0, {})
    assert (new.last_ns, new.speed_last_ns, new.until_ns) == (NEVER, NEVER, NEVER)
    assert (new.errors, new.ends, new.speed_deviation) == (0.0, 0.0, 0.0)


def test_one_more_request_waits_behind_all_that_are_in_flight() -> None:
    busy: Any = form()
    busy.curve = Waits()
    assert busy.wait_s(S) == 0.0
    busy.started(S)
    busy.started(2 * S)
    assert busy.wait_s(2 * S) == pytest.approx(30.0)
    busy.beside(4, 1, 2 * S)
    assert busy.wait_s(2 * S) == pytest.approx(70.0)


def test_an_attempt_remembers_how_many_were_in_flight_with_it() -> None:
    alone, shared = form(), form()
    for began in (S, 2 * S):
        alone.started(began)
    assert alone.waiting == {S: 1, 2 * S: 2}
    shared.beside(3, 1, S)
    shared.started(S)
    assert shared.waiting == {S: 4}
    assert shared.pace.flying == 4
    shared.ended(S)  # nobody knows when: those of others are not known then
    assert shared.pace.flying == 0
    shared.started(2 * S)
    shared.ended(2 * S, 2 * S)
    assert shared.pace.flying == pytest.approx(3 * exp(-1.0))  # their count fades


def test_the_time_that_requests_spend_beside_each_other_adds_up() -> None:
    busy = form()
    busy.started(S)
    busy.started(3 * S)
    busy.ended(S, 6 * S)
    assert (busy.pace.area, busy.pace.since_ns, busy.pace.flying) == (8 * S, 6 * S, 1)
    busy.ended(3 * S, 7 * S)
    assert (busy.pace.area, busy.pace.since_ns, busy.pace.flying) == (9 * S, 7 * S, 0)


def test_a_first_token_is_cold_by_what_was_expected_with_its_wait() -> None:
    seen: Any = form()
    seen.curve, seen.cold = Waits(), Cold()
    seen.started(S)
    seen.first(0, 5 * S, 4.0)
    assert seen.cold.asked == [(S, 5 * S, 4.0, pytest.approx(11.0))]
    assert seen.curve.taken == [(1, pytest.approx(3.0), pytest.approx(1.0))]
    # Four of eleven expected seconds, of which ten were spent waiting.
    late = log(4 / 11) * sqrt(1 / 11)
    assert seen.sizes[0].long == pytest.approx(late / 6)


def test_a_change_takes_the_part_of_failures_away_and_is_told() -> None:
    seen = form()
    seen.failed(0, S, 0.0)
    assert seen.penalty > 0.0
    told = [seen.first(0, (2 + n) * S, 0.01) for n in range(3)]
    assert told == [False, True, False]
    assert seen.penalty == 0.0


def test_failures_count_as_trouble_for_half_a_minute() -> None:
    for later, count in ((29, 1), (30, 0)):
        seen = form()
        seen.failed(0, 0, 0.0)
        seen.trouble.add(later * S, 0, 0)
        assert seen.trouble.first == count


def test_a_look_fades_what_was_seen_and_forgets_what_was_found_out() -> None:
    seen = form()
    seen.first(0, 10 * S, 1.0)
    seen.recent.most, seen.recent.tail, seen.recent.mean = 2.0, 1.5, 1.2
    seen.misses["level"] = 0.5
    seen.look(190 * S)
    assert seen.tail == pytest.approx(2.0 * (1.0 + 0.5 / e))
    assert seen.mean == pytest.approx(exp(0.5 * seen.noise**2) * (1.0 + 0.2 / e))
    assert seen.misses == {}


def test_a_size_that_was_seen_stays_where_it_is_when_another_is_seen() -> None:
    seen = form()
    seen.first(0, 10 * S, 1.0)
    before = seen.sizes[0].long
    seen.first(1, 11 * S, 4.0)
    assert seen.sizes[0].long == before
    assert seen.sizes[2].long == pytest.approx(seen.sizes[1].long + 0.65)


def test_a_newcomer_is_watched_until_it_has_answered_three_times() -> None:
    new, known = form(DOUBTFUL), form()
    for each, load in ((new, 2.0), (known, 1.0)):
        assert not each.watched
        each.started(S)
        assert (each.load, each.watched) == (load, load != 1.0)
        each.look(S)
        assert each.watched is (load != 1.0)
    for _ in range(3):
        new.finished(2 * S, 100, 1.0)
    new.started(3 * S)
    assert new.load == 1.0


def test_an_answer_of_few_tokens_says_nothing_and_is_no_change() -> None:
    seen = form()
    assert seen.finished(S, 7, 1.0) is False
    assert seen.finished(S, 8, 0.0) is False
    assert seen.speed_seen == 0
    assert seen.finished(S, 8, 1.0) is False
    assert seen.speed_seen == 1


def test_what_a_batch_is_found_to_slow_down_moves_the_speed_alone() -> None:
    class Batch:
        learning, drag, flying, area, since_ns, free = True, 0.1, 0, 0, 0, 0.0

        def ended(
            self, began_ns: int, now_ns: int, token_s: float, *, calm: bool
        ) -> tuple[float, float]:
            assert (began_ns, now_ns, token_s, calm) == (S, 3 * S, 0.01, True)
            return 0.2, 0.3

    seen: Any = form()
    seen.pace = Batch()
    before = seen.speed_long
    seen.finished(3 * S, 100, 1.0, S)
    # An answer of the usual speed would have been faster alone; its long run has moved beside it.
    assert seen.speed_long == pytest.approx(before + 0.3 + (0.2 - 0.3) / 6)


def test_another_prior_takes_the_place_of_all_that_was_only_believed() -> None:
    new = form()
    new.look(5 * S)
    new.sizes[1].delays[1] = 3
    sharp = Prior(2e3, 2e3 * exp(0.02 * Z95), 50.0, 50.0 * exp(-0.1 * Z95), 5.0)
    new.use_prior(sharp)
    assert new.prior is sharp
    assert [size.variance for size in new.sizes] == pytest.approx([0.0004] * 3)
    assert [size.delays for size in new.sizes] == [{}, {}, {}]
    assert new.variance == pytest.approx(0.0004)
    assert (new.noise, new.until_ns) == (0.05, NEVER)
    assert new.speed_variance == pytest.approx(0.01)


def test_the_weather_is_the_same_for_all_sizes() -> None:
    seen = form()
    seen.first(0, 10 * S, 1.0)
    seen.deviation = 0.5
    for later_s, weather in ((0, 0.5), (180, 0.5 / e)):
        seen.look((10 + later_s) * S)
        wanted = [exp(size.long + weather) for size in seen.sizes]
        assert seen.ttfts_s == pytest.approx(wanted * 6)


def test_a_target_with_cold_starts_is_watched_however_short_they_are() -> None:
    seen = form()
    assert not seen.watched
    seen.cold.seconds = 0.5
    seen.look(S)
    assert seen.watched


def test_a_second_attempt_needs_room_beside_all_that_are_there() -> None:
    class Room:
        def __init__(self) -> None:
            self.asked: list[float] = []

        def spare(self, flying: float) -> bool:
            self.asked.append(flying)
            return False

    idle: Any = form()
    idle.curve = Room()
    assert fit(idle, S)
    assert idle.curve.asked == []
    idle.beside(3, 1, S)  # nothing of ours, but of another worker's
    assert not fit(idle, S)
    busy: Any = form()
    busy.curve = Room()
    busy.started(S)
    assert not fit(busy, S)
    assert (idle.curve.asked, busy.curve.asked) == ([4.0], [2.0])
