"""One roundtrip on a link that only pretends: what the sockets cannot show exactly."""

from __future__ import annotations

import asyncio
import gzip
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.marks import Marks
from lightgate.errors import Cancelled, DeadlineMissed, Malformed, PeerReset, StreamError, TooLarge
from lightgate.wire.client.pool import Connection
from lightgate.wire.client.roundtrip import HEAD_LIMIT, Deadlines, Outbound, Roundtrip
from lightgate.wire.origin import Origin
from wire.client.fake_link import FakeLink

if TYPE_CHECKING:
    from lightgate.wire.client.response import Headers
    from lightgate.wire.client.unpacking import Taker
    from lightgate.wire.link.link import Link

ORIGIN = Origin("http", "a.test", 80)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
SECOND = 1_000_000_000


class Notes:
    """A taker that takes notes."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.fails: dict[str, Exception] = {}

    def _note(self, name: str, what: object) -> None:
        self.log.append((name, what))
        if name in self.fails:
            raise self.fails[name]

    def on_sent(self, stamp: int) -> None:
        self._note("sent", None)

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        self._note("head", (status, stamp, headers))

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        self._note("body", (data, stamp, since))

    def on_end(self, stamp: int) -> None:
        self._note("end", stamp)


class Ends:
    """What a roundtrip hands its connection back to; keeps how it ended."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def ended(self, trip: Roundtrip, error: BaseException | None) -> None:
        self.errors.append(error)


def trip_on(link: Link, taker: Taker, deadlines: Deadlines | None = None) -> tuple[Roundtrip, Ends]:
    """A roundtrip that has been started on this link."""
    ends = Ends()
    request = Outbound(
        ORIGIN,
        b"GET / HTTP/1.1\r\n\r\n",
        taker,
        Marks(),
        deadlines or Deadlines(),
        ends.errors.append,
    )
    trip = Roundtrip(ends, request)
    trip.go(Connection(link, ORIGIN, lambda connection: None))
    return trip, ends


def only(ends: Ends) -> BaseException | None:
    """The one end that there was."""
    [error] = ends.errors
    return error


def begin(deadlines: Deadlines | None = None) -> tuple[Roundtrip, FakeLink, Notes, Ends]:
    link, notes = FakeLink(), Notes()
    trip, ends = trip_on(link, notes, deadlines)
    return trip, link, notes, ends


async def test_the_pieces_of_a_large_body_follow_the_payload() -> None:
    link, ends = FakeLink(), Ends()
    pieces = (b"one", memoryview(b"two"))
    request = Outbound(ORIGIN, b"head", Notes(), Marks(), Deadlines(), ends.errors.append, pieces)
    Roundtrip(ends, request).go(Connection(link, ORIGIN, lambda connection: None))
    assert link.written == [b"head", b"one", b"two"]


async def test_every_read_keeps_its_own_stamp() -> None:
    trip, link, notes, ends = begin()
    trip.on_read(OK[:20], 10, 9)
    trip.on_read(OK[20:-3], 20, 19)
    trip.on_read(OK[-3:], 30, 29)
    assert ends.errors == [None]
    headers = [(b"content-length", b"5")]
    assert notes.log[1:] == [
        ("head", (200, 20, headers)),
        ("body", (b"he", 20, 19)),
        ("body", (b"llo", 30, 29)),
        ("end", 30),
    ]
    assert trip.keep_alive
    assert link.is_open
    assert trip.bytes_in == len(OK)


async def test_an_answer_that_is_over_needs_no_timer_any_more() -> None:
    trip, _, _, _ = begin()
    assert trip.connection.trip is trip
    assert trip.connection.timer.due_ns > 0
    trip.on_read(OK, 1, 1)
    assert trip.connection.timer.due_ns == 0


async def test_an_answer_without_a_length_ends_with_its_connection_which_is_not_kept() -> None:
    trip, link, notes, ends = begin()
    trip.on_read(b"HTTP/1.1 200 OK\r\n\r\nhello", 1, 1)
    assert ends.errors == []
    trip.on_eof()
    assert ends.errors == [None]
    assert (trip.keep_alive, link.is_open) == (False, False)
    assert notes.log[2] == ("body", (b"hello", 1, 1))


