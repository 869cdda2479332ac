"""Sockets that listen: their addresses, what is shared, and accepting that fails."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from lightgate.errors import ConfigError
from lightgate.wire.link.kernel import KernelLink
from lightgate.wire.link.listen import KernelListener, listen_at, open_sockets, peer_name
from lightgate.wire.link.stamper import Stamper, best_source


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"), (("::1", 8080, 0, 0), "[::1]:8080"),
        (("a", 1), "a:1"), ((), ""), (("a",), ""), ("/run/socket", ""), (None, ""), (b"\0x", ""),
    ],
)  # fmt: skip
def test_the_name_of_a_peer(address: object, name: str) -> None:
    assert peer_name(address) == name


async def test_sockets_that_share_a_port_all_listen_there() -> None:
    (bound,) = await open_sockets("127.0.0.1", 0, reuse_port=True)
    shared = listen_at(bound)
    with bound, shared:
        assert shared.getsockname() == bound.getsockname()
        assert shared.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert not shared.getblocking()
        with socket.create_connection(bound.getsockname(), timeout=20):
            pass


@pytest.mark.parametrize("reuse_port", [False, True])
async def test_the_options_of_a_socket_that_listens(reuse_port: bool) -> None:
    """A port whose last connections still wait for their end can be opened again at once."""
    for host in ("127.0.0.1", "::1"):
        (bound,) = await open_sockets(host, 0, reuse_port=reuse_port)
        with bound:
            assert not bound.getblocking()
            assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == reuse_port
            if bound.family == socket.AF_INET6:
                assert bound.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1


async def test_a_port_that_is_taken_is_said_and_nothing_stays_open() -> None:
    (taken,) = await open_sockets("127.0.0.1", 0, reuse_port=False)
    with taken:
        taken.listen()
        with pytest.raises(OSError, match="in use") as caught:
            await open_sockets("127.0.0.1", taken.getsockname()[1], reuse_port=False)
        assert caught.value.errno == errno.EADDRINUSE


async def test_an_address_that_this_machine_does_not_have_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    foreign, own = (*stream, ("192.0.2.1", 0)), (*stream, ("127.0.0.1", 0))

    def names(*found: Any) -> None:
        async def known(*_: object, **__: object) -> list[Any]:
            return list(found)

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", known)

    names(foreign, own, own)
    (only,) = await open_sockets("x", 0, reuse_port=False)
    with only:
        assert only.getsockname()[0] == "127.0.0.1"
    names(foreign)
    with pytest.raises(OSError, match="assign") as caught:
        await open_sockets("x", 0, reuse_port=False)
    assert caught.value.errno == errno.EADDRNOTAVAIL


class Door:
    """A listening socket whose accepts are played."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.number = 77
        self.closed = 0

    def setsockopt(self, *_: object) -> None: ...

    def listen(self, _: int) -> None: ...

    def fileno(self) -> int:
        return self.number

    def accept(self) -> tuple[Any, Any]:
        found = self.results.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found, ("192.0.2.7", 5)

    def close(self) -> None:
        self.closed += 1


class Loop:
    """The loop's readers and timers."""

    def __init__(self) -> None:
        self.readers: dict[int, Any] = {}
        self.timers: list[tuple[float, Any]] = []
        self.cancelled = 0

    def add_reader(self, number: int, call: Any) -> None:
        self.readers[number] = call

    def remove_reader(self, number: int) -> None:
        del self.readers[number]

    def call_later(self, seconds: float, call: Any) -> Any:
        self.timers.append((seconds, call))
        return self

    def cancel(self) -> None:
        self.cancelled += 1


class Caller:
    """An accepted socket, which may be reset already."""

    def __init__(self, *, reset: bool = False) -> None:
        self.reset = reset

    def setsockopt(self, *_: object) -> None:
        if self.reset:
            raise OSError(errno.EINVAL, "reset")


def listener(monkeypatch: pytest.MonkeyPatch, door: Door) -> tuple[Any, Loop, list[Any]]:
    loop = Loop()
    greeted: list[Any] = []
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    stamper: Any = type("Stamps", (), {"accepted": staticmethod(lambda sock: ("link", sock))})
    sock: Any = door

    def greet(link: Any, peer: str, accepted_ns: int) -> None:
        greeted.append((link[1], peer, accepted_ns > 0))

    return KernelListener(sock, stamper, greet), loop, greeted


def test_all_that_wait_are_accepted_also_behind_one_that_hung_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = Caller(), Caller(reset=True)
    door = Door(one, ConnectionAbortedError(), other, BlockingIOError())
    _, loop, greeted = listener(monkeypatch, door)
    loop.readers[77]()
    assert greeted == [(one, "192.0.2.7:5", True), (other, "192.0.2.7:5", True)]
    assert door.results == []
    assert loop.timers == []


def test_without_a_descriptor_accepting_rests_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(OSError(errno.EMFILE, "too many"), Caller(), InterruptedError())
    made, loop, greeted = listener(monkeypatch, door)
    loop.readers[77]()
    assert (greeted, loop.readers, [seconds for seconds, _ in loop.timers]) == ([], {}, [0.5])
    loop.timers[0][1]()
    loop.readers[77]()
    assert len(greeted) == 1
    made.close()
    assert (loop.cancelled, loop.readers, door.closed) == (0, {}, 1)


def test_a_listener_that_is_closed_while_it_rests_does_not_wake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, loop, _ = listener(monkeypatch, Door(OSError(errno.EMFILE, "too many")))
    loop.readers[77]()
    loop.readers[77] = None
    made.close()
    assert loop.cancelled == 1


def test_a_door_that_its_greeting_closes_accepts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(Caller(), Caller())
    made, loop, greeted = listener(monkeypatch, door)
    accept = loop.readers[77]
    door.number = -1
    accept()
    assert (len(greeted), len(door.results)) == (1, 1)
    made.close()
    assert door.closed == 0  # it was closed already


def test_the_best_stamps_are_those_that_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightgate.wire.link import stamper as module

    monkeypatch.setattr(module, "kernel_stamps_available", lambda: True)
    assert best_source() == "kernel"
    monkeypatch.setattr(module, "kernel_stamps_available", lambda: False)
    assert best_source() == "read"
    with pytest.raises(ConfigError, match="does not stamp received data") as caught:
        Stamper("kernel")
    assert "--stamps read" in caught.value.hint
    read = Stamper("read", watch_lag=False)
    assert read.steps == 0
    with socket.socket() as sock, pytest.raises(ConfigError, match="Only a kernel stamper"):
        read.accepted(sock)
    read.close()


@pytest.mark.parametrize("source", ["kernel", "read"])
async def test_a_link_stamps_as_its_stamper_says(source: Any) -> None:
    if source == "kernel" and best_source() != "kernel":
        pytest.skip("This kernel does not stamp received data.")
    stamper = Stamper(source)
    here, there = socket.socketpair()
    here.setblocking(False)
    with there:
        link = await stamper.link(here)
        assert isinstance(link, KernelLink) == (source == "kernel")
        assert (stamper.anchor is not None) == (source == "kernel")
        link.abort()
    stamper.close()
