"""A link on a bare socket, with a poller that the test plays: queues, pauses, ends and losses."""

from __future__ import annotations

import select
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.wire.link.kernel import KernelLink
from lightgate.wire.link.link import HIGH_WATER, LOW_WATER, SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IN, OUT = select.EPOLLIN, select.EPOLLOUT
NOW = 10**30  # an anchor that has just been checked, whatever the clock says


class Still:
    """A poller without an epoll: the test says what is ready."""

    since_ns = awake_ns = 0

    def __init__(self) -> None:
        self.events = 0
        self.ready: Callable[[int], None] | None = None
        self.log: list[str] = []

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        assert fd >= 0
        self.events, self.ready = events, callback

    def forget(self, fd: int) -> None:
        assert fd >= 0
        self.events, self.ready = 0, None

    def busy_ns(self) -> int:
        return 0

    def fire(self, events: int) -> None:
        if self.ready is not None:
            self.ready(events)


class Anchor:
    checked_ns = NOW
    offset_ns = 0


class Owner:
    def __init__(self) -> None:
        self.log: list[Any] = []

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        assert since <= stamp
        self.log.append(data)

    def on_eof(self) -> None:
        self.log.append("eof")

    def on_lost(self, error: Exception | None) -> None:
        self.log.append(type(error).__name__)

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")


class Scene:
    def __init__(self) -> None:
        here, self.other = socket.socketpair()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        self.poller = Still()
        poller: Any = self.poller
        anchor: Any = Anchor()
        self.link = KernelLink(here, anchor, poller, memoryview(bytearray(65536)))
        self.owner = Owner()

    def take(self) -> int:
        """Read all that the kernel has; how many bytes."""
        self.other.setblocking(False)
        total = 0
        try:
            while data := self.other.recv(1 << 20):
                total += len(data)
        except BlockingIOError:
            pass
        return total

    def drain(self) -> int:
        total = self.take()
        while self.poller.events & OUT:
            self.poller.fire(OUT)
            total += self.take()
        return total


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.link.abort()
    made.other.close()


