"""Compressed answers on a roundtrip: a piece in each turn, and an end after the last of them."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

from lightgate.clock.marks import Marks
from lightgate.errors import Malformed, PeerReset
from lightgate.wire.client.coding import PIECE
from lightgate.wire.client.pool import Connection
from lightgate.wire.client.roundtrip import Deadlines, Outbound, Roundtrip
from lightgate.wire.origin import Origin
from wire.client.fake_link import FakeLink

if TYPE_CHECKING:
    from lightgate.wire.client.response import Headers

ORIGIN = Origin("http", "a.test", 80)
PLAIN = bytes(3 * PIECE) + b"the end"
STAMP, SINCE = 7, 5


class Taken:
    """A roundtrip of a compressed answer: its taker, and what its connection goes back to."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.sizes: list[int] = []
        self.data = b""
        self.complete = False
        self.errors: list[BaseException | None] = []
        self.fails: Exception | None = None  # at the second piece
        request = Outbound(ORIGIN, b"", self, Marks(), Deadlines(), self.errors.append)
        self.trip = Roundtrip(self, request)
        self.trip.go(Connection(self.link, ORIGIN, lambda connection: None))

    def on_sent(self, stamp: int) -> None:
        pass

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        pass

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        assert (stamp, since) == (STAMP, SINCE)
        assert not self.complete
        self.sizes.append(len(data))
        self.data += data
        if self.fails is not None and len(self.sizes) == 2:
            raise self.fails

    def on_end(self, stamp: int) -> None:
        assert stamp == STAMP
        self.complete = True

    def ended(self, trip: Roundtrip, error: BaseException | None) -> None:
        del trip
        self.errors.append(error)

    def read(self, plain: bytes, *, missing: int = 0) -> None:
        """Let an answer come in one read, but for so many bytes."""
        packed = gzip.compress(plain)
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
        body = packed[: len(packed) - missing]
        self.trip.on_read(head % len(packed) + body, STAMP, SINCE)


async def test_one_piece_comes_in_each_turn_and_the_end_after_the_last() -> None:
    taken = Taken()
    taken.read(PLAIN)
    for turn in range(1, 4):
        assert taken.sizes == [PIECE] * turn
        assert not taken.link.reads
        assert taken.errors == []
        await asyncio.sleep(0)
    assert taken.data == PLAIN
    assert taken.complete
    assert taken.errors == [None]
    assert taken.link.reads
    assert taken.trip.bytes_in > len(PLAIN)


async def test_a_slow_client_stops_the_pieces() -> None:
    taken = Taken()
    taken.read(PLAIN)
    for _ in range(3):  # none of this makes two of them come in one turn
        taken.trip.pause()
        taken.trip.resume()
    taken.trip.pause()
    for _ in range(3):
        await asyncio.sleep(0)
    assert taken.sizes == [PIECE]
    taken.trip.resume()
    assert not taken.link.reads
    await asyncio.sleep(0)
    assert taken.sizes == [PIECE] * 2
    for _ in range(3):
        await asyncio.sleep(0)
    assert taken.errors == [None]
    assert taken.link.reads


async def test_the_socket_is_read_again_after_the_last_piece() -> None:
    taken = Taken()
    taken.read(PLAIN, missing=1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert taken.data == PLAIN
    assert taken.link.reads
    assert taken.errors == []
    taken.trip.eof(None)
    assert isinstance(taken.errors[0], PeerReset)


async def test_a_connection_that_breaks_after_the_answer_does_not_cut_it() -> None:
    taken = Taken()
    taken.read(PLAIN)
    taken.trip.on_lost(ConnectionResetError())
    for _ in range(5):
        await asyncio.sleep(0)
    assert taken.data == PLAIN
    assert taken.errors == [None]


async def test_no_piece_comes_after_a_cancel() -> None:
    taken = Taken()
    taken.read(PLAIN)
    taken.trip.cancel()
    await asyncio.sleep(0)
    assert taken.sizes == [PIECE]
    assert not taken.complete


async def test_an_error_of_a_later_piece_ends_the_roundtrip() -> None:
    taken = Taken()
    taken.fails = error = Malformed("no")
    taken.read(PLAIN)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taken.sizes == [PIECE] * 2
    assert taken.errors == [error]


async def test_a_defect_of_the_taker_ends_the_roundtrip_and_is_heard_of() -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, told: heard.append(told["exception"])
    )
    taken = Taken()
    taken.fails = error = ValueError("a defect")
    taken.read(PLAIN)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taken.errors == [error]
    assert heard == [error]
