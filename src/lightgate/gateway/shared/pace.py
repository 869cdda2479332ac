"""The pace of a store's answers, and whether it is too slow to be waited for.

A request waits for the end of the question that is under way, and then for its own: twice the time
of an answer. A store that takes more than half of the patience again and again is not waited for
until it is quicker; it is still told and heard in the background.
"""

from __future__ import annotations

from typing import Final

IN_A_ROW: Final = 8  # answers: one of them is quick where only this process was busy
SLOW_PARTS: Final = 2  # of the patience: an answer that takes longer than a part is slow


class StorePace:
    """The pace of one store, as one worker sees it."""

    __slots__ = ("_against", "slow")

    def __init__(self) -> None:
        self.slow = False
        self._against = 0  # answers in a row that speak against `slow`

    def took(self, answer_s: float, patience_s: float) -> bool:
        """Take in how long an answer took; whether `slow` has changed by that."""
        if (answer_s > patience_s / SLOW_PARTS) is self.slow:
            self._against = 0
            return False
        self._against += 1
        if self._against < IN_A_ROW:
            return False
        self.slow, self._against = not self.slow, 0
        return True
