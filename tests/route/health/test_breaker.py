from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lightgate.route.health import breaker as module
from lightgate.route.health.breaker import (
    BUCKET_NS,
    BUCKETS,
    FLOOR,
    HEALTHY_NS,
    LEASE_NS,
    RATIO,
    SECOND_NS,
    Breaker,
    Breakers,
    Rules,
)
from lightgate.route.health.failure import (
    CANCELLED,
    CLIENT,
    CREDENTIALS,
    RATE_LIMITED,
    SERVER,
    Failure,
)

S = SECOND_NS
RULES = Rules()
KINDS = [SERVER, RATE_LIMITED, CREDENTIALS, CANCELLED, CLIENT]


def breaker(draw: float = 1.0, **rules: Any) -> Breaker:
    """A breaker whose pauses are whole: a draw of 1 is the end of the jitter's range."""
    return Breaker(Rules(**rules), lambda: draw)


def fail(box: Breaker, now_ns: int, kind: Failure = SERVER, wait_s: float | None = None) -> None:
    box.started(now_ns)
    box.failed(now_ns, kind, wait_s, now_ns)


def succeed(box: Breaker, now_ns: int) -> None:
    box.started(now_ns)
    box.succeeded(now_ns, now_ns)


def opened(**rules: Any) -> Breaker:
    """A breaker that opened at 1 s, until 6 s unless the rules say otherwise."""
    box = breaker(**rules)
    for _ in range(3):
        fail(box, S)
    assert box.state(S) == "open"
    return box


# Opening


def test_a_streak_of_hard_failures_opens_it() -> None:
    box = breaker()
    fail(box, 0)
    fail(box, 1)
    assert box.allows(2)
    fail(box, 2)
    assert not box.allows(3)
    assert box.opens_again_ns == 2 + 5 * S


def test_a_success_ends_the_streak() -> None:
    box = breaker()
    for now in range(40):
        (fail if now % 10 in {3, 4} else succeed)(box, now)
    assert box.allows(40)


def test_rate_limits_do_not_count_for_the_streak() -> None:
    box = breaker()
    for now in range(FLOOR - 1):
        fail(box, now, RATE_LIMITED, 0.0)
    assert box.state(FLOOR) == "closed"


def test_rate_limits_count_for_the_ratio() -> None:
    box = breaker()
    for now in range(FLOOR):
        fail(box, now, RATE_LIMITED, 0.0)
    assert box.state(FLOOR) == "open"


def test_a_ratio_below_the_limit_opens_it() -> None:
    box = breaker(streak=100)
    for now in range(FLOOR - 1):
        succeed(box, now)
    fail(box, 10)
    assert box.state(10) == "closed", f"exactly {RATIO}"
    fail(box, 11)
    assert box.state(11) == "open"


def test_few_requests_say_nothing_about_a_ratio() -> None:
    box = breaker(streak=100)
    for now in range(FLOOR - 1):
        fail(box, now)
    assert box.state(FLOOR) == "closed"


def test_what_is_older_than_the_window_does_not_count() -> None:
    box = breaker(streak=100)
    for _ in range(FLOOR - 1):
        fail(box, 0)
    fail(box, BUCKETS * BUCKET_NS)
    assert box.state(BUCKETS * BUCKET_NS) == "closed"


@pytest.mark.parametrize("kind", [CLIENT, CANCELLED])
def test_what_says_nothing_about_the_target_changes_nothing(kind: Failure) -> None:
    box = breaker()
    for now in range(50):
        fail(box, now, kind)
    assert box.state(50) == "closed"


outcomes = st.lists(st.sampled_from(["ok", *KINDS]), min_size=1, max_size=60)


@given(outcomes, st.data())
def test_the_burst_rate_does_not_change_the_verdict(seen: list[Any], data: Any) -> None:
    """The same outcomes at once or over almost a window open it at the same request."""
    gaps = data.draw(st.lists(st.integers(0, 9), min_size=len(seen), max_size=len(seen)))
    span = max(sum(gaps), 1)
    stretch = BUCKET_NS * (BUCKETS - 1) // span
    verdicts = []
    for unit in (0, 1, stretch):
        box, now, opens = breaker(), 0, None
        for place, (kind, gap) in enumerate(zip(seen, gaps, strict=True)):
            now += gap * unit
            if kind == "ok":
                box.succeeded(now, now)
            else:
                box.failed(now, kind, 0.0, now)
            if box.open_until_ns is not None:
                opens = place
                break
        verdicts.append(opens)
    assert verdicts[0] == verdicts[1] == verdicts[2]


