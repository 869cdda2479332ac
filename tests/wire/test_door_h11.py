"""The door against h11: what one side writes, the other must read alike."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.source import ManualClock
from lightgate.wire.door.door import Door, DoorLimits, Inbound, Reply
from lightgate.wire.door.inbound import RequestError
from lightgate.wire.door.intake import Intake
from lightgate.wire.door.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.wire.link.link import Link

Headers = list[tuple[bytes, bytes]]
Parsed = tuple[bytes, bytes, Headers, bytes]

TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
FRAMING = {
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
}
names = (
    st.text(TOKEN, min_size=1, max_size=12)
    .filter(lambda name: name.lower() not in FRAMING)
    .map(str.encode)
)
inner = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f\x85\xa0")
    | st.just("\t"),
    max_size=20,
)
values = inner.map(lambda text: text.strip(" \t").encode("latin-1"))
fields = st.lists(st.tuples(names, values), max_size=8)
targets = st.text("/abcXYZ019-._~!$&'()*+,;=:@%?", max_size=30).map(
    lambda text: b"/" + text.encode()
)
bodies = st.lists(st.binary(max_size=200), max_size=5)
methods = st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"])


@st.composite
def requests(draw: st.DrawFn) -> tuple[h11.Request, list[bytes]]:
    pieces = draw(bodies)
    framing: Headers = [(b"Host", b"example.org:8080")]
    if draw(st.booleans()):
        framing.append((b"Transfer-Encoding", b"chunked"))
    else:
        framing.append((b"Content-Length", b"%d" % sum(map(len, pieces))))
    headers = draw(fields) + framing
    return h11.Request(method=draw(methods), target=draw(targets), headers=headers), pieces


def serialise(requests_: Sequence[tuple[h11.Request, list[bytes]]]) -> bytes:
    out = b""
    for request, pieces in requests_:
        client = h11.Connection(h11.CLIENT)
        out += client.send(request) or b""
        for piece in pieces:
            out += client.send(h11.Data(data=piece)) or b""
        out += client.send(h11.EndOfMessage()) or b""
    return out


def by_h11(raw: bytes) -> Parsed | None:
    """The first request as h11's server side reads it; None where it is incomplete or refused."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(raw)
    body = b""
    request: h11.Request | None = None
    try:
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                headers = [
                    (bytes(name), bytes(value))
                    for name, value in request.headers
                    if name != b"content-length"  # the door tells it as the body's own
                ]
                return bytes(request.method), bytes(request.target), headers, body
            else:
                return None
    except h11.RemoteProtocolError:
        return None


def by_us(raw: bytes, cuts: list[int], count: int) -> list[Parsed]:
    """Requests as the door's intake reads them, from reads that end at the cuts."""
    intake = Intake(DoorLimits())
    edges = [0, *sorted({cut % (len(raw) + 1) for cut in cuts}), len(raw)]
    found: list[Parsed] = []
    for left, right in itertools.pairwise(edges):
        rest: bytes | None = raw[left:right]
        while rest and len(found) < count:
            rest = intake.take(rest, 0)
            if rest is not None:
                head = intake.head
                found.append((head.method, head.target, list(head.headers), intake.body))
    return found


splits = st.lists(st.integers(0, 1 << 16), max_size=8)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(requests(), min_size=1, max_size=3), splits)
def test_requests_of_h11_are_read_alike(
    sent: list[tuple[h11.Request, list[bytes]]], cuts: list[int]
) -> None:
    ours = by_us(serialise(sent), cuts, len(sent))
    assert ours == [by_h11(serialise([one])) for one in sent]
    assert [parsed[3] for parsed in ours] == [b"".join(pieces) for _, pieces in sent]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(requests(), st.lists(bodies, min_size=1, max_size=4), st.data())
