"""What a batch does to clients at an engine with a queue, in virtual time: the rule for room alone.

    python benchmarks/batch_room.py [--minutes 10] [--seeds 3]

The gateway's rule for lines of batches, its form of a target and the window of the process that
sends lines, at an engine with a number of slots and a real queue; clients come at random instants
(Poisson). No machine is fast or slow here. Exit code 6 if the first token comes more than 5 % later
at p99 with a batch than without one, or if a batch does not move at all.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from typing import Any

import overhead

from lightgate.clock.source import ManualClock
from lightgate.gateway.admit.spare import WAIT_S, _spare
from lightgate.gateway.runner.window import SendWindow
from lightgate.route.admission.peaks import ClientPeaks
from lightgate.route.form.forms import Forms
from lightgate.sim.capacity import Slots

MS, TARGET, MOST = 1_000_000, "engine/m", 1.05
FIRST, WHOLE, LOOK, LINES = 150 * MS, 340 * MS, 20 * MS, 16
WORLDS = ((16, 10.0), (8, 6.0), (16, 20.0), (32, 20.0), (1000, 10.0))  # slots, clients a second


class Room:
    """One world in virtual time."""

    def __init__(self, slots: int) -> None:
        self.clock = ManualClock()
        self.window = SendWindow(LINES, self.clock.now_ns)
        self.forms = Forms({})
        self.peaks = ClientPeaks()
        self.engine = Slots(slots)
        self.events: list[tuple[int, int, str, int]] = []
        self.count = itertools.count()
        self.waits: list[float] = []
        self.lines = 0

    def at(self, when: int, what: str, since: int = 0) -> None:
        """Plan an event."""
        heapq.heappush(self.events, (when, next(self.count), what, since))

    def begin(self, now: int) -> int:
        """Start a request; the instant at which it has a slot."""
        slot, start = self.engine.start(now)
        self.engine.hold(slot, start + WHOLE)
        self.forms.started(TARGET, now)
        return start

    def client(self, now: int, _: int) -> None:
        """A client's request comes."""
        self.peaks.came(TARGET, self.forms.form(TARGET).in_flight, now)
        start = self.begin(now)
        self.waits.append((start - now + FIRST) / MS)
        self.at(start + FIRST, "first", now)
        self.at(start + WHOLE, "ended", now)

    def first(self, now: int, since: int) -> None:
        """A client's first token comes."""
        self.forms.first(TARGET, 1, now, now - since)

    def ended(self, now: int, since: int) -> None:
        """A client's request ends."""
        self.forms.finished(TARGET, now, 20, WHOLE - FIRST, now - since)
        self.forms.ended(TARGET, since)

    def line(self, now: int, _: int) -> None:
        """A line of the batch tries to go."""
        window = self.window
        if window.flying + 1 > window.width or window.held:
            self.at(now + LOOK, "line")
        elif _spare(self.peaks, TARGET, self.forms.form(TARGET), now):
            self.peaks.began(str(now), TARGET)
            window.flying += 1
            self.at(self.begin(now) + WHOLE, "answered", now)
        else:
            window.refused(WAIT_S)
            self.at(now + int(WAIT_S * 1e9), "line")

    def answered(self, now: int, since: int) -> None:
        """A line has its answer, and the next one tries."""
        self.lines += 1
        self.forms.finished(TARGET, now, 20, 0, now - since)
        self.forms.ended(TARGET, since)
        self.peaks.ended(str(since))
        self.window.flying -= 1
        self.window.answered()
        self.at(now + 1, "line")

    def play(self, until: int) -> None:
        """Let everything happen until an instant."""
        while self.events and self.events[0][0] < until:
            now, _, what, since = heapq.heappop(self.events)
            self.clock.advance(now - self.clock.now_ns())
            getattr(self, what)(now, since)


def played(slots: int, rate: float, seed: int, given: Any, *, batch: bool) -> Room:
    """Play one world."""
    room, dice = Room(slots), random.Random(seed)  # noqa: S311 - a benchmark
    until, at = int(given.minutes * 60e9), 0
    while at < until:
        at += int(dice.expovariate(rate) * 1e9)
        room.at(at, "client")
    for number in range(LINES if batch else 0):
        room.at(number, "line")
    room.play(until)
    return room


def main() -> int:
    """Play all worlds and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    missed = False
    print("slots  clients/s  seed  p99 alone  p99 beside  ratio  lines/s")
    for (slots, rate), seed in itertools.product(WORLDS, range(1, given.seeds + 1)):
        alone = played(slots, rate, seed, given, batch=False)
        beside = played(slots, rate, seed, given, batch=True)
        pair = [overhead.quantile(room.waits, 0.99) for room in (alone, beside)]
        ratio, moved = pair[1] / pair[0], beside.lines / given.minutes / 60
        missed = missed or ratio > MOST or not beside.lines
        print(f"{slots:5} {rate:10g} {seed:5} {pair[0]:10.1f} {pair[1]:11.1f} {ratio:6.3f}"
              f" {moved:8.1f}")  # fmt: skip
    return 6 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
