from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import ConfigError, ConnectionFailed, DeadlineMissed
from lightgate.wire.client.proxy import Proxies, Proxy
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from wire.conftest import Play, Rig, Wire

PLAIN = Origin("http", "api.test", 80)
SECURE = Origin("https", "api.test", 443)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    ("env", "plain", "secure"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": "http://p:3128"}, None, Proxy("p", 3128)),
        ({"HTTP_PROXY": "http://p:3128"}, Proxy("p", 3128), None),
        ({"HTTP_PROXY": "http://p:3128", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "p:3128", "REQUEST_METHOD": "GET"}, Proxy("p", 3128), None),
        ({"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:2"}, None, Proxy("low", 1)),
        ({"ALL_PROXY": "http://p:9"}, Proxy("p", 9), Proxy("p", 9)),
        ({"all_proxy": "http://p:9", "https_proxy": "http://q:8"}, Proxy("p", 9), Proxy("q", 8)),
        ({"HTTPS_PROXY": "http://p"}, None, Proxy("p", 8080)),
        ({"HTTPS_PROXY": ""}, None, None),
        ({"HTTPS_PROXY": "http://[::1]:3128"}, None, Proxy("::1", 3128)),
    ],
)
def test_from_the_environment(
    env: dict[str, str], plain: Proxy | None, secure: Proxy | None
) -> None:
    proxies = Proxies.from_env(env)
    assert proxies.choose(PLAIN) == plain
    assert proxies.choose(SECURE) == secure


