"""What routing remembers: first tokens, sessions, refusals, counts of a window."""

from __future__ import annotations

import math

import pytest

from lightgate.route.form.forms import INCIDENT_NS, MOST_SESSIONS, WARM_NS, Forms
from lightgate.route.form.size import ENOUGH, RECENT, RERANK, PromptSize
from lightgate.route.health.window import CountWindow


def test_quantiles_of_the_last_first_tokens() -> None:
    size = PromptSize(math.log(2.0), 0.5)
    assert size.usual(0.0) == pytest.approx(2.0)
    assert size.usual(1.0) == pytest.approx(2.0 * math.exp(0.5))
    for at in range(ENOUGH - 1):
        size.add(float(at))
    assert size.own(0.5) is None
    size.add(float(ENOUGH - 1))
    assert [size.own(q) for q in (0.0, 0.5, 0.99, 1.0)] == [0.0, 10.0, 19.0, 19.0]


def test_quantiles_are_taken_anew_after_some_samples() -> None:
    size = PromptSize(0.0, 0.5)
    for at in range(ENOUGH):
        size.add(float(at))
    assert size.own(1.0) == 19.0
    for _ in range(RERANK - 1):
        size.delays[0.9] = 7
        size.add(100.0)
        assert size.delays == {0.9: 7}
        assert size.own(1.0) == 19.0
    size.add(100.0)
    assert size.delays == {}
    assert size.own(1.0) == 100.0
    for _ in range(2 * RECENT):
        size.add(1.0)
    assert len(size.recent) == RECENT
    size.delays[0.9] = 7
    size.fill(tuple(float(at) for at in range(50)))
    assert (size.delays, size.own(1.0), len(size.recent)) == ({}, 49.0, 50)


def test_a_session_stays_warm_for_a_time() -> None:
    forms = Forms({})
    assert forms.warm("s", 0) is None
    forms.stick("s", "a/m", 5)
    assert forms.warm("s", 5 + WARM_NS - 1) == "a/m"
    assert forms.warm("s", 5 + WARM_NS) is None
    forms.stick("s", "b/m", 6)
    assert forms.warm("s", 6) == "b/m"


def test_the_session_that_was_used_longest_ago_is_forgotten() -> None:
    forms = Forms({})
    for at in range(MOST_SESSIONS):
        forms.stick(f"s{at}", "a/m", at)
    forms.stick("s0", "a/m", MOST_SESSIONS)
    assert forms.warm("s1", 10) == "a/m"
    forms.stick("one more", "a/m", MOST_SESSIONS)
    assert forms.warm("s0", 10) == "a/m"
    assert forms.warm("s1", 10) is None
    assert forms.warm("s2", 10) == "a/m"


def test_two_providers_that_refuse_at_once_are_an_incident() -> None:
    forms = Forms({})
    forms._refusals.update({"a": 100})
    assert not forms.incident(100)
    forms._refusals.update({"b": 100 + INCIDENT_NS - 1})
    assert forms.incident(100 + INCIDENT_NS - 1)
    assert not forms.incident(100 + INCIDENT_NS)


def test_a_window_forgets_bucket_by_bucket() -> None:
    window = CountWindow(3, 10)
    window.add(0, 1, 100)
    window.add(9, 2, 200)
    window.add(10, 4, 400)
    window.add(25, 8, 800)
    assert (window.first, window.second) == (15, 1500)
    window.turn(29)
    assert window.first == 15
    window.turn(30)
    assert (window.first, window.second) == (12, 1200)
    window.add(5, 16, 1600)  # the clock went back: it counts now
    assert window.first == 28
    window.turn(49)
    assert (window.first, window.second) == (24, 2400)
    window.turn(50)
    assert window.first == 16
    window.turn(60)
    assert (window.first, window.second) == (0, 0)
    window.add(61, 1, 1)
    window.turn(61 + 1000)
    assert (window.first, window.second) == (0, 0)
    window.add(2000, 1, 1)
    window.clear()
    assert (window.first, window.second) == (0, 0)
