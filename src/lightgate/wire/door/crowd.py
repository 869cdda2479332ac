"""Count what the clients of one door hold together, and say when it is too much.

A connection's own limits are in `DoorLimits`; a thousand connections within them can still take
every descriptor and all memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable


class CrowdLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of all connections together; 0 is no limit.

    `body_bytes` counts request bodies that did not come with their head, from their first byte to
    the end of their reply; one owner (a key, or an address) may hold half of it.
    """

    connections: int = 0
    connections_per_address: int = 0
    body_bytes: int = 0


class Crowd:
    """The connections of one door, by address, and the bytes of bodies that they hold."""

    __slots__ = ("_addresses", "_bodies", "_limits", "_owned", "connections", "refused")

    def __init__(self, limits: CrowdLimits) -> None:
        self._limits = limits
        self._addresses: dict[str, int] = {}
        self._owned: dict[Hashable, int] = {}
        self._bodies = 0
        self.connections = 0
        self.refused = {"connections": 0, "bodies": 0}  # since the start

    @property
    def body_bytes(self) -> int:
        """The bytes of bodies that are held now."""
        return self._bodies

    def enter(self, address: str) -> bool:
        """Count a connection; False where there are too many already."""
        limits = self._limits
        each = self._addresses.get(address, 0)
        if (0 < limits.connections <= self.connections) or (
            0 < limits.connections_per_address <= each
        ):
            self.refused["connections"] += 1
            return False
        self.connections += 1
        self._addresses[address] = each + 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection no more."""
        self.connections -= 1
        each = self._addresses[address] - 1
        if each:
            self._addresses[address] = each
        else:
            del self._addresses[address]

    def hold(self, owner: Hashable, size: int) -> bool:
        """Count bytes of a body; False where its owner, or all together, would hold too many."""
        most = self._limits.body_bytes
        own = self._owned.get(owner, 0) + size
        if most and (own > most // 2 or self._bodies + size > most):
            self.refused["bodies"] += 1
            return False
        self._owned[owner] = own
        self._bodies += size
        return True

    def release(self, owner: Hashable, size: int) -> None:
        """Count bytes of a body no more."""
        self._bodies -= size
        own = self._owned[owner] - size
        if own:
            self._owned[owner] = own
        else:
            del self._owned[owner]
