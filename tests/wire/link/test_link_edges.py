"""Links and alarms at their edges, with transports and sockets that only pretend."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lightgate.wire.link import link as link_module
from lightgate.wire.link import listen as listen_module
from lightgate.wire.link import stamps as stamps_module
from lightgate.wire.link import timers as timers_module
from lightgate.wire.link.kernel import KernelLink, Poller
from lightgate.wire.link.link import READ_SIZE, SLICE, ReadLink
from lightgate.wire.link.listen import open_sockets
from lightgate.wire.link.stamper import _EarlyReads
from lightgate.wire.link.stamps import Anchor, BusyTime
from lightgate.wire.link.timers import KernelAlarm


class Transport:
    """A transport that keeps what it is given."""

    def __init__(self, queued: int = 0) -> None:
        self.queued = queued
        self.given: list[bytes] = []

    def get_write_buffer_size(self) -> int:
        return self.queued

    def write(self, data: bytes | memoryview) -> None:
        self.given.append(bytes(data))


class Socket:
    """A socket that takes so many bytes, or raises."""

    def __init__(self, takes: int | OSError) -> None:
        self._takes = takes
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> int:
        if isinstance(self._takes, OSError):
            raise self._takes
        self.sent.append(data[: self._takes])
        return min(self._takes, len(data))


def link(transport: Transport | None, sock: Socket | None = None, *, opened: bool = True) -> Any:
    made = ReadLink()
    made._transport, made._plain = cast("Any", transport), cast("Any", sock)
    made.is_open = opened
    return made


def test_a_link_that_has_no_transport_yet_holds_nothing_and_writes_nothing() -> None:
    bare = link(None)
    bare.write(b"abc")
    assert (bare.unsent, len(bare._held)) == (0, 0)


@pytest.mark.parametrize(
    ("takes", "given"),
    [
        (3, []),
        (1, [b"bc"]),
        (0, [b"abc"]),
        (BlockingIOError(), [b"abc"]),
        (InterruptedError(), [b"abc"]),
        (OSError(errno.EPIPE, "gone"), [b"abc"]),  # the transport meets it again, and tells
    ],
    ids=["all", "a part", "nothing", "full", "interrupted", "broken"],
)
def test_what_the_socket_does_not_take_goes_to_the_transport(
    takes: int | OSError, given: list[bytes]
) -> None:
    transport = Transport()
    link(transport, Socket(takes)).write(b"abc")
    assert transport.given == given


def test_bytes_go_behind_those_that_the_transport_still_holds() -> None:
    transport, sock = Transport(queued=5), Socket(3)
    made = link(transport, sock)
    made.write(b"abc")
    assert (transport.given, sock.sent, made.unsent) == ([b"abc"], [], 5)


def test_without_a_socket_of_its_own_a_link_writes_to_the_transport() -> None:
    transport = Transport()
    link(transport).write(b"abc")
    assert transport.given == [b"abc"]


@pytest.mark.parametrize(("opened", "data"), [(False, b"abc"), (True, b"")])
def test_a_closed_link_and_an_empty_write_send_nothing(opened: bool, data: bytes) -> None:
    transport, sock = Transport(), Socket(3)
    link(transport, sock, opened=opened).write(data)
    assert (transport.given, sock.sent) == ([], [])


def test_a_body_of_one_slice_is_written_at_once() -> None:
    transport, sock = Transport(), Socket(SLICE)
    link(transport, sock).write(b"x" * SLICE)
    assert (transport.given, [len(one) for one in sock.sent]) == ([], [SLICE])


def test_a_read_before_the_owner_comes_is_kept_and_no_more_are_asked_for() -> None:
    said: list[str] = []
    near = SimpleNamespace(
        pause_reading=lambda: said.append("pause"), abort=lambda: said.append("abort")
    )
    early = _EarlyReads(cast("Any", near))
    early.on_read(b"a", 3, 2)
    early.on_lost(None)
    assert (early.reads, said) == ([(b"a", 3, 2)], ["pause"])
    early.on_eof()
    assert said == ["pause", "abort"]


async def test_a_socket_that_cannot_be_bound_closes_those_that_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []

    def bound(sock: socket.socket, where: tuple[Any, ...], *, reuse_port: bool) -> socket.socket:
        del reuse_port
        if made:
            sock.close()
            raise OSError(errno.EADDRINUSE, "taken")
        sock.bind(where)
        made.append(sock)
        return sock

    monkeypatch.setattr(listen_module, "_bound", bound)
    loop = SimpleNamespace(getaddrinfo=two_addresses)
    monkeypatch.setattr(listen_module, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    with pytest.raises(OSError, match="taken"):
        await open_sockets("here", 0, reuse_port=False)
    assert [sock.fileno() for sock in made] == [-1]


async def two_addresses(host: str, port: int, **_: Any) -> list[Any]:
    assert host == "here"
    one = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
    return [one, (*one[:4], ("127.0.0.2", port))]


async def test_a_kernel_without_a_timer_left_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(timerfd_create=lambda _clock, _flags: -1, timerfd_settime=None)
    made = SimpleNamespace(CDLL=lambda _name, use_errno: kernel, get_errno=lambda: errno.EMFILE)
    monkeypatch.setattr(timers_module, "ctypes", made)
    with pytest.raises(OSError, match="timerfd_create failed"):
        KernelAlarm(lambda: None)


async def test_the_rest_of_a_large_read_is_handed_on_once_however_often_it_is_wished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon: list[Any] = []
    made = link(Transport())
    made._unread = (b"ab", 0, 3, 2)
    loop = SimpleNamespace(call_soon=soon.append)
    monkeypatch.setattr(link_module, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    made.resume_reading()
    made.resume_reading()
    assert len(soon) == 1


def test_where_no_system_counts_the_queue_a_thread_was_busy_while_it_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamps_module, "SCHEDSTAT", "/nowhere/schedstat")
    monkeypatch.setattr(stamps_module, "time", SimpleNamespace(thread_time_ns=lambda: 7))
    busy = BusyTime()
    assert (busy.fd, busy.total_ns()) == (-1, 7)
    busy.close()


async def test_an_alarm_that_is_closed_twice_gives_its_descriptor_back_once() -> None:
    alarm = KernelAlarm(lambda: None)
    assert alarm._fd >= 0
    alarm.close()
    assert alarm._fd == -1
    alarm.close()


async def test_a_kernel_link_notes_how_busy_its_thread_was_when_all_was_sent() -> None:
    near, far = socket.socketpair()
    poller, anchor = Poller(), Anchor(keep_enabled=True)
    made = KernelLink(near, anchor, poller, memoryview(bytearray(READ_SIZE)))
    assert made._asked_ns == 0
    made.write(b"abc")
    assert made._asked_ns > 0
    assert far.recv(9) == b"abc"
    made.abort()
    far.close()
    anchor.close()
    poller.close()
