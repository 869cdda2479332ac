"""The steps of the knee gate, answer by answer, for targets whose throughput is known."""

from __future__ import annotations

import pytest

from lightgate.route.admission.knee import MOST, PROBE_NS, USUAL, Knee, _Round

NS = 1_000_000_000


def answers_until(knee: Knee, seconds: float = 1.0, now_ns: int = 0, flying: int = 0) -> int:
    """Answer with the level full until something new is tried; return how many it took."""
    epoch, level = knee.epoch, flying or round(knee.most)
    for count in range(1, 2000):
        knee.ended(epoch, level, 1.0, seconds, now_ns)
        if knee.epoch != epoch:
            return count
    return 0


def saturated(knee: Knee, slots: int, now_ns: int = 0) -> tuple[int, float]:
    """One round at a target of so many slots; return its answers and the next level."""
    seconds = max(1.0, knee.most / slots)
    return answers_until(knee, seconds, now_ns), knee.most


def test_where_more_in_flight_do_more_few_answers_are_enough_to_climb() -> None:
    knee = Knee()
    steps = [(answers_until(knee), knee.most) for _ in range(4)]
    # Doubled once; then four times as many, while each is as fast as before.
    assert steps == [(8, 8.0), (8, 32.0), (16, 128.0), (64, MOST)]
    assert not knee.settled
    assert answers_until(knee) == 256


def test_a_level_is_doubled_where_throughput_grows_by_less_than_the_level() -> None:
    """Twice as many that take 1.25 times as long do 0.68 of the growth."""
    knee = Knee()
    answers_until(knee)
    assert (answers_until(knee, 1.25), knee.most) == (8, 16.0)


@pytest.mark.parametrize(("seconds", "most"), [(1.6, 16.0), (1.7, 6.0)])
def test_three_tenths_of_the_growth_are_enough_to_go_on(seconds: float, most: float) -> None:
    """log(2/1.6) is 0.32 of log 2 and log(2/1.7) is 0.23 of it; then the knee is searched for."""
    knee = Knee()
    answers_until(knee)
    assert answers_until(knee, seconds) == 24  # a whole round where a few are not clear
    assert knee.most == most


def test_the_knee_of_eight_slots_is_found_step_by_step() -> None:
    knee = Knee()
    steps = [saturated(knee, 8) for _ in range(5)]
    assert steps == [(8, 8.0), (8, 32.0), (32, 6.0), (24, 7.0), (24, 8.0)]
    assert knee.settled
    # One level less is tried at once, and does too little.
    assert [saturated(knee, 8) for _ in range(2)] == [(24, 6.0), (24, 8.0)]
    # Nothing more is tried before its time.
    assert saturated(knee, 8, PROBE_NS - 1) == (24, 8.0)
    assert [saturated(knee, 8, PROBE_NS) for _ in range(2)] == [(24, 10.0), (24, 8.0)]
    # It did no more: the next try comes twice as late.
    assert saturated(knee, 8, 3 * PROBE_NS - 1) == (24, 8.0)
    assert saturated(knee, 8, 3 * PROBE_NS) == (24, 10.0)
    # Now the target has more slots: the climb goes on from there.
    assert [saturated(knee, 100, 3 * PROBE_NS) for _ in range(2)] == [(24, 20.0), (10, 80.0)]


def test_fewer_slots_than_the_first_level_are_found_below_it() -> None:
    knee = Knee()
    assert [saturated(knee, 2) for _ in range(3)] == [(8, 8.0), (24, 3.0), (24, 3.0)]
    assert knee.settled
    # Two do as much, so that one is tried as well: that does less.
    assert [saturated(knee, 2)[1] for _ in range(5)] == [2.0, 2.0, 1.0, 2.0, 2.0]


def test_a_target_that_got_slow_is_tried_with_less() -> None:
    knee = Knee()
    for _ in range(7):
        saturated(knee, 8)
    assert knee.most == 8.0
    late_ns = PROBE_NS - 1
    assert answers_until(knee, 1.3, 2 * PROBE_NS - 1) == 24
    assert knee.most == 10.0  # not slow enough; the time for more has come
    knee = Knee()
    for _ in range(7):
        saturated(knee, 8)
    assert answers_until(knee, 1.5, late_ns) == 24
    assert knee.most == 8.0  # the last try of less is too young
    knee = Knee()
    for _ in range(7):
        saturated(knee, 8)
    assert answers_until(knee, 1.5, 2 * PROBE_NS) == 24
    assert knee.most == 6.0


def test_fewer_that_do_as_much_are_kept() -> None:
    knee = Knee()
    for _ in range(5):
        saturated(knee, 8)
    assert saturated(knee, 8) == (24, 6.0)  # with eight it did eight a second
    assert answers_until(knee, 0.75) == 24
    assert knee.most == 6.0
    assert saturated(knee, 6) == (24, 5.0)  # and less may still do


def test_only_answers_of_this_level_that_was_nearly_full_count() -> None:
    knee = Knee(10)
    for _ in range(100):
        knee.ended(knee.epoch, 7, 1.0, 1.0, 0)
        knee.ended(knee.epoch - 1, 10, 1.0, 1.0, 0)
        knee.ended(knee.epoch, 10, 1.0, 0.0, 0)
    assert knee.most == 10
    assert answers_until(knee, flying=8) == 8
    knee = Knee()
    for _ in range(3):
        saturated(knee, 8)
    assert knee.most == 6.0  # levels are close to each other now
    assert answers_until(knee, flying=5) == 0


def test_what_a_target_has_promised_is_in_flight_by_its_own_time() -> None:
    knee = Knee()
    knee.promised = 40.0
    assert (answers_until(knee, 0.5), knee.most) == (8, 20.0)
    knee = Knee()
    knee.promised = 1e6
    assert (answers_until(knee, 0.5), knee.most) == (8, MOST)


def test_the_time_of_an_answer_of_the_usual_length() -> None:
    """Lengths of 1 and 3 took 1 and 2 seconds: half a second each, of which a third counts."""
    found = _Round()
    found.add(3, 1.0, 1.0)
    found.add(5, 3.0, 2.0)
    assert found.level == 4.0
    assert found.each_s(2.0) == pytest.approx(1.5)
    assert found.each_s(3.0) == pytest.approx(1.5 + 0.5 / 3)
    assert found.each_s(-100.0) == pytest.approx(0.15)  # a tenth of the mean at least
    shrinking = _Round()
    shrinking.add(1, 1.0, 2.0)
    shrinking.add(1, 3.0, 1.0)
    assert shrinking.each_s(9.0) == pytest.approx(1.5)  # no answer is sooner for being longer


def test_the_usual_length_is_the_mean_of_all_and_then_follows_the_newest() -> None:
    knee = Knee()
    for work in (10.0, 20.0, 60.0):
        knee.ended(knee.epoch, 1, work, 1.0, 0)
    assert knee._usual == pytest.approx(30.0)
    for _ in range(USUAL):
        knee.ended(knee.epoch, 1, 30.0, 1.0, 0)
    knee.ended(knee.epoch, 1, 30.0 + USUAL, 1.0, 0)
    assert knee._usual == pytest.approx(31.0)


def test_a_climb_that_ends_below_the_level_before_it_has_gained_nothing() -> None:
    """The last level is less than twice the one before, and was filled for a part only."""
    knee = Knee(480)
    answers_until(knee)
    assert knee.most == MOST
    assert answers_until(knee, 0.5, flying=410) == round(MOST)
    assert not knee.settled
    assert knee.most < 480
