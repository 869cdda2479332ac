"""Hosts of load processes, and their clocks.

Load processes of another machine have another monotonic clock. Each is asked for its time before
the start and after the end; from the quickest answers follows how its clock differs from ours, and
how sure that is. Instants are put from one clock to the other by adding one number, so that the
durations of an attempt stay what its own machine measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec

from lightgate.ledger.runs.hosts import HostHealth

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from lightgate.bench.load.drive import Driven
    from lightgate.clock.marks import Marks

PINGS: Final = 16  # questions for the time; the quickest answer counts
# Marks that are instants; the others are durations, flags and counts.
INSTANTS: Final = (
    "answer", "closed", "end", "event", "finish", "first", "first_since", "headers",
    "headers_since", "last", "last_since", "plan", "send",
)  # fmt: skip
INSTANT_ARRAYS: Final = ("burst_ns", "burst_since_ns")
NEVER: Final = 0  # stands for "nobody watched" in `*_since`


class Ping(msgspec.Struct, frozen=True):
    """One question for the time: asked and answered on our clock, told on theirs."""

    asked_ns: int
    told_ns: int
    told_wall_ns: int
    answered_ns: int
    wall_ns: int  # our wall clock when the answer came

    @property
    def trip_ns(self) -> int:
        """How long the question and its answer took together."""
        return self.answered_ns - self.asked_ns


class HostClock(msgspec.Struct, frozen=True):
    """The clock of a host against ours: theirs is ours plus `offset_ns`, within `bound_ns`."""

    offset_ns: int
    bound_ns: int
    wall_offset_ns: int
    at_ns: int  # on our clock

    @classmethod
    def of(cls, pings: Iterable[Ping]) -> Self:
        """Take the quickest answer: its question was read somewhere between asking and answer."""
        best = min(pings, key=lambda ping: ping.trip_ns)
        middle = (best.asked_ns + best.answered_ns) // 2
        half = -(-best.trip_ns // 2)
        return cls(
            offset_ns=best.told_ns - middle,
            bound_ns=half,
            wall_offset_ns=best.told_wall_ns - (best.wall_ns - half),
            at_ns=best.answered_ns,
        )

    def theirs(self, instant_ns: int) -> int:
        """Put an instant of our clock on theirs."""
        return instant_ns + self.offset_ns

    def ours(self, instant_ns: int) -> int:
        """Put an instant of their clock on ours."""
        return instant_ns - self.offset_ns

    def put_marks(self, marks: Marks) -> None:
        """Put all instants of an attempt on our clock; what did not happen stays so."""
        for name in INSTANTS:
            value = getattr(marks, name)
            if value is not None and not (name.endswith("_since") and value == NEVER):
                setattr(marks, name, self.ours(value))
        for name in INSTANT_ARRAYS:
            values = getattr(marks, name)
            for at, value in enumerate(values):
                if value != NEVER or name == "burst_ns":
                    values[at] = self.ours(value)

    def put_driven(self, driven: Driven) -> Driven:
        """Put the instants of a drive on our clock."""
        return msgspec.structs.replace(
            driven,
            begin_ns=self.ours(driven.begin_ns),
            stopped_ns=self.ours(driven.stopped_ns),
            ended_ns=self.ours(driven.ended_ns),
        )

    def drift_ppm(self, later: HostClock) -> float | None:
        """How fast their clock runs away from ours, in millionths; None where it is not known.

        It is known where the two offsets differ by more than what both may be wrong by.
        """
        moved, sure = later.offset_ns - self.offset_ns, self.bound_ns + later.bound_ns
        lasted = later.at_ns - self.at_ns
        return None if lasted <= 0 or abs(moved) <= sure else moved / lasted * 1e6


def health_of(
    place: HostPlace,
    process: int,
    clocks: tuple[HostClock, HostClock | None],
    clock_steps: int,
) -> HostHealth:
    """Make the record of a process from its clock at the start and, where known, at the end."""
    first, last = clocks
    return HostHealth(
        host=place.host,
        region=place.region,
        process=process,
        offset_ms=first.offset_ns / 1e6,
        bound_ms=first.bound_ns / 1e6,
        wall_offset_ms=first.wall_offset_ns / 1e6,
        drift_ppm=None if last is None else first.drift_ppm(last),
        clock_steps=clock_steps,
    )


class HostPlace(msgspec.Struct, frozen=True):
    """The name of a host, and the region that it stands in."""

    host: str
    region: str


class ProcessInput(Protocol):
    """The way to a load process."""

    def write(self, data: bytes) -> None:
        """Send bytes; they may wait in memory."""

    async def drain(self) -> None:
        """Wait until not too many bytes wait."""

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""

    def close(self) -> None:
        """Send nothing more, which tells the process to end."""


class LoadProcessHandle(Protocol):
    """A load process, here or on another host; a process of asyncio is one."""

    @property
    def stdin(self) -> ProcessInput | None:
        """The way to the process."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """The way back."""

    @property
    def pid(self) -> int:
        """The process id, on its host."""

    @property
    def returncode(self) -> int | None:
        """The exit code; None where it is not known."""

    def kill(self) -> None:
        """End the process at once."""

    async def wait(self) -> int | None:
        """Wait until the process has ended."""


class LoadHost(Protocol):
    """A machine that runs load processes."""

    @property
    def place(self) -> HostPlace:
        """The host's name and region."""

    async def start(self) -> LoadProcessHandle:
        """Start a load process."""


def host_of(hosts: Sequence[LoadHost], number: int) -> LoadHost | None:
    """The host of a process, by its number: in turns, so that every host has its share."""
    return hosts[number % len(hosts)] if hosts else None