# Coming back


def test_after_the_pause_one_probe_at_a_time() -> None:
    box = opened()
    assert not box.allows(6 * S - 1)
    assert box.allows(6 * S)
    box.started(6 * S)
    assert not box.allows(6 * S)
    assert box.state(6 * S) == "half_open"


def test_a_probe_that_speaks_closes_it() -> None:
    box = opened()
    box.started(6 * S)
    box.spoke(7 * S, 6 * S)
    assert box.state(7 * S) == "closed"
    assert box.allows(7 * S)


@pytest.mark.parametrize("kind", [SERVER, RATE_LIMITED])
def test_a_probe_that_fails_doubles_the_pause(kind: Failure) -> None:
    box = opened()
    fail(box, 6 * S, kind, 0.0)
    assert box.open_until_ns == 16 * S


def test_a_cancelled_probe_makes_room_for_the_next() -> None:
    box = opened()
    fail(box, 6 * S, CANCELLED)
    assert box.allows(6 * S)
    assert box.level == 0


def test_a_probe_that_never_ends_blocks_no_longer_than_its_lease() -> None:
    box = opened()
    box.started(6 * S)
    assert not box.allows(6 * S + LEASE_NS - 1)
    assert box.allows(6 * S + LEASE_NS)


def test_the_pause_grows_to_its_limit() -> None:
    box, now, pauses = opened(), 6 * S, []
    for _ in range(40):
        fail(box, now)
        assert box.open_until_ns is not None
        pauses.append((box.open_until_ns - now) // S)
        now = box.open_until_ns
    assert pauses[:7] == [10, 20, 40, 80, 160, 300, 300]
    assert set(pauses[7:]) == {300}


@given(st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 20))
def test_the_jitter_keeps_half_of_the_pause(draw: float, level: int) -> None:
    box = breaker(draw)
    box.level = level
    for _ in range(3):
        fail(box, 0)
    whole = min(RULES.open_ns << level, RULES.max_open_ns)
    assert whole // 2 <= box.opens_again_ns <= whole


def reopened_after(healthy_ns: int) -> Breaker:
    """Open with a doubled pause, recover, stay well for so long, and open again."""
    box = opened()
    fail(box, 6 * S)
    succeed(box, 16 * S)
    for now in range(16 * S, 16 * S + healthy_ns + 1, S):
        succeed(box, now)
    for _ in range(20):
        fail(box, 16 * S + healthy_ns)
        if box.open_until_ns is not None:
            break
    return box


def test_a_relapse_pauses_as_long_as_before() -> None:
    assert reopened_after(HEALTHY_NS - S).level == 1


def test_a_healthy_time_makes_the_next_pause_short_again() -> None:
    assert reopened_after(HEALTHY_NS).level == 0


def test_a_hundred_failures_of_one_moment_open_it_once() -> None:
    box = breaker()
    for now in range(100):
        box.started(now)
    for now in range(100):
        box.failed(1000 + now, SERVER, None, now)
    assert box.level == 0
    assert box.open_until_ns == 1002 + 5 * S


def test_stragglers_from_before_the_outage_do_not_open_it_again() -> None:
    box = opened()
    succeed(box, 6 * S)
    for _ in range(50):
        box.failed(7 * S, SERVER, None, S)
    assert box.state(7 * S) == "closed"


