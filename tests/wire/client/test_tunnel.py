"""A tunnel through a proxy: what the proxy may answer, and what is said where it gives none."""

from __future__ import annotations

import socket

import pytest

from lightgate.errors import ConnectionFailed
from lightgate.wire.client.dial import _tunnel
from lightgate.wire.client.proxy import Proxy
from lightgate.wire.origin import Origin

THERE = Origin("https", "api.test", 443)
PLAIN = "Check HTTPS_PROXY and NO_PROXY."
ASKED = "The proxy wants a name and a password: http://name:password@host:port."


async def asked(answer: bytes) -> bytes:
    """Ask a proxy that answers so and hangs up; what it was sent."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.sendall(answer)
        far.shutdown(socket.SHUT_WR)
        await _tunnel(near, Proxy("p", 3128), THERE)
        return far.recv(4096)


async def test_a_tunnel_is_there_once_the_proxy_has_said_so() -> None:
    sent = await asked(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n")
    assert sent.startswith(b"CONNECT api.test:443 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        (b"HTTP/1.1 407 Who?\r\n\r\n", "answered 407", ASKED),
        (b"HTTP/1.1 502 No\r\n\r\n", "answered 502", PLAIN),
        (b"SSH-2.0\r\n\r\n", "sent no HTTP answer", PLAIN),
        (b"", "sent no HTTP answer", PLAIN),
        (b"HTTP/1.1 200 OK\r\n", "answered 200", PLAIN),  # it hung up in its head
        (b"HTTP/1.1 200 OK\r\n\r\nbytes of its own", "answered 200", PLAIN),
    ],
)
async def test_a_proxy_that_gives_no_tunnel_is_named_with_what_it_said(
    answer: bytes, said: str, hint: str
) -> None:
    with pytest.raises(ConnectionFailed) as caught:
        await asked(answer)
    where = Proxy("p", 3128).where
    assert caught.value.message == (
        f"The proxy {where} gave no tunnel to {THERE.authority} (it {said})."
    )
    assert caught.value.hint == hint


async def test_a_proxy_that_is_gone_sent_no_answer() -> None:
    near, far = socket.socketpair()
    far.close()
    with near:
        near.setblocking(False)
        with pytest.raises(ConnectionFailed, match="sent no HTTP answer"):
            await _tunnel(near, Proxy("p", 3128), THERE)