async def test_a_takers_defect_ends_its_own_roundtrip() -> None:
    """The loop hears of it too, but where the request has not been written yet."""
    link, notes = FakeLink(), Notes()
    notes.fails["sent"] = defect = ZeroDivisionError()
    trip, ends = trip_on(link, notes)
    assert (ends.errors, link.written, link.is_open) == ([defect], [], False)
    for what in ("head", "body", "end"):
        trip, link, notes, ends = begin()
        notes.fails[what] = defect
        with pytest.raises(ZeroDivisionError):
            trip.on_read(OK, 1, 1)
        assert (ends.errors, trip.over, link.is_open) == ([defect], True, False)


async def test_several_chunks_of_one_read_are_one_body() -> None:
    trip, _, notes, ends = begin()
    trip.on_read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 1, 1)
    trip.on_read(b"1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n", 2, 1)
    assert ends.errors == [None]
    assert notes.log[2:] == [("body", (b"abc", 2, 1)), ("end", 2)]
    head = notes.log[1][1]
    assert head == (200, 1, [(b"transfer-encoding", b"chunked")])  # no trailer got into it


async def test_bytes_after_the_end_close_the_link_and_nothing_else() -> None:
    trip, link, notes, ends = begin()
    trip.on_read(OK, 1, 1)
    before = list(notes.log)
    trip.on_read(b"H", 2, 2)
    assert not link.is_open
    assert not trip.keep_alive
    assert notes.log == before
    assert ends.errors == [None]
    trip.eof(None)
    trip.cancel()


