"""Workers of one machine know what the others have in flight."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.process.sharing import (
    BEAT_S,
    IDLE_BEAT_S,
    ROW,
    FlyingCounts,
)
from lightgate.gateway.process.shelter import counts_memory
from lightgate.gateway.spend.shares import WORKERS
from lightgate.route.form.forms import PEER_NS, Forms

if TYPE_CHECKING:
    from collections.abc import Iterator

MS = 1_000_000
A, B = "lab/a", "lab/b"


class Machine:
    """Some workers with one memory and one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(10**9)
        made = counts_memory()
        assert made is not None
        self.memory = made
        self.forms: dict[int, Forms] = {}
        self.counts: dict[int, FlyingCounts] = {}

    def worker(self, index: int) -> Forms:
        forms = self.forms[index] = Forms({})
        forms.form(A)
        memory = os.dup(self.memory)
        self.counts[index] = FlyingCounts(memory, index, forms, self.clock.now_ns)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(memory)  # what is mapped needs it no longer
        return forms

    def beat(self, *indexes: int, after_ms: int = 20) -> list[bool]:
        self.clock.advance(after_ms * MS)
        return [self.counts[index].beat() for index in indexes]

    def others(self, index: int, target: str = A) -> float:
        form = self.forms[index].form(target)
        return form.flying(self.clock.now_ns()) - form.in_flight


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    os.close(made.memory)


def test_each_knows_what_the_others_have(machine: Machine) -> None:
    first, last = machine.worker(0), machine.worker(WORKERS - 1)
    for _ in range(3):
        first.started(A)
    last.started(A)
    last.started(B)
    assert machine.beat(0, WORKERS - 1) == [True, True]
    assert (machine.others(0), machine.others(WORKERS - 1)) == (0, 3)
    machine.beat(WORKERS - 1, 0, after_ms=1000)  # a worker that is new is found within a second
    machine.beat(0, WORKERS - 1, 0, after_ms=0)
    assert (machine.others(0), machine.others(WORKERS - 1)) == (1, 3)
    assert machine.others(0, B) == 0  # it was never asked here
    machine.beat(WORKERS - 1, 0)
    assert machine.others(0, B) == 1
    first.ended(A)
    machine.beat(0, WORKERS - 1)
    assert machine.others(WORKERS - 1) == 2


def test_nobody_is_beside_a_worker_alone(machine: Machine) -> None:
    forms = machine.worker(3)
    assert machine.beat(3) == [False]
    forms.started(A)
    assert machine.beat(3, after_ms=1000) == [True]
    assert not forms.form(A).shared
    assert machine.others(3) == 0


def test_a_worker_that_has_died_is_forgotten(machine: Machine) -> None:
    forms, other = machine.worker(0), machine.worker(1)
    other.started(A)
    machine.beat(1, 0)
    assert machine.others(0) == 1
    assert machine.beat(0) == [False]  # nothing new was told
    assert forms.form(A).shared
    machine.clock.advance(PEER_NS)
    machine.beat(0)
    assert not forms.form(A).shared
    assert machine.others(0) == 0
    machine.beat(1, after_ms=0)  # it was only stopped
    machine.beat(0, after_ms=1000)
    assert forms.form(A).shared


@pytest.mark.parametrize(
    ("at", "value"),
    [(16, b"\xc1"), (12, b"\x00"), (8, b"\xff\xff\xff\x7f")],
    ids=["content", "checksum", "length"],
)
def test_a_row_that_is_being_written_is_read_later(machine: Machine, at: int, value: bytes) -> None:
    machine.worker(0)
    other = machine.worker(1)
    other.started(A)
    machine.beat(1, 0)
    other.started(A)
    machine.beat(1)
    before = os.pread(machine.memory, len(value), ROW + at)
    assert before != value
    os.pwrite(machine.memory, value, ROW + at)
    machine.beat(0)
    assert machine.others(0) == pytest.approx(1, abs=0.1)  # as it was told before
    os.pwrite(machine.memory, before, ROW + at)
    machine.beat(0)
    assert machine.others(0) == pytest.approx(2, abs=0.1)


def test_of_more_targets_than_a_row_holds_the_fullest_are_told(machine: Machine) -> None:
    forms, other = machine.worker(0), machine.worker(1)
    other.started(B)
    other.started(B)
    for number in range(200):
        other.started(f"lab/{number:050}")
    machine.beat(1, 0)
    assert machine.others(0, B) == 0  # a target that is not known here
    forms.form(B)
    machine.beat(1, 0)
    assert machine.others(0, B) == 2


async def test_beats_are_rarer_while_nothing_is_in_flight(machine: Machine) -> None:
    forms = machine.worker(0)
    other = machine.worker(1)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            forms.started(A)
        elif len(pauses) == 2:
            forms.ended(A)
            other.started(A)
            machine.beat(1, after_ms=1000)
        else:
            raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration):
        await machine.counts[0].run(sleep)
    assert pauses == [IDLE_BEAT_S, BEAT_S, BEAT_S]


def test_a_memory_that_cannot_be_made_large_enough_is_let_go(machine: Machine) -> None:
    closed = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid argument"):
        FlyingCounts(closed, 0, Forms({}), machine.clock.now_ns)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(closed)


def test_without_such_memory_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert counts_memory() is None
