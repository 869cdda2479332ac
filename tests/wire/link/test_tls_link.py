"""A TLS link over a link in memory: large bodies in slices, ends that can be trusted or not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.wire.link.tls import TlsLink, said_goodbye

if TYPE_CHECKING:
    from lightgate.wire.link.link import Peer
    from wire.conftest import Trust

SLICE = 1 << 20


class Inner:
    """A link in memory; what is written is kept, one entry for each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_open = True
        self.unsent = 7
        self.log: list[str] = []
        self.peer: Peer | None = None

    def attach(self, peer: Peer) -> None:
        self.peer = peer

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def pause_reading(self) -> None:
        self.log.append("pause")

    def resume_reading(self) -> None:
        self.log.append("resume")

    def close(self) -> None:
        self.log.append("close")
        self.is_open = False

    def abort(self) -> None:
        self.log.append("abort")
        self.is_open = False

    def info(self, name: str) -> object:
        return f"inner {name}"


class Owner:
    def __init__(self) -> None:
        self.log: list[Any] = []

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        self.log.append((data, stamp, since))

    def on_eof(self) -> None:
        self.log.append("eof")

    def on_lost(self, error: Exception | None) -> None:
        self.log.append(type(error))

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")


class Both:
    """A link and the server at its other end, both in memory."""

    def __init__(self, trust: Trust) -> None:
        context = ssl.create_default_context()
        trust.authority.configure_trust(context)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.authority.issue_cert("localhost").configure_cert(serving)
        self.inner = Inner()
        inner: Any = self.inner
        self.link = TlsLink(inner, context, "localhost")
        self.owner = Owner()
        self.hello, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = serving.wrap_bio(self.hello, self.out, server_side=True)
        self.done: list[Exception | None] = []
        self.link.start(self.done.append)

    def shake(self) -> None:
        for _ in range(6):
            self.give()
            with contextlib.suppress(ssl.SSLWantReadError):
                self.server.do_handshake()
            self.back()
        self.give()

    def give(self) -> None:
        """Hand the server what the link has written."""
        for data in self.inner.writes:
            self.hello.write(data)
        self.inner.writes.clear()

    def back(self, stamp: int = 5, since: int = 3) -> None:
        """Hand the link what the server has written."""
        data = self.out.read()
        if data:
            self.link.on_read(data, stamp, since)

    def heard(self) -> bytes:
        """All plain text that the server can read."""
        self.give()
        found = b""
        while True:
            try:
                part = self.server.read(1 << 20)
            except ssl.SSLWantReadError:
                return found
            except ssl.SSLZeroReturnError:
                return found + b"<end>"
            found += part
            if not part:
                return found + b"<end>"


@pytest.fixture
async def both(trust: Trust) -> Both:
    made = Both(trust)
    assert not made.link.is_open
    made.shake()
    assert made.done == [None]
    made.link.attach(made.owner)
    await asyncio.sleep(0)  # what came with the handshake: session tickets, which are no bytes
    return made


async def test_small_writes_are_encrypted_at_once(both: Both) -> None:
    both.link.write(b"")
    assert both.inner.writes == []
    both.link.write(b"hello")
    assert len(both.inner.writes) == 1
    assert both.link.unsent == 7
    assert both.heard() == b"hello"
    both.link.write(b"x" * SLICE)  # exactly one slice is small still
    assert both.link.unsent == 7
    assert both.heard() == b"x" * SLICE


