"""The client against h11, which is written from the same RFC by other hands."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NamedTuple

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.errors import AttemptError, Malformed
from lightgate.wire.origin import Origin
from wire.client.test_roundtrip import trip_on

if TYPE_CHECKING:
    from lightgate.wire.client.response import Headers
    from lightgate.wire.link.link import Peer
    from wire.conftest import Play, Rig, Wire

ORIGIN = Origin("http", "a.test", 80)
REQUEST = h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")])


class Plan(NamedTuple):
    """An answer to be sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    pieces: list[bytes]
    framing: str
    interim: int
    trailers: list[tuple[bytes, bytes]]


class Verdict(NamedTuple):
    """What a client made of some bytes."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


NAMES = st.sampled_from(b"abz09!#$%&'*+.^_`|~-").map(lambda c: b"x-%c" % c)
VALUES = st.sampled_from(
    [b"", b"a", b"a b", b'"a\t;b=c"', b"0123456789", b"\x80\xff", b":,;=", b"chunked", b"gzip, br"]
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
PLANS = st.builds(
    Plan,
    status=st.sampled_from([200, 200, 201, 204, 304, 400, 404, 429, 500, 503, 599]),
    headers=FIELDS,
    pieces=st.lists(st.binary(min_size=1, max_size=60), max_size=5),
    framing=st.sampled_from(["length", "chunked", "close"]),
    interim=st.integers(0, 2),
    trailers=FIELDS,
)


def serialise(plan: Plan) -> bytes:
    """The bytes that h11's server side sends for a plan."""
    server = h11.Connection(h11.SERVER)
    version = b"1.0" if plan.framing == "close" else b"1.1"
    server.receive_data(b"POST / HTTP/%s\r\nhost: a\r\ncontent-length: 0\r\n\r\n" % version)
    while not isinstance(server.next_event(), h11.EndOfMessage):
        pass
    raw = b""
    bodiless = plan.status in {204, 304}
    if version == b"1.1":
        for _ in range(plan.interim):
            raw += server.send(h11.InformationalResponse(status_code=103, headers=plan.headers))
    headers = list(plan.headers)
    if not bodiless and plan.framing == "length":
        headers.append((b"content-length", b"%d" % sum(map(len, plan.pieces))))
    elif not bodiless and plan.framing == "chunked":
        headers.append((b"transfer-encoding", b"chunked"))
    raw += server.send(h11.Response(status_code=plan.status, headers=headers, reason=b"So"))
    if not bodiless:
        for piece in plan.pieces:
            raw += server.send(h11.Data(data=piece))
    trailers = plan.trailers if plan.framing == "chunked" and not bodiless else []
    return raw + server.send(h11.EndOfMessage(headers=trailers))


def h11_reads(raw: bytes) -> Verdict | None:
    """What h11's client side makes of the bytes, or None where it refuses them."""
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    client.send(REQUEST)
    client.send(h11.EndOfMessage())
    client.receive_data(raw)
    client.receive_data(b"")
    status, headers, body = 0, [], b""
    try:
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
                headers = [(bytes(name), bytes(value)) for name, value in event.headers]
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return Verdict(status, headers, body)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None
    except h11.RemoteProtocolError:
        return None


class Quiet:
    """A link that carries nothing."""

    is_open = True
    unsent = 0
    peer: Peer | None = None

    def attach(self, peer: Peer) -> None: ...
    def write(self, data: bytes | memoryview) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        self.is_open = False

    def info(self, name: str) -> object:
        return None


