"""What a reply refuses, and how it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.wire.door.reply import Reply

if TYPE_CHECKING:
    from lightgate.wire.link.link import Peer


class Wire:
    """A link that keeps what is written, one entry per write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_open = True
        self.unsent = 0
        self.peer: Peer | None = None

    def attach(self, peer: object) -> None:
        raise AssertionError("replies do not attach")

    def write(self, data: bytes | memoryview) -> None:
        self.writes.append(bytes(data))

    def pause_reading(self) -> None:
        raise AssertionError("replies do not read")

    def resume_reading(self) -> None:
        raise AssertionError("replies do not read")

    def close(self) -> None:
        raise AssertionError("replies do not close")

    def abort(self) -> None:
        self.is_open = False

    def info(self, name: str) -> object:
        return None


class Room:
    def __init__(self) -> None:
        self.link = Wire()
        self.closing = False
        self.writing_paused = False
        self.waits = 0

    @property
    def service(self) -> Room:
        return self

    def replied(self, reply: Reply) -> None: ...

    def failed(self, reply: Reply, error: Exception | None) -> None: ...

    def date(self) -> bytes:
        return b"Thu, 01 Jan 1970 00:00:00 GMT"

    def cut(self) -> None:
        self.link.abort()

    async def writable(self) -> None:
        self.waits += 1
        self.writing_paused = False


def reply_in(room: Room, method: bytes = b"GET", minor: int = 1) -> Reply:
    return Reply(room, method, minor, keep_alive=True)


HOSTILE = [
    (b"x", b"a\r\nset-cookie: b"),
    (b"x", b"a\nb"),
    (b"x", b"a\rb"),
    (b"x", b"a\0b"),
    (b"x", b"a\x7f"),
    (b"x\r\ny", b"a"),
    (b"x\0", b"a"),
    (b"x y", b"a"),
    (b"x:", b"a"),
    (b"", b"a"),
    (b"x\xe9", b"a"),
    (b"content-length", b"5"),
    (b"Content-Length", b"5"),
    (b"Transfer-Encoding", b"chunked"),
    (b"connection", b"close"),
]


@pytest.mark.parametrize("header", HOSTILE)
def test_header_injection_is_refused_before_anything_is_written(
    header: tuple[bytes, bytes],
) -> None:
    room = Room()
    reply = reply_in(room)
    with pytest.raises(ValueError, match="header"):
        reply.start(200, [(b"good", b"one"), header])
    with pytest.raises(ValueError, match="header"):
        reply.whole(200, [header], b"body")
    assert room.link.writes == []
    assert not reply.started
    reply.whole(500, (), b"sorry")  # the wall can still answer
    assert room.link.writes[0].endswith(b"content-length: 5\r\n\r\nsorry")


def test_each_send_is_one_write_with_its_framing() -> None:
    room = Room()
    reply = reply_in(room)
    reply.start(200, [(b"content-type", b"text/event-stream")])
    reply.send(b"data: 1\n\n")
    reply.send(b"")
    reply.send(b"x" * 300)
    reply.finish(b"x-sum: 1\r\n")
    assert room.link.writes[1:] == [
        b"9\r\ndata: 1\n\n\r\n",
        b"12c\r\n" + b"x" * 300 + b"\r\n",
        b"0\r\nx-sum: 1\r\n\r\n",
    ]
    assert room.link.writes[0] == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\ntransfer-encoding: chunked\r\n\r\n"
    )


def test_a_whole_answer_is_one_write() -> None:
    room = Room()
    reply_in(room).whole(429, [(b"retry-after", b"1")], b"slow down")
    assert len(room.link.writes) == 1


def test_a_date_of_the_handler_stands_alone() -> None:
    room = Room()
    reply_in(room).whole(200, [(b"Date", b"Fri, 02 Jan 1970 00:00:00 GMT")], b"")
    assert room.link.writes[0].lower().count(b"date: ") == 1


def test_an_unknown_status_has_no_phrase() -> None:
    room = Room()
    reply_in(room).whole(599, (), b"")
    assert room.link.writes[0].startswith(b"HTTP/1.1 599 \r\n")


