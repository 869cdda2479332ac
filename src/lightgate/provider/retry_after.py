"""The wait that a provider asks for, in all the forms that providers use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from lightgate.clock.source import SYSTEM, Clock

LONGEST_S: Final = 300.0  # a longer wait is cut to this
_EPOCH_LIKE: Final = 1_000_000_000.0  # a number this large is a date, not a wait


def retry_after_s(headers: list[tuple[bytes, bytes]], clock: Clock = SYSTEM) -> float | None:
    """Seconds from retry-after-ms or retry-after (seconds, epoch or date), within 0 and 300."""
    found = {name: value for name, value in headers if name.startswith(b"retry-after")}
    wait = _number(found.get(b"retry-after-ms", b""))
    if wait is not None:
        return _clamp(wait / 1000)
    value = found.get(b"retry-after")
    if value is None:
        return None
    now_s = clock.wall_ns() / 1e9
    wait = _number(value)
    if wait is not None:
        return _clamp(wait - now_s if wait > _EPOCH_LIKE else wait)
    from email.utils import parsedate_to_datetime  # for a date alone, which few providers send

    try:
        at = parsedate_to_datetime(value.decode("ascii"))
    except (ValueError, TypeError, OverflowError):  # a year of twenty digits is the last
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return _clamp((at - datetime.fromtimestamp(now_s, UTC)).total_seconds())


def _number(value: bytes) -> float | None:
    try:
        number = float(value.strip().removesuffix(b"s"))
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None  # noqa: PLR0124 - NaN


def _clamp(wait: float) -> float:
    return min(max(wait, 0.0), LONGEST_S)
