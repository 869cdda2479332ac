"""The gateway's own `/`: says what answers here, and on this machine where the console is."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

_SAFE: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"accept"),
)
_HTML: Final = ((b"content-type", b"text/html; charset=utf-8"), *_SAFE)
_JSON: Final = ((b"content-type", b"application/json"), *_SAFE)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width"><title>Lightgate</title></head>
<body><h1>This is a Lightgate gateway</h1><p>{console}</p>
<p>Programs use <code>/v1</code> as their base URL.</p></body></html>
"""


def answer_root(inbound: Inbound, reply: Reply, console: str) -> None:
    """Answer a browser with a page and a program with JSON.

    The console's address is told to this machine alone; elsewhere it would say which ports are open
    here, and could seldom be reached.
    """
    address = console if _is_here(inbound.peer) else ""
    if b"text/html" in (inbound.header(b"accept") or b""):
        from html import escape  # for a person's look at the address alone

        linked = escape(address, quote=True)
        said = f'Its console is at <a href="{linked}">{linked}</a>.' if address else ""
        reply.whole(200, _HTML, _PAGE.format(console=said or "Its console is elsewhere.").encode())
        return
    told = {"service": "lightgate", "api": "/v1", "models": "/v1/models"}
    if address:
        told["console"] = address
    reply.whole(200, _JSON, msgspec.json.encode(told))


def _is_here(peer: str) -> bool:
    """Whether a client's address and port are of this machine itself."""
    try:
        found = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
