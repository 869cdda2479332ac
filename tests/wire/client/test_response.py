"""The parser of a connection's answers: what it says of one, and that it forgets it."""

from __future__ import annotations

import pytest

from lightgate.wire.client.response import ResponseParser


def state(parser: ResponseParser) -> dict[str, object]:
    names = (
        "headers", "bodies", "status", "strange", "complete", "framed", "chunked", "coded",
        "keep_alive", "version", "pieces",
    )  # fmt: skip
    return {name: getattr(parser, name) for name in names}


NOTHING: dict[str, object] = {
    "headers": [], "bodies": [], "status": 0, "strange": 0, "complete": False, "framed": False,
    "chunked": False, "coded": False, "keep_alive": False, "version": "", "pieces": 0,
}  # fmt: skip
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2 \t\r\nX-Y:  z \r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nt: r\r\n\r\n"


def test_a_fresh_parser_has_nothing_to_say() -> None:
    assert state(ResponseParser()) == NOTHING


def test_an_answer_with_a_length() -> None:
    parser = ResponseParser()
    parser.feed(WHOLE)
    assert state(parser) == NOTHING | {
        "headers": [(b"content-length", b"2"), (b"x-y", b"z")], "bodies": [b"hi"], "status": 200,
        "complete": True, "framed": True, "keep_alive": True, "version": "1.1",
    }  # fmt: skip
    parser.begin()
    assert state(parser) == NOTHING


def test_an_answer_in_chunks_whose_trailers_are_no_headers() -> None:
    parser = ResponseParser()
    parser.feed(CHUNKED)
    assert state(parser) == NOTHING | {
        "headers": [(b"transfer-encoding", b"chunked")], "bodies": [b"hi"], "status": 200,
        "complete": True, "framed": True, "chunked": True, "keep_alive": True, "version": "1.1",
    }  # fmt: skip
    parser.begin()
    assert state(parser) == NOTHING


@pytest.mark.parametrize(
    ("raw", "framed", "complete", "keep_alive", "version"),
    [
        (b"HTTP/1.1 204 No\r\n\r\n", True, True, True, "1.1"),
        (b"HTTP/1.1 304 No\r\n\r\n", True, True, True, "1.1"),
        (b"HTTP/1.1 200 OK\r\n\r\nab", False, False, False, "1.1"),
        (b"HTTP/1.1 205 OK\r\n\r\n", False, False, False, "1.1"),
        (b"HTTP/1.1 203 OK\r\n\r\n", False, False, False, "1.1"),
        (b"HTTP/1.1 303 OK\r\n\r\n", False, False, False, "1.1"),
        (b"HTTP/1.1 305 OK\r\n\r\n", False, False, False, "1.1"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", True, True, False, "1.0"),
        (
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            True, True, False, "1.1",
        ),
    ],
)  # fmt: skip
def test_where_an_answer_ends(
    raw: bytes, framed: bool, complete: bool, keep_alive: bool, version: str
) -> None:
    parser = ResponseParser()
    parser.feed(raw)
    assert (parser.framed, parser.complete, parser.keep_alive) == (framed, complete, keep_alive)
    assert parser.version == version


@pytest.mark.parametrize(
    ("header", "coded"),
    [
        (b"content-encoding: gzip", True),
        (b"transfer-encoding: gzip, chunked", True),
        (b"transfer-encoding: chunked", False),
        (b"content-length: 5", False),
        (b"x-encoding: gzip", False),
    ],
)
def test_a_coding_that_is_not_known_is_told_and_forgotten(header: bytes, coded: bool) -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % header)
    assert parser.coded is coded
    parser.begin()
    assert not parser.coded


def test_an_interim_answer_is_passed_over() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n")
    assert state(parser) == NOTHING
    parser.feed(b"HTTP/1.1 100 Go on\r\n\r\n" + WHOLE)
    assert (parser.status, parser.strange, len(parser.headers)) == (200, 0, 2)


@pytest.mark.parametrize(
    ("status", "strange"), [(101, 101), (99, 99), (1, 1), (0, 1), (100, 0), (102, 0), (199, 0)]
)
def test_a_status_that_nobody_asked_for_is_strange(status: int, strange: int) -> None:
    parser = ResponseParser()
    try:
        parser.feed(b"HTTP/1.1 %03d X\r\n\r\n" % status)
    except Exception as error:  # noqa: BLE001 - an upgrade is an exception of the parser's
        assert status == 101, error  # noqa: PT017
    assert (parser.status, parser.strange) == (0, strange)


@pytest.mark.parametrize("first", [WHOLE, CHUNKED])
def test_a_second_answer_is_strange_and_changes_nothing_of_the_first(first: bytes) -> None:
    parser = ResponseParser()
    parser.feed(first + b"HTTP/1.1 500 No\r\ncontent-length: 3\r\n\r\nbad")
    assert (parser.status, parser.strange, parser.pieces) == (200, 200, 1)
    assert parser.complete
    assert parser.bodies[: parser.pieces] == [b"hi"]
    assert all(name != b"" for name, _ in parser.headers)
    assert (b"content-length", b"3") not in parser.headers
