"""One connection behind a link that only pretends: every state, every deadline, every end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.wire.door.connection import SINK_BYTES, ServerConnection
from lightgate.wire.door.crowd import CrowdLimits
from lightgate.wire.door.inbound import DoorLimits, Inbound
from lightgate.wire.door.service import Service
from lightgate.wire.link.timers import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.wire.door.reply import Reply

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LIMITS = DoorLimits(idle_s=75, head_s=10, body_s=60, write_s=30, linger_s=2, queue_bytes=100)
PEER = "10.0.0.1:5"


def post(size: int, body: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (size, body)


class PlayedLink:
    """Keeps what is done to it."""

    def __init__(self) -> None:
        self.is_open = True
        self.unsent = 0
        self.half = True  # whether our half can be ended alone
        self.said: list[str] = []
        self.written: list[bytes] = []

    def attach(self, _: object) -> None:
        self.said.append("attach")

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")

    def end_writing(self) -> bool:
        self.said.append("end")
        return self.half

    def close(self) -> None:
        self.is_open = False
        self.said.append("close")

    def abort(self) -> None:
        self.is_open = False
        self.said.append("abort")


class Scene:
    """A connection, its link, and the requests that its handler got."""

    def __init__(self, crowd: CrowdLimits | None = None, **gates: Any) -> None:
        self.requests: list[tuple[Inbound, Reply]] = []
        self.handler: Callable[[Inbound, Reply], None] = self.keep
        self.link = PlayedLink()
        self.service = Service(self._handle, LIMITS, crowd=crowd, **gates)
        assert self.service.crowd.enter("10.0.0.1")
        link: Any = self.link
        self.connection = ServerConnection(link, self.service, PEER, 50)

    def _handle(self, inbound: Inbound, reply: Reply) -> None:
        self.handler(inbound, reply)

    def keep(self, inbound: Inbound, reply: Reply) -> None:
        self.requests.append((inbound, reply))

    async def read(self, data: bytes, stamp: int = 100) -> None:
        """Bytes come, and the loop goes round."""
        self.connection.on_read(data, stamp, stamp)
        await asyncio.sleep(0)

    @property
    def reply(self) -> Reply:
        return self.requests[-1][1]

    @property
    def within_s(self) -> float:
        """The seconds that are left, to the next whole one; 0 without a deadline."""
        due = self.connection._deadline.due_ns
        return float(round((due - time.monotonic_ns()) / 1e9)) if due else 0.0

    def expire(self) -> None:
        self.connection._deadline.due_ns = 0
        self.connection._expire()

    @property
    def gone(self) -> bool:
        return self.connection not in self.service.connections


@pytest.fixture
async def scene() -> Any:
    made = Scene()
    yield made
    made.connection._deadline.close()


# In turn


async def test_a_handler_that_answers_at_once_is_followed_by_the_next_request(scene: Scene) -> None:
    scene.handler = lambda inbound, reply: reply.whole(200, (), inbound.target)
    await scene.read(GET + GET.replace(b"/ ", b"/2 ") + GET[:7])
    await asyncio.sleep(0)
    assert [one[-2:] for one in scene.link.written] == [b"\n/", b"/2"]
    await scene.read(GET[7:])
    assert len(scene.link.written) == 3
    assert scene.within_s == 75
    assert scene.link.said == ["attach"]


async def test_a_request_is_handed_over_in_the_turn_after_its_bytes(scene: Scene) -> None:
    scene.connection.on_read(GET, 100, 100)
    assert scene.requests == []
    await asyncio.sleep(0)
    (inbound, _) = scene.requests[0]
    assert (inbound.accepted_ns, inbound.first_byte_ns, inbound.received_ns) == (50, 100, 100)
    assert inbound.peer == PEER
    assert scene.within_s == 0  # a request that is worked on has no deadline


async def test_an_accept_that_came_late_is_of_the_first_byte(scene: Scene) -> None:
    await scene.read(GET, 40)
    assert scene.requests[0][0].accepted_ns == 40


async def test_a_client_that_left_meanwhile_is_not_handed_over(scene: Scene) -> None:
    scene.connection.on_read(GET, 100, 100)
    scene.connection.on_lost(None)
    await asyncio.sleep(0)
    assert scene.requests == []
    assert scene.gone
    assert scene.service.crowd.connections == 0
    scene.connection.on_lost(None)
    assert scene.service.crowd.connections == 0  # it leaves once


async def test_a_handler_with_a_defect_is_a_failure_and_the_last_of_its_connection(
    scene: Scene,
) -> None:
    def broken(_inbound: Inbound, _reply: Reply) -> None:
        raise ValueError("a defect")

    scene.handler = broken
    await scene.read(GET)
    assert scene.link.written[0].startswith(b"HTTP/1.1 500 ")
    assert b"connection: close\r\n" in scene.link.written[0]
    assert scene.link.said == ["attach", "end"]
    assert scene.within_s == 2


async def test_a_handler_with_a_defect_in_a_stream_cuts_it_off(scene: Scene) -> None:
    def broken(_inbound: Inbound, reply: Reply) -> None:
        reply.start(200, ())
        raise ValueError("a defect")

    scene.handler = broken
    await scene.read(GET)
    assert len(scene.link.written) == 1
    assert scene.link.said == ["attach", "abort"]
    assert scene.gone


async def test_a_handler_with_a_defect_after_its_answer_changes_nothing(scene: Scene) -> None:
    def broken(_inbound: Inbound, reply: Reply) -> None:
        reply.whole(200, (), b"fine")
        raise ValueError("a defect")

    scene.handler = broken
    await scene.read(GET)
    assert [one[-4:] for one in scene.link.written] == [b"fine"]
    assert scene.link.said == ["attach", "end"]  # what it left behind is not trusted


# Bytes behind a running request


async def test_reading_pauses_above_its_limit_and_goes_on_once_there_is_room(scene: Scene) -> None:
    await scene.read(GET)
    await scene.read(b"x" * 100)
    assert scene.link.said == ["attach"]
    await scene.read(b"x")
    await scene.read(b"x")
    assert scene.link.said == ["attach", "pause"]
    scene.connection._queue[:] = [(GET, 7), (b"", 8)]
    scene.connection._queued = len(GET) + 100
    scene.reply.whole(200, (), b"")
    assert scene.link.said == ["attach", "pause", "resume"]  # a hundred, which is the limit
    await asyncio.sleep(0)
    assert scene.requests[1][0].received_ns == 7


async def test_reading_stays_paused_while_too_much_waits(scene: Scene) -> None:
    await scene.read(GET)
    await scene.read(GET + b"x" * 101)
    scene.reply.whole(200, (), b"")
    assert scene.link.said == ["attach", "pause"]


async def test_the_last_reply_lets_what_still_comes_be_read_and_dropped(scene: Scene) -> None:
    await scene.read(GET)
    await scene.read(b"x" * 101)
    scene.reply.keep_alive = False
    scene.reply.whole(200, (), b"")
    assert scene.link.said == ["attach", "pause", "resume", "end"]
    await scene.read(GET)
    assert len(scene.requests) == 1


async def test_a_connection_that_ends_without_a_pause_resumes_nothing(scene: Scene) -> None:
    await scene.read(GET)
    scene.reply.keep_alive = False
    scene.reply.whole(200, (), b"")
    assert scene.link.said == ["attach", "end"]


# Bodies


async def test_a_body_has_its_own_time_and_is_counted_until_its_reply() -> None:
    scene = Scene(CrowdLimits(body_bytes=400))
    crowd, first = scene.service.crowd, post(20, b"abc")
    await scene.read(first[:5])
    assert scene.within_s == 10
    await scene.read(first[5:])
    assert scene.within_s == 60
    assert crowd.body_bytes == len(first) - 5  # of the read that began it
    await scene.read(b"x" * 17)
    assert crowd.body_bytes == len(first) - 5 + 17
    assert scene.requests[0][0].body == b"abc" + b"x" * 17
    scene.reply.whole(200, (), b"")
    assert crowd.body_bytes == 0


async def test_a_body_for_which_there_is_no_room_is_refused_for_a_while() -> None:
    scene = Scene(CrowdLimits(body_bytes=2 * len(post(500))))
    await scene.read(post(500))
    assert scene.link.written == []
    await scene.read(b"x")
    assert scene.link.written[0].startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in scene.link.written[0]
    assert (scene.service.crowd.body_bytes, scene.requests) == (0, [])
    assert scene.link.said == ["attach", "end"]
    scene.connection._deadline.close()


class PlayedSink:
    """Takes a body, and says how much of it has come."""

    limit = 10 * SINK_BYTES

    def __init__(self) -> None:
        self.came = 0
        self.said: list[Any] = []

    def write(self, data: bytes) -> int:
        return len(data)

    def tell(self) -> int:
        return self.came

    def attach(self, pause: Any, resume: Any) -> None:
        self.said.append((pause, resume))

    def drop(self) -> None:
        self.said.append("drop")


async def test_a_body_that_goes_elsewhere_has_time_for_each_of_its_parts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = PlayedSink()
    scene.connection._intake._sink_of = lambda _: sink
    given: list[float] = []
    monkeypatch.setattr(Deadline, "set", lambda _, seconds: given.append(seconds))
    await scene.read(post(5_000_000))
    assert given == [60, 60]  # of the body, and of its first part
    assert sink.said == [(scene.link.pause_reading, scene.link.resume_reading)]
    sink.came = SINK_BYTES - 1
    await scene.read(b"x")
    assert given == [60, 60]
    sink.came = SINK_BYTES
    await scene.read(b"x")
    assert given == [60, 60, 60]
    assert len(sink.said) == 1
    assert scene.service.crowd.body_bytes == 0
    scene.connection.on_lost(None)
    assert sink.said[1:] == ["drop"]


async def test_where_a_client_leaves_before_its_turn_its_body_is_dropped(scene: Scene) -> None:
    sink = PlayedSink()
    scene.connection._intake._sink_of = lambda _: sink
    scene.connection.on_read(post(3), 1, 1)
    scene.connection.on_read(b"abc", 2, 2)
    scene.connection.on_lost(None)
    await asyncio.sleep(0)
    assert sink.said[1:] == ["drop"]
    assert scene.requests == []


# Deadlines


async def test_an_idle_connection_is_ended_after_its_time(scene: Scene) -> None:
    assert scene.within_s == 75
    scene.expire()
    assert (scene.link.said, scene.within_s) == (["attach", "end"], 2)
    scene.expire()
    assert scene.link.said[-1] == "abort"
    assert scene.gone


async def test_half_a_request_is_refused_after_its_time(scene: Scene) -> None:
    await scene.read(GET[:9])
    scene.expire()
    assert scene.link.written[0].startswith(b"HTTP/1.1 408 ")
    assert scene.within_s == 2


@pytest.mark.parametrize(
    ("unsent", "later", "again"),
    [(900, 788, True), (900, 789, False), (900, 900, False), (5, 4, True), (5, 5, False)],
)
async def test_a_client_that_takes_enough_in_time_has_as_much_time_again(
    scene: Scene, unsent: int, later: int, again: bool
) -> None:
    """An eighth of what waits, and a byte at least; a byte of a large answer is not enough."""
    await scene.read(GET)
    scene.reply.start(200, ())
    scene.link.unsent = unsent
    scene.connection.pause_writing()
    assert scene.within_s == 30
    scene.link.unsent = later
    scene.expire()
    if again:
        assert scene.within_s == 30
        assert scene.link.said == ["attach"]
        scene.expire()  # nothing more was taken
    assert scene.link.said == ["attach", "abort"]


async def test_a_client_that_caught_up_has_no_deadline(scene: Scene) -> None:
    await scene.read(GET)
    scene.connection.pause_writing()
    scene.connection.resume_writing()
    assert (scene.within_s, scene.connection.writing_paused) == (0, False)
    scene.connection.pause_writing()
    scene.reply.whole(200, (), b"")
    await scene.read(GET)
    assert len(scene.requests) == 1  # its answer is still being taken
    scene.connection.resume_writing()
    await asyncio.sleep(0)
    assert len(scene.requests) == 2


async def test_a_last_answer_has_the_time_of_writing_and_then_of_lingering(scene: Scene) -> None:
    await scene.read(GET)
    scene.reply.keep_alive = False
    scene.link.unsent = 5
    scene.reply.whole(200, (), b"")
    assert scene.within_s == 30
    scene.link.unsent = 0
    scene.expire()
    assert (scene.within_s, scene.link.said) == (2, ["attach", "end"])
    scene.expire()
    assert scene.link.said == ["attach", "end", "abort"]


# Ends


async def test_a_link_whose_half_cannot_be_ended_is_closed(scene: Scene) -> None:
    scene.link.half = False
    scene.connection.retire()
    assert scene.link.said == ["attach", "end", "close"]
    assert (scene.gone, scene.service.crowd.connections) == (True, 0)


async def test_a_hang_up_loses_a_reply_under_way(scene: Scene) -> None:
    lost: list[str] = []
    await scene.read(GET)
    scene.reply.on_lost = lambda: lost.append("lost")
    scene.connection.on_eof()
    assert (lost, scene.link.said, scene.gone) == (["lost"], ["attach", "abort"], True)


async def test_a_hang_up_behind_an_answer_waits_until_it_is_taken(scene: Scene) -> None:
    scene.link.unsent = 5
    scene.connection.on_eof()
    scene.connection.on_eof()  # once more while it lingers
    assert (scene.link.said, scene.within_s) == (["attach", "end"], 30)
    scene.link.unsent = 0
    scene.connection.on_eof()
    assert scene.link.said == ["attach", "end", "close"]
    assert scene.gone


async def test_a_door_that_stops_ends_idle_ones_and_refuses_half_a_request(scene: Scene) -> None:
    await scene.read(GET[:9])
    scene.connection.retire()
    assert scene.link.said == ["attach"]
    scene.connection.give_up()
    assert scene.link.written[0].startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in scene.link.written[0]
    other = Scene()
    other.connection.give_up()
    assert (other.link.said, other.link.written) == (["attach", "end"], [])
    other.connection._deadline.close()


async def test_after_a_reply_of_a_door_that_ends_nothing_more_is_read(scene: Scene) -> None:
    await scene.read(GET + GET)
    scene.service.close(gentle=False)
    scene.reply.whole(200, (), b"")
    await asyncio.sleep(0)
    assert (len(scene.requests), scene.link.said) == (1, ["attach", "end"])


async def test_whoever_waits_for_the_client_is_woken_by_its_end(scene: Scene) -> None:
    await scene.read(GET)
    scene.reply.start(200, ())
    scene.connection.pause_writing()
    waiting = [asyncio.create_task(scene.reply.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert not waiting[1].done()
    scene.reply.abort()
    await waiting[1]
    assert scene.gone


async def test_a_gate_that_answers_ends_the_connection_and_one_that_does_not_may_name_an_owner(
) -> None:  # fmt: skip
    def gate(inbound: Inbound, reply: Reply) -> str | None:
        if inbound.header(b"x") == b"no":
            reply.whole(401, (), b"")
            return None
        return "owner"

    turned = Scene(gate=gate)
    await turned.read(post(9).replace(b"Host: a", b"Host: a\r\nX: no"))
    assert turned.link.written[0].startswith(b"HTTP/1.1 401 ")
    assert turned.link.said == ["attach", "end"]
    let_in = Scene(CrowdLimits(body_bytes=1000), gate=gate)
    await let_in.read(post(9))
    assert let_in.service.crowd._owned == {"owner": len(post(9))}
    plain = Scene(CrowdLimits(body_bytes=1000))
    await plain.read(post(9))
    assert plain.service.crowd._owned == {"10.0.0.1": len(post(9))}
    for one in (turned, let_in, plain):
        one.connection._deadline.close()


async def test_whoever_waits_for_the_client_is_woken_by_its_loss(scene: Scene) -> None:
    await scene.read(GET)
    scene.reply.start(200, ())
    scene.connection.pause_writing()
    waiting = asyncio.create_task(scene.reply.drain())
    await asyncio.sleep(0)
    scene.link.is_open = False
    scene.connection.on_lost(None)
    async with asyncio.timeout(20):
        await waiting
    assert scene.gone
