"""What a worker takes without asking: advance, share, at least one, and a new period."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lightgate.gateway.shared.share import (
    SILENT_NS,
    Alone,
    KeyLimits,
    KeyShare,
    Minute,
    Needed,
    Told,
)

SECOND = 1_000_000_000
NONE = -1


def told(left: int, share: int, advance: int, period: int = 4) -> Told:
    return Told(Needed(left, left, left), Needed(share, share, share),
                Needed(advance, advance, advance), period)  # fmt: skip


def taken(
    share: KeyShare, limits: KeyLimits, need: Needed, *, at_s: float, members: int = 4
) -> int:
    """How many requests are let in, one after the other, at an instant."""
    count = 0
    alone = Alone(int(at_s * SECOND), members, at_s > 2.5)
    while count < 1000 and not share.lacks(need, limits, 0, alone):
        share.took(need, int(at_s))
        count += 1
    return count


def test_the_advance_comes_first_and_the_share_after_the_silence_was_noticed() -> None:
    for limits in (KeyLimits(100, NONE, NONE, 4), KeyLimits(NONE, NONE, 100, 4)):
        share = KeyShare()
        share.told(told(80, 20, 5), (0, 0, 0), 0)
        assert taken(share, limits, Needed(1, 1, 1), at_s=1) == 5
        assert taken(share, limits, Needed(1, 1, 1), at_s=3) == 15
        assert share.may_take(3 * SECOND) == (0, 0, 0)


def test_one_request_as_long_as_something_is_left() -> None:
    limits, share = KeyLimits(100, NONE, NONE, 4), KeyShare()
    share.told(told(9, 2, 0), (0, 0, 0), 0)
    assert taken(share, limits, Needed(5, 1, 0), at_s=1) == 1
    share.settled(Needed(5, 1, 0), Needed(0, 1, 0), 1)  # it took nothing after all
    assert taken(share, limits, Needed(5, 1, 0), at_s=1) == 1
    share = KeyShare()
    share.told(told(4, 1, 0), (0, 0, 0), 0)
    assert taken(share, limits, Needed(5, 1, 0), at_s=1) == 0


def test_what_was_used_before_the_question_is_known_to_the_store() -> None:
    share = KeyShare()
    for _ in range(3):
        share.took(Needed(2, 1, 7), 0)
    sent = share.used
    share.took(Needed(2, 1, 7), 0)  # while the question is under way
    share.told(told(100, 25, 10), sent, 0)
    assert share.used == (2, 1, 7)
    assert share.may_take(0) == (8, 9, 3)
    share.forget()
    assert (share.may_take(0), share.left_nano) == ((0, 0, 0), None)


def test_a_minute_after_the_last_word_a_limit_is_divided_by_the_members() -> None:
    share, limits = KeyShare(), KeyLimits(NONE, 40, NONE, 4)
    share.told(told(4, 1, 0), (0, 0, 0), 0)
    assert taken(share, limits, Needed(0, 1, 0), at_s=10) == 1
    share.minute.turn(80)
    assert taken(share, limits, Needed(0, 1, 0), at_s=80) == 10
    assert share.lacks(Needed(0, 1, 0), limits, 0, Alone(80 * SECOND, 4, long=True)) == "rpm"
    assert share.minute.wait_s() == 61


def test_a_key_of_which_nothing_was_told_gets_a_small_part_at_first() -> None:
    limits = KeyLimits(1280, NONE, NONE, 4)
    assert taken(KeyShare(), limits, Needed(1, 1, 0), at_s=1) == 10
    assert taken(KeyShare(), limits, Needed(1, 1, 0), at_s=3) == 160
    assert taken(KeyShare(), KeyLimits(NONE, 4, NONE, 4), Needed(0, 1, 0), at_s=1) == 1


def test_a_new_period_begins_with_the_whole_budget() -> None:
    share = KeyShare()
    share.told(told(0, 0, 0, period=4), (0, 0, 0), 0)
    assert taken(share, KeyLimits(100, NONE, NONE, 4), Needed(1, 1, 0), at_s=3) == 0
    assert taken(share, KeyLimits(100, NONE, NONE, 8), Needed(1, 1, 0), at_s=3) == 25


def test_a_minute_forgets_what_is_older() -> None:
    minute = Minute()
    minute.add(100, 2, 30)
    minute.add(130, 1, 5)
    assert (minute.requests, minute.tokens) == (3, 35)
    minute.turn(160)
    assert (minute.requests, minute.tokens) == (3, 35)  # the running second and 60 before it
    minute.turn(161)
    assert (minute.requests, minute.tokens) == (1, 5)
    minute.turn(1000)
    assert (minute.requests, minute.tokens, minute.wait_s()) == (0, 0, 1)
    minute = Minute()
    minute.add(100, 2, 30)
    minute.turn(221)  # two rounds of the ring, less a second: all of it is passed
    assert (minute.requests, minute.tokens) == (0, 0)


def test_a_budget_is_called_used_up_only_where_the_store_has_said_so() -> None:
    limits, need = KeyLimits(100, NONE, NONE, 4), Needed(5, 1, 0)
    alone = Alone(SECOND, 4, long=False)
    share = KeyShare()
    assert taken(share, limits, need, at_s=1) == 1  # nothing was told yet
    assert share.lacks(need, limits, 0, alone) == "share"
    share.told(told(9, 2, 0), share.used, 0)
    share.took(need, 1)
    assert share.lacks(Needed(4, 1, 0), limits, 0, alone) == "share"
    assert share.lacks(need, limits, 0, alone) == "budget"


def test_a_limit_is_called_used_up_only_where_waiting_a_moment_gives_no_more() -> None:
    limits, need = KeyLimits(NONE, 100, NONE, 4), Needed(0, 1, 0)
    share = KeyShare()
    share.told(told(30, 7, 1), (0, 0, 0), 0)
    share.took(need, 1)
    assert share.lacks(need, limits, 0, Alone(SECOND, 4, long=False)) == "share"  # the advance
    assert share.lacks(Needed(0, 31, 0), limits, 0, Alone(SECOND, 4, long=False)) == "rpm"
    assert share.lacks(Needed(0, 29, 0), limits, 0, Alone(3 * SECOND, 4, long=True)) == "rpm"
    unknown = KeyShare()
    assert taken(unknown, limits, need, at_s=1) == 1  # nothing was told yet
    assert unknown.lacks(need, limits, 0, Alone(SECOND, 4, long=False)) == "share"


def test_what_a_request_really_took_counts_in_the_place_of_what_was_reserved() -> None:
    share = KeyShare()
    share.took(Needed(50, 1, 400), 7)
    share.settled(Needed(50, 1, 400), Needed(20, 1, 90), 8)
    assert share.used == (20, 1, 90)
    assert (share.requests, share.tokens) == (1, 90)
    assert (share.minute.requests, share.minute.tokens) == (1, 90)


@given(st.lists(st.tuples(st.integers(0, 70), st.integers(0, 3), st.integers(0, 9)), max_size=40))
def test_a_minute_counts_what_came_in_its_61_seconds(steps: list[tuple[int, int, int]]) -> None:
    minute, now, came = Minute(), 1000, list[tuple[int, int, int]]()
    for later, requests, tokens in steps:
        now += later
        minute.add(now, requests, tokens)
        came.append((now, requests, tokens))
        recent = [one for one in came if one[0] > now - 61]
        assert minute.requests == sum(one[1] for one in recent)
        assert minute.tokens == sum(one[2] for one in recent)
        counted = [at for at, more, others in recent if more or others]
        assert minute.wait_s() == (min(counted) + 61 - now if counted else 1)


def test_an_advance_is_a_share_from_the_instant_at_which_a_silence_is_noticed() -> None:
    share = KeyShare()
    share.told(told(80, 20, 5), (0, 0, 0), 100 * SECOND)
    assert share.left_nano == 80
    assert share.may_take(100 * SECOND + SILENT_NS - 1) == (5, 5, 5)
    assert share.may_take(100 * SECOND + SILENT_NS) == (20, 20, 20)


def test_what_was_told_of_a_minute_holds_for_a_minute() -> None:
    share, limits = KeyShare(), KeyLimits(NONE, 40, NONE, 4)
    share.told(told(4, 1, 0), (0, 0, 0), 100 * SECOND)
    share.took(Needed(0, 1, 0), 100)
    for at_ns, lacks in ((160 * SECOND - 1, "rpm"), (160 * SECOND, "")):
        assert share.lacks(Needed(0, 1, 0), limits, 0, Alone(at_ns, 4, long=True)) == lacks


def lacks(share: KeyShare, need: Needed, limits: KeyLimits, held: int = 0, **alone: int) -> str:
    """At the first second, without the store for long, unless something else is said."""
    given = Alone(alone.get("now_ns", SECOND), alone.get("members", 4), bool(alone.get("long", 1)))
    return share.lacks(need, limits, held, given)


def test_tokens_that_are_held_count_beside_those_of_the_minute() -> None:
    share, limits = KeyShare(), KeyLimits(NONE, NONE, 100, 4)
    share.settled(Needed(0, 1, 0), Needed(0, 1, 10), 1)
    assert lacks(share, Needed(0, 1, 5), limits, held=10) == ""
    assert lacks(share, Needed(0, 1, 6), limits, held=10) == "tpm"


def test_a_limit_of_nothing_lets_nothing_in() -> None:
    share = KeyShare()
    assert lacks(share, Needed(0, 1, 0), KeyLimits(NONE, 0, NONE, 4)) == "rpm"
    assert lacks(share, Needed(0, 1, 1), KeyLimits(NONE, NONE, 0, 4)) == "tpm"
    assert lacks(share, Needed(1, 1, 0), KeyLimits(0, NONE, NONE, 4)) == "budget"
    assert lacks(share, Needed(9, 9, 9), KeyLimits(NONE, NONE, NONE, 4)) == ""


def test_who_is_alone_takes_its_share_at_once() -> None:
    for limits in (KeyLimits(100, NONE, NONE, 4), KeyLimits(NONE, 100, NONE, 4)):
        for members, most in ((1, 20), (2, 5)):
            share = KeyShare()
            share.told(told(80, 20, 5), (0, 0, 0), 0)
            assert taken(share, limits, Needed(1, 1, 1), at_s=1, members=members) == most


def test_what_is_left_may_be_taken_to_the_last() -> None:
    limits, share = KeyLimits(100, 100, NONE, 4), KeyShare()
    share.told(told(9, 2, 0), (0, 0, 0), 0)
    assert lacks(share, Needed(10, 1, 0), limits) == "budget"
    assert lacks(share, Needed(9, 9, 0), limits) == ""
    share.took(Needed(0, 1, 0), 1)
    assert lacks(share, Needed(0, 8, 0), limits) == "share"  # soon there may be so much
    assert lacks(share, Needed(0, 9, 0), limits) == "rpm"


def test_money_is_counted_apart_from_requests_where_nothing_was_told() -> None:
    share, limits = KeyShare(), KeyLimits(1280, NONE, NONE, 4)
    share.took(Needed(0, 1, 0), 1)  # which cost nothing
    assert lacks(share, Needed(1280, 1, 0), limits, long=0) == ""
    share.took(Needed(1, 1, 0), 1)
    assert lacks(share, Needed(1279, 1, 0), limits, long=0) == "share"
    assert lacks(share, Needed(1280, 1, 0), limits, long=0) == "budget"


def test_a_new_period_has_its_own_budget_whatever_was_spent_before() -> None:
    share = KeyShare()
    share.told(told(40, 30, 30, period=4), (0, 0, 0), 0)
    share.took(Needed(30, 1, 0), 0)
    limits = KeyLimits(100, NONE, NONE, 8)
    assert taken(share, limits, Needed(1, 1, 0), at_s=1) == 25  # before a silence is noticed too
    assert (share.left_nano, share.used[0]) == (100, 25)