@pytest.mark.parametrize("status", [0, 100, 101, 199, 1000])
def test_only_final_answers(status: int) -> None:
    with pytest.raises(ValueError, match="final"):
        reply_in(Room()).start(status, ())


def test_the_last_reply_says_so() -> None:
    room = Room()
    room.closing = True
    reply = reply_in(room)
    reply.whole(200, (), b"")
    assert not reply.keep_alive
    assert b"connection: close\r\n" in room.link.writes[0]


def test_a_handler_may_close() -> None:
    room = Room()
    reply = reply_in(room)
    reply.keep_alive = False
    reply.start(200, ())
    assert b"connection: close\r\n" in room.link.writes[0]


@pytest.mark.parametrize("status", [204, 304])
def test_bodiless_answers(status: int) -> None:
    room = Room()
    with pytest.raises(ValueError, match="no body"):
        reply_in(room).whole(status, (), b"x")
    reply = reply_in(room)
    reply.start(status, ())
    reply.send(b"ignored")
    reply.finish()
    assert len(room.link.writes) == 1
    assert b"transfer-encoding" not in room.link.writes[0]


def test_the_length_is_kept() -> None:
    room = Room()
    reply = reply_in(room)
    reply.start(200, (), length=3)
    reply.send(b"ab")
    with pytest.raises(ValueError, match="longer"):
        reply.send(b"cd")
    assert room.link.writes[1:] == [b"ab"]
    with pytest.raises(RuntimeError, match="shorter"):
        reply.finish()
    assert not room.link.is_open  # the client cannot take it for complete


def test_the_order_is_kept() -> None:
    reply = reply_in(Room())
    with pytest.raises(RuntimeError, match="between"):
        reply.send(b"x")
    with pytest.raises(RuntimeError, match="once"):
        reply.finish()
    reply.start(200, ())
    with pytest.raises(RuntimeError, match="once"):
        reply.start(200, ())
    reply.finish()
    with pytest.raises(RuntimeError, match="between"):
        reply.send(b"x")
    with pytest.raises(RuntimeError, match="once"):
        reply.finish()
    with pytest.raises(RuntimeError, match="once"):
        reply.whole(200, (), b"")


@pytest.mark.parametrize("trailer", [b"data: [DONE]\n\n", b"x\r\n", b"x: y", b"x: y\r\n\r\n"])
def test_trailers_are_field_lines(trailer: bytes) -> None:
    room = Room()
    reply = reply_in(room)
    reply.start(200, ())
    with pytest.raises(ValueError, match="field lines"):
        reply.finish(trailer)
    assert not reply.finished


def test_trailers_need_chunks() -> None:
    reply = reply_in(Room())
    reply.start(200, (), length=0)
    with pytest.raises(ValueError, match="chunked"):
        reply.finish(b"x: y\r\n")


async def test_drain_waits_only_when_paused() -> None:
    room = Room()
    reply = reply_in(room)
    await reply.drain()
    assert room.waits == 0
    room.writing_paused = True
    await reply.drain()
    assert room.waits == 1


DATE = b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
LINES = b"a: 1\r\nb: 2\r\n"


def test_whole_lines_of_a_head_are_written_as_they_are() -> None:
    room = Room()
    reply = reply_in(room)
    reply.extra = b"x: 1\r\ny: 2\r\n"
    reply.start(200, LINES, first=b"body")
    assert room.link.writes == [
        b"HTTP/1.1 200 OK\r\n" + LINES + DATE + reply.extra + b"transfer-encoding: chunked\r\n\r\n"
        b"4\r\nbody\r\n"
    ]
    again = reply_in(room)
    again.extra = b"x: 1\r\n"
    again.whole(200, LINES, b"b")
    assert room.link.writes[1] == (
        b"HTTP/1.1 200 OK\r\n" + LINES + DATE + b"x: 1\r\ncontent-length: 1\r\n\r\nb"
    )
    assert again.finished