@pytest.mark.parametrize(
    ("url", "named"),
    [("https://p:1", "p"), ("socks5://p:1", "p")]
    + [
        (url, "setting") for url in ("http://", "http://:1", "http://p:x", "http://[::1", "p:99999")
    ],
)
def test_an_unusable_proxy(url: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Proxies.from_env({"HTTPS_PROXY": url})
    assert caught.value.message == f"The proxy {named} in the environment is not usable."
    assert caught.value.hint


def test_credentials_are_sent_and_never_shown() -> None:
    proxy = Proxies.from_env({"HTTPS_PROXY": "http://me:s%40cret@p:3128"}).choose(SECURE)
    assert proxy is not None
    head = proxy.connect_head(SECURE)
    assert head.startswith(b"CONNECT api.test:443 HTTP/1.1\r\nhost: api.test:443\r\n")
    assert base64.b64encode(b"me:s@cret") in head
    assert head.endswith(b"\r\n\r\n")
    assert repr(proxy).startswith("Proxy(")
    for shown in (repr(proxy), str(proxy), f"{proxy}", repr(Proxies(proxy, proxy))):
        assert "cret" not in shown
        assert "Basic" not in shown
    bad = "ftp://me:s%40cret@p:3128"
    with pytest.raises(ConfigError) as caught:
        Proxies.from_env({"HTTPS_PROXY": bad})
    assert "cret" not in caught.value.message


def test_a_tunnel_to_an_ipv6_address() -> None:
    head = Proxy("p", 1).connect_head(Origin("https", "2001:db8::1", 443))
    assert head == (b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nhost: [2001:db8::1]:443\r\n\r\n")


def test_the_whole_head_and_the_name_of_a_proxy() -> None:
    assert Proxy("p", 1, "Basic eA==").connect_head(SECURE) == (
        b"CONNECT api.test:443 HTTP/1.1\r\nhost: api.test:443\r\n"
        b"proxy-authorization: Basic eA==\r\n\r\n"
    )
    assert Proxy("p", 1).where == "p:1"
    assert Proxy("2001:db8::1", 3128, "Basic eA==").where == "[2001:db8::1]:3128"
    assert repr(Proxy("2001:db8::1", 3128, "Basic eA==")) == "Proxy([2001:db8::1]:3128)"


@pytest.mark.parametrize(
    ("rule", "host", "direct"),
    [
        ("*", "api.test", True),
        ("api.test", "api.test", True),
        ("API.Test", "api.test", True),
        (".test", "api.test", True),
        ("*.test", "api.test", True),
        ("test", "api.test", True),
        ("i.test", "api.test", False),
        ("api.test", "api.test.", True),
        ("other.test, api.test", "api.test", True),
        ("api.test:443", "api.test", True),
        ("api.test:80", "api.test", False),
        ("other", "api.test", False),
        (",, ,", "api.test", False),
        (".", "api.test", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:443", "10.1.2.3", True),
        ("10.1.2.3:80", "10.1.2.3", False),
        ("2.3", "10.1.2.3", False),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::1", "2001:db8::1", True),
        ("[2001:db8::1]", "2001:db8::1", True),
        ("[2001:db8::1]:443", "2001:db8::1", True),
        ("2001:db8::2", "2001:db8::1", False),
        ("", "localhost", True),
        ("", "127.0.0.1", True),
        ("", "::1", True),
        ("", "api.test", False),
    ],
)
def test_no_proxy(rule: str, host: str, *, direct: bool) -> None:
    proxies = Proxies.from_env({"HTTPS_PROXY": "http://p:1", "NO_PROXY": rule})
    assert (proxies.choose(Origin("https", host, 443)) is None) is direct


class Tunnel:
    """A proxy's script: what it says to CONNECT, and then it is the origin itself."""

    def __init__(self, says: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.says = says
        self.asked: list[bytes] = []

    async def script(self, wire: Wire) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = await wire.receive()
            if not part:
                return
            head += part
        self.asked.append(head)
        for i in range(len(self.says)):
            await wire.send(self.says[i : i + 1])
        if self.says.startswith(b"HTTP/1.1 200 C"):
            while await wire.request():
                await wire.send(OK)
        else:
            wire.sock.close()


def test_through_a_tunnel(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        tunnel = Tunnel()
        server = rig.serve(tunnel.script)
        env = {"HTTP_PROXY": f"http://me:pw@127.0.0.1:{server.port}"}
        client = rig.client(proxies=Proxies.from_env(env))
        for turn in range(2):
            kept = await rig.ask(client, PLAIN)  # the name is the proxy's to resolve
            assert kept.body == b"hello"
            assert (kept.marks.tcp_ns is not None) is (turn == 0)
            assert kept.marks.dns_ns is None
        (asked,) = tunnel.asked
        assert asked.startswith(b"CONNECT api.test:80 HTTP/1.1\r\n")
        assert b"proxy-authorization: Basic " + base64.b64encode(b"me:pw") in asked
        assert all(b"proxy-authorization" not in request for request in server.requests)

    play(scene)


def test_tls_inside_the_tunnel(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        inside = rig.serve(always_ok, cert=rig.cert, host="localhost")

        async def script(wire: Wire) -> None:
            await wire.receive()
            await wire.send(b"HTTP/1.1 200 Fine\r\n\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", inside.port)
            back = asyncio.ensure_future(pump_back(reader, wire))
            try:
                while data := await wire.receive():
                    writer.write(data)
            finally:
                back.cancel()
                writer.close()

        outside = rig.serve(script)
        proxy = Proxy("127.0.0.1", outside.port)
        client = rig.secure_client(proxies=Proxies(None, proxy))
        origin = Origin("https", "api.test", inside.port)
        assert (await rig.fails(client, origin)).label == "tls"  # the origin's name is checked

        server = rig.serve(always_ok, cert=rig.authority.issue_cert("api.test"), host="api.test")
        inside = server
        kept = await rig.ask(client, server.origin)
        assert kept.body == b"hello"
        assert kept.marks.tls_ns is not None

    play(scene)


async def pump_back(reader: asyncio.StreamReader, wire: Wire) -> None:
    while data := await reader.read(65536):
        await wire.send(data)


async def always_ok(wire: Wire) -> None:
    while await wire.request():
        await wire.send(OK)


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        (b"HTTP/1.1 407 Auth\r\ncontent-length: 0\r\n\r\n", "answered 407"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\nno", "answered 403"),
        (b"HTTP/1.1 200 OK\r\n", "answered 200"),
        (b"SSH-2.0\r\n\r\n", "no HTTP answer"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP answer"),
        (b"", "no HTTP answer"),
        (b"HTTP/1.1 502 No\r\nx: " + b"y" * 20_000, "answered 502"),
    ],
)
def test_a_proxy_that_refuses(play: Play, says: bytes, sentence: str) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(Tunnel(says).script)
        client = rig.client(proxies=Proxies(None, Proxy("127.0.0.1", server.port, "Basic c2Vj")))
        error = await rig.fails(client, SECURE)
        assert type(error) is ConnectionFailed
        assert sentence in error.message
        assert "api.test" in error.message
        assert "c2Vj" not in error.message + error.hint

    play(scene)


def test_a_proxy_that_is_not_there(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client = rig.client(proxies=Proxies(None, Proxy("127.0.0.1", 1)))
        error = await rig.fails(client, SECURE)
        assert error.message == "The proxy 127.0.0.1:1 refused the connection."

    play(scene)


def test_a_proxy_that_hangs(play: Play) -> None:
    async def silent(wire: Wire) -> None:
        await asyncio.Event().wait()

    async def scene(rig: Rig) -> None:
        server = rig.serve(silent)
        client = rig.client(proxies=Proxies(None, Proxy("127.0.0.1", server.port)))
        call = asyncio.ensure_future(rig.fails(client, SECURE, Deadlines(connect_s=10)))
        await rig.until(lambda: bool(server.wires))
        rig.hurry(client)
        error = await call
        assert isinstance(error, DeadlineMissed)
        assert error.phase == "connect"
        assert server.wires[0].ended()

    play(scene)


def test_a_network_may_be_named_by_any_of_its_addresses_and_nothing_is_no_rule() -> None:
    env = {"ALL_PROXY": "http://p:9", "NO_PROXY": "10.0.0.1/8,, Other.test "}
    proxies = Proxies.from_env(env)
    assert proxies.bypass == ("10.0.0.1/8", "other.test")
    assert proxies.choose(Origin("http", "10.9.9.9", 80)) is None
    assert proxies.choose(Origin("http", "11.9.9.9", 80)) == Proxy("p", 9)
    assert proxies.choose(Origin("http", "x.other.test", 80)) is None
    assert proxies.choose(PLAIN) == Proxy("p", 9)


def test_a_name_without_a_password_is_a_credential_too() -> None:
    proxies = Proxies.from_env({"ALL_PROXY": "http://me@p:9"})
    found = proxies.choose(PLAIN)
    assert found is not None
    assert found.authorization == "Basic " + base64.b64encode(b"me:").decode()
