"""What the head of a request says to the gateway: which endpoint, whose key, which wishes.

A client that keeps its connection says the same with every request, so what was read of a head is
kept with it, and holds as long as the configuration and the key do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.gateway.admit.admit import authorize
from lightgate.gateway.admit.overrides import read_headers
from lightgate.ledger.store.keys import instant_ns

if TYPE_CHECKING:
    from lightgate.gateway.admit.overrides import Wishes
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.endpoint import Path
    from lightgate.gateway.served.served import Served
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import Inbound

_NEVER: Final = 2**63 - 1


class Greeting(NamedTuple):
    """A head that was read, under one configuration and until the key expires."""

    served: Served
    until_ns: int
    path: Path
    key: KeyRecord | None
    wishes: Wishes
    request_id: bytes  # the client's own; empty where it has none
    extra: bytes  # header lines for the provider


def greeting_of(inbound: Inbound, state: State) -> Greeting | None:
    """What was read of this head before, if it still holds."""
    found = inbound.notes.read
    if type(found) is not Greeting or found.served is not state.served:
        return None
    return found if found.until_ns == _NEVER or state.wall_ns() < found.until_ns else None


def greet(state: State, inbound: Inbound, path: Path) -> Greeting:
    """Read a head and keep what it says; Refusing where it has no right to, or to its wishes."""
    key = authorize(state, inbound, state.wall_ns())
    wishes, request_id, extra = read_headers(inbound, key)
    until = _NEVER if key is None or key.expires is None else instant_ns(key.expires)
    read = Greeting(state.served, until, path, key, wishes, request_id, extra)
    inbound.notes.read = read
    return read