@pytest.mark.parametrize("lines", [b"a: \r1\r\n", b"a: 1\n", b"a: \x001\r\n"])
def test_whole_lines_with_a_stray_line_end_are_refused(lines: bytes) -> None:
    room = Room()
    for headers, extra in ((lines, b""), (b"", lines), (LINES, lines)):
        reply = reply_in(room)
        reply.extra = extra
        with pytest.raises(ValueError, match="line end or a control character"):
            reply.start(200, headers)
        assert not reply.started
    assert room.link.writes == []


@pytest.mark.parametrize(
    ("minor", "length", "framing"),
    [
        (1, None, b"transfer-encoding: chunked\r\n"),
        (1, 4, b"content-length: 4\r\n"),
        (0, None, b"connection: close\r\n"),
        (0, 4, b"content-length: 4\r\nconnection: keep-alive\r\n"),
    ],
)
def test_the_framing_by_version_and_length(minor: int, length: int | None, framing: bytes) -> None:
    room = Room()
    reply = reply_in(room, minor=minor)
    reply.start(200, (), length=length)
    assert room.link.writes == [b"HTTP/1.1 200 OK\r\n" + DATE + framing + b"\r\n"]
    assert not reply.send(b"body")
    reply.finish()
    chunked = minor == 1 and length is None
    assert room.link.writes[1:] == ([b"4\r\nbody\r\n", b"0\r\n\r\n"] if chunked else [b"body"])
    assert reply.keep_alive is (minor == 1 or length is not None)


def test_a_head_without_its_body() -> None:
    room = Room()
    reply = reply_in(room, b"HEAD")
    reply.whole(200, (), b"four")
    assert room.link.writes == [b"HTTP/1.1 200 OK\r\n" + DATE + b"content-length: 4\r\n\r\n"]
    for length in (None, 4):
        room = Room()
        reply = reply_in(room, b"HEAD")
        reply.start(200, (), length=length, first=b"ab")
        reply.send(b"c")
        reply.finish(last=b"d")
        assert len(room.link.writes) == 1
        assert room.link.writes[0].endswith(b"\r\n\r\n")


@pytest.mark.parametrize(("size", "writes"), [(262_144, 1), (262_145, 2)])
def test_a_large_body_is_a_write_of_its_own(size: int, writes: int) -> None:
    room = Room()
    reply_in(room).whole(200, (), b"x" * size)
    assert len(room.link.writes) == writes
    assert b"".join(room.link.writes).endswith(b"\r\n\r\n" + b"x" * size)


def test_a_204_has_no_length_and_other_empty_answers_do() -> None:
    for status, line in (
        (204, b""),
        (304, b"content-length: 0\r\n"),
        (200, b"content-length: 0\r\n"),
    ):
        room = Room()
        reply_in(room).whole(status, (), b"")
        assert room.link.writes[0].endswith(DATE + line + b"\r\n")


def test_a_reply_tells_its_connection_and_its_handler() -> None:
    class Counting(Room):
        def __init__(self) -> None:
            super().__init__()
            self.done: list[str] = []

        def replied(self, reply: Reply) -> None:
            assert reply.finished
            assert reply.on_lost is None
            self.done.append("replied")

        def failed(self, reply: Reply, error: Exception | None) -> None:
            self.done.append(f"failed {error}")

        def cut(self) -> None:
            self.done.append("cut")

    room = Counting()
    for end in ("whole", "finish", "abort"):
        reply = reply_in(room)
        reply.on_lost = lambda: room.done.append("lost")
        if end == "whole":
            reply.whole(200, (), b"")
        elif end == "finish":
            reply.start(200, ())
            reply.finish(last=b"z")
            assert room.link.writes[-1] == b"1\r\nz\r\n0\r\n\r\n"
        else:
            reply.abort()
            assert reply.started
    assert room.done == ["replied", "replied", "cut", "replied"]
    reply = reply_in(room)
    reply.on_lost = lambda: room.done.append("lost")
    reply.lose()
    reply.lose()
    assert not reply.keep_alive
    reply.fail(ValueError("x"))
    assert room.done[4:] == ["lost", "failed x"]
    room.writing_paused = True
    assert reply.crowded
    reply.start(200, ())
    assert reply.send(b"x")
    assert reply.link is room.link
