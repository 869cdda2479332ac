from __future__ import annotations

import pytest

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM, Clock, ManualClock


def test_nothing_has_happened_yet() -> None:
    marks = Marks()
    instants = ("plan", "send", "headers", "event", "first", "answer", "last", "end")
    assert [getattr(marks, name) for name in instants] == [None] * 8
    assert marks.connect_ns is None
    assert not marks.burst_ns


def test_the_first_burst_sets_first_and_every_burst_sets_last() -> None:
    marks = Marks()
    marks.burst(100, 90, 2, 8)
    marks.burst(200, 150, 1, 4, 3)
    assert (marks.first, marks.first_since) == (100, 90)
    assert (marks.last, marks.last_since) == (200, 150)
    assert list(marks.burst_ns) == [100, 200]
    assert list(marks.burst_since_ns) == [90, 150]
    assert list(marks.burst_pieces) == [2, 1]
    assert list(marks.burst_weight) == [8, 4]
    assert list(marks.burst_tokens) == [-1, 3]


def test_connect_adds_the_parts_that_happened() -> None:
    marks = Marks()
    marks.tcp_ns, marks.tls_ns = 20, 30
    assert marks.connect_ns == 50
    marks.dns_ns, marks.pool_wait_ns = 4, 1
    assert marks.connect_ns == 55


def test_the_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(now_ns=5, wall_ns=1000)
    assert (clock.now_ns(), clock.wall_ns()) == (5, 1000)
    clock.advance(10)
    assert (clock.now_ns(), clock.wall_ns()) == (15, 1010)
    clock.step_wall(-500)
    assert (clock.now_ns(), clock.wall_ns()) == (15, 510)


def test_the_systems_clock_never_goes_back() -> None:
    clock: Clock = SYSTEM
    readings = [clock.now_ns() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.wall_ns() > 1_700_000_000_000_000_000


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_we_ended_ourselves_is_no_failure(outcome: Outcome) -> None:
    ours = {Outcome.OK, Outcome.CANCELLED, Outcome.CUT}
    assert outcome.is_failure is (outcome not in ours)


def test_attempts_without_a_burst_share_columns_that_nothing_can_be_written_into() -> None:
    silent, spoke = Marks(), Marks()
    for name in Marks.__slots__:
        if name.startswith("burst_"):
            with pytest.raises(BufferError):
                getattr(silent, name).append(1)
    spoke.burst(100, 90, 1, 4, 2, 1)
    assert [len(getattr(spoke, name)) for name in Marks.__slots__ if "burst_" in name] == [1] * 6
    assert [len(getattr(silent, name)) for name in Marks.__slots__ if "burst_" in name] == [0] * 6
    assert silent.burst_ns.tobytes() == b""


def test_a_first_token_that_is_known_already_stays() -> None:
    marks = Marks()
    marks.first = 50
    marks.burst(100, 90, 1, 4)
    assert (marks.first, marks.first_since, marks.last) == (50, None, 100)
