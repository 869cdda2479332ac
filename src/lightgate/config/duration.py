"""Durations as people write them: "800ms", "5s", "2m", "1h", "14d"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS_NS: Final = {
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
PATTERN: Final = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?(us|ms|s|m|h|d)$"
_DURATION = re.compile(PATTERN)


def parse_duration(text: object) -> int:
    """Nanoseconds of a positive duration; ValueError says how to write one."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            'a duration is a number and a unit in quotes, such as "800ms", "5s" or "1h"'
        )
    number, fraction, unit = match[1], match[2] or "", match[3]
    nanoseconds = int(Decimal(number + fraction) * _UNITS_NS[unit])
    if nanoseconds <= 0:
        raise ValueError("a duration is longer than nothing")
    return nanoseconds


def duration_text(nanoseconds: int) -> str:
    """A duration as people write it, in the largest unit that holds it whole."""
    for unit, size in reversed(_UNITS_NS.items()):
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{Decimal(nanoseconds) / 1_000_000_000:f}s"
