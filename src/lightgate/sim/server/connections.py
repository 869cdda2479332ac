"""Which connections have carried a request before."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 65_536  # the oldest are forgotten first


class UsedConnections:
    """A bounded memory of connections, by peer and instant of accept."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[str, int] = OrderedDict()

    def before(self, peer: str, accepted_ns: int) -> bool:
        """Whether this connection was asked about already; from now on it was."""
        known = self._known.get(peer) == accepted_ns
        self._known[peer] = accepted_ns
        self._known.move_to_end(peer)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known
