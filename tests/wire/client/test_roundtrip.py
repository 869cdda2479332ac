"""One exchange on a link that only pretends: what the sockets cannot show exactly."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import Cancelled, DeadlineMissed, Malformed, PeerReset, StreamError
from lightgate.wire.client.roundtrip import HEAD_LIMIT, Deadlines, Exchange
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from lightgate.wire.client.roundtrip import Headers
    from lightgate.wire.link.link import Peer

ORIGIN = Origin("http", "a.test", 80)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
SECOND = 1_000_000_000


class FakeLink:
    """Takes note of what is done to it."""

    def __init__(self) -> None:
        self.is_open = True
        self.unsent = 0
        self.said: list[str] = []

    def attach(self, peer: Peer) -> None:
        self.said.append("attach")

    def write(self, data: bytes) -> None:
        self.said.append("write")

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False

    def info(self, name: str) -> object:
        return None


class Notes:
    """A taker that takes notes."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.fails: dict[str, Exception] = {}

    def _note(self, name: str, what: object) -> None:
        self.log.append((name, what))
        if name in self.fails:
            raise self.fails[name]

    def on_open(self, exchange: Exchange) -> None:
        self._note("open", None)

    def on_sent(self, stamp: int) -> None:
        self._note("sent", None)

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        self._note("head", (status, stamp, headers))

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        self._note("body", (data, stamp, since))

    def on_end(self, stamp: int) -> None:
        self._note("end", stamp)


def begin(deadlines: Deadlines | None = None) -> tuple[Exchange, FakeLink, Notes]:
    link, notes = FakeLink(), Notes()
    exchange = Exchange(link, ORIGIN, notes, deadlines or Deadlines())
    exchange.start(b"GET / HTTP/1.1\r\n\r\n", time.monotonic_ns())
    return exchange, link, notes


async def test_every_read_keeps_its_own_stamp() -> None:
    exchange, link, notes = begin()
    exchange.on_read(OK[:20], 10, 9)
    exchange.on_read(OK[20:-3], 20, 19)
    exchange.on_read(OK[-3:], 30, 29)
    await exchange.done
    headers = [(b"content-length", b"5")]
    assert notes.log[2:] == [
        ("head", (200, 20, headers)),
        ("body", (b"he", 20, 19)),
        ("body", (b"llo", 30, 29)),
        ("end", 30),
    ]
    assert exchange.keep_alive
    assert link.is_open
    assert exchange.bytes_in == len(OK)
    exchange.leave()


async def test_several_chunks_of_one_read_are_one_body() -> None:
    exchange, _, notes = begin()
    exchange.on_read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 1, 1)
    exchange.on_read(b"1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n", 2, 1)
    await exchange.done
    assert notes.log[3:] == [("body", (b"abc", 2, 1)), ("end", 2)]
    head = notes.log[2][1]
    assert head == (200, 1, [(b"transfer-encoding", b"chunked")])  # no trailer got into it


async def test_bytes_after_the_end_close_the_link_and_nothing_else() -> None:
    exchange, link, notes = begin()
    exchange.on_read(OK, 1, 1)
    before = list(notes.log)
    exchange.on_read(b"H", 2, 2)
    assert not link.is_open
    assert not exchange.keep_alive
    assert notes.log == before
    await exchange.done
    exchange.eof(None)
    exchange.cancel()


async def test_the_takers_error_comes_before_a_later_one_of_the_framing() -> None:
    exchange, link, notes = begin()
    notes.fails["body"] = StreamError("It said no.")
    exchange.on_read(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naXXXX", 1, 1)
    with pytest.raises(StreamError):
        await exchange.done
    assert not link.is_open


async def test_a_link_that_is_already_closed_is_an_early_reset() -> None:
    link, notes = FakeLink(), Notes()
    link.is_open = False
    exchange = Exchange(link, ORIGIN, notes, Deadlines())
    exchange.start(b"x", time.monotonic_ns())
    with pytest.raises(PeerReset) as caught:
        await exchange.done
    assert caught.value.early
    assert [name for name, _ in notes.log] == ["open"]  # nothing was sent
    assert link.said == []


async def test_bodies_need_no_copy() -> None:
    exchange, _, notes = begin()
    exchange.on_read(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", 1, 1)
    piece = b"123456789"
    exchange.on_read(piece, 2, 2)
    taken = notes.log[3][1]
    assert taken == (piece, 2, 2)
    await exchange.done


class Time:
    """The exchange's clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic_ns()
        monkeypatch.setattr("lightgate.wire.client.roundtrip.time.monotonic_ns", lambda: self.now)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_which_deadline_is_next(hands: Time) -> None:
    exchange, link, _ = begin(Deadlines(connect_s=1, first_byte_s=10, idle_s=3, total_s=30))
    start = hands.now
    assert exchange._due() == (start + 10 * SECOND, "first_byte")
    hands.now += 9 * SECOND
    exchange._check()
    for n in range(2):  # lively: each read moves the idle deadline
        exchange.on_read(OK[10 * n : 10 * n + 10], hands.now, hands.now)
        assert exchange._due() == (hands.now + 3 * SECOND, "idle")
        hands.now += 2 * SECOND
        exchange._check()
    exchange.pause()
    hands.now += 4 * SECOND
    exchange._check()  # our own silence
    assert exchange._due() == (start + 30 * SECOND, "total")
    assert not exchange.done.done()
    exchange.resume()
    assert exchange._due() == (hands.now + 3 * SECOND, "idle")
    assert link.said[-2:] == ["pause", "resume"]
    hands.now += 3 * SECOND
    exchange._check()
    with pytest.raises(DeadlineMissed) as caught:
        await exchange.done
    assert caught.value.phase == "idle"
    assert not exchange._timer.pending


@pytest.mark.parametrize(
    ("deadlines", "before", "after"),
    [
        (Deadlines(None, None, None, None), None, None),
        (Deadlines(None, None, 5, None), None, "idle"),
        (Deadlines(None, 5, None, None), "first_byte", None),
        (Deadlines(None, None, None, 5), "total", "total"),
        (Deadlines(None, 9, 9, 5), "total", "total"),
    ],
)
async def test_a_timer_is_armed_for_what_can_come(
    deadlines: Deadlines, before: str | None, after: str | None
) -> None:
    exchange, _, _ = begin(deadlines)
    for data, phase in ((b"", before), (OK[:10], after)):
        if data:
            exchange.on_read(data, 1, 1)
        due = exchange._due()
        assert (None if due is None else due[1]) == phase
        assert exchange._timer.pending or phase is None
    exchange.cancel()
    with pytest.raises(Cancelled):
        await exchange.done
    assert not exchange._timer.pending


async def test_leaving_owes_nobody_an_error() -> None:
    exchange, _, _ = begin()
    exchange.cancel()
    exchange.leave()
    done = exchange.done
    assert isinstance(done.exception(), Cancelled)
    assert not done._log_traceback  # what asyncio warns by
    exchange, _, _ = begin()
    exchange.done.cancel()
    exchange.leave()
    assert not exchange._timer.pending
    await asyncio.sleep(0)


async def test_memory_of_a_head_without_end_is_bounded() -> None:
    exchange, link, _ = begin()
    exchange.on_read(b"HTTP/1.1 200 OK\r\nx: ", 1, 1)
    reads = 0
    while not exchange.done.done():
        exchange.on_read(b"a" * 1000, 1, 1)
        reads += 1
    assert reads <= HEAD_LIMIT // 1000 + 1
    assert not link.is_open
    assert isinstance(exchange.done.exception(), Malformed)
