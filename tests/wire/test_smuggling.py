"""Requests that two servers on one path could read differently: a status and a close for each."""

from __future__ import annotations

import asyncio
import collections
import contextlib

import h11
import pytest

from lightgate.wire.door.door import Door, DoorLimits, Inbound, Reply
from lightgate.wire.door.inbound import RequestError
from lightgate.wire.door.intake import Intake

HOST = b"Host: a\r\n"
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SECOND = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

REFUSED = {
    # two ways to say where the body ends
    "length and coding": (
        400,
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "coding and length": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    ),
    "two lengths that differ": (400, POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
    "two lengths that agree": (400, POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"),
    "list of equal lengths": (400, POST + b"Content-Length: 4, 4\r\n\r\nabcd"),
    "list of lengths": (400, POST + b"Content-Length: 4, 5\r\n\r\nabcd"),
    "plus sign": (400, POST + b"Content-Length: +4\r\n\r\nabcd"),
    "minus sign": (400, POST + b"Content-Length: -4\r\n\r\nabcd"),
    "space in length": (400, POST + b"Content-Length: 4 4\r\n\r\nabcd"),
    "hexadecimal length": (400, POST + b"Content-Length: 0x4\r\n\r\nabcd"),
    "empty length": (400, POST + b"Content-Length:\r\n\r\nabcd"),
    "length with underscore": (400, POST + b"Content-Length: 1_0\r\n\r\nabcd"),
    "length beyond 64 bits": (400, POST + b"Content-Length: 18446744073709551620\r\n\r\nabcd"),
    "quoted length": (400, POST + b'Content-Length: "4"\r\n\r\nabcd'),
    "length with space before colon": (400, POST + b"Content-Length : 4\r\n\r\nabcd"),
    "coding with space before colon": (400, POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    "coding with tab before colon": (400, POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
    # transfer codings
    "coding before chunked": (400, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "coding after chunked": (400, POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "chunked twice in one field": (
        400,
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    "chunked in two fields": (
        400,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "identity coding": (400, POST + b"Transfer-Encoding: identity\r\n\r\n"),
    "unknown coding": (400, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "vertical tab in coding": (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "quoted coding": (400, POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n'),
    "coding with parameter": (400, POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
    "empty coding": (400, POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
    "chunked on 1.0": (
        400,
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    # lines
    "folded value": (400, POST + b"X: a\r\n b\r\n\r\n"),
    "folded with tab": (400, POST + b"X: a\r\n\tb\r\n\r\n"),
    "folded coding": (400, POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    "space before first field": (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    "field without colon": (400, POST + b"nonsense\r\n\r\n"),
    "field without name": (400, POST + b": value\r\n\r\n"),
    "space in name": (400, POST + b"X Y: value\r\n\r\n"),
    "non-ASCII name": (400, POST + b"X\xe9: value\r\n\r\n"),
    "bracket in name": (400, POST + b"X[]: value\r\n\r\n"),
    "bare LF between fields": (400, POST + b"X: a\nY: b\r\n\r\n"),
    "bare CR in value": (400, POST + b"X: a\rY: b\r\n\r\n"),
    "bare LF after request line": (400, b"GET / HTTP/1.1\nHost: a\r\n\r\n"),
    "head of bare LF": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "LF CR at the end": (400, b"GET / HTTP/1.1\r\nHost: a\n\r\n\r"),
    "NUL in value": (400, POST + b"X: a\0b\r\n\r\n"),
    "NUL in name": (400, POST + b"X\0: b\r\n\r\n"),
    "NUL in target": (400, b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "control character in value": (400, POST + b"X: \x01\r\n\r\n"),
    "DEL in value": (400, POST + b"X: \x7f\r\n\r\n"),
    # request lines
    "no version": (400, b"GET /\r\n\r\n"),
    "two spaces before target": (400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "two spaces after target": (400, b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
    "tab as separator": (400, b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n"),
    "space in target": (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "space after version": (400, b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    "space before method": (400, b" GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "lower-case protocol": (400, b"GET / http/1.1\r\nHost: a\r\n\r\n"),
    "other protocol": (400, b"GET / RTSP/1.0\r\nHost: a\r\n\r\n"),
    "two-digit version": (400, b"GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    "version 0.9": (505, b"GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
    "version 1.2": (505, b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    "HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS on a plain port": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "two empty lines first": (400, b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "unknown method": (501, b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "lower-case method": (501, b"get / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "CONNECT": (501, b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    # hosts and targets
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "the same host twice": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    "two hosts on 1.0": (400, b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
    "host with path": (400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    "host with user": (400, b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    "host with space": (400, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    "host list": (400, b"GET / HTTP/1.1\r\nHost: a\r\nhost: a, b\r\n\r\n"),
    "authority and host differ": (400, b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "absolute form with user": (400, b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "other scheme": (400, b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "authority form": (400, b"GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
    "asterisk without OPTIONS": (400, b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    "fragment": (400, b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "non-ASCII target": (400, b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"),
    # chunks
    "chunk size not hexadecimal": (400, CHUNKED + b"g\r\nabc\r\n0\r\n\r\n"),
    "chunk size with 0x": (400, CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "negative chunk size": (400, CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n"),
    "plus in chunk size": (400, CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n"),
    "space before chunk size": (400, CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n"),
    "space after chunk size": (400, CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n"),
    "underscore in chunk size": (400, CHUNKED + b"1_0\r\nabc\r\n0\r\n\r\n"),
    "empty chunk size": (400, CHUNKED + b"\r\nabc\r\n0\r\n\r\n"),
    "chunk size beyond 32 bits": (400, CHUNKED + b"100000003\r\nabc\r\n0\r\n\r\n"),
    "chunk size with bare LF": (400, CHUNKED + b"3\nabc\r\n0\r\n\r\n"),
    "chunk size with bare CR": (400, CHUNKED + b"3\rabc\r\n0\r\n\r\n"),
    "chunk longer than its size": (400, CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n"),
    "chunk without its line end": (400, CHUNKED + b"3\r\nabc0\r\n\r\n"),
    "chunk ended by bare LF": (400, CHUNKED + b"3\r\nabc\n0\r\n\r\n"),
    "LF in extension": (400, CHUNKED + b"3;a\nb\r\nabc\r\n0\r\n\r\n"),
    "NUL in extension": (400, CHUNKED + b"3;\0\r\nabc\r\n0\r\n\r\n"),
    "long extension": (400, CHUNKED + b"3;" + b"x" * 300 + b"\r\nabc\r\n0\r\n\r\n"),
    "many extensions": (400, CHUNKED + (b"1;" + b"x" * 200 + b"\r\na\r\n") * 50 + b"0\r\n\r\n"),
    "folded trailer": (400, CHUNKED + b"0\r\nX: a\r\n b\r\n\r\n"),
    "trailer without colon": (400, CHUNKED + b"0\r\nnonsense\r\n\r\n"),
    "trailer with NUL": (400, CHUNKED + b"0\r\nX: \0\r\n\r\n"),
    "trailers without end": (400, CHUNKED + b"0\r\n" + b"X: yyyyyyyyyyyyyyyy\r\n" * 600),
    # beyond what this door does
    "compressed body": (415, POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"),
    "unknown expectation": (417, POST + b"Expect: 200-ok\r\nContent-Length: 4\r\n\r\nabcd"),
    "too many fields": (431, POST + b"X: y\r\n" * 100 + b"\r\n"),
    "head too large": (431, POST + b"X: " + b"y" * 40_000 + b"\r\n\r\n"),
    "head too large, unfinished": (431, POST + b"X: " + b"y" * 40_000),
    "declared body too large": (413, POST + b"Content-Length: 1048577\r\n\r\n"),
    "chunk too large": (413, CHUNKED + b"100001\r\n"),
    "chunks too large": (413, CHUNKED + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 32 + b"1\r\n"),
}

ACCEPTED = {
    "plain": (b"GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n", b"GET", b"/a?b=c", b""),
    "no host on 1.0": (b"GET / HTTP/1.0\r\n\r\n", b"GET", b"/", b""),
    "empty host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", b"GET", b"/", b""),
    "IPv6 host": (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", b"GET", b"/", b""),
    "space around a value": (POST + b"Content-Length: \t4 \r\n\r\nabcd", b"POST", b"/", b"abcd"),
    "upper-case coding": (
        POST + b"Transfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"POST",
        b"/",
        b"abc",
    ),
    "absolute form": (
        b"GET http://A:80/x?y HTTP/1.1\r\nHost: a:80\r\n\r\n",
        b"GET",
        b"/x?y",
        b"",
    ),
    "absolute form without path": (b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", b"GET", b"/", b""),
    "absolute form with query alone": (
        b"GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET",
        b"/?q",
        b"",
    ),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", b"OPTIONS", b"*", b""),
    "one empty line first": (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET", b"/", b""),
    "offer of another protocol": (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET",
        b"/",
        b"",
    ),
    "extension and trailer": (
        CHUNKED + b'3;a="b"\r\nabc\r\n0\r\nX: y\r\n\r\n',
        b"POST",
        b"/",
        b"abc",
    ),
    "Latin-1 value": (b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\r\n\r\n", b"GET", b"/", b""),
}


def h11_refuses(raw: bytes) -> bool:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA or isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return False
    except h11.RemoteProtocolError:
        return True


async def ask(raw: bytes, limits: DoorLimits) -> tuple[bytes, list[bytes]]:
    """What the door answers until it closes, and the targets that reached the handler."""
    seen: list[bytes] = []

    async def handler(inbound: Inbound, reply: Reply) -> None:
        seen.append(inbound.target)
        reply.whole(200, (), inbound.method + b" " + inbound.target + b" " + inbound.body)

    door = Door(handler, limits=limits)
    port = await door.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        writer.write(raw)
        await writer.drain()
    answer = await reader.read()
    writer.close()
    await door.close()
    return answer, seen


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_and_closed(name: str) -> None:
    status, raw = REFUSED[name]
    answer, seen = await ask(raw + SECOND, DoorLimits(body_bytes=1 << 20))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"\r\ndate: ") == 1
    assert seen == []


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_every_split(name: str) -> None:
    status, raw = REFUSED[name]
    raw += SECOND
    step = max(1, len(raw) // 60)
    for size in {1, *range(step, min(len(raw), 400), step)}:
        intake = Intake(DoorLimits(body_bytes=1 << 20))
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        with pytest.raises(RequestError) as caught:
            collections.deque((intake.take(piece, 0) for piece in pieces), maxlen=0)
        assert caught.value.status == status
        assert intake.body == b"", "the request was taken for a complete one"


@pytest.mark.parametrize("name", ACCEPTED)
async def test_accepted(name: str) -> None:
    raw, method, target, body = ACCEPTED[name]
    answer, seen = await ask(raw + b"GARBAGE\n", DoorLimits())
    assert seen == [target]
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" + method + b" " + target + b" " + body in answer


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_at_every_split(name: str) -> None:
    raw, method, target, body = ACCEPTED[name]
    for cut in range(1, len(raw)):
        intake = Intake(DoorLimits())
        assert intake.take(raw[:cut], 0) is None
        assert intake.take(raw[cut:] + b"next", 0) == b"next"
        assert (intake.head.method, intake.head.target, intake.body) == (method, target, body)


def test_the_corpus_covers_what_h11_refuses() -> None:
    both = [name for name, (_, raw) in REFUSED.items() if h11_refuses(raw)]
    assert len(REFUSED) >= 40
    assert len(both) >= 40
    assert not [
        name
        for name, (raw, *_) in ACCEPTED.items()
        if h11_refuses(raw) and name != "one empty line first"
    ]
