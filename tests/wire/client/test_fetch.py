"""Plain requests: the bytes that are written, and the answer as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from lightgate.errors import TooLarge, UsageError
from lightgate.wire.client.fetch import (
    BODY_LIMIT,
    POSTED_LIMIT,
    Asked,
    fetch,
    fetch_bounded,
    fetch_whole,
)
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.wire.client.client import Client

ORIGIN = Origin("http", "api.example.com", 8080)
DEADLINES = Deadlines(1, 2, 3, 4)


class Peer:
    """Keeps what a client would send, and answers."""

    def __init__(self, *parts: bytes, status: int = 200) -> None:
        self.parts = parts
        self.status = status
        self.payload = b""
        self.deadlines: Deadlines | None = None

    async def ask(
        self, origin: Origin, payload: bytes, taker: Any, marks: Marks, deadlines: Deadlines
    ) -> None:
        assert origin == ORIGIN
        assert taker.marks is marks
        self.payload, self.deadlines = payload, deadlines
        taker.on_sent(10)
        taker.on_head(self.status, [(b"x", b"y")], 20)
        for number, part in enumerate(self.parts):
            taker.on_body(part, 30 + number, 0)
        taker.on_end(40)

    @property
    def client(self) -> Client:
        return cast("Client", self)


async def test_a_get_has_no_body() -> None:
    peer = Peer(b"ab", b"c", status=404)
    found = await fetch(peer.client, ORIGIN, "/a?b=c", (("accept", "x"), ("X-Y", "Z")), DEADLINES)
    assert peer.payload == (
        b"GET /a?b=c HTTP/1.1\r\nhost: api.example.com:8080\r\naccept-encoding: identity\r\n"
        b"accept: x\r\nX-Y: Z\r\n\r\n"
    )
    assert peer.deadlines is DEADLINES
    assert (found.status, found.headers, found.body) == (404, [(b"x", b"y")], b"abc")
    assert (found.marks.send, found.marks.headers, found.marks.end) == (10, 20, 40)


@pytest.mark.parametrize("body", [b"", b"hello"])
async def test_a_body_is_posted_with_its_length(body: bytes) -> None:
    peer = Peer()
    found = await fetch(peer.client, ORIGIN, "/", body=body)
    head = b"POST / HTTP/1.1\r\nhost: api.example.com:8080\r\naccept-encoding: identity\r\n"
    assert peer.payload == head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    assert peer.deadlines == Deadlines()
    assert found.body == b""


@pytest.mark.parametrize("char", ["\r", "\n", "\0"])
async def test_a_header_cannot_add_a_line(char: str) -> None:
    for headers in (((f"x{char}y", "z"),), (("x", f"y{char}z"),)):
        peer = Peer()
        with pytest.raises(UsageError, match="line break"):
            await fetch(peer.client, ORIGIN, "/", headers)
        assert peer.payload == b""


async def test_an_answer_may_be_as_large_as_its_limit() -> None:
    asked = Asked("/", limit=4)
    exact = await fetch_bounded(Peer(b"ab", b"cd").client, ORIGIN, asked, DEADLINES)
    assert exact.body == b"abcd"
    with pytest.raises(TooLarge, match="larger than 4 bytes"):
        await fetch_bounded(Peer(b"ab", b"cde").client, ORIGIN, asked, DEADLINES)
    with pytest.raises(TooLarge):
        await fetch_whole(Peer(b"abcde").client, ORIGIN, b"x", 4)


async def test_a_payload_that_is_ready_is_sent_as_it_is() -> None:
    peer = Peer(b"ok")
    found = await fetch_whole(peer.client, ORIGIN, b"raw", 10)
    assert (peer.payload, peer.deadlines, found.body) == (b"raw", Deadlines(), b"ok")


async def test_answers_to_posts_have_a_limit_of_their_own() -> None:
    large = bytes(POSTED_LIMIT)
    assert POSTED_LIMIT == 1 << 20
    assert BODY_LIMIT == Asked("/").limit == 1 << 28
    assert len((await fetch(Peer(large).client, ORIGIN, "/", body=b"")).body) == POSTED_LIMIT
    with pytest.raises(TooLarge):
        await fetch(Peer(large, b"x").client, ORIGIN, "/", body=b"")
    assert len((await fetch(Peer(large, b"x").client, ORIGIN, "/")).body) == POSTED_LIMIT + 1