async def test_a_large_body_goes_out_in_slices_one_in_each_turn(both: Both) -> None:
    body = bytes(range(256)) * (SLICE // 256) * 2 + b"end"
    both.link.write(body)
    assert both.link.unsent == 7 + len(body) - SLICE
    both.link.write(b"behind")  # waits its turn
    assert both.link.unsent == 7 + len(body) - SLICE + 6
    assert both.heard() == body[:SLICE]
    await asyncio.sleep(0)
    assert both.heard() == body[SLICE : 2 * SLICE]
    await asyncio.sleep(0)
    assert both.heard() == b"end"
    await asyncio.sleep(0)
    assert both.heard() == b"behind"
    await asyncio.sleep(0)
    assert both.link.unsent == 7
    both.link.write(b"and on")
    assert both.heard() == b"and on"


async def test_what_waits_is_dropped_with_a_link_that_is_lost(both: Both) -> None:
    both.link.write(b"x" * (SLICE + 1))
    both.inner.is_open = False
    both.inner.writes.clear()
    await asyncio.sleep(0)
    assert both.inner.writes == []
    assert both.link.unsent == 7
    both.link.write(b"never")
    assert both.inner.writes == []


async def test_a_close_sends_what_waits_and_says_goodbye(both: Both) -> None:
    body = b"y" * (SLICE + 5)
    both.link.write(body)
    both.link.close()
    assert both.inner.log == ["close"]
    assert both.link.unsent == 7
    assert not both.link.is_open
    assert both.heard() == body + b"<end>"
    await asyncio.sleep(0)
    assert both.inner.writes == []


async def test_reads_keep_the_stamp_of_the_inner_read(both: Both) -> None:
    both.server.write(b"one")
    both.server.write(b"two")
    both.back(9, 8)
    assert both.owner.log == [(b"onetwo", 9, 8)]
    assert both.link.info("socket") == "inner socket"
    assert isinstance(both.link.info("ssl_object"), ssl.SSLObject)


async def test_bytes_that_came_with_the_handshake_wait_for_the_owner(trust: Trust) -> None:
    both = Both(trust)
    both.shake()
    both.server.write(b"early")
    both.back(4, 2)
    assert both.owner.log == []
    both.link.attach(both.owner)
    assert both.owner.log == []
    await asyncio.sleep(0)
    assert both.owner.log[-1] == (b"early", 4, 2)


async def test_a_goodbye_of_the_other_side_is_an_end_that_can_be_trusted(both: Both) -> None:
    both.server.write(b"all")
    with pytest.raises(ssl.SSLWantReadError):
        both.server.unwrap()
    both.back(9, 8)
    assert both.owner.log == [(b"all", 9, 8), "eof"]
    link: Any = both.link
    assert said_goodbye(link)


async def test_a_goodbye_can_be_trusted_after_our_own(both: Both) -> None:
    both.link.close()
    both.give()
    assert both.server.read(1) == b""
    with contextlib.suppress(ssl.SSLWantReadError):
        both.server.unwrap()
    both.back(9, 8)
    both.link.attach(both.owner)
    await asyncio.sleep(0)
    assert both.owner.log == ["eof"]
    link: Any = both.link
    assert said_goodbye(link)


async def test_an_end_without_a_goodbye_cannot_be_trusted(both: Both) -> None:
    link: Any = both.link
    assert not said_goodbye(link)
    both.link.on_eof()
    assert both.owner.log == ["eof"]
    plain: Any = both.inner
    assert said_goodbye(plain)


async def test_pauses_are_passed_on_in_both_directions(both: Both) -> None:
    both.link.pause_reading()
    both.link.resume_reading()
    assert both.inner.log == ["pause", "resume"]
    both.link.pause_writing()
    both.link.resume_writing()
    assert both.owner.log == ["pause", "resume"]
    both.link.abort()
    assert both.inner.log[-1] == "abort"
    assert not both.link.is_open
    both.link.pause_writing()
    both.link.resume_writing()
    assert both.owner.log == ["pause", "resume"]


async def test_bytes_that_are_no_tls_are_a_loss(both: Both) -> None:
    both.link.on_read(b"\x17\x03\x03\x00\x20" + b"z" * 32, 1, 1)
    assert len(both.owner.log) == 1
    assert issubclass(both.owner.log[0], ssl.SSLError)
    assert both.inner.log == ["abort"]
    assert not both.link.is_open


async def test_losses_before_and_after_the_handshake(trust: Trust, both: Both) -> None:
    early = Both(trust)
    early.link.on_eof()
    assert [str(error) for error in early.done] == ["closed during the TLS handshake"]
    late = Both(trust)
    late.shake()
    late.link.on_eof()
    assert late.done == [None]
    assert (late.inner.log, late.owner.log) == (["abort"], [])
    both.link.on_lost(None)
    both.link.on_lost(None)
    assert both.owner.log == [ConnectionResetError]


async def test_after_our_own_goodbye_the_owner_hears_no_more(both: Both) -> None:
    both.link.close()
    both.server.write(b"late")
    both.back(9, 8)
    both.link.pause_writing()
    both.link.on_lost(None)
    assert both.owner.log == []
