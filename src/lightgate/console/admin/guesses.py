"""Wrong secrets and codes that an address has shown: after a few it has to wait.

A secret that a person has chosen can be guessed by trying; a link and a session cannot.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.clock.source import Clock

MOST_WRONG: Final = 10  # guesses of one address within the time
WINDOW_NS: Final = 60 * 1_000_000_000
MOST_ADDRESSES: Final = 4096  # the one that guessed longest ago is forgotten
_NEIGHBOURS: Final = 64  # bits of an IPv6 address that its owner cannot choose


class WrongGuesses:
    """The wrong guesses of the last minute, by address; an IPv6 network of 64 bits is one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: dict[str, deque[int]] = {}

    def note(self, address: str) -> None:
        """Count a wrong guess."""
        owner = _owner(address)
        times = self._by_address.pop(owner, None) or deque(maxlen=MOST_WRONG)
        times.append(self._clock.now_ns())
        self._by_address[owner] = times
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.pop(next(iter(self._by_address)))

    def wait_s(self, address: str) -> int:
        """How long an address has to wait before it may guess again; 0: it may."""
        times = self._by_address.get(_owner(address))
        if times is None or len(times) < MOST_WRONG:
            return 0
        left_ns = times[0] + WINDOW_NS - self._clock.now_ns()
        return max(0, -(-left_ns // 1_000_000_000))


def _owner(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, _NEIGHBOURS), strict=False))