class Taken:
    """A taker that puts an answer together."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.body = b""
        self.ends = 0

    def on_sent(self, stamp: int) -> None: ...
    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        assert self.status == 0
        self.status, self.headers = status, headers

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        assert data
        assert self.status
        self.body += data

    def on_end(self, stamp: int) -> None:
        self.ends += 1


def pieces_of(raw: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(raw) + 1) for cut in cuts}), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges) if a < b]


async def we_read(raw: bytes, cuts: list[int]) -> Verdict | AttemptError:
    """What our roundtrip makes of the bytes, cut anywhere; it must have ended with the last one."""
    taken, link = Taken(), Quiet()
    trip, ends = trip_on(link, taken)
    for piece in pieces_of(raw, cuts):
        if not link.is_open:
            break
        trip.on_read(piece, 1, 1)
    trip.eof(None)
    [error] = ends.errors
    if error is None:
        assert taken.ends == 1
        return Verdict(taken.status, taken.headers, taken.body)
    assert isinstance(error, AttemptError)
    return error


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(PLANS, CUTS)
def test_whole_answers_are_read_alike(plan: Plan, cuts: list[int]) -> None:
    raw = serialise(plan)
    expected = h11_reads(raw)
    assert expected is not None
    assert asyncio.run(we_read(raw, cuts)) == expected


@settings(derandomize=True, max_examples=30, deadline=None)
@given(PLANS)
def test_cut_at_every_byte(plan: Plan) -> None:
    raw = serialise(plan)
    assert asyncio.run(we_read(raw, list(range(len(raw))))) == h11_reads(raw)


MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "repeat", "truncate"]),
        st.integers(0, 10_000),
        st.one_of(
            st.binary(min_size=1, max_size=4),
            st.sampled_from(
                [b"\r\n", b"\n", b"\r", b" ", b":", b"\x00", b"\xff", b";", b"0\r\n\r\n", b"\t"]
            ),
            st.sampled_from([b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"]),
        ),
    ),
    min_size=1,
    max_size=3,
)


def mutate(raw: bytes, mutations: list[tuple[str, int, bytes]]) -> bytes:
    for kind, where, what in mutations:
        at = where % (len(raw) + 1)
        end = at + len(what)
        raw = {
            "replace": raw[:at] + what + raw[end:],
            "insert": raw[:at] + what + raw[at:],
            "delete": raw[:at] + raw[end:],
            "repeat": raw[:end] + raw[at:],
            "truncate": raw[:at],
        }[kind]
    return raw


@settings(derandomize=True, max_examples=500, deadline=None)
@given(PLANS, MUTATIONS, CUTS)
def test_damaged_answers_never_do_harm(
    plan: Plan, mutations: list[tuple[str, int, bytes]], cuts: list[int]
) -> None:
    raw = mutate(serialise(plan), mutations)
    ours = asyncio.run(we_read(raw, cuts))
    whole = asyncio.run(we_read(raw, []))
    theirs = h11_reads(raw)
    if isinstance(ours, Verdict) and theirs is not None:
        assert ours == theirs
    # What follows a whole answer is an error only if it comes in the same read.
    if isinstance(whole, Verdict):
        assert ours == whole


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.binary(max_size=200), CUTS)
def test_noise_is_never_an_answer(raw: bytes, cuts: list[int]) -> None:
    assert isinstance(asyncio.run(we_read(raw, cuts)), AttemptError)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.binary(max_size=60), CUTS)
def test_noise_after_a_status_line_never_hangs(raw: bytes, cuts: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    verdict = asyncio.run(we_read(head + raw, cuts))
    if isinstance(verdict, Verdict):
        assert h11_reads(head + raw) in {None, verdict}


def test_plans_over_real_sockets(play: Play) -> None:
    """The same on sockets: whole and damaged answers, one connection each, none left over."""
    answers: list[bytes] = []

    @settings(derandomize=True, max_examples=40, deadline=None, database=None)
    @given(PLANS, st.one_of(st.just([]), MUTATIONS))
    def collect(plan: Plan, mutations: list[tuple[str, int, bytes]]) -> None:
        answers.append(mutate(serialise(plan), mutations))

    collect()

    async def scene(rig: Rig) -> None:
        for raw in answers:
            await over_a_socket(rig, raw)

    play(scene)


async def over_a_socket(rig: Rig, raw: bytes) -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        for piece in pieces_of(raw, [7, 70, 111]):
            await wire.send(piece)
        await wire.goodbye()

    client, server = rig.client(), rig.serve(script)
    theirs = h11_reads(raw)
    try:
        kept = await rig.ask(client, server.origin)
    except AttemptError as error:
        assert theirs is None or isinstance(error, Malformed)  # noqa: PT017 - either may happen
    else:
        if theirs is not None:
            assert Verdict(kept.status, kept.headers, kept.body) == theirs
    await client.close()
    await server.close()
