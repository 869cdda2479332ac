"""What has come of a shared answer, and when it is kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.cache.follower import (
    LOG_BYTES,
    STEP_BYTES,
    AnswerLog,
    Made,
    Participant,
    SharedReader,
)
from lightgate.gateway.cache.memory import KeptAnswer
from lightgate.gateway.cache.single_flight import SharedAnswer, SingleFlight

if TYPE_CHECKING:
    from collections.abc import Callable

MADE = Made("lab/plain", 3, 4, 5, 6)


class Now:
    def __init__(self) -> None:
        self.ns = 1_000_000

    def __call__(self) -> int:
        return self.ns


async def log_of(*pieces: bytes, whole: bool = False) -> AnswerLog:
    now = Now()
    log = AnswerLog(asyncio.get_running_loop(), now)
    log.is_whole = whole
    for piece in pieces:
        now.ns += 2_500
        log.append(piece)
    now.ns += 1_000
    log.finished = True
    return log


async def test_a_log_begins_empty_and_good() -> None:
    log = AnswerLog(asyncio.get_running_loop(), Now())
    assert (log.size, log.status, log.headers, log.end) == (0, 200, b"", 0)
    assert (log.is_whole, log.started, log.finished, log.broken) == (False,) * 4
    assert log.keep_alive
    assert log.on_lost is None
    assert log.read(0) == (b"", 0)


@pytest.mark.parametrize("whole", [False, True])
async def test_an_answer_is_kept_with_its_pieces_and_their_times(whole: bool) -> None:
    log = await log_of(b"abc", b"de", whole=whole)
    log.headers = b"a: b\r\nx-lightgate-dropped: n,seed\r\nc: d\r\n"
    assert log.kept(MADE, 5) == KeptAnswer(
        not whole, b"abcde", (3, 5), (2, 5), "lab/plain", 3, 4, 5, 6_000, 6, b"n,seed"
    )
    assert log.kept(MADE, 4) is None


@pytest.mark.parametrize("change", ["finished", "broken", "status", "forgotten", "large"])
async def test_what_is_not_whole_and_good_is_not_kept(change: str) -> None:
    log = await log_of(b"abc", b"de")
    if change == "forgotten":
        log.forget(1)
        assert log.read(1) == (b"de", 2)
    elif change == "large":
        log.append(b"x" * LOG_BYTES)
    else:
        setattr(log, change, {"finished": False, "broken": True, "status": 201}[change])
    assert log.kept(MADE, 1 << 40) is None


async def test_waiters_are_woken_once() -> None:
    log = await log_of()
    first, second = log.waiting(), log.waiting()
    second.cancel()
    log.wake()
    assert first.done()
    third = log.waiting()
    assert not third.done()
    log.wake()
    assert third.done()


async def answer() -> SharedAnswer:
    group = SingleFlight(asyncio.get_running_loop(), Now())
    shared = SharedAnswer(group, b"key", 1)
    group._open[b"key"] = shared
    return shared


async def test_an_answer_begins_goes_on_and_ends_once() -> None:
    shared = await answer()
    steps: list[Callable[[], object]] = [lambda: shared.send(b"x"), shared.finish]
    for step in steps:
        with pytest.raises(RuntimeError):
            step()
    shared.start(200, b"h: 1\r\n", first=b"data: 1\n\n")
    assert shared.send(b"data: 2\n\n") is False
    shared.send(b"")
    shared.send(b": a comment\n\n")
    shared.finish(last=b"data: 3\n\n")
    assert (shared.finished, shared.broken, shared.read(0)) == (
        True,
        False,
        (b"data: 1\n\ndata: 2\n\ndata: 3\n\n", 3),
    )
    for step in (*steps, lambda: shared.whole(200, b"", b"")):
        with pytest.raises(RuntimeError):
            step()


@pytest.mark.parametrize("how", ["abort", "fail"])
async def test_an_answer_that_breaks_off_closes_its_clients(how: str) -> None:
    shared = await answer()
    log: list[Any] = []

    class Reader:
        def __init__(self, part: str) -> None:
            self.part = part

        def drop(self) -> None:
            log.append((self.part, "dropped"))

        def end(self, error: BaseException) -> None:
            log.append((self.part, str(error)))

    leading: Any = Reader("lead")
    joined: Any = Reader("join")
    shared._readers = {leading: None, joined: None}
    if how == "abort":
        shared.abort()
        assert log == [("lead", "dropped"), ("join", "dropped")]
    else:
        shared.fail(ValueError("defect"))
        assert log == [("lead", "defect"), ("join", "dropped")]
    assert shared.started
    assert shared.finished
    assert b"key" not in shared._group  # nobody joins it any more


class Client:
    """A client's reply that keeps what it is told."""

    def __init__(self, **facts: Any) -> None:
        self.said: list[Any] = []
        self.started = self.finished = self.crowded = False
        self.keep_alive = True
        self.__dict__.update(facts)

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.said.append((name, *given, *named.values()))


def reader(log: AnswerLog, client: Client) -> SharedReader:
    reply: Any = client
    participant = Participant(
        reply, lambda shared: asyncio.sleep(0), lambda lines, part: lines + part.encode(), _event
    )
    return SharedReader(log, participant, "join")


def _event(status: int) -> bytes:
    return b"error %d" % status


@pytest.mark.parametrize(
    ("facts", "whole", "last", "said"),
    [
        ({}, True, True, [("whole", 200, b"h:join", b"x")]),
        ({"started": True}, True, True, [("finish", b"error 200")]),
        ({}, False, False, [("start", 200, b"h:join", b"x")]),
        ({}, False, True, [("start", 200, b"h:join", b"x"), ("finish",)]),
        ({"started": True}, False, True, [("finish", b"x")]),
        ({"started": True}, False, False, [("send", b"x")]),
    ],
)
async def test_what_a_client_is_told(
    facts: dict[str, Any], whole: bool, last: bool, said: list[Any]
) -> None:
    log = await log_of(whole=whole)
    log.headers, log.keep_alive = b"h:", not whole
    client = Client(**facts)
    one = reader(log, client)
    one._write(b"x", last=last)
    assert client.said == said
    assert client.keep_alive is not whole
    assert one.first_out_ns == one.last_out_ns == 1_001_000
    log.now_ns = lambda: 5_000_000
    client.started = True
    one._write(b"", last=False)
    assert (one.first_out_ns, one.last_out_ns) == (1_001_000, 5_000_000)


async def test_a_client_whose_connection_the_door_has_closed_is_read_no_more() -> None:
    log = await log_of(b"abc")
    client = Client(finished=True)
    one = reader(log, client)
    one.pump()
    assert one.done.done()
    assert client.said == []
    fresh = Client()
    other = reader(log, fresh)
    other.pump()
    assert fresh.said == [("start", 200, b"join", b"abc"), ("finish",)]
    assert (other.at, other.owed, other.done.done()) == (1, 0, True)


async def test_a_log_is_read_in_steps() -> None:
    """Pieces are taken while those before them are less than a step."""
    below, just = b"x" * (STEP_BYTES - 1), b"x" * STEP_BYTES
    log = await log_of(below, b"y", just, b"z")
    assert log.read(0) == (below + b"y", 2)
    assert log.read(1) == (b"y" + just, 3)
    assert log.read(2) == (just, 3)
    assert log.read(3) == (b"z", 4)
    assert log.read(4) == (b"", 4)
