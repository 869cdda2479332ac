"""Both kinds of links on loopback: stamps, backpressure, and endings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import pytest
import uvloop

from lightgate.clock.source import ManualClock
from lightgate.wire.link.kernel import KernelLink, Poller
from lightgate.wire.link.link import HIGH_WATER, READ_SIZE, SLICE, ReadLink
from lightgate.wire.link.stamps import (
    JITTER_NS,
    SO_TIMESTAMPNS,
    WAKE_NS,
    Anchor,
    LoopLag,
    kernel_stamps_available,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lightgate.wire.link.link import Link

    Scene = Callable[["Rig"], Awaitable[None]]

SLACK_NS = 1_000_000
STAMPING = pytest.mark.skipif(not kernel_stamps_available(), reason="this kernel does not stamp")


class Recorder:
    """A peer that keeps everything that a link says."""

    def __init__(self) -> None:
        self.reads: list[tuple[bytes, int, int]] = []
        self.said: list[str] = []

    @property
    def data(self) -> bytes:
        return b"".join(read[0] for read in self.reads)

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        self.reads.append((data, stamp, since))

    def on_eof(self) -> None:
        self.said.append("eof")

    def on_lost(self, error: Exception | None) -> None:
        self.said.append("lost")

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")


class Rig:
    """One link, its peer, and the plain socket at the other end."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.peer = Recorder()
        self.anchor = Anchor(keep_enabled=kind == "kernel")
        self.lag = LoopLag()
        self.poller = Poller() if kind == "kernel" else None
        self.link: Link
        self.far: socket.socket

    async def __aenter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            self.far, _ = server.accept()
        self.far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.poller is not None:
            self.link = KernelLink(near, self.anchor, self.poller, memoryview(bytearray(READ_SIZE)))
        else:
            near.setblocking(False)
            _, self.link = await asyncio.get_running_loop().create_connection(
                lambda: ReadLink(self.lag, near if self.kind == "read" else None), sock=near
            )
        self.link.attach(self.peer)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.link.abort()
        self.far.close()
        self.anchor.close()
        self.lag.close()
        if self.poller is not None:
            self.poller.close()
        await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Give the loop turns until something has happened."""
        while not condition():
            await asyncio.sleep(0)


def play(kind: str, new_loop: Callable[[], asyncio.AbstractEventLoop], scene: Scene) -> None:
    async def checked() -> None:
        async with asyncio.timeout(20), Rig(kind) as rig:
            await scene(rig)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(checked())


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    return factory


@pytest.fixture(params=["read", "read without its socket", pytest.param("kernel", marks=STAMPING)])
def on(
    request: pytest.FixtureRequest, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> Callable[[Scene], None]:
    """Plays a scene on a link of each kind, on a loop of each kind."""
    return lambda scene: play(request.param, new_loop, scene)


def test_stamps_are_ordered(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        for turn in range(1, 20):
            rig.far.sendall(b"x" * turn)
            total = turn * (turn + 1) // 2
            await rig.until(lambda: len(rig.peer.data) == total)  # noqa: B023 - awaited in the turn
        stamps = [stamp for _, stamp, _ in rig.peer.reads]
        assert stamps == sorted(stamps)
        assert all(since <= stamp for _, stamp, since in rig.peer.reads)

    on(scene)


def test_a_slow_reader_pauses_and_resumes_the_writer(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        sent = 0
        while "pause" not in rig.peer.said:
            rig.link.write(b"x" * 50_000)
            sent += 50_000
            await asyncio.sleep(0)
        assert rig.link.unsent > HIGH_WATER
        rig.far.setblocking(False)
        received = 0

        def read_on() -> bool:
            nonlocal received
            with contextlib.suppress(BlockingIOError):
                received += len(rig.far.recv(1 << 20))
            return received == sent

        await rig.until(read_on)
        assert rig.peer.said == ["pause", "resume"]
        assert rig.link.unsent == 0

    on(scene)


def test_a_large_body_goes_in_slices_and_what_follows_it_comes_after(
    on: Callable[[Scene], None],
) -> None:
    async def scene(rig: Rig) -> None:
        large = os.urandom(3 * SLICE + 5)
        rig.link.write(large)
        rig.link.write(b"and more")
        assert rig.peer.said == ["pause"]
        assert rig.link.unsent >= 2 * SLICE  # the first turn takes a slice at most
        rig.far.setblocking(False)
        received = bytearray()

        def read_on() -> bool:
            with contextlib.suppress(BlockingIOError):
                received.extend(rig.far.recv(1 << 20))
            return len(received) == len(large) + 8

        await rig.until(read_on)
        assert received == large + b"and more"
        await rig.until(lambda: "resume" in rig.peer.said)
        assert rig.peer.said == ["pause", "resume"]
        assert rig.link.unsent == 0

    on(scene)


def test_reading_can_pause(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        rig.link.pause_reading()
        rig.far.sendall(b"later")
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert rig.peer.reads == []
        rig.link.resume_reading()
        await rig.until(lambda: rig.peer.data == b"later")

    on(scene)


def test_abort_closes_in_the_same_turn(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        rig.far.sendall(b"unread or not")
        rig.link.abort()
        rig.far.settimeout(5)  # a blocking read: the loop gets no further turn
        try:
            ending = rig.far.recv(100)
        except ConnectionResetError:
            ending = b""
        assert ending == b""
        assert not rig.link.is_open
        rig.link.write(b"nothing")
        rig.link.abort()
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.peer.said == []

    on(scene)


def test_close_sends_what_is_queued_and_says_nothing_more(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        total = 5_000_000
        rig.link.write(b"x" * total)
        said = list(rig.peer.said)
        rig.link.close()
        rig.link.write(b"too late")
        rig.far.setblocking(False)
        received = bytearray()
        ended = False

        def read_on() -> bool:
            nonlocal ended
            try:
                data = rig.far.recv(1 << 20)
            except BlockingIOError:
                return False
            received.extend(data)
            ended = data == b""
            return ended

        await rig.until(read_on)
        assert len(received) == total
        assert rig.peer.said == said
        assert rig.peer.reads == []

    on(scene)


def test_abort_after_close_gives_up_what_is_queued(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        rig.link.write(b"x" * 20_000_000)
        rig.link.close()
        assert rig.link.unsent > 0
        rig.link.abort()
        rig.far.settimeout(5)
        received = 0
        try:
            while data := rig.far.recv(1 << 20):
                received += len(data)
        except ConnectionResetError:
            pass
        assert received < 20_000_000

    on(scene)


def test_our_half_can_end_alone(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        link = rig.link
        assert isinstance(link, ReadLink | KernelLink)
        link.write(b"x" * 3_000_000)
        assert link.end_writing()
        assert not link.end_writing()
        link.write(b"too late")
        rig.far.setblocking(False)
        received = 0

        def read_on() -> bool:
            nonlocal received
            try:
                data = rig.far.recv(1 << 20)
            except BlockingIOError:
                return False
            received += len(data)
            return data == b""

        await rig.until(read_on)
        assert received == 3_000_000
        rig.far.sendall(b"still heard")
        await rig.until(lambda: rig.peer.data == b"still heard")
        rig.far.close()
        await rig.until(lambda: "eof" in rig.peer.said)

    on(scene)


def test_a_reset_is_reported_once(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        rig.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rig.far.close()
        await rig.until(lambda: "lost" in rig.peer.said)
        rig.link.write(b"x")
        rig.link.close()
        rig.link.abort()
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.peer.said == ["lost"]
        assert not rig.link.is_open

    on(scene)


def test_the_end_of_the_stream_leaves_the_link_writable(on: Callable[[Scene], None]) -> None:
    async def scene(rig: Rig) -> None:
        rig.far.sendall(b"last words")
        rig.far.shutdown(socket.SHUT_WR)
        await rig.until(lambda: "eof" in rig.peer.said)
        assert rig.peer.data == b"last words"
        rig.link.write(b"answer")
        rig.link.close()
        rig.far.setblocking(False)
        received = bytearray()

        def read_on() -> bool:
            try:
                data = rig.far.recv(100)
            except BlockingIOError:
                return False
            received.extend(data)
            return data == b""

        await rig.until(read_on)
        assert received == b"answer"
        assert rig.peer.said == ["eof"]

    on(scene)


@pytest.fixture(scope="module")
def stamping() -> Iterator[None]:
    """The kernel stamps: it begins some time after the first socket has asked for it."""
    anchor = Anchor(keep_enabled=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    near.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    stamps: list[Any] = []
    while not stamps:
        far.sendall(b"x")
        _, stamps, _, _ = near.recvmsg(1, 64)
    yield
    near.close()
    far.close()
    anchor.close()


def busy(nanoseconds: int) -> None:
    """Keep the loop from turning, as a long callback would."""
    end = time.monotonic_ns() + nanoseconds
    while time.monotonic_ns() < end:
        pass


@STAMPING
@pytest.mark.usefixtures("stamping")
def test_a_busy_loop_does_not_move_a_kernel_stamp(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene(rig: Rig) -> None:
        for turn in range(1, 4):
            before = time.monotonic_ns()
            rig.far.sendall(b"x")
            after = time.monotonic_ns()
            busy(30_000_000)
            freed = time.monotonic_ns()
            await rig.until(lambda: len(rig.peer.reads) == turn)  # noqa: B023 - awaited in the turn
            _, stamp, since = rig.peer.reads[-1]
            assert before - SLACK_NS <= stamp <= after + SLACK_NS < freed
            assert since <= stamp

    play("kernel", new_loop, scene)


def test_the_bound_of_a_late_read_stamp_covers_the_truth(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene(rig: Rig) -> None:
        rig.far.sendall(b"x")
        await rig.until(lambda: len(rig.peer.reads) == 1)
        for turn in range(2, 5):
            rig.far.sendall(b"x")
            after, worked = time.monotonic_ns(), time.thread_time_ns()
            busy(30_000_000)
            # A hypervisor that takes the core away is not seen by the bound, as its module says.
            unseen = time.monotonic_ns() - after - (time.thread_time_ns() - worked)
            await rig.until(lambda: len(rig.peer.reads) == turn)  # noqa: B023 - awaited in the turn
            _, stamp, since = rig.peer.reads[-1]
            assert since <= after + SLACK_NS + unseen
            assert stamp >= after + 29_000_000

    play("read", new_loop, scene)


@STAMPING
@pytest.mark.usefixtures("stamping")
def test_bytes_left_behind_by_a_full_read_keep_their_bound(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene(rig: Rig) -> None:
        before = time.monotonic_ns()
        rig.far.sendall(b"x" * (READ_SIZE + 10))
        busy(5_000_000)
        await rig.until(lambda: len(rig.peer.data) == READ_SIZE + 10)
        assert len(rig.peer.reads) == 2
        assert all(since <= before + SLACK_NS for _, _, since in rig.peer.reads)

    play("kernel", new_loop, scene)


@STAMPING
@pytest.mark.usefixtures("stamping")
def test_the_bounds_of_several_segments_in_one_read_cover_the_first(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene(rig: Rig) -> None:
        rig.far.sendall(b"x")
        await rig.until(lambda: len(rig.peer.data) == 1)
        rig.far.sendall(b"y")
        first, worked = time.monotonic_ns(), time.thread_time_ns()
        busy(20_000_000)
        unseen = time.monotonic_ns() - first - (time.thread_time_ns() - worked)
        rig.far.sendall(b"z")
        await rig.until(lambda: len(rig.peer.data) == 3)
        ((_, stamp, since),) = rig.peer.reads[1:]
        assert stamp >= first + 20_000_000 - SLACK_NS  # the kernel has the last one's alone
        assert since <= first + SLACK_NS + unseen

    play("kernel", new_loop, scene)


def test_what_woke_a_sleeping_loop_came_no_earlier_than_it_was_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, worked, queued = [0], [0], [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(time, "thread_time_ns", lambda: worked[0])
    monkeypatch.setattr(os, "pread", lambda *_: b"7 %d 9" % queued[0])
    poller = Poller()
    now[0], worked[0], queued[0] = 50_000_000, 1_000_000, 2_000_000  # asleep for 47 of 50 ms
    poller._ready()
    assert poller.since_ns == 50_000_000 - 3_000_000 - WAKE_NS
    now[0], worked[0] = 70_000_000, 21_000_000  # at work all the time
    poller._ready()
    assert poller.since_ns == 50_000_000
    now[0] += WAKE_NS  # a moment later nobody asks the scheduler
    poller._ready()
    assert (poller.since_ns, poller.awake_ns) == (70_000_000, 0)
    now[0], worked[0] = 90_000_000, 29_000_000
    asked = poller.busy_ns()  # a request was sent after 8 ms of work; then it slept
    now[0], worked[0] = 140_000_000, 30_000_000
    poller._ready()
    assert poller.awake_ns + asked == 140_000_000 - 1_000_000 - WAKE_NS
    poller.close()


def test_an_anchor_counts_steps_but_not_slewing() -> None:
    clock = ManualClock(now_ns=1_000)
    anchor = Anchor(clock)
    first = anchor.offset_ns
    clock.advance(1_000_000_000)
    clock.step_wall(500_000)  # 500 ppm of a second: the most that NTP slews
    anchor.check(clock.now_ns())
    assert (anchor.steps, anchor.offset_ns) == (0, first + 500_000)
    clock.advance(20_000_000)
    clock.step_wall(-(JITTER_NS + 10_001))
    anchor.check(clock.now_ns())
    assert anchor.steps == 1
    clock.step_wall(3_600_000_000_000)
    anchor.check(clock.now_ns())
    assert anchor.steps == 2
    assert anchor.checked_ns == clock.now_ns()
    anchor.check(clock.now_ns())
    assert anchor.steps == 2


@pytest.mark.parametrize(("beyond", "steps"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("way", [1, -1])
def test_a_step_is_more_than_slewing_and_jitter_explain(way: int, beyond: int, steps: int) -> None:
    clock = ManualClock(now_ns=1_000)
    anchor = Anchor(clock)
    clock.advance(20_000_000)
    clock.step_wall(way * (JITTER_NS + 10_000 + beyond))
    anchor.check(clock.now_ns())
    assert anchor.steps == steps


def test_an_anchor_believes_the_tightest_of_its_sandwiches() -> None:
    """Each is monotonic, wall, monotonic: 40, 10, 30 and 10 wide here, the second one counts."""
    now = iter([100, 140, 200, 210, 300, 330, 400, 410])
    wall = iter([1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000])
    clock: Any = SimpleNamespace(now_ns=lambda: next(now, 0), wall_ns=lambda: next(wall))
    assert Anchor(clock).offset_ns == 2_000_000 - 205


class Transport:
    """A transport that notes whether it reads."""

    def __init__(self) -> None:
        self._reads = True

    def reading(self) -> bool:
        return self._reads

    def get_extra_info(self, name: str) -> None:
        del name

    def set_write_buffer_limits(self, **_: int) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True


async def test_a_large_read_is_handed_on_in_slices_one_in_each_turn() -> None:
    """However much is there, others have their turns between; the stamp is that of the read."""
    link, transport = ReadLink(), Transport()
    link.connection_made(cast("asyncio.Transport", transport))
    peer = Recorder()
    link.attach(peer)
    link.data_received(b"x" * READ_SIZE)
    assert transport.reading()
    sent = os.urandom(2 * READ_SIZE + 1)
    link.data_received(sent)
    assert not transport.reading()
    sizes = [READ_SIZE, READ_SIZE, READ_SIZE, 1]
    for turn in range(2, 5):
        assert [len(data) for data, _, _ in peer.reads] == sizes[:turn]
        assert not transport.reading() or turn == 4
        await asyncio.sleep(0)
    assert transport.reading()
    assert b"".join(data for data, _, _ in peer.reads[1:]) == sent
    assert len({read[1:] for read in peer.reads[1:]}) == 1


async def test_an_owner_that_wants_no_bytes_gets_no_slice_of_a_large_read_either() -> None:
    link, transport = ReadLink(), Transport()
    link.connection_made(cast("asyncio.Transport", transport))
    peer = Recorder()
    link.attach(peer)
    link.data_received(b"x" * (4 * READ_SIZE))
    for _ in range(3):  # none of this makes another slice come in one turn
        link.pause_reading()
        link.resume_reading()
    assert len(peer.reads) == 1
    link.pause_reading()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(peer.reads) == 1
    link.resume_reading()
    assert not transport.reading()
    await asyncio.sleep(0)
    assert len(peer.reads) == 2
    for _ in range(3):
        await asyncio.sleep(0)
    assert transport.reading()
    assert len(peer.data) == 4 * READ_SIZE


async def test_a_large_read_after_the_end_of_our_half_does_not_end_the_reading() -> None:
    link, transport = ReadLink(), Transport()
    link.connection_made(cast("asyncio.Transport", transport))
    peer = Recorder()
    link.attach(peer)
    assert link.end_writing()
    link.data_received(b"x" * (READ_SIZE + 1))
    await asyncio.sleep(0)
    assert len(peer.data) == READ_SIZE + 1
    assert transport.reading()


async def test_a_link_that_is_closed_hands_no_further_slice_on() -> None:
    link, transport = ReadLink(), Transport()
    link.connection_made(cast("asyncio.Transport", transport))
    peer = Recorder()
    link.attach(peer)
    link.data_received(b"x" * (2 * READ_SIZE))
    link.connection_lost(None)
    await asyncio.sleep(0)
    assert len(peer.reads) == 1
    assert peer.said == ["lost"]
