"""The outcome of an attempt."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

# What said that a complete answer was complete: its terminal marker, or a finish reason and the end
# of the body by its own framing.
End = Literal["marker", "finish"]


class Outcome(StrEnum):
    """The outcome classes; only `ok` enters success quantiles, `cut` counts for throughput only."""

    OK = "ok"
    EMPTY = "empty"
    HTTP_ERROR = "http_error"
    RATE_LIMITED = "rate_limited"
    STREAM_ERROR = "stream_error"
    TRUNCATED = "truncated"
    RESET = "reset"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    CUT = "cut"

    @property
    def is_failure(self) -> bool:
        """Whether the outcome is infinite in "with failures" quantiles, and bad for goodput."""
        return self in FAILURES


FAILURES: Final = frozenset(Outcome) - {Outcome.OK, Outcome.CANCELLED, Outcome.CUT}
