"""A backlog without end in front of one target, in virtual time: what the gates make of it."""

from __future__ import annotations

import heapq
import math
import random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lightgate.route.admission.admission import NEVER_NS, Admission, AnswerFacts
from lightgate.route.admission.headers import RateFact

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.route.admission.admission import End, Pass

NS = 1_000_000_000
SIZE = 800  # bytes of a body: 200 tokens


class Served(NamedTuple):
    """What a target makes of one request."""

    seconds: float
    end: End = "ok"
    tokens_out: int | None = 100
    wait_s: float | None = None
    rates: tuple[RateFact, ...] = ()


Serve: TypeAlias = "Callable[[float, int], Served]"


class Request(NamedTuple):
    """One request that has ended; `service_s` is its time without any wait."""

    sent_s: float
    ended_s: float
    end: End


class Backlog:
    """Sends as much as the gates let through; `serve` gets the second and the number in flight."""

    def __init__(
        self, serve: Callable[[float, int], Served], gates: Admission | None = None
    ) -> None:
        self.gates = Admission() if gates is None else gates
        self.ended: list[Request] = []
        self.most: list[tuple[float, float]] = []
        self._serve = serve

    def run(self, seconds: float) -> Backlog:
        gates, now, order = self.gates, 0, 0
        due: list[tuple[int, int, Pass, Served]] = []
        while now < seconds * NS:
            while (wait := gates.wait_ns(SIZE, None, now)) == 0:
                let = gates.sent(SIZE, None, now)
                served = self._serve(now / NS, gates.in_flight)
                order += 1
                heapq.heappush(due, (now + round(served.seconds * NS), order, let, served))
            until = now + wait if wait < NEVER_NS else NEVER_NS
            if due and due[0][0] <= until:
                now, _, let, served = heapq.heappop(due)
                facts = AnswerFacts(
                    end=served.end,
                    tokens_in=200,
                    tokens_out=served.tokens_out,
                    wait_s=served.wait_s,
                    rates=served.rates,
                )
                gates.ended(let, facts, now)
                self.ended.append(Request(let.sent_ns / NS, now / NS, served.end))
                self.most.append((now / NS, gates.most))
            else:
                now = until
        return self

    def rate(self, begin_s: float, end_s: float) -> float:
        """Answers a second."""
        found = [one for one in self.ended if one.end == "ok" and begin_s <= one.ended_s < end_s]
        return len(found) / (end_s - begin_s)

    def refused(self) -> float:
        """The share of requests that were refused."""
        return sum(one.end == "refused" for one in self.ended) / len(self.ended)

    def p95(self, begin_s: float = 0.0) -> float:
        """Seconds from the begin of a request to its end, of answers after a while."""
        times = sorted(
            one.ended_s - one.sent_s
            for one in self.ended
            if one.sent_s >= begin_s and one.end == "ok"
        )
        return times[int(0.95 * len(times))]


def queue(slots: int, seconds: float, seed: int = 1, spread: float = 0.1) -> Serve:
    """A target that serves so many at once; the others wait in order."""
    free, dice = [0.0] * slots, random.Random(seed)  # noqa: S311 - dice of a test

    def serve(now_s: float, flying: int) -> Served:
        at = heapq.heappop(free)
        end = max(now_s, at) + seconds * dice.lognormvariate(0.0, spread)
        heapq.heappush(free, end)
        return Served(end - now_s)

    return serve


def shared(alone_s: float, power: float, seed: int = 1) -> Serve:
    """A target whose requests share it: N in flight take N ** power times as long."""
    dice = random.Random(seed)  # noqa: S311 - dice of a test

    def serve(now_s: float, flying: int) -> Served:
        return Served(alone_s * flying**power * dice.lognormvariate(0.0, 0.1))

    return serve


class Limited:
    """A target with a limit of requests a minute, counted by a bucket; it may state the limit."""

    def __init__(self, per_s: float, seconds: float, burst: float, *, states: bool) -> None:
        self._per_s, self._burst, self._states = per_s, burst, states
        self._level, self._seen = burst, 0.0
        self._serve = shared(seconds, 0.0)

    def __call__(self, now_s: float, flying: int) -> Served:
        self._level = min(self._burst, self._level + (now_s - self._seen) * self._per_s)
        self._seen = now_s
        passes = self._level >= 1.0
        if passes:
            self._level -= 1.0
        used, limit = self._burst - self._level, 60.0 * self._per_s
        rates = (
            RateFact("requests", limit, limit - used if passes else 0.0, used / self._per_s, None),
        )
        if passes:
            return self._serve(now_s, flying)._replace(rates=rates if self._states else ())
        return Served(
            0.05, "refused", None, math.ceil(1 / self._per_s), rates if self._states else ()
        )
