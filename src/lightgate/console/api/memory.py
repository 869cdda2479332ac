"""Answers that were just given: ten tabs that ask the same cost one query."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 64
FRESH_NS: Final = 1_000_000_000


class AnswerMemory:
    """Answers by question, each for a second; equal questions wait for the first of them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[int, Future[bytes]]] = {}
        self._lock = threading.Lock()

    def get(self, asked: tuple[str, str], now_ns: int, make: Callable[[], bytes]) -> bytes:
        """The answer to a question, made now unless one is there."""
        with self._lock:
            kept = self._kept.get(asked)
            if kept is not None and 0 <= now_ns - kept[0] < FRESH_NS:
                mine, answer = False, kept[1]
            else:
                mine, answer = True, Future()
                self._kept.pop(asked, None)
                self._kept[asked] = (now_ns, answer)
                while len(self._kept) > MOST:
                    self._kept.pop(next(iter(self._kept)))
        if mine:
            try:
                answer.set_result(make())
            except BaseException as error:
                answer.set_exception(error)
                with self._lock:
                    self._kept.pop(asked, None)
                raise
        return answer.result()
