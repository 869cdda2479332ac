"""T5: what two servers could read differently reaches no provider; what does has our framing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import chat_body, say, whole
from sim.conftest import SAY
from wire.test_smuggling import REFUSED

if TYPE_CHECKING:
    from gateway.security.conftest import Behind, Upstream

CALL = json.dumps({"model": "raw/m", "messages": SAY}).encode()
PATH = b"/v1/chat/completions"
SECOND = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (PATH, len(CALL), CALL)


def at_the_endpoint(raw: bytes) -> bytes:
    """The same trick on the path of an endpoint, so that a door that let it in would call."""
    for root in (b" / ", b" /\r\n"):
        raw = raw.replace(root, root.replace(b"/", PATH), 1)
    return raw


async def test_the_corpus_of_tricks_reaches_no_provider(behind: Behind, upstream: Upstream) -> None:
    from lightgate.wire.door.door import DoorLimits

    rig = await behind(limits=DoorLimits(body_bytes=1 << 20, linger_s=0.05))
    assert len(REFUSED) >= 40
    for name, (status, raw) in REFUSED.items():
        got = await say(rig.port, at_the_endpoint(raw) + SECOND)
        assert got.startswith(b"HTTP/1.1 %d " % status), name
        assert b"\r\nconnection: close\r\n" in got, name
        assert got.count(b"\r\ndate: ") == 1, name
    assert upstream.heard == []
    assert rig.reserved() == []


@pytest.mark.parametrize("framing", ["length", "chunks", "pipelined"])
async def test_the_providers_framing_is_ours(
    behind: Behind, upstream: Upstream, framing: str
) -> None:
    rig = await behind()
    upstream.script = whole(chat_body())
    head = b"POST %b HTTP/1.1\r\nHost: evil\r\nTE: trailers\r\nConnection: te\r\n" % PATH
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    body = json.dumps({"model": "raw/m", "messages": SAY, "x": smuggled.decode()}).encode()
    if framing == "chunks":
        pieces = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in body)
        raw = (
            head
            + b"Transfer-Encoding: chunked\r\nTrailer: x\r\n\r\n"
            + pieces
            + b"0\r\nX: y\r\n\r\n"
        )
    else:
        raw = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    if framing == "pipelined":
        raw += raw
    last = b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    got = await say(rig.port, raw + last)
    times = 2 if framing == "pipelined" else 1
    assert got.count(b"HTTP/1.1 200 OK") == times + 1
    assert len(upstream.heard) == times
    for heard in upstream.heard:
        names = [name for name, _ in heard.headers]
        assert names.count(b"content-length") == 1
        assert b"transfer-encoding" not in names
        assert json.loads(heard.body)["x"] == smuggled.decode()
    assert b"GET /smuggled HTTP" not in upstream.raw.replace(
        json.dumps(smuggled.decode()).encode(), b""
    )