def test_a_client_that_repeats_its_head_is_read_as_one_that_does_not(
    first: tuple[h11.Request, list[bytes]], more: list[list[bytes]], data: st.DataObject
) -> None:
    """The same head with other lengths, and now and then one that differs in a byte or more."""
    raws = [serialise([first])]
    for pieces in more:
        size = b"".join(pieces)
        headers = [
            (name, b"%d" % len(size) if name.lower() == b"content-length" else value)
            for name, value in first[0].headers.raw_items()
        ]
        if data.draw(st.booleans()):
            headers.append(data.draw(st.tuples(names, values)))
        again = h11.Request(method=first[0].method, target=first[0].target, headers=headers)
        raws.append(serialise([(again, pieces)]))
    ours = by_us(b"".join(raws), data.draw(splits), len(raws))
    assert ours == [by_h11(raw) for raw in raws]


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"+3", b" 3 4", b"1e3", b"3\r\nx: 3", b"9" * 16, "٣".encode()]
)
def test_what_stands_for_a_repeated_length_is_a_length(length: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %b\r\nx: y\r\n\r\n"
    fresh, worn = Intake(DoorLimits()), Intake(DoorLimits())
    assert worn.take(head % b"3" + b"abc", 0) == b""
    said: list[object] = []
    for intake in (fresh, worn):
        try:
            intake.take(head % length + b"abc", 0)
            said.append((intake.head.headers, intake.body))
        except RequestError as error:
            said.append((error.status, error.reason))
    assert said[0] == said[1]


SEEDS = (
    b"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
    b"PUT /v1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
    b"GET /v1?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
)
SHARDS = st.sampled_from(
    [
        *(b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\0", b"0", b"1", b"-", b",", b";", b"\x0b"),
        *(b"\xff", b"chunked", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"),
        b"Host: b\r\n",
    ]
)


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), SHARDS), min_size=1, max_size=3),
    splits,
)
def test_mutants_are_refused_or_read_as_h11_reads_them(
    raw: bytes, mutations: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    for at, drop, shard in mutations:
        place = at % (len(raw) + 1)
        raw = raw[:place] + shard + raw[place + drop :]
    try:
        ours = by_us(raw, cuts, 1)
    except RequestError:
        return
    theirs = by_h11(raw.removeprefix(b"\r\n"))
    if ours and theirs is not None:
        assert (ours[0][0], ours[0][2], ours[0][3]) == (theirs[0], theirs[2], theirs[3])
        assert theirs[1].endswith(ours[0][1])  # a whole URL is cut down to its path


class Wire:
    """A link that keeps what is written, one entry per write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_open = True

    def write(self, data: bytes | memoryview) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.is_open = False


class Room:
    writing_paused = False
    closing: bool = False

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def link(self) -> Link:
        return self._wire  # type: ignore[return-value]  # only the half of a link that replies use

    @property
    def service(self) -> Room:
        return self

    def replied(self, reply: Reply) -> None: ...

    def failed(self, reply: Reply, error: Exception | None) -> None: ...

    def date(self) -> bytes:
        return b"Thu, 01 Jan 1970 00:00:00 GMT"

    def cut(self) -> None:
        self._wire.abort()

    async def writable(self) -> None:
        raise AssertionError("never paused")


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, int, Headers, list[bytes], bool]:
    method = draw(st.sampled_from([b"GET", b"HEAD", b"POST"]))
    status = draw(st.sampled_from([200, 201, 204, 304, 400, 404, 429, 500, 503, 599]))
    pieces = [] if status in {204, 304} else draw(bodies)
    return method, status, draw(fields), pieces, draw(st.booleans())


def write_answer(wire: Wire, answer: tuple[bytes, int, Headers, list[bytes], bool]) -> None:
    method, status, headers, pieces, chunked = answer
    reply = Reply(Room(wire), method, 1, keep_alive=True)
    reply.start(status, headers, length=None if chunked else sum(map(len, pieces)))
    for piece in pieces:
        reply.send(piece)
    reply.finish()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(answers(), min_size=1, max_size=4))
def test_replies_are_read_by_h11(sent: list[tuple[bytes, int, Headers, list[bytes], bool]]) -> None:
    client = h11.Connection(h11.CLIENT)
    for answer in sent:
        method, status, headers, pieces, _ = answer
        wire = Wire()
        write_answer(wire, answer)
        muted = method == b"HEAD" or status in {204, 304}
        kept = [piece for piece in pieces if piece and not muted]
        assert len(wire.writes) <= 2 + len(kept)  # head, one write a piece, the end
        client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(b"".join(wire.writes))
        response = client.next_event()
        assert isinstance(response, h11.Response)
        assert response.status_code == status
        own = [
            pair
            for pair in response.headers
            if pair[0] not in {b"date", b"content-length", b"transfer-encoding"}
        ]
        assert own == [(name.lower(), value) for name, value in headers if name.lower() != b"date"]
        body = b""
        while isinstance(event := client.next_event(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        assert body == b"".join(kept)
        client.start_next_cycle()


async def test_a_conversation_with_h11_over_a_socket() -> None:
    async def handler(inbound: Inbound, reply: Reply) -> None:
        reply.start(200, [(b"x-target", inbound.target)])
        for at in range(0, len(inbound.body), 7):
            reply.send(inbound.body[at : at + 7])
            await reply.drain()
        reply.finish(b"x-checksum: 1\r\n")

    door = Door(handler)
    reader, writer = await asyncio.open_connection("127.0.0.1", await door.listen("127.0.0.1", 0))
    client = h11.Connection(h11.CLIENT)
    for turn in range(3):
        payload = b"payload of turn %d, long enough" % turn
        for event in (
            h11.Request(
                method="POST",
                target=f"/{turn}",
                headers=[("Host", "a"), ("Transfer-Encoding", "chunked")],
            ),
            h11.Data(data=payload),
            h11.EndOfMessage(),
        ):
            writer.write(client.send(event) or b"")
        body = b""
        trailers: Headers = []
        while not trailers:
            received = client.next_event()
            if received is h11.NEED_DATA:
                client.receive_data(await reader.read(4096))
            elif isinstance(received, h11.Data):
                body += bytes(received.data)
            elif isinstance(received, h11.EndOfMessage):
                trailers = [(bytes(name), bytes(value)) for name, value in received.headers]
        assert body == payload
        assert trailers == [(b"x-checksum", b"1")]
        client.start_next_cycle()
    writer.close()
    await door.close()


async def test_the_date_is_made_once_a_second() -> None:
    def handler(inbound: Inbound, reply: Reply) -> None:
        raise AssertionError("not called")

    clock = ManualClock(wall_ns=1_700_000_000_900_000_000)
    service = Service(handler, DoorLimits(), clock)
    first = service.date()
    assert first == b"Tue, 14 Nov 2023 22:13:20 GMT"
    clock.advance(50_000_000)
    assert service.date() is first
    clock.advance(50_000_000)
    assert service.date() == b"Tue, 14 Nov 2023 22:13:21 GMT"
