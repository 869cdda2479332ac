"""The requests of a drive, in order: those that are at hand, and one stretch of a closed loop.

A stretch says of every request whether it counts. The workers begin one after the other; what is
sent until all of them are at work is the ramp. The next requests to start are counted, as many as
were asked for. Then fillers keep the load up until the last counted request has ended, and are cut.
So a counted request is chosen by when it starts alone, never by how long it takes, and it meets the
full load from its first instant to its last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.provider.answer import Kept
from lightgate.provider.prepare import Prepared

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable, Iterator

    from lightgate.bench.load.shape import Pacer

Part = Literal["counted", "warm-up", "ramp", "filler"]
EXTRA: Final = 1 << 29  # requests that do not count have prompts from here on (`workload.SIZES`)
NS_PER_S: Final = 1_000_000_000


class Job(msgspec.Struct, frozen=True):
    """One request to be made: `id` joins its records, `number` is that of its prompt.

    `cancel_ns` after its start the client cancels it; 0 is at its first token, None never. `kept`
    takes the answer in, where its words are wanted.
    """

    id: str
    prepared: Prepared
    number: int = 0
    part: Part = "counted"
    cancel_ns: int | None = None
    kept: Kept | None = None


class Start(msgspec.Struct, frozen=True):
    """A request to be made, at an offset from the begin (None: as soon as a worker is free)."""

    job: Job
    offset_ns: int | None = None


class JobSource(Protocol):
    """The requests of a drive, in order.

    A source that `fills` goes on after it is closed, until a request's end is the last one.
    """

    planned: bool
    fills: bool

    async def next(self) -> Start | None:
        """The next request; None when there are no more."""
        ...

    def joined(self) -> None:
        """Take in that one more worker of a closed loop begins."""

    def ended(self, job: Job) -> bool:
        """Take in that a request has ended; true where the drive is over with it."""
        ...

    def close(self) -> bool:
        """Let no more requests count; true where nothing under way need be waited for."""
        ...


class AtHand:
    """Requests of an iterator; all of them count."""

    fills = False

    def __init__(self, items: Iterator[Start], *, planned: bool) -> None:
        self._items = items
        self.planned = planned

    async def next(self) -> Start | None:
        """The next request; None when there are no more."""
        return next(self._items, None)

    def joined(self) -> None:
        """Take in that one more worker of a closed loop begins: nothing depends on it."""

    def ended(self, _: Job) -> bool:
        """Take in that a request has ended: nothing depends on it."""
        return False

    def close(self) -> bool:
        """Let no more requests begin; what is under way is waited for."""
        self._items = iter(())
        return False


def starts(jobs: Iterator[Job], pacer: Pacer | None) -> JobSource:
    """Make a source of jobs that are at hand, with the instants of a pacer if there is one."""
    if pacer is None:
        return AtHand((Start(job) for job in jobs), planned=False)
    # The offset comes first: a plan that is over takes no job.
    pairs = zip(pacer.offsets(), jobs, strict=False)
    return AtHand((Start(job, at) for at, job in pairs), planned=True)


def most_ramp(workers: int) -> int:
    """Requests of a ramp, at most: one of each worker, and a few that end before all have begun."""
    return 0 if workers == 1 else workers + workers // 4


def most_fillers(workers: int) -> int:
    """Fillers of a stretch, at most: of answers of equal length each worker sends one."""
    return 0 if workers == 1 else 2 * workers


class Stretch:
    """The requests of one stretch of a closed loop, for any number of workers.

    `numbers` are those of the counted prompts; without an end, the stretch lasts until it is
    closed. `extra` numbers the prompts of all other requests; `spare` of them may wait in processes
    for a worker, beside those of the ramp.
    """

    planned = False
    fills = True

    def __init__(
        self,
        job: Callable[[int], Job],
        numbers: range | itertools.count[int],
        extra: Iterator[int],
        workers: int,
        *,
        spare: int = 0,
    ) -> None:
        self._job = job
        self._numbers = iter(numbers)
        self._left = len(numbers) if isinstance(numbers, range) else None  # None: until closed
        self._extra = extra
        self._to_join = workers
        self._ramp = most_ramp(workers) + spare
        self._fillers = most_fillers(workers)
        self._under_way = 0  # counted requests
        self._full = asyncio.Event()  # every worker has begun
        self._full_ns = 0

    def full_from(self, at_ns: int) -> None:
        """Let nothing count before an instant: workers elsewhere have begun by then."""
        self._full_ns = at_ns

    def joined(self) -> None:
        """Take in that one more worker begins; the request of the last one counts."""
        self._to_join -= 1
        if self._to_join <= 0:
            self._full.set()

    async def next(self) -> Start | None:
        """The next request; None once the load need not be kept up any more."""
        while self._to_join > 0 or (self._full_ns and SYSTEM.now_ns() < self._full_ns):
            if self._ramp > self._to_join:
                self._ramp -= 1
                return self._other("ramp")
            await self._full.wait()
            await asyncio.sleep(max(0, self._full_ns - SYSTEM.now_ns()) / NS_PER_S)
        if self._left != 0:
            self._under_way += 1
            if self._left is not None:
                self._left -= 1
            return Start(self._job(next(self._numbers)))
        if not self._under_way or not self._fillers:
            return None
        self._fillers -= 1
        return self._other("filler")

    def ended(self, job: Job) -> bool:
        """Take in that a request has ended; true where it was the last that counts."""
        if job.part == "counted":
            self._under_way -= 1
        return self._left == 0 and not self._under_way

    def close(self) -> bool:
        """Let no more requests count; true where none is under way either."""
        self._left = 0
        return not self._under_way

    def _other(self, part: Part) -> Start:
        return Start(msgspec.structs.replace(self._job(next(self._extra)), part=part))
