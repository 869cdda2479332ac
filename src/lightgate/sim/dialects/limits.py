"""Header fields in which the simulated providers state their rate limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.clock.attempt import wall_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.sim.capacity import StatedLimit
    from lightgate.sim.world import Family


def limit_headers(
    family: Family, limits: Sequence[StatedLimit], wall_s: float
) -> list[tuple[bytes, bytes]]:
    """Write the limits in a dialect's words; Gemini has none."""
    out: list[tuple[bytes, bytes]] = []
    for one in limits:
        counts = b"%d" % one.limit, b"%d" % one.remaining
        what = one.what.encode()
        if family == "openai":
            values = (*counts, f"{one.reset_s:.3f}s".encode())
            names = [
                b"x-ratelimit-%b-" % part + what for part in (b"limit", b"remaining", b"reset")
            ]
        elif family == "anthropic":
            at = wall_time(round((wall_s + one.reset_s) * 1e9))
            values = (*counts, at.encode())
            head = b"anthropic-ratelimit-" + what
            names = [head + part for part in (b"-limit", b"-remaining", b"-reset")]
        else:
            continue
        out += zip(names, values, strict=True)
    return out
