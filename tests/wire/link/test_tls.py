"""TLS: verified, never given up for plain text, stamped before it is decrypted."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from lightgate.errors import Malformed, PeerReset, TlsFailed
from lightgate.wire.link.tls import TlsLink, client_context

if TYPE_CHECKING:
    from lightgate.wire.link.link import Peer
    from wire.conftest import Play, Rig, Script, Trust, Wire

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
UNFRAMED = b"HTTP/1.1 200 OK\r\n\r\nhello"


async def always_ok(wire: Wire) -> None:
    while await wire.request():
        await wire.send(OK)


def test_the_context_is_strict() -> None:
    context = client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_good_certificate(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        names: list[str | None] = []
        server = rig.serve(always_ok, cert=rig.cert, host="localhost")
        assert server.context is not None
        server.context.sni_callback = lambda tls, name, context: names.append(name)
        client = rig.secure_client()
        for turn in range(2):
            kept = await rig.ask(client, server.origin)
            assert kept.body == b"hello"
            assert (kept.marks.tls_ns is not None) is (turn == 0)
            assert (kept.marks.dns_ns is not None) is (turn == 0)
        assert names == ["localhost"]
        tls = server.wires[0].tls
        assert tls is not None
        assert tls.selected_alpn_protocol() == "http/1.1"
        assert tls.version() == "TLSv1.3"

    play(scene)


def test_tls_1_2_and_the_dot_of_the_root(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(always_ok, cert=rig.cert, host="localhost.")
        assert server.context is not None
        server.context.maximum_version = ssl.TLSVersion.TLSv1_2
        client = rig.secure_client()
        assert (await rig.ask(client, server.origin)).body == b"hello"

    play(scene)


def test_an_address_in_the_certificate(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(always_ok, cert=rig.authority.issue_cert("127.0.0.1"))
        assert (await rig.ask(rig.secure_client(), server.origin)).body == b"hello"

    play(scene)


@pytest.fixture(scope="module")
def bad_certs(trust: Trust) -> dict[str, trustme.LeafCert]:
    past = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    return {
        "wrong name": trust.authority.issue_cert("elsewhere.test"),
        "expired": trust.authority.issue_cert("localhost", not_before=past, not_after=past),
        "unknown authority": trustme.CA().issue_cert("localhost"),
    }


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wrong name", "not valid for 'localhost'"),
        ("expired", "expired"),
        ("unknown authority", "unable to get local issuer certificate"),
    ],
)
def test_bad_certificates(
    play: Play, bad_certs: dict[str, trustme.LeafCert], name: str, says: str
) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(always_ok, cert=bad_certs[name], host="localhost")
        keeper = rig.keeper()
        error = await rig.fails(rig.secure_client(), server.origin, keeper=keeper)
        assert type(error) is TlsFailed
        assert error.message.startswith("The certificate of localhost is not trusted: ")
        assert says in error.message
        assert keeper.log == []
        await rig.turns()
        assert server.requests == []
        assert len(server.wires) == 1  # it was not tried again in any other way

    play(scene)


async def plain(wire: Wire) -> None:
    await wire.receive()
    await wire.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    await asyncio.Event().wait()


async def hangs_up(wire: Wire) -> None:
    await wire.receive()
    wire.sock.close()


async def resets(wire: Wire) -> None:
    await wire.receive()
    wire.reset()


async def truncates(wire: Wire) -> None:
    await wire.receive()
    await wire.send(b"\x16\x03\x03\x00\x7a\x02\x00")
    wire.sock.close()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (plain, "wrong version number"),
        (hangs_up, "closed the connection during the handshake"),
        (resets, "closed the connection during the handshake"),
        (truncates, "closed the connection during the handshake"),
    ],
)
def test_broken_handshakes(play: Play, script: Script, says: str) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(script)
        error = await rig.fails(rig.secure_client(), server.origin._replace(scheme="https"))
        assert type(error) is TlsFailed
        assert says in error.message
        assert error.hint
        assert len(server.wires) == 1

    play(scene)


def test_an_old_protocol_is_refused(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(always_ok, cert=rig.cert, host="localhost")
        assert server.context is not None
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            server.context.maximum_version = ssl.TLSVersion.TLSv1_1
        error = await rig.fails(rig.secure_client(), server.origin)
        assert type(error) is TlsFailed

    play(scene)


@pytest.mark.parametrize("polite", [True, False])
def test_a_body_without_length_needs_the_goodbye(play: Play, *, polite: bool) -> None:
    """Anybody on the way can forge a FIN; only the other side can say close_notify."""

    async def script(wire: Wire) -> None:
        await wire.answer(UNFRAMED)
        await (wire.goodbye() if polite else hangs_up_now(wire))

    async def scene(rig: Rig) -> None:
        server = rig.serve(script, cert=rig.cert, host="localhost")
        client = rig.secure_client()
        if polite:
            assert (await rig.ask(client, server.origin)).body == b"hello"
        else:
            assert type(await rig.fails(client, server.origin)) is PeerReset
        assert client.open_connections == 0

    play(scene)


async def hangs_up_now(wire: Wire) -> None:
    wire.sock.close()


def test_a_framed_answer_needs_no_goodbye(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(OK)
        wire.sock.close()

    async def scene(rig: Rig) -> None:
        server = rig.serve(script, cert=rig.cert, host="localhost")
        client = rig.secure_client()
        for _ in range(2):
            assert (await rig.ask(client, server.origin)).body == b"hello"

    play(scene)


def test_a_damaged_record_breaks_the_answer(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(OK[:-2])
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(wire.sock, b"\x17\x03\x03\x00\x20" + bytes(32))
        await asyncio.Event().wait()

    async def scene(rig: Rig) -> None:
        server = rig.serve(script, cert=rig.cert, host="localhost")
        keeper = rig.keeper()
        error = await rig.fails(rig.secure_client(), server.origin, keeper=keeper)
        assert type(error) is PeerReset
        assert keeper.body == b"hel"

    play(scene)


def test_a_server_that_speaks_first_is_heard(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.send(b"220 mail.test ESMTP\r\n")
        await asyncio.Event().wait()

    async def scene(rig: Rig) -> None:
        client = rig.secure_client()
        server = rig.serve(script, cert=rig.cert, host="localhost")
        assert type(await rig.fails(client, server.origin)) is Malformed
        server = rig.serve(script)
        assert type(await rig.fails(client, server.origin)) is Malformed

    play(scene)


def test_a_server_that_closes_right_after_the_handshake(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.goodbye()

    async def scene(rig: Rig) -> None:
        server = rig.serve(script, cert=rig.cert, host="localhost")
        error = await rig.fails(rig.secure_client(), server.origin)
        assert type(error) is PeerReset
        assert error.early
        assert len(server.wires) == 1

    play(scene)


class Inner:
    """A link whose other side is a TLS server in the same test."""

    is_open = True
    unsent = 0

    def __init__(self, context: ssl.SSLContext) -> None:
        self.to_client, self.to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.to_server, self.to_client, server_side=True)
        self.peer: Peer | None = None

    def attach(self, peer: Peer) -> None:
        self.peer = peer

    def write(self, data: bytes | memoryview) -> None:
        self.to_server.write(data)

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        self.is_open = False

    def info(self, name: str) -> object:
        return None


class Ear:
    """An owner that listens."""

    def __init__(self) -> None:
        self.heard: list[tuple[bytes, int, int]] = []
        self.ends = 0

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        self.heard.append((data, stamp, since))

    def on_eof(self) -> None:
        self.ends += 1

    def on_lost(self, error: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


async def test_what_comes_with_the_handshake_waits_for_the_owner(trust: Trust) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.cert.configure_cert(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # here the server ends the handshake
    inner = Inner(context)
    link = TlsLink(inner, trust.context, "localhost")
    shaken: list[Exception | None] = []
    link.start(shaken.append)
    assert inner.peer is not None
    for _ in range(2):
        with contextlib.suppress(ssl.SSLWantReadError):
            inner.server.do_handshake()
            inner.server.write(b"early")
            with contextlib.suppress(ssl.SSLWantReadError):
                inner.server.unwrap()
        inner.peer.on_read(inner.to_client.read(), 7, 5)
    assert shaken == [None]
    ear = Ear()
    link.attach(ear)
    assert ear.heard == []
    await asyncio.sleep(0)
    assert ear.heard == [(b"early", 7, 5)]
    assert ear.ends == 1
    link.close()


def test_large_bodies_both_ways(play: Play) -> None:
    body = bytes(range(256)) * 2048  # 512 KiB

    async def script(wire: Wire) -> None:
        assert (await wire.request()).endswith(body)
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await asyncio.Event().wait()

    async def scene(rig: Rig) -> None:
        server = rig.serve(script, cert=rig.cert, host="localhost")
        head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        kept = await rig.ask(rig.secure_client(), server.origin, payload=head + body)
        assert kept.body == body

    play(scene)


def test_a_paused_exchange_reads_no_more(play: Play) -> None:
    size = 32 * 1024 * 1024

    async def scene(rig: Rig) -> None:
        sent = 0

        async def script(wire: Wire) -> None:
            nonlocal sent
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            await wire.answer(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            while sent < size:
                await wire.send(bytes(65536))
                sent += 65536

        server = rig.serve(script, cert=rig.cert, host="localhost")
        keeper = rig.keeper()
        call = asyncio.ensure_future(rig.ask(rig.secure_client(), server.origin, keeper=keeper))
        await rig.until(lambda: bool(keeper.parts))
        assert keeper.trip is not None
        keeper.trip.pause()
        held = len(keeper.body)
        await asyncio.sleep(0.02)
        assert len(keeper.body) == held
        assert sent < size
        keeper.trip.cancel()
        await asyncio.wait([call])
        assert call.exception() is not None

    play(scene)


def test_a_warm_secure_connection_is_not_told_of_tickets(play: Play) -> None:
    """TLS 1.3 sends session tickets after the handshake: they are no bytes of an answer."""

    async def scene(rig: Rig) -> None:
        server = rig.serve(always_ok, cert=rig.cert, host="localhost")
        client = rig.secure_client()
        assert await client.warm(server.origin, 2) == 2
        await rig.turns(20)
        assert client.open_connections == 2
        kept = await rig.ask(client, server.origin)
        assert kept.marks.tls_ns is None

    play(scene)