def test_stragglers_that_end_well_do_not_close_it() -> None:
    box = opened()
    box.succeeded(2 * S, S // 2)
    assert box.state(2 * S) == "open"


def test_stragglers_that_end_well_do_not_end_a_new_streak() -> None:
    box = opened()
    succeed(box, 6 * S)
    fail(box, 7 * S)
    fail(box, 7 * S)
    box.succeeded(7 * S, S // 2)
    fail(box, 7 * S)
    assert box.state(7 * S) == "open"


def test_what_was_before_the_recovery_does_not_count_for_the_ratio() -> None:
    box = breaker(streak=100)
    for _ in range(FLOOR):
        fail(box, S)
    succeed(box, 6 * S)
    fail(box, 7 * S)
    assert box.state(7 * S) == "closed"


def test_an_attempt_in_spite_of_it_can_close_but_not_lengthen_it() -> None:
    box = opened()
    fail(box, 2 * S)
    assert box.open_until_ns == 6 * S
    succeed(box, 3 * S)
    assert box.state(3 * S) == "closed"


# Holds


def test_retry_after_is_a_hold_of_its_own() -> None:
    box = breaker()
    fail(box, 0, RATE_LIMITED, 30.0)
    assert box.state(29 * S) == "held"
    assert not box.allows(30 * S - 1)
    assert box.allows(30 * S)
    assert box.level == 0


def test_a_hold_is_never_longer_than_five_minutes_nor_negative() -> None:
    box = breaker()
    fail(box, 0, RATE_LIMITED, 1e9)
    assert box.hold_until_ns == 300 * S
    box = breaker()
    fail(box, 7, RATE_LIMITED, -5.0)
    assert box.allows(7)


def test_a_later_shorter_wish_does_not_shorten_a_hold() -> None:
    box = breaker()
    fail(box, 0, RATE_LIMITED, 30.0)
    fail(box, S, RATE_LIMITED, 1.0)
    assert box.hold_until_ns == 30 * S


def test_a_503_with_retry_after_is_held_as_well() -> None:
    box = breaker()
    fail(box, 0, SERVER, 4.0)
    assert box.state(S) == "held"


def test_a_429_without_a_wait_holds_longer_each_time() -> None:
    box, holds = breaker(), []
    for now in range(0, 4000 * S, 400 * S):
        fail(box, now, RATE_LIMITED)
        holds.append((box.hold_until_ns - now) / S)
    assert holds == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]
    succeed(box, 5000 * S)
    fail(box, 5001 * S, RATE_LIMITED)
    assert box.hold_until_ns == 5002 * S


def test_the_clients_own_mistake_holds_nothing() -> None:
    box = breaker()
    fail(box, 0, CLIENT, 30.0)
    assert box.allows(0)


def test_an_answer_to_a_later_request_ends_a_hold() -> None:
    box = breaker()
    fail(box, 0, RATE_LIMITED, 30.0)
    box.succeeded(2, 0)
    assert not box.allows(2), "it began before the hold"
    succeed(box, S)
    assert box.allows(S)


# Time jumps


def test_a_jump_ahead_only_ends_pauses() -> None:
    box = opened()
    assert box.allows(10**18)
    box = breaker()
    fail(box, 0)
    fail(box, 0)
    for now in range(10**18, 10**18 + FLOOR):
        succeed(box, now)
    assert box.state(10**18) == "closed"


def test_time_that_goes_back_breaks_nothing() -> None:
    box = opened()
    assert not box.allows(0)
    fail(box, 0)
    succeed(box, 0)
    assert box.open_until_ns == 6 * S


# All of it at once


class Life(RuleBasedStateMachine):
    """Any order of requests, ends and moments keeps the promises of a breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = [0.5]
        self.box = Breaker(RULES, lambda: self.draws[-1])
        self.now = 0
        self.flying: list[int] = []

    @rule(forward=st.one_of(st.integers(0, S), st.integers(0, 400 * S)))
    def wait(self, forward: int) -> None:
        self.now += forward

    @rule(draw=st.floats(0.0, 1.0, exclude_max=True))
    def other_draw(self, draw: float) -> None:
        self.draws.append(draw)

    @rule()
    def start(self) -> None:
        self.now += 1
        half_open = self.box.state(self.now) == "half_open" and self.box.allows(self.now)
        self.box.started(self.now)
        self.flying.append(self.now)
        if half_open:
            assert not self.box.allows(self.now), "a second probe"

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), wait=st.sampled_from([None, 0.0, 2.0, 900]))
    def fail(self, data: Any, kind: Failure, wait: float | None) -> None:
        since = data.draw(st.sampled_from(self.flying))
        self.flying.remove(since)
        before = self.box.open_until_ns
        self.box.failed(self.now, kind, wait, since)
        after = self.box.open_until_ns
        if after != before:
            assert after is not None
            assert RULES.open_ns // 2 <= after - self.now <= RULES.max_open_ns
            assert before is None or before <= self.now, "lengthened before the pause was over"

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def succeed(self, data: Any) -> None:
        since = data.draw(st.sampled_from(self.flying))
        self.flying.remove(since)
        self.box.succeeded(self.now, since)

    @rule()
    def fresh_success_closes(self) -> None:
        self.now += 1
        self.box.started(self.now)
        self.box.succeeded(self.now, self.now)
        assert self.box.quiet(self.now)

    @invariant()
    def no_request_before_the_pause_is_over(self) -> None:
        if self.now < self.box.opens_again_ns:
            assert not self.box.allows(self.now)

    @invariant()
    def allowed_again_in_the_end(self) -> None:
        longest = max(self.box.opens_again_ns, self.now) + LEASE_NS
        assert longest - self.now <= max(RULES.max_open_ns, 300 * S) + LEASE_NS
        assert self.box.allows(longest)

    @invariant()
    def the_state_says_the_same(self) -> None:
        assert (self.box.state(self.now) == "closed") == self.box.quiet(self.now)


TestLife = Life.TestCase


# All targets


def test_breakers_know_who_is_in_trouble() -> None:
    all_of_them = Breakers(RULES, lambda: 1.0)
    assert all_of_them.allows("a/x", 0)
    all_of_them.failed("a/x", 0, RATE_LIMITED, 10.0, 0)
    assert all_of_them.troubled == {"a/x"}
    assert not all_of_them.allows("a/x", 0)
    assert all_of_them.allows("b/y", 0)
    all_of_them.succeeded("a/x", 20 * S, 20 * S)
    assert not all_of_them.troubled


def test_breakers_say_when_the_first_of_all_comes_back() -> None:
    all_of_them = Breakers(RULES, lambda: 1.0)
    all_of_them.failed("a/x", 0, RATE_LIMITED, 10.0, 0)
    assert all_of_them.soonest_ns(["a/x", "b/y"], 0) is None
    all_of_them.failed("b/y", 0, RATE_LIMITED, 4.0, 0)
    assert all_of_them.soonest_ns(["a/x", "b/y"], 0) == 4 * S
    assert all_of_them.soonest_ns(["a/x", "b/y"], 4 * S) is None


def test_with_a_probe_under_way_the_first_comes_back_now() -> None:
    all_of_them = Breakers(RULES, lambda: 1.0)
    for _ in range(3):
        all_of_them.failed("a/x", 0, SERVER, None, 0)
    all_of_them.started("a/x", 5 * S)
    assert all_of_them.soonest_ns(["a/x"], 6 * S) == 6 * S
    all_of_them.spoke("a/x", 7 * S, 5 * S)
    assert all_of_them.allows("a/x", 7 * S)
    assert not all_of_them.troubled


def test_new_rules_hold_from_the_next_opening_on() -> None:
    all_of_them = Breakers(RULES, lambda: 1.0)
    all_of_them.succeeded("a/x", 0, 0)
    all_of_them.use(Rules(streak=1, open_ns=S, max_open_ns=S))
    all_of_them.failed("a/x", 1, SERVER, None, 1)
    all_of_them.failed("b/y", 1, SERVER, None, 1)
    assert all_of_them.opens_again_ns("a/x") == all_of_them.opens_again_ns("b/y") == 1 + S


def test_names_that_clients_make_up_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST", 10)
    all_of_them = Breakers(RULES, lambda: 1.0)
    all_of_them.failed("a/held", 0, RATE_LIMITED, 10.0, 0)
    for number in range(100):
        all_of_them.failed(f"a/{number}", 0, SERVER, None, 0)
        assert len(all_of_them) <= 10
    assert not all_of_them.allows("a/held", 0)
    assert set(all_of_them.targets()) >= all_of_them.troubled


def test_the_jitter_spreads_the_probes_of_workers() -> None:
    ends = []
    for draw in (0.0, 0.25, 0.5, 0.75):
        box = breaker(draw)
        for _ in range(3):
            fail(box, 0)
        ends.append(box.opens_again_ns)
    assert all(b - a == 625_000_000 for a, b in pairwise(ends))


def test_a_target_has_a_breaker_from_its_first_event_on() -> None:
    all_of_them = Breakers(RULES, lambda: 1.0)
    assert all_of_them.get("a/x") is None
    all_of_them.failed("a/x", 0, RATE_LIMITED, 10.0, 0)
    found = all_of_them.get("a/x")
    assert found is not None
    assert not found.quiet(0)
    assert (len(all_of_them), list(all_of_them.targets())) == (1, ["a/x"])
