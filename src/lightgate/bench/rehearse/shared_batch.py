"""A batch in virtual time: an engine whose streams share its speed, as continuous batching does.

Every request that is served slows the others down. Its first token takes the time that was drawn
for it; the tokens behind it are work, which is done the more slowly the more requests are served.
So an end is known only when it comes: whoever joins or leaves moves the ends of all. With slots, a
request that finds none free waits for one, first come, first served.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, NamedTuple

EVER_NS: Final = 1 << 62


class BatchWork(NamedTuple):
    """The work of one request: until its first token, and for its answer if it were alone."""

    first_ns: int
    decode_ns: int


class BatchMember:
    """One request that is served; `at_ns` is its first token's instant, `due` its end in work."""

    __slots__ = ("at_ns", "due", "work")

    def __init__(self, work: BatchWork, at_ns: int) -> None:
        self.work = work
        self.at_ns = at_ns
        self.due: float | None = None  # of the batch's work so far; None before the first token


class SharedBatch:
    """An engine whose streams share its speed; instants and durations in nanoseconds.

    With `half` more requests beside it a stream has half of the speed that it has alone. The work
    that every stream has done is the same for all, so that one number tells whose end is next.
    """

    def __init__(self, half: float, slots: int | None = None) -> None:
        self._half = half
        self._slots = slots
        self._served: dict[int, BatchMember] = {}  # by ticket
        self._waiting: dict[int, BatchWork] = {}  # in the order in which they came
        self._starts: dict[int, int] = {}  # of those that wait, as foreseen
        self._firsts: list[tuple[int, int]] = []  # instants of first tokens to come, tickets
        self._dues: list[tuple[float, int]] = []  # ends in work, tickets
        self._done = 0.0  # work of a stream that was there from the beginning
        self._now_ns = 0
        self._over: list[int] = []  # tickets whose answers have ended, not yet told

    # Requests come and go

    def enter(self, ticket: int, now_ns: int, work: BatchWork) -> int:
        """Take a request in; return how long it waits for its slot, if nobody leaves early."""
        self._advance(now_ns)
        if self._slots is None or len(self._served) < self._slots:
            self._serve(ticket, work)
            return 0
        self._waiting[ticket] = work
        self._foresee()
        return self._starts[ticket] - now_ns

    def leave(self, ticket: int, now_ns: int) -> list[tuple[int, int]]:
        """Take a request out, if it is there; return who starts sooner now, and by how much."""
        self._advance(now_ns)
        before = dict(self._starts)
        if self._waiting.pop(ticket, None) is None and self._served.pop(ticket, None) is None:
            return []
        self._admit()
        self._foresee()
        starts = ((one, self._starts.get(one, now_ns), was) for one, was in before.items())
        return [(one, was - now) for one, now, was in starts if one != ticket and now < was]

    def next_ns(self) -> int | None:
        """Return when the batch changes next by itself, if nobody joins or leaves before."""
        first_ns = self._firsts[0][0] if self._tidied() else EVER_NS
        end_ns = self._end_ns(self._dues[0][0]) if self._dues else EVER_NS
        found_ns = min(first_ns, end_ns)
        return None if found_ns == EVER_NS else found_ns

    def ended(self, now_ns: int) -> list[int]:
        """Return the tickets whose answers have ended by now and were not told before."""
        self._advance(now_ns)
        over, self._over = self._over, []
        return over

    # What is asked

    def made(self, ticket: int, now_ns: int) -> float:
        """Return the share of its answer that a request has by now."""
        self._advance(now_ns)
        member = self._served.get(ticket)
        if member is None or member.due is None:
            return 0.0
        return min(1.0, max(0.0, 1.0 - (member.due - self._done) / max(member.work.decode_ns, 1)))

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a request of now would wait for its slot."""
        self._advance(now_ns)
        if self._slots is None or len(self._served) < self._slots:
            return 0
        return self._foresee() - now_ns

    def slower(self, now_ns: int) -> float:
        """Return how many times as long a token of one more request would take as alone."""
        self._advance(now_ns)
        beside = len(self._served) + len(self._waiting)
        if self._slots is not None:
            beside = min(beside, self._slots - 1)
        return 1.0 + beside / self._half

    def busy(self, now_ns: int) -> int:
        """Return how many requests are served or wait."""
        self._advance(now_ns)
        return len(self._served) + len(self._waiting)

    # The course of things

    def _pace(self) -> float:
        """Return the nanoseconds that one of work takes, with those that are served now."""
        return 1.0 + max(0, len(self._served) - 1) / self._half

    def _end_ns(self, due: float) -> int:
        return self._now_ns + max(0, round((due - self._done) * self._pace()))

    def _advance(self, now_ns: int) -> None:
        """Let first tokens come and answers end until this instant, in their order."""
        while True:
            at_ns = self.next_ns()
            if at_ns is None or at_ns > now_ns:
                break
            self._pass(at_ns)
            if self._tidied() and self._firsts[0][0] <= at_ns:
                _, ticket = heappop(self._firsts)
                member = self._served[ticket]
                member.due = self._done + member.work.decode_ns
                heappush(self._dues, (member.due, ticket))
            else:
                due, ticket = heappop(self._dues)
                self._done = max(self._done, due)
                del self._served[ticket]
                self._over.append(ticket)
                self._admit()
        self._pass(now_ns)

    def _pass(self, at_ns: int) -> None:
        if at_ns > self._now_ns:
            self._done += (at_ns - self._now_ns) / self._pace()
            self._now_ns = at_ns

    def _tidied(self) -> bool:
        """Drop those that left early from the heads of both heaps; whether a first token comes."""
        served, firsts, dues = self._served, self._firsts, self._dues
        while firsts and firsts[0][1] not in served:
            heappop(firsts)
        while dues and dues[0][1] not in served:
            heappop(dues)
        return bool(firsts)

    def _serve(self, ticket: int, work: BatchWork) -> None:
        at_ns = self._now_ns + work.first_ns
        self._served[ticket] = BatchMember(work, at_ns)
        heappush(self._firsts, (at_ns, ticket))

    def _admit(self) -> None:
        """Serve those that wait while there are slots."""
        while self._waiting and (self._slots is None or len(self._served) < self._slots):
            ticket = next(iter(self._waiting))
            self._starts.pop(ticket, None)
            self._serve(ticket, self._waiting.pop(ticket))

    def _foresee(self) -> int:
        """Work out when each that waits starts; return when one more would.

        While anybody waits all slots are taken, so that the pace stays as it is.
        """
        pace = self._pace()
        ends: list[int] = []
        for member in self._served.values():
            if member.due is None:
                heappush(ends, member.at_ns + round(member.work.decode_ns * pace))
            else:
                heappush(ends, self._end_ns(member.due))
        self._starts = {}
        for ticket, work in self._waiting.items():
            start_ns = self._starts[ticket] = heappop(ends)
            heappush(ends, start_ns + work.first_ns + round(work.decode_ns * pace))
        return ends[0] if ends else self._now_ns
