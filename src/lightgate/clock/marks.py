"""The instants of one attempt, as they happen.

All instants are integers of nanoseconds of one monotonic clock. A burst is one socket read that
held at least one token-bearing delta: one burst, one stamp. The formulas over them are in `timing`.
"""

from __future__ import annotations

from array import array
from typing import Final, Literal

StampSource = Literal["read", "kernel"]
# The columns of all attempts without a burst. They are looked at, so that nothing can be appended.
_NO_INSTANTS: Final = array("q")
_NO_COUNTS: Final = array("l")
_NO_KINDS: Final = array("b")
_LOOKED_AT: Final = [memoryview(column) for column in (_NO_INSTANTS, _NO_COUNTS, _NO_KINDS)]


class Marks:
    """The instants of one attempt; None where the thing did not happen."""

    __slots__ = (
        "answer",
        "burst_kinds",
        "burst_ns",
        "burst_pieces",
        "burst_since_ns",
        "burst_tokens",
        "burst_weight",
        "closed",
        "dispatch_lag_ns",
        "dns_ns",
        "end",
        "event",
        "finish",
        "first",
        "first_since",
        "headers",
        "headers_since",
        "last",
        "last_since",
        "plan",
        "pool_wait_ns",
        "resent",
        "send",
        "stamp_source",
        "tcp_ns",
        "tls_ns",
        "void",
    )

    def __init__(self, plan: int | None = None, stamp_source: StampSource = "read") -> None:
        self.plan = plan
        self.send: int | None = None
        self.headers: int | None = None
        self.event: int | None = None
        self.first: int | None = None
        self.answer: int | None = None
        self.last: int | None = None
        self.end: int | None = None
        # No metric of ours uses these two; other tools' rules do.
        self.finish: int | None = None  # the event that named the finish reason
        self.closed: int | None = None  # the end of the body
        # Durations of the parts of a connect; None where that part did not happen.
        self.pool_wait_ns: int | None = None
        self.dns_ns: int | None = None
        self.tcp_ns: int | None = None
        self.tls_ns: int | None = None
        self.stamp_source: StampSource = stamp_source
        # The bytes behind `first` (`last`, `headers`) arrived after this instant and not after the
        # stamp; 0 where nobody watched.
        self.first_since: int | None = None
        self.last_since: int | None = None
        self.headers_since = 0
        self.dispatch_lag_ns = 0  # how late after its planned instant our own loop let us send
        self.resent = False  # sent again on a fresh connection: a pooled one was already closed
        self.void = False  # the wall clock stepped while a kernel stamp was mapped
        # One entry per burst: stamp, earliest possible arrival, deltas, bytes of text in them,
        # tokens where the provider counted along (else -1), and flags of what the burst carried
        # (0 where nobody said). `burst` makes columns of this attempt's own: most have no burst.
        self.burst_ns = self.burst_since_ns = _NO_INSTANTS
        self.burst_pieces = self.burst_weight = self.burst_tokens = _NO_COUNTS
        self.burst_kinds = _NO_KINDS

    def burst(
        self,
        stamp: int,
        since: int,
        pieces: int,
        weight: int,
        tokens: int = -1,
        kinds: int = 0,
    ) -> None:
        """Record one read that held `pieces` token-bearing deltas.

        `weight` is the bytes of text in them; `tokens` the tokens, where the provider counts along.
        """
        if not self.burst_ns:
            self._begin(stamp, since)
        self.last = stamp
        self.last_since = since
        self.burst_ns.append(stamp)
        self.burst_since_ns.append(since)
        self.burst_pieces.append(pieces)
        self.burst_weight.append(weight)
        self.burst_tokens.append(tokens)
        self.burst_kinds.append(kinds)

    def _begin(self, stamp: int, since: int) -> None:
        if self.first is None:
            self.first, self.first_since = stamp, since
        self.burst_ns, self.burst_since_ns = array("q"), array("q")
        self.burst_pieces, self.burst_weight = array("l"), array("l")
        self.burst_tokens, self.burst_kinds = array("l"), array("b")

    @property
    def connect_ns(self) -> int | None:
        """DNS, TCP, TLS and pool wait; None where none of them happened."""
        parts = (self.pool_wait_ns, self.dns_ns, self.tcp_ns, self.tls_ns)
        return None if parts == _WARM else sum(filter(None, parts))


_WARM = (None, None, None, None)
