"""A client that is turned away at the door hears why.

Its request is mostly there already. A socket that is closed with bytes unread resets the
connection, and a reset overtakes the answer: so what comes is read and thrown away, until the
client closes too or a short time is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.wire.door.connection import ServedLink

MOST: Final = 256  # clients that are waited for at once; each holds a descriptor
# Of the connections that there may be: their descriptors are counted twice, for a provider's too,
# and clients that were turned away must not take those of the clients that were not.
_SHARE: Final = 8
FEW: Final = 8  # however few connections there may be: a process has some descriptors to spare


class Farewells:
    """The clients of one door that were turned away and have not closed yet."""

    def __init__(self, linger_s: float, connections: int = 0) -> None:
        self._linger_s = linger_s
        self._most = min(MOST, max(FEW, connections // _SHARE)) if connections else MOST
        self._open: set[_Farewell] = set()

    def __len__(self) -> int:
        return len(self._open)

    def say(self, link: ServedLink, answer: bytes) -> None:
        """Send the answer and close; above the most, without a wait for the client."""
        link.write(answer)
        if len(self._open) < self._most and link.end_writing():
            _Farewell(link, self._open, self._linger_s)
        else:
            link.close()

    def close(self) -> None:
        """Wait for nobody any more."""
        for one in tuple(self._open):
            one.end()


class _Farewell:
    """One client that was turned away; the peer of its link."""

    __slots__ = ("_among", "_link", "_timer")

    def __init__(self, link: ServedLink, among: set[_Farewell], linger_s: float) -> None:
        self._link = link
        self._among = among
        self._timer = asyncio.get_running_loop().call_later(linger_s, self.end)
        among.add(self)
        link.attach(self)

    def end(self) -> None:
        self._timer.cancel()
        self._among.discard(self)
        self._link.abort()

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        """Throw it away."""

    def on_eof(self) -> None:
        self.end()

    def on_lost(self, error: Exception | None) -> None:
        del error
        self.end()

    def pause_writing(self) -> None:
        """Nothing more is written."""

    def resume_writing(self) -> None:
        """Nothing more is written."""
