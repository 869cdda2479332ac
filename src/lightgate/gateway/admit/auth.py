"""Authentication: from the head of a request to its caller, in one look-up by full hash."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lightgate.gateway.admit.overrides import forbidden, read_headers
from lightgate.gateway.exchange.caller import NEVER, Caller
from lightgate.gateway.request.passed import check_hops
from lightgate.gateway.request.refusal import UNAUTHORIZED, Refusing
from lightgate.gateway.served.inner import CONSOLE_PREFIX, PREFIX
from lightgate.gateway.served.keys import presented_key
from lightgate.ledger.store.keys import instant_ns

if TYPE_CHECKING:
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.endpoint import Endpoint
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import Inbound

_OWN_ORIGIN: Final = re.compile(
    rb"https?://(?:localhost|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|\[::1\])(?::[0-9]{1,5})?"
)


def read_caller(state: State, inbound: Inbound, endpoint: Endpoint) -> Caller:
    """Read the caller from a head and keep it; Refusing where it has no right to what it asks."""
    presented = presented_key(inbound.headers)
    batch = False
    if presented is not None and presented.startswith(PREFIX):
        batch, key = True, _authorize_line(state, inbound, presented)
    elif is_console(state, inbound):
        key = None  # the console's own requests belong to no key
    else:
        key = authorize(state, inbound, state.wall_ns())
    overrides, request_id, passed = read_headers(inbound, key)
    if passed:
        check_hops(passed, state.served.instance)
    until = NEVER if key is None or key.expires is None else instant_ns(key.expires)
    caller = Caller(state.served, until, endpoint, key, overrides, request_id, passed, batch)
    inbound.notes.read = caller
    return caller


def authorize(state: State, inbound: Inbound, wall_ns: int) -> KeyRecord | None:
    """The key of a request; None where the gateway has no keys. Every failure is answered alike."""
    keyring = state.served.keyring
    if not len(keyring):
        origin = inbound.header(b"origin")
        if origin not in state.served.origins:
            _check_origin(origin)
        return None
    presented = presented_key(inbound.headers)
    key = None if presented is None else keyring.find(presented, wall_ns)
    if key is None:
        raise Refusing(UNAUTHORIZED)
    return key


def _authorize_line(state: State, inbound: Inbound, presented: bytes) -> KeyRecord | None:
    """The key that a line of a batch is sent for; None where the gateway has no keys."""
    inner, keyring = state.inner, state.served.keyring
    owner = None if inner is None else inner.owner_of(presented, inbound.peer)
    if owner is None:
        raise Refusing(UNAUTHORIZED)
    if not owner and not len(keyring):
        return None
    key = keyring.of_id(owner, state.wall_ns())
    if key is None:
        raise Refusing(UNAUTHORIZED)
    return key


def is_console(state: State, inbound: Inbound) -> bool:
    """Whether a request shows the console's credential; Refusing where it shows a wrong one."""
    presented = presented_key(inbound.headers)
    if presented is None or not presented.startswith(CONSOLE_PREFIX):
        return False
    if state.inner is None or not state.inner.is_console(presented, inbound.peer):
        raise Refusing(UNAUTHORIZED)
    return True


def _check_origin(origin: bytes | None) -> None:
    """Refuse web pages of elsewhere: without keys the gateway is for this machine alone."""
    if origin is not None and _OWN_ORIGIN.fullmatch(origin) is None:
        raise Refusing(forbidden("A web page of another site may not use a gateway without keys."))
