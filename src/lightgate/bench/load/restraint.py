"""Restraint after refusals: when to pause a target, and when to give it up.

One process judges by its own requests. Of several, the parent judges by all of them and tells the
children: a 429 for one holds them all, and only what all of them met in a row is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.errors import HttpRefused, RateLimited, Unreachable

if TYPE_CHECKING:
    from lightgate.errors import AttemptError

PAUSE_S: Final = 1.0  # after a 429 that names no wait
_NS_PER_S: Final = 1_000_000_000
_KEY_REFUSED: Final = frozenset({401, 403})


class Restraint:
    """The errors of one drive, taken in as they come; instants are monotonic nanoseconds.

    `pauses` where a 429 holds the workers. `give_up` is how many attempts in a row may fail to
    connect or be refused for their key; None: any number.
    """

    def __init__(self, *, pauses: bool, give_up: int | None) -> None:
        self.until_ns = 0  # nothing is sent before
        self.gave_up: AttemptError | None = None
        self._pauses = pauses
        self._give_up = give_up
        self._held_ns = 0
        self.refused = 0  # attempts in a row that could not connect or had their key refused

    def heed(self, error: AttemptError | None, now_ns: int) -> bool:
        """Take in how an attempt ended; true where the target is given up at it."""
        if error is None:
            self.refused = 0
            return False
        if isinstance(error, RateLimited) and self._pauses:
            wait_s = PAUSE_S if error.retry_after_s is None else error.retry_after_s
            self.hold(now_ns + int(wait_s * _NS_PER_S), now_ns)
        lasting = isinstance(error, Unreachable) or is_key_refused(error)
        self.refused = self.refused + 1 if lasting else 0
        enough = lasting and self.refused == self._give_up
        if enough:
            self.gave_up = error
        return enough

    def hold(self, until_ns: int, now_ns: int) -> None:
        """Send nothing until the instant; a longer hold stays."""
        self._held_ns += max(0, until_ns - max(now_ns, self.until_ns))
        self.until_ns = max(until_ns, self.until_ns)

    def held_ns(self, stopped_ns: int) -> int:
        """Time for which the workers were held until they stopped."""
        return max(0, self._held_ns - max(0, self.until_ns - stopped_ns))


def is_key_refused(error: AttemptError | None) -> bool:
    """Whether the provider did not take the key."""
    return isinstance(error, HttpRefused) and error.code in _KEY_REFUSED