def test_bytes_are_read_until_the_end(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    assert scene.poller.events == IN
    scene.other.send(b"hello")
    scene.poller.fire(IN)
    scene.poller.fire(IN)  # nothing there: it goes on waiting
    scene.other.shutdown(socket.SHUT_WR)
    scene.poller.fire(IN | select.EPOLLRDHUP)
    assert scene.owner.log == [b"hello", "eof"]
    assert scene.poller.events == 0
    assert scene.link.is_open


def test_a_pause_of_reading(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    scene.link.pause_reading()
    assert scene.poller.events == 0
    scene.other.send(b"later")
    scene.link.resume_reading()
    assert scene.poller.events == IN
    scene.poller.fire(IN)
    assert scene.owner.log == [b"later"]


def test_what_the_kernel_does_not_take_is_queued_in_order(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    scene.link.write(b"")
    assert (scene.link.unsent, scene.poller.events) == (0, IN)
    scene.link.write(b"a" * 100_000)
    left = scene.link.unsent
    assert 0 < left < 100_000
    assert scene.poller.events == IN | OUT
    assert scene.owner.log == (["pause"] if left > HIGH_WATER else [])
    scene.link.write(b"b" * HIGH_WATER)
    assert scene.link.unsent == left + HIGH_WATER
    assert scene.owner.log == ["pause"]
    scene.link.write(b"c")
    assert scene.owner.log == ["pause"]  # once
    taken = scene.take()
    while scene.link.unsent > LOW_WATER:
        assert scene.owner.log == ["pause"]
        scene.poller.fire(OUT)
        taken += scene.take()
    assert scene.owner.log == ["pause", "resume"]
    assert taken + scene.drain() == 100_000 + HIGH_WATER + 1
    assert (scene.link.unsent, scene.poller.events) == (0, IN)
    assert scene.owner.log == ["pause", "resume"]


@pytest.mark.parametrize(("left", "log"), [(0, ["resume"]), (1, [])])
def test_writing_goes_on_where_little_is_queued(scene: Scene, left: int, log: list[str]) -> None:
    """The kernel takes all but the low water mark here, or all but a byte more."""
    scene.link.attach(scene.owner)
    link: Any = scene.link
    link._sock.close()
    link._sock = SimpleNamespace(send=lambda data: 1000, close=lambda: None, fileno=lambda: -1)
    link._queue.append(memoryview(bytes(LOW_WATER + 1000 + left)))
    link._queued, link._writing_paused = LOW_WATER + 1000 + left, True
    link._writable()
    assert (link.unsent, scene.owner.log) == (LOW_WATER + left, log)


def test_a_close_sends_what_is_queued_first(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    scene.link.write(b"a" * 200_000)
    scene.link.close()
    assert not scene.link.is_open
    assert scene.poller.events == OUT
    scene.link.write(b"never")
    assert scene.drain() == 200_000
    assert scene.other.recv(1) == b""
    assert scene.link.unsent == 0
    assert scene.owner.log in ([], ["pause"])


def test_our_half_ends_after_what_is_queued(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    scene.link.write(b"a" * 200_000)
    assert scene.link.end_writing()
    assert not scene.link.end_writing()
    assert not scene.link.is_open
    assert scene.drain() == 200_000
    assert scene.other.recv(1) == b""
    scene.other.send(b"still heard")
    scene.poller.fire(IN)
    assert scene.owner.log[-1] == b"still heard"


def test_our_half_ends_at_once_where_nothing_is_queued(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    assert scene.link.end_writing()
    assert scene.other.recv(1) == b""


def test_a_broken_connection_is_lost_once(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    scene.link.write(b"a" * 200_000)
    scene.other.close()
    scene.poller.fire(OUT)
    assert scene.owner.log[-1] in {"BrokenPipeError", "ConnectionResetError"}
    assert (scene.link.is_open, scene.link.unsent, scene.poller.ready) == (False, 0, None)
    lost = list(scene.owner.log)
    scene.link.write(b"x")
    scene.link.abort()
    assert scene.owner.log == lost
    assert scene.link.info("peername") is None


def test_a_write_to_a_broken_connection_is_a_loss(scene: Scene) -> None:
    scene.link.attach(scene.owner)
    scene.other.close()
    scene.link.write(b"x")
    assert scene.owner.log == ["BrokenPipeError"]
    assert scene.link.end_writing() is False


def test_facts_of_a_link(scene: Scene) -> None:
    found = scene.link.info("socket")
    assert isinstance(found, socket.socket)
    assert scene.link.info("peername") == ""  # a pair of sockets has no names
    assert scene.link.info("ssl_object") is None
    with socket.socket() as loose:  # which has no other side
        scene.link._sock = loose
        assert scene.link.info("peername") is None
        scene.link._sock = found
    scene.link.abort()
    assert scene.link.info("peername") is None
    assert found.fileno() == -1


class Hungry:
    """A socket whose other side takes bytes as fast as they are written."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def fileno(self) -> int:
        return 3

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_: int) -> None:
        """Take every option."""

    def send(self, data: bytes | memoryview) -> int:
        self.taken.append(bytes(data))
        return len(data)


def test_a_large_body_is_sent_in_slices_however_fast_it_is_taken() -> None:
    hungry: Any = Hungry()
    poller, anchor = Still(), Anchor()
    link = KernelLink(hungry, anchor, poller, memoryview(bytearray(64)))  # type: ignore[arg-type]
    link.attach(Owner())
    large = bytes(range(256)) * (SLICE // 256 * 2) + b"end"
    link.write(large)
    assert [len(piece) for piece in hungry.taken] == [SLICE]
    assert poller.events == IN | OUT
    for piece in (b"1", b"2"):
        link.write(piece)
    poller.fire(OUT)
    assert [len(piece) for piece in hungry.taken[1:]] == [SLICE]
    assert link.unsent == len(b"end12")
    poller.fire(OUT)
    assert b"".join(hungry.taken) == large + b"12"
    assert (link.unsent, poller.events) == (0, IN)


def test_a_slice_is_shared_by_all_that_is_queued() -> None:
    hungry: Any = Hungry()
    poller, anchor = Still(), Anchor()
    link = KernelLink(hungry, anchor, poller, memoryview(bytearray(64)))  # type: ignore[arg-type]
    link.attach(Owner())
    link.write(bytes(SLICE + 10))
    link.write(bytes(SLICE))
    poller.fire(OUT)
    assert [len(piece) for piece in hungry.taken[1:]] == [10, SLICE - 10]
    poller.fire(OUT)
    assert [len(piece) for piece in hungry.taken[3:]] == [10]
