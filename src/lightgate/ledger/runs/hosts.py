"""The machines that made the load of a run, where it was not the one that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

BOUND_MS: Final = 5.0  # a clock that is known less well than this is said to be unsure
DRIFT_PPM: Final = 100.0  # NTP keeps a clock within this; a quartz without it is worse when warm
WALL_MS: Final = 1000.0  # by which the wall clocks of two hosts may differ


class HostHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One load process of another host and what is known of its clock."""

    host: str
    region: str
    process: int
    offset_ms: float  # of its monotonic clock, which began at another time than ours
    bound_ms: float  # how wrong the offset may be
    wall_offset_ms: float
    drift_ppm: float | None = None  # None: less than can be seen
    clock_steps: int = 0

    def doubts(self) -> list[str]:
        """Sentences about what is not as it should be."""
        found = []
        if self.bound_ms > BOUND_MS:
            found.append(
                f"The clock of {self.host} is known to {self.bound_ms:.1f} ms only: its requests"
                " may have begun that much earlier or later than those of other hosts."
            )
        if self.drift_ppm is not None and abs(self.drift_ppm) > DRIFT_PPM:
            found.append(
                f"The clock of {self.host} runs away from that of this machine by"
                f" {self.drift_ppm:.0f} millionths: no service keeps it."
            )
        if abs(self.wall_offset_ms) > WALL_MS:
            found.append(
                f"The wall clock of {self.host} differs from that of this machine by"
                f" {self.wall_offset_ms / 1e3:.1f} s; the times of the run are those of the latter."
            )
        if self.clock_steps:
            found.append(f"The wall clock of {self.host} was set {self.clock_steps} times.")
        return found


def worst_of(found: Iterable[HostHealth]) -> tuple[HostHealth, ...]:
    """Keep one record for each process: that of the load for which its clock was known least."""
    kept: dict[tuple[str, int], HostHealth] = {}
    for one in found:
        before = kept.get((one.host, one.process))
        if before is None or one.bound_ms > before.bound_ms:
            kept[one.host, one.process] = one
    return tuple(kept[name] for name in sorted(kept))