async def test_the_takers_error_comes_before_a_later_one_of_the_framing() -> None:
    trip, link, notes, ends = begin()
    notes.fails["body"] = StreamError("It said no.")
    trip.on_read(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naXXXX", 1, 1)
    assert isinstance(only(ends), StreamError)
    assert not link.is_open


async def test_a_link_that_is_already_closed_is_an_early_reset() -> None:
    link, notes = FakeLink(), Notes()
    link.is_open = False
    trip, ends = trip_on(link, notes)
    error = only(ends)
    assert isinstance(error, PeerReset)
    assert error.early
    assert trip.sent_ns == 0
    assert notes.log == []  # nothing was sent
    assert link.said == ["attach"]  # by the connection: a roundtrip only takes its place
    assert isinstance(link.peer, Roundtrip)


async def test_bodies_need_no_copy() -> None:
    trip, _, notes, ends = begin()
    trip.on_read(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", 1, 1)
    piece = b"123456789"
    trip.on_read(piece, 2, 2)
    taken = notes.log[2][1]
    assert taken == (piece, 2, 2)
    assert ends.errors == [None]


class Time:
    """The trip's clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic_ns()
        monkeypatch.setattr("lightgate.wire.client.roundtrip.time.monotonic_ns", lambda: self.now)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_which_deadline_is_next(hands: Time) -> None:
    trip, link, _, ends = begin(Deadlines(connect_s=1, first_byte_s=10, idle_s=3, total_s=30))
    start = hands.now
    assert trip._due() == (start + 10 * SECOND, "first_byte")
    hands.now += 9 * SECOND
    trip.expire()
    for n in range(2):  # lively: each read moves the idle deadline
        trip.on_read(OK[10 * n : 10 * n + 10], hands.now, hands.now)
        assert trip._due() == (hands.now + 3 * SECOND, "idle")
        hands.now += 2 * SECOND
        trip.expire()
    trip.pause()
    hands.now += 4 * SECOND
    trip.expire()  # our own silence
    assert trip._due() == (start + 30 * SECOND, "total")
    assert not trip.over
    trip.resume()
    assert trip._due() == (hands.now + 3 * SECOND, "idle")
    assert link.said[-2:] == ["pause", "resume"]
    hands.now += 3 * SECOND
    trip.expire()
    error = only(ends)
    assert isinstance(error, DeadlineMissed)
    assert error.phase == "idle"
    assert not trip.connection.timer.pending


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
    trip, _, _, ends = begin(deadlines)
    for data, phase in ((b"", before), (OK[:10], after)):
        if data:
            trip.on_read(data, 1, 1)
        due = trip._due()
        assert (None if due is None else due[1]) == phase
        assert trip.connection.timer.pending or phase is None
    trip.cancel()
    assert isinstance(only(ends), Cancelled)
    assert not trip.connection.timer.pending


@pytest.mark.parametrize(
    ("deadlines", "before_s", "after_s"),
    [
        (Deadlines(None, 4, 3, 30), 3, 3),
        (Deadlines(None, 2, 3, 30), 2, 3),
        (Deadlines(None, None, None, 30), 30, 30),
        (Deadlines(None, 4, None, 3), 3, 3),
        (Deadlines(None, 4, 9, None), 4, 9),
    ],
)
async def test_the_timer_is_set_for_the_next_deadline(
    hands: Time, deadlines: Deadlines, before_s: float, after_s: float
) -> None:
    trip, _, _, _ = begin(deadlines)
    timer = trip.connection.timer
    assert timer.due_ns == hands.now + before_s * SECOND
    trip.on_read(OK[:10], hands.now, hands.now)
    timer.due_ns = 0
    trip.expire()  # nothing has passed: it is set again
    assert timer.due_ns == hands.now + after_s * SECOND
    hands.now += SECOND
    trip.expire()
    assert timer.due_ns == hands.now + (after_s - 1) * SECOND
    trip.cancel()


async def test_time_that_passed_before_the_request_was_sent_is_of_the_whole(hands: Time) -> None:
    trip, _, _, _ = begin(Deadlines(None, None, None, 30))
    trip.began_ns -= 10 * SECOND
    trip._arm()
    assert trip.connection.timer.due_ns == hands.now + 20 * SECOND
    trip.began_ns -= 25 * SECOND
    trip._arm()
    assert trip.connection.timer.due_ns == hands.now
    trip.on_read(OK[:10], hands.now, hands.now)
    trip._arm()
    assert trip.connection.timer.due_ns == hands.now
    trip.cancel()


async def test_without_a_deadline_no_timer_runs() -> None:
    trip, _, _, _ = begin(Deadlines(None, None, None, None))
    assert not trip.connection.timer.pending
    trip.on_read(OK[:10], 1, 1)
    trip._arm()
    assert not trip.connection.timer.pending


async def test_an_answer_that_ends_in_a_pause_lets_the_connection_read_on() -> None:
    trip, link, _, ends = begin()
    trip.pause()
    trip.on_read(OK, 1, 1)
    assert ends.errors == [None]
    assert link.said[-2:] == ["pause", "resume"]
    trip, link, _, ends = begin()
    trip.on_read(OK, 1, 1)
    assert (ends.errors, "resume" in link.said) == ([None], False)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "broke the HTTP framing: Invalid header token."),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP/1.1."),
        (b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n", "does not speak HTTP/1.1."),
    ],
)
async def test_what_is_wrong_with_the_framing_is_said(data: bytes, said: str) -> None:
    trip, _, _, ends = begin()
    trip.on_read(data, 1, 1)
    error = only(ends)
    assert isinstance(error, Malformed)
    assert error.message == f"{ORIGIN.authority} {said}"


async def test_a_deadline_is_missed_within_the_grain_of_the_timer(hands: Time) -> None:
    trip, _, _, ends = begin(Deadlines(None, 5, None, None))
    hands.now += 5 * SECOND - 1_000_001
    trip.expire()
    assert not trip.over
    hands.now += 1
    trip.expire()
    error = only(ends)
    assert isinstance(error, DeadlineMissed)
    assert error.phase == "first_byte"
    trip.expire()  # which is over
    assert ends.errors == [error]


async def test_what_is_left_of_the_time_for_the_whole(hands: Time) -> None:
    trip, _, _, _ = begin(Deadlines(None, None, None, 30))
    assert trip.left_s() == 30.0
    hands.now += 10 * SECOND
    assert trip.left_s() == 20.0
    hands.now += 40 * SECOND
    assert trip.left_s() == 0.0
    assert begin(Deadlines(None, None, None, None))[0].left_s() is None


async def test_a_timer_that_fell_due_in_a_pause_is_set_again_after_it(hands: Time) -> None:
    trip, link, _, _ = begin(Deadlines(None, None, 3, None))
    trip.on_read(OK[:20], hands.now, hands.now)
    trip.pause()
    hands.now += 5 * SECOND
    trip.connection.timer.due_ns = 0
    trip.resume()
    assert trip.connection.timer.due_ns == hands.now + 3 * SECOND
    assert link.said[-2:] == ["pause", "resume"]
    trip.resume()  # which goes on already
    assert link.said[-2:] == ["pause", "resume"]
    trip.cancel()


class Dialling:
    """A task that opens a connection."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


async def test_a_call_that_is_cancelled_before_it_has_a_connection_ends_at_once() -> None:
    ends, notes, task = Ends(), Notes(), Dialling()
    held = weakref.ref(notes)
    trip = Roundtrip(
        ends, Outbound(ORIGIN, b"head", notes, Marks(), Deadlines(), ends.errors.append)
    )
    trip.dialling = task  # type: ignore[assignment]
    del notes
    trip.pause()  # there is nothing to pause yet
    trip.cancel()
    assert isinstance(only(ends), Cancelled)
    assert (task.cancelled, trip.over, trip.dialling) == (True, True, None)
    assert held() is None  # the taker holds the roundtrip, and is not held by it any more
    trip.finish_unsent(Cancelled("Once more."))
    assert len(ends.errors) == 1


async def test_a_call_that_has_its_connection_is_cancelled_there() -> None:
    link, ends, task = FakeLink(), Ends(), Dialling()
    trip = Roundtrip(
        ends, Outbound(ORIGIN, b"head", Notes(), Marks(), Deadlines(), ends.errors.append)
    )
    trip.dialling = task  # type: ignore[assignment]
    trip.go(Connection(link, ORIGIN, lambda connection: None))
    trip.cancel()
    assert isinstance(only(ends), Cancelled)
    assert (task.cancelled, link.is_open) == (False, False)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("before", "what"), [((), "headers"), ((CHUNKED, b"1\r\na\r\n"), "trailers")]
)
async def test_what_is_no_body_may_be_as_long_as_the_limit(
    before: tuple[bytes, ...], what: str
) -> None:
    trip, _, _, ends = begin()
    for read in before:
        trip.on_read(read, 1, 1)
    first = b"0\r\nx: " if before else b"HTTP/1.1 200 OK\r\nx: "
    trip.on_read(first.ljust(HEAD_LIMIT, b"a"), 1, 1)
    assert not trip.over
    trip.on_read(b"a", 1, 1)
    error = only(ends)
    assert isinstance(error, TooLarge)
    assert error.message == f"{ORIGIN.authority} sent more than {HEAD_LIMIT} bytes of {what}."


async def test_every_piece_of_a_body_has_the_limit_for_itself() -> None:
    trip, _, notes, ends = begin()
    trip.on_read(CHUNKED, 1, 1)
    for _ in range(8):
        trip.on_read(b"1;" + b"x" * (HEAD_LIMIT // 4) + b"\r\n", 1, 1)
        trip.on_read(b"a\r\n", 1, 1)
    trip.on_read(b"0\r\n\r\n", 1, 1)
    assert ends.errors == [None]
    assert [what for what, _ in notes.log].count("body") == 8


async def test_the_bytes_of_a_head_are_forgotten_when_it_is_whole() -> None:
    trip, _, _, ends = begin()
    trip.on_read(CHUNKED[:20] + b"x: ".ljust(40_000, b"a"), 1, 1)
    trip.on_read(b"\r\n" + CHUNKED[17:], 1, 1)
    more = HEAD_LIMIT - len(CHUNKED[15:])
    trip.on_read(b"1;".ljust(more, b"x"), 1, 1)
    assert not trip.over
    trip.on_read(b"x", 1, 1)
    assert isinstance(only(ends), TooLarge)


@pytest.mark.parametrize("size", [HEAD_LIMIT, HEAD_LIMIT + 1])
async def test_headers_may_be_as_long_as_the_limit_all_together(size: int) -> None:
    """Each with the colon, the space and the line end; the line before them does not count."""
    fields = [b"a" * 1000] * 30
    rest = size - sum(1 + len(value) + 4 for value in fields) - len(b"content-length5") - 4
    fields += [b"a" * (rest - 5)]
    lines = b"".join(b"x: %b\r\n" % value for value in fields)
    trip, _, notes, ends = begin()
    trip.on_read(OK[:17] + lines[:30_000], 1, 1)
    trip.on_read(lines[30_000:] + OK[17:], 1, 1)
    if size == HEAD_LIMIT:
        assert ends.errors == [None]
        return
    error = only(ends)
    assert isinstance(error, TooLarge)
    assert error.message == f"{ORIGIN.authority} sent more than {HEAD_LIMIT} bytes of headers."
    assert [what for what, _ in notes.log] == ["sent"]


@pytest.mark.parametrize(
    ("source", "reads", "since"),
    [
        ("read", [(OK[:-5], 20, 10)], 10),
        ("kernel", [(OK[:-5], 20, 10)], 20),
        ("kernel", [(OK, 20, 10)], 10),
        ("read", [(OK, 20, 10)], 10),
    ],
)
async def test_a_head_at_the_end_of_a_read_came_when_the_kernel_says(
    source: Any, reads: list[tuple[bytes, int, int]], since: int
) -> None:
    trip, _, _, _ = begin()
    trip.request.marks.stamp_source = source
    marks = trip.request.marks
    for read in reads:
        trip.on_read(*read)
    assert marks.headers_since == since


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("reset", [True, False])
async def test_how_and_when_a_connection_ended_is_said(early: bool, reset: bool) -> None:
    trip, link, _, ends = begin()
    if not early:
        trip.on_read(OK[:30], 1, 1)
    if reset:
        trip.on_lost(None)
    else:
        trip.on_eof()
    error = only(ends)
    assert isinstance(error, PeerReset)
    how, when = "reset" if reset else "closed", "in the middle of the answer"
    when = "before the answer began" if early else when
    assert error.message == f"{ORIGIN.authority} {how} the connection {when}."
    assert error.early is early
    assert not link.is_open


GZIP = gzip.compress(b"a" * 300_000)


async def test_an_answer_that_ends_with_its_connection_is_unpacked_to_its_end() -> None:
    """It takes several turns of the loop, and the break of the connection is no matter then."""
    trip, _, notes, ends = begin()
    trip.on_read(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + GZIP, 1, 1)
    trip.on_eof()
    trip.on_lost(ConnectionResetError())
    assert ends.errors == []
    for _ in range(20):
        await asyncio.sleep(0)
    assert ends.errors == [None]
    assert sum(len(what[0]) for name, what in notes.log if name == "body") == 300_000
    assert not trip.keep_alive


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("transfer-encoding: gzip, chunked", "used a transfer coding other than chunked"),
        ("content-encoding: gzip\r\ncontent-encoding: gzip", "compressed its answer twice"),
        ("content-encoding: br", "compressed its answer as 'br'"),
        ("transfer-encoding: Chunked\r\ncontent-encoding: chunked", ""),
    ],
)
async def test_codings_that_cannot_be_taken(headers: str, said: str) -> None:
    trip, _, notes, ends = begin()
    trip.on_read(f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n1\r\na\r\n0\r\n\r\n".encode(), 1, 1)
    if not said:
        assert ends.errors == [None]
        return
    assert said in str(only(ends))
    assert [what for what, _ in notes.log] == ["sent"]


async def test_a_taker_that_leaves_at_the_head_gets_no_body() -> None:
    link, notes = FakeLink(), Notes()
    trip, ends = trip_on(link, notes)
    notes.on_head = lambda *_: trip.cancel()  # type: ignore[method-assign]
    trip.on_read(OK, 1, 1)
    assert isinstance(only(ends), Cancelled)
    assert [what for what, _ in notes.log] == ["sent"]


@pytest.mark.parametrize(
    ("data", "said", "body"),
    [
        (OK + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno", "after the end", b"hello"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "status 101, which nobody", b""),
    ],
)
async def test_what_nobody_asked_for_is_no_part_of_an_answer(
    data: bytes, said: str, body: bytes
) -> None:
    trip, link, notes, ends = begin()
    trip.on_read(data, 1, 1)
    error = only(ends)
    assert isinstance(error, Malformed)
    assert said in error.message
    assert b"".join(what[0] for name, what in notes.log if name == "body") == body
    assert not link.is_open


async def test_memory_of_a_head_without_end_is_bounded() -> None:
    trip, link, _, ends = begin()
    trip.on_read(b"HTTP/1.1 200 OK\r\nx: ", 1, 1)
    for _ in range(HEAD_LIMIT // 1000 + 1):
        trip.on_read(b"a" * 1000, 1, 1)
    assert trip.over
    assert not link.is_open
    assert isinstance(only(ends), Malformed)
