"""Web pages of other origins that may use the gateway: `[gateway] cors`, off where it is empty.

An allowed origin is named in the answer; there is no wildcard, and no answer lets a browser send
cookies along. A preflight carries no key, so it gets an answer without one, and nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.gateway.served.served import Served
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

_ALLOWED: Final = (
    b"access-control-allow-origin: %b\r\n"
    b"access-control-expose-headers: *\r\n"
    b"vary: origin\r\n"
)  # fmt: skip
_PREFLIGHT: Final = (
    b"access-control-allow-methods: GET, HEAD, POST, DELETE\r\n"
    b"access-control-allow-headers: %b\r\n"
    b"access-control-max-age: 600\r\n"
)
_NAMES: Final = re.compile(rb"[A-Za-z0-9-]{1,64}(?:[ ,]+[A-Za-z0-9-]{1,64}){0,63}")


def let_in(served: Served, inbound: Inbound, reply: Reply) -> bool:
    """Let a page of an allowed origin read the answer; whether the request is a preflight."""
    origin = inbound.header(b"origin")
    if origin is None or origin not in served.origins:
        return False
    reply.extra = _ALLOWED % origin
    asked = inbound.header(b"access-control-request-method")
    return inbound.method == b"OPTIONS" and asked is not None


def answer_preflight(inbound: Inbound, reply: Reply) -> None:
    """Say what a page of an allowed origin may send."""
    names = inbound.header(b"access-control-request-headers") or b""
    if _NAMES.fullmatch(names) is None:
        names = b"authorization, content-type, x-api-key, x-goog-api-key"
    reply.whole(204, _PREFLIGHT % names, b"")
