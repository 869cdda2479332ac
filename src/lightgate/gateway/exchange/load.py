"""How much work a worker has, and when it takes no more.

A worker that is behind refuses requests at once, with a time to come back, instead of letting all
of them wait: by a limit on requests under way, and by the lag of its event loop. The lag is looked
at as CoDel looks at a queue: a short peak is work that is being done, only a lag that does not go
away for some time is a queue that stands.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final

from lightgate.gateway.request.refusal import Refusal, Refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lightgate.gateway.served.snapshot import LoadTerms
    from lightgate.ledger.store.keys import KeyRecord

BEAT_S: Final = 0.05
BEATS: Final = 4  # the lag must have stood for so many beats
BEHIND_NS: Final = 100_000_000
CAUGHT_UP_NS: Final = 50_000_000
STOOD_NS: Final = 1_000_000_000  # a deadline that passes meanwhile says nothing about a provider
LAG_BOUNDS_NS: Final = tuple(n * 1_000_000 for n in (1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000))
RETRY_S: Final = 1.0
SAY_NS: Final = 10_000_000_000  # between two lines of the log
_log = logging.getLogger(__name__)

FULL: Final = Refusal(
    status=503,
    message="This gateway has as many requests under way as it takes.",
    code="overloaded",
    retry_after_s=RETRY_S,
)
BEHIND: Final = Refusal(
    status=503,
    message="This gateway is behind with its work and takes no more at the moment.",
    code="overloaded",
    retry_after_s=RETRY_S,
)
KEY_FULL: Final = Refusal(
    status=429,
    message="This key has as many requests under way as it may have.",
    code="concurrency",
    retry_after_s=RETRY_S,
)


class Load:
    """The requests under way in one worker, and the lag of its loop.

    `requests` and `per_key` are limits, 0 is none. `behind`: the lag stands. `shed` counts what was
    refused, by the limit that was reached. `lags` counts the beats by how late they were: up to
    each of LAG_BOUNDS_NS, and later.
    """

    __slots__ = (
        "_lags", "_now_ns", "_said_ns", "_stood_ns", "_told", "_told_ns", "behind", "keys",
        "lag_ns", "lag_total_ns", "lags", "per_key", "picky", "requests", "shed",
    )  # fmt: skip

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.requests = self.per_key = 0
        self.keys: dict[str, int] = {}  # requests under way, where keys have a limit
        self.behind = False
        self.picky = False  # not every request is let in: ask `check`
        self.lag_ns = 0
        self.lag_total_ns = 0
        self.lags = [0] * (len(LAG_BOUNDS_NS) + 1)
        self.shed = {"lag": 0, "requests": 0, "key_requests": 0}
        self._lags: deque[int] = deque(maxlen=BEATS)
        self._stood_ns = -1
        self._said_ns = self._told_ns = -SAY_NS
        self._told: dict[str, int] = {}  # what the log has said was turned away, by limit

    def use(self, terms: LoadTerms) -> None:
        """Take the limits of a snapshot."""
        self.requests, self.per_key = terms.requests, terms.requests_per_key
        self._decide()

    def _decide(self) -> None:
        self.picky = self.behind or self.requests > 0 or self.per_key > 0

    def check(self, under_way: int, key: KeyRecord | None) -> None:
        """Let another request in; Refusing says why not."""
        if self.behind:
            refused, limit = BEHIND, "lag"
        elif 0 < self.requests <= under_way:
            refused, limit = FULL, "requests"
        elif self.per_key and key is not None and self.keys.get(key.id, 0) >= self.per_key:
            refused, limit = KEY_FULL, "key_requests"
        else:
            return
        self.shed[limit] += 1
        raise Refusing(refused)

    def began(self, key: KeyRecord | None) -> None:
        """Count a request of a key, where keys have a limit."""
        if key is not None:
            self.keys[key.id] = self.keys.get(key.id, 0) + 1

    def ended(self, key: KeyRecord | None) -> None:
        """Count a request of a key no more; the limit may be younger than the request."""
        if key is None:
            return
        left = self.keys.get(key.id, 0) - 1
        if left > 0:
            self.keys[key.id] = left
        else:
            self.keys.pop(key.id, None)

    def tell(self, refused: Mapping[str, int]) -> None:
        """Log how many requests, connections and bodies (`refused`) found no room, now and then."""
        counts = {**self.shed, **refused}
        more = [(name, each - self._told.get(name, 0)) for name, each in counts.items()]
        said = ", ".join(f"{name} {each}" for name, each in more if each)
        now = self._now_ns()
        if said and now - self._told_ns >= SAY_NS:
            self._told, self._told_ns = counts, now
            _log.warning("Turned away for want of room, by limit: %s", said)

    def stood_since(self, since_ns: int) -> bool:
        """Whether the loop stood for long after this instant."""
        return self._stood_ns > since_ns

    async def watch(self) -> None:
        """Look at the lag of the loop until cancelled."""
        while True:
            due_ns = self._now_ns() + int(BEAT_S * 1e9)
            await asyncio.sleep(BEAT_S)
            self.beat(self._now_ns() - due_ns)

    def beat(self, lag_ns: int) -> None:
        """Take in how late a beat was."""
        self.lag_ns = lag_ns = max(0, lag_ns)
        self._lags.append(lag_ns)
        self.lag_total_ns += lag_ns
        self.lags[bisect_left(LAG_BOUNDS_NS, lag_ns)] += 1
        now = self._now_ns()
        if lag_ns > STOOD_NS:
            self._stood_ns = now
        if lag_ns < CAUGHT_UP_NS:
            self.behind = False
            self._decide()
        elif len(self._lags) == BEATS and min(self._lags) > BEHIND_NS and not self.behind:
            self.behind = True
            self._decide()
            if now - self._said_ns >= SAY_NS:
                self._said_ns = now
                _log.warning(
                    "The worker is %d ms behind; new requests get 503", lag_ns // 1_000_000
                )
