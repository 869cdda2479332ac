"""Whole answers as the bytes that reach the client: plain, and for each reason otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.wire.door.reply import Reply

LINES = b"content-type: text/plain\r\nx-a: b\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n" + LINES + b"date: today\r\ncontent-length: 5\r\n"


class Wire:
    """Keeps what is written, and which replies were over when they said so."""

    def __init__(self, *, closing: bool = False) -> None:
        self.sent: list[bytes] = []
        self.over: list[tuple[bool, bool]] = []
        self.writing_paused = False
        self.link: Any = SimpleNamespace(write=self.sent.append)
        self.service: Any = SimpleNamespace(closing=closing, date=lambda: b"today")

    def replied(self, reply: Reply) -> None:
        self.over.append((reply.started, reply.finished))


def reply(wire: Any, method: bytes = b"POST", minor: int = 1, *, keep_alive: bool = True) -> Reply:
    return Reply(wire, method, minor, keep_alive=keep_alive)


def test_a_plain_answer_is_one_write() -> None:
    wire = Wire()
    answer = reply(wire)
    lost: list[bool] = []
    answer.on_lost = lambda: lost.append(True)
    answer.whole(200, LINES, b"hello")
    answer.lose()  # a client that leaves after its answer is no news
    assert not lost
    assert wire.sent == [HEAD + b"\r\nhello"]
    assert wire.over == [(True, True)]
    with pytest.raises(RuntimeError):
        answer.whole(200, LINES, b"hello")
    assert len(wire.sent) == 1


def test_pairs_and_lines_say_the_same() -> None:
    by_lines, by_pairs = Wire(), Wire()
    reply(by_lines).whole(200, LINES, b"hello")
    pairs = ((b"content-type", b"text/plain"), (b"x-a", b"b"))
    reply(by_pairs).whole(200, pairs, b"hello")
    assert by_lines.sent == by_pairs.sent


def test_what_is_not_plain_is_said_in_the_head() -> None:
    def sent(wire: Wire, answer: Reply, status: int = 200) -> bytes:
        answer.whole(status, LINES, b"hello")
        return b"".join(wire.sent)

    closing = Wire(closing=True)
    assert sent(closing, reply(closing)) == HEAD + b"connection: close\r\n\r\nhello"
    last = Wire()
    answer = reply(last, keep_alive=False)
    assert sent(last, answer) == HEAD + b"connection: close\r\n\r\nhello"
    old = Wire()
    assert sent(old, reply(old, minor=0)) == HEAD + b"connection: keep-alive\r\n\r\nhello"
    mute = Wire()
    assert sent(mute, reply(mute, b"HEAD")) == HEAD + b"\r\n"
    more = Wire()
    answer = reply(more)
    answer.extra = b"vary: origin\r\n"
    said = HEAD.replace(b"content-length", b"vary: origin\r\ncontent-length")
    assert sent(more, answer) == said + b"\r\nhello"
    bad = Wire()
    assert sent(bad, reply(bad), 404).startswith(b"HTTP/1.1 404 Not Found\r\n")


def test_a_large_body_is_not_copied() -> None:
    wire, body = Wire(), bytes(262_145)
    reply(wire).whole(200, LINES, body)
    assert wire.sent == [HEAD.replace(b": 5", b": 262145") + b"\r\n", body]
    wire = Wire()
    reply(wire).whole(200, LINES, body[:-1])
    assert [len(one) for one in wire.sent] == [len(HEAD) + 5 + 2 + 262_144]


@pytest.mark.parametrize("value", [b"a\nb", b"a\rb", b"a\rb\nc", b"\n\r", b"a\0b", b"a\x7fb"])
@pytest.mark.parametrize("keep_alive", [True, False])
def test_no_value_can_end_its_line(value: bytes, *, keep_alive: bool) -> None:
    wire = Wire()
    answer = reply(wire, keep_alive=keep_alive)
    with pytest.raises(ValueError, match="line end or a control character"):
        answer.whole(200, b"x-a: %b\r\n" % value, b"hello")
    assert (wire.sent, answer.started, answer.finished) == ([], False, False)


def test_another_status_than_200_is_said_though_all_else_is_plain() -> None:
    wire = Wire()
    reply(wire).whole(201, LINES, b"hello")
    assert b"".join(wire.sent).startswith(b"HTTP/1.1 201 ")
    for status in (199, 1000):
        wire = Wire()
        with pytest.raises(ValueError, match="is not the status of a final answer"):
            reply(wire).whole(status, LINES, b"hello")
        assert wire.sent == []
    reply(wire).whole(999, LINES, b"hello")
    assert b"".join(wire.sent).startswith(b"HTTP/1.1 999 \r\n")


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_body_that_is_longer_than_its_length_is_not_sent(length: int) -> None:
    wire = Wire()
    answer = reply(wire)
    answer.start(200, LINES, length=length)
    answer.send(b"x" * length)
    with pytest.raises(ValueError, match="longer than the length"):
        answer.send(b"x")
    assert b"".join(wire.sent).partition(b"\r\n\r\n")[2] == b"x" * length
