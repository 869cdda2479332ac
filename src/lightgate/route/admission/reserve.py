"""What a request is taken to need of a token limit, before its answer is there."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

BYTE_TOKENS: Final = 0.25  # of a body, before any was counted
ALPHA: Final = 0.05  # weight of the newest request in that
FIRST_OUT: Final = 512.0  # of an answer, before any was counted and where no limit is named
KEPT: Final = 200  # answers whose lengths are known
ENOUGH: Final = 8  # of them
TAIL: Final = 0.95
EVERY: Final = 8  # answers after which the tail is worked out anew


class Need(NamedTuple):
    """The tokens that are set aside for one request."""

    tokens_in: float
    tokens_out: float


class Reserve:
    """Learns the tokens of a byte and the usual length of an answer."""

    __slots__ = ("_byte_tokens", "_outs", "_seen", "_tail")

    def __init__(self) -> None:
        self._byte_tokens = BYTE_TOKENS
        self._outs: deque[int] = deque(maxlen=KEPT)
        self._seen = 0
        self._tail = FIRST_OUT

    def need(self, size: int, cap: int | None) -> Need:
        """Return what a request of so many bytes, whose answer may be so long, will need."""
        out = self._tail
        if len(self._outs) < ENOUGH and cap is not None:
            out = float(cap)
        return Need(size * self._byte_tokens, out if cap is None else min(out, float(cap)))

    def counted(self, size: int, tokens_in: int | None, tokens_out: int | None) -> None:
        """Take in what a request has needed."""
        if tokens_in and size:
            self._byte_tokens += ALPHA * (tokens_in / size - self._byte_tokens)
        if tokens_out is None:
            return
        self._outs.append(tokens_out)
        self._seen += 1
        if self._seen <= ENOUGH or self._seen % EVERY == 0:
            ordered = sorted(self._outs)
            self._tail = float(ordered[min(len(ordered) - 1, int(TAIL * len(ordered)))])
