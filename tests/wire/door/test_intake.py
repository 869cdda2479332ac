"""Requests as they come in: every cut between reads, every limit at its edge."""

from __future__ import annotations

import pytest

from lightgate.wire.door.inbound import DoorLimits, Notes, RequestError, RequestHead, repeat_of
from lightgate.wire.door.intake import BODY, HEAD, IDLE, Intake

HEADS = b"POST /v1/x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"
WHOLE = HEADS + b"hello"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
LIMITS = DoorLimits(body_bytes=100, body_hint=" Ask.")


def intake(**limits: int) -> Intake:
    return Intake(DoorLimits(body_hint=" Ask.", **({"body_bytes": 100} | limits)))


def refused(data: bytes, **limits: int) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        intake(**limits).take(data, 1)
    assert str(caught.value) == caught.value.reason
    return caught.value.status, caught.value.reason


@pytest.mark.parametrize("at", range(1, len(WHOLE)))
@pytest.mark.parametrize("before", [b"", b"\r\n"])
def test_a_request_may_be_cut_anywhere(at: int, before: bytes) -> None:
    one, data = intake(), before + WHOLE
    assert one.phase == IDLE
    assert one.take(data[:at], 10) is None
    assert one.phase == (BODY if at >= len(before + HEADS) else HEAD)
    assert one.take(data[at:] + b"rest", 20) == b"rest"
    assert (one.phase, one.body, one.first_ns) == (IDLE, b"hello", 10)
    assert (one.head.method, one.head.target) == (b"POST", b"/v1/x")


def test_byte_by_byte_and_again_on_the_same_connection() -> None:
    one = intake()
    for stamp in (1, 1001):
        rests = [one.take(WHOLE[n : n + 1], stamp + n) for n in range(len(WHOLE))]
        assert rests == [None] * (len(WHOLE) - 1) + [b""]
        assert (one.body, one.first_ns) == (b"hello", stamp)
    assert one.take(WHOLE, 5000) == b""
    assert one.first_ns == 5000


def test_a_head_that_repeats_is_read_once() -> None:
    one = intake()
    assert one.take(WHOLE, 1) == b""
    head = one.head
    assert one.take(WHOLE.replace(b": 5", b": 3"), 2) == b"lo"
    assert (one.head is head, one.body) == (True, b"hel")
    assert one.take(HEADS.replace(b": 5", b": 000000000000002") + b"ab", 3) == b""
    assert (one.head is head, one.body) == (True, b"ab")
    with pytest.raises(RequestError):
        one.take(HEADS.replace(b": 5", b": 0000000000000002") + b"ab", 4)
    for other in (b": +5", b": ", b": 5x", b": 5, 5", b": \xb2"):
        one = intake()
        one.take(WHOLE, 1)
        with pytest.raises(RequestError):
            one.take(WHOLE.replace(b": 5", other), 2)
    one = intake()
    one.take(WHOLE, 1)
    head = one.head
    assert one.take(WHOLE.replace(b"/v1/x", b"/v1/y"), 2) == b""
    assert one.head is not head
    assert one.head.target == b"/v1/y"


def test_what_may_be_repeated() -> None:
    def repeats(raw: bytes) -> bool:
        return repeat_of(raw, RequestHead(raw, LIMITS)) is not None

    assert repeats(HEADS)
    assert repeats(HEADS.replace(b"content-length: 5", b"Content-Length:5 \t"))
    assert not repeats(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert not repeats(CHUNKED)
    assert not repeats(HEADS.replace(b"host: a", b"host: a\r\nexpect: 100-continue"))
    found = repeat_of(HEADS, RequestHead(HEADS, LIMITS))
    assert found is not None
    assert found.before + b"5" + found.after == HEADS


def test_a_head_may_be_as_large_as_its_limit() -> None:
    size = len(HEADS)
    assert intake(head_bytes=size).take(WHOLE, 1) == b""
    says = (431, f"The head is larger than {size - 1} bytes.")
    assert refused(WHOLE, head_bytes=size - 1) == says
    part = HEADS[:20]
    assert intake(head_bytes=20).take(part, 1) is None
    assert refused(part, head_bytes=19) == (431, "The head is larger than 19 bytes.")


def test_a_body_may_be_as_large_as_its_limit() -> None:
    assert intake(body_bytes=5).take(WHOLE, 1) == b""
    says = (413, "The body is larger than 4 bytes. Ask.")
    assert refused(WHOLE, body_bytes=4) == says
    assert refused(HEADS, body_bytes=4) == says
    assert intake(body_bytes=5).take(HEADS, 1) is None
    assert refused(CHUNKED + b"5\r\n", body_bytes=4) == says


@pytest.mark.parametrize("wrong", [b"\n", b"\0", b"\x7f", b"a\rb"])
def test_what_can_never_become_a_head_is_refused_at_once(wrong: bytes) -> None:
    says = (400, "A control character or a bare line end is in the head.")
    assert refused(b"GET /" + wrong + b"x") == says
    one = intake()
    assert one.take(b"GET / HTTP/1.1\r\nx: ", 1) is None
    with pytest.raises(RequestError):
        one.take(wrong + b"x", 2)
    assert refused(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + wrong + b"y\r\n\r\n")[0] == 400


def test_a_chunked_body() -> None:
    one = intake()
    assert (one.take(CHUNKED, 1), one.phase) == (None, BODY)
    assert one.take(b"2\r\nhi\r\n0\r\n\r\nrest", 2) == b"rest"
    assert (one.phase, one.body) == (IDLE, b"hi")
    assert one.take(CHUNKED + b"1\r\n!\r\n0\r\n\r\n", 3) == b""
    assert one.body == b"!"
    assert one.take(WHOLE, 4) == b""
    assert one.body == b"hello"


@pytest.mark.parametrize("framing", [b"content-length: 5", b"transfer-encoding: chunked"])
def test_a_body_that_is_held_back_waits_for_a_word(framing: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\n" + framing + b"\r\n\r\n"
    one = intake()
    seen = [one.awaits_go]
    for number, piece in enumerate((head[:-1], head[-1:], b"1")):
        assert one.take(piece, number) is None
        seen.append(one.awaits_go)
    assert seen == [False, False, True, False]
    plain = intake()
    plain.take(head.replace(b"expect: 100-Continue\r\n", b""), 1)
    assert not plain.awaits_go


def test_a_refusal_of_head_has_no_body() -> None:
    unused = intake()
    assert (unused.is_head_method, unused._buffer, unused.body) == (False, b"", b"")
    one = intake()
    one.take(b"HEAD / HTTP/1.1\r\n", 1)
    assert one.is_head_method
    one = intake()
    one.take(b"GET / HTTP/1.1\r\n", 1)
    assert not one.is_head_method
    one = intake()
    one.take(b"HEAD / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n", 1)
    assert (one.phase, one.is_head_method) == (BODY, True)
    one = intake()
    one.take(HEADS, 1)
    assert not one.is_head_method


def test_what_is_unfinished_is_let_go() -> None:
    one = intake()
    one.take(HEADS + b"he", 1)
    one.drop()
    assert (one._part, one._chunks, one._buffer) == (None, None, b"")
    one = intake()
    one.take(HEADS[:9], 1)
    one.drop()
    assert one._buffer == b""
    one = intake()
    one.take(CHUNKED + b"5\r\nhe", 1)
    one.drop()
    assert one._chunks is None


# Heads


def head(
    *lines: bytes, start: bytes = b"POST / HTTP/1.1", limits: DoorLimits = LIMITS
) -> RequestHead:
    return RequestHead(b"\r\n".join((start, *lines, b"", b"")), limits)


def wrong(*lines: bytes, start: bytes = b"POST / HTTP/1.1", limits: DoorLimits = LIMITS) -> int:
    with pytest.raises(RequestError) as caught:
        head(*lines, start=start, limits=limits)
    return caught.value.status


HOST = b"host: a"


def test_a_head_says_what_follows_it() -> None:
    plain = head(HOST)
    assert (plain.length, plain.chunked, plain.expects, plain.keep_alive) == (0, False, False, True)
    assert (plain.minor, plain.method, plain.target) == (1, b"POST", b"/")
    assert plain.headers == ((b"host", b"a"),)
    assert isinstance(plain.notes, Notes)
    sized = head(HOST, b"Content-Length: 007 \t", b"X-Y: z \t")
    assert (sized.length, sized.headers) == (7, ((b"host", b"a"), (b"x-y", b"z")))
    assert head(HOST, b"transfer-encoding: Chunked").chunked
    assert head(HOST, b"expect: 100-Continue").expects


@pytest.mark.parametrize(
    ("start", "lines", "kept"),
    [
        (b"GET / HTTP/1.1", (HOST,), True),
        (b"GET / HTTP/1.1", (HOST, b"connection: close"), False),
        (b"GET / HTTP/1.1", (HOST, b"connection: x, CLOSE"), False),
        (b"GET / HTTP/1.1", (HOST, b"connection: x", b"connection: close"), False),
        (b"GET / HTTP/1.1", (HOST, b"connection: x"), True),
        (b"GET / HTTP/1.0", (), False),
        (b"GET / HTTP/1.0", (b"connection: Keep-Alive",), True),
        (b"GET / HTTP/1.0", (b"connection: keep-alive, close",), False),
    ],
)
def test_whether_the_connection_is_kept(start: bytes, lines: tuple[bytes, ...], kept: bool) -> None:
    assert head(*lines, start=start).keep_alive is kept


@pytest.mark.parametrize(
    ("start", "lines", "status"),
    [
        (b"POST / HTTP/1.1", (), 400),
        (b"POST / HTTP/1.1", (b"host: a b",), 400),
        (b"POST / HTTP/1.1", (b"host: a", b"host: a"), 400),
        (b"POST / HTTP/1.1", (HOST, b"content-length: 5", b"content-length: 5"), 400),
        (b"POST / HTTP/1.1", (HOST, b"content-length: 5, 5"), 400),
        (b"POST / HTTP/1.1", (HOST, b"content-length: 1234567890123456"), 400),
        (b"POST / HTTP/1.1", (HOST, b"content-length: 5", b"transfer-encoding: chunked"), 400),
        (b"POST / HTTP/1.1", (HOST, b"transfer-encoding: gzip, chunked"), 400),
        (b"POST / HTTP/1.1", (HOST, b"transfer-encoding: chunked", b"transfer-encoding: x"), 400),
        (b"POST / HTTP/1.0", (b"transfer-encoding: chunked",), 400),
        (b"POST / HTTP/1.1", (HOST, b"content-encoding: gzip"), 415),
        (b"POST / HTTP/1.1", (HOST, b"expect: more"), 417),
        (b"POST  / HTTP/1.1", (HOST,), 400),
        (b"POST / HTTP/1.2", (HOST,), 505),
        (b"POST / HTTP/2.0", (HOST,), 505),
        (b"POST / http/1.1", (HOST,), 400),
        (b"CONNECT a:1 HTTP/1.1", (HOST,), 501),
        (b"BREW / HTTP/1.1", (HOST,), 501),
        (b"POST /#a HTTP/1.1", (HOST,), 400),
        (b"POST * HTTP/1.1", (HOST,), 400),
        (b"POST a HTTP/1.1", (HOST,), 400),
        (b"POST ftp://a/ HTTP/1.1", (HOST,), 400),
        (b"POST http://b/ HTTP/1.1", (HOST,), 400),
        (b"POST http://a b/ HTTP/1.1", (HOST,), 400),
        (b"POST http://u@a/ HTTP/1.1", (HOST,), 400),
        (b"POST / HTTP/1.1", (HOST, b"x y: z"), 400),
        (b"POST / HTTP/1.1", (HOST, b"x : z"), 400),
    ],
)
def test_a_head_that_might_be_read_otherwise_is_refused(
    start: bytes, lines: tuple[bytes, ...], status: int
) -> None:
    assert wrong(*lines, start=start) == status


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (b"/a?b", b"/a?b"),
        (b"http://a/x?y", b"/x?y"),
        (b"HTTPS://A", b"/"),
        (b"http://a?y", b"/?y"),
    ],
)
def test_a_target_is_a_path(target: bytes, found: bytes) -> None:
    assert head(HOST, start=b"GET " + target + b" HTTP/1.1").target == found


def test_other_heads_that_are_sound() -> None:
    assert head(HOST, start=b"OPTIONS * HTTP/1.1").target == b"*"
    assert head(start=b"GET / HTTP/1.0").minor == 0
    assert head(start=b"GET http://a/ HTTP/1.0").target == b"/"
    assert not head(b"expect: 100-continue", start=b"GET / HTTP/1.0").expects
    assert not head(b"expect: more", start=b"GET / HTTP/1.0").expects
    assert head(HOST, b"upgrade: h2c", b"connection: upgrade").keep_alive
    for host in (b"host: [::1]:80", b"host:", b"host: a.b-c_d~!$&'()*+,;=%41:1", b"host: a:"):
        assert head(host).headers[0][0] == b"host"
    for host in (b"host: [::1", b"host: a:123456", b"host: a/b", b"host: [g]"):
        assert wrong(host) == 400
    assert head(HOST, b"content-length: 123456789012345").length == 123456789012345


def test_a_head_has_a_limit_of_fields() -> None:
    few = DoorLimits(headers=3)
    assert len(head(HOST, b"a: b", b"c: d", limits=few).headers) == 3
    assert wrong(HOST, b"a: b", b"c: d", b"e: f", limits=few) == 431


def test_the_usual_limits() -> None:
    usual = DoorLimits()
    assert (usual.head_bytes, usual.headers, usual.body_bytes) == (32768, 100, 10 << 20)
    assert (usual.idle_s, usual.head_s, usual.body_s, usual.write_s) == (75.0, 10.0, 60.0, 30.0)
    assert (usual.linger_s, usual.queue_bytes, usual.body_hint) == (2.0, 65536, "")


def test_a_repeated_head_with_more_digits_has_the_same_limits() -> None:
    again = HEADS.replace(b": 5", b": 05") + b"hello"
    fits = intake(head_bytes=len(HEADS) + 1)
    assert (fits.take(WHOLE, 1), fits.take(again, 2), fits.body) == (b"", b"", b"hello")
    tight = intake(head_bytes=len(HEADS))
    assert tight.take(WHOLE, 1) == b""
    with pytest.raises(RequestError) as caught:
        tight.take(again, 2)
    assert caught.value.status == 431
    small = intake(body_bytes=5)
    assert small.take(WHOLE, 1) == b""
    with pytest.raises(RequestError) as caught:
        small.take(WHOLE.replace(b": 5", b": 6") + b"!", 2)
    assert caught.value.status == 413


@pytest.mark.parametrize("at", range(1, len(WHOLE)))
def test_a_repeated_request_may_be_cut_anywhere(at: int) -> None:
    one = intake()
    assert one.take(WHOLE, 1) == b""
    again = WHOLE.replace(b"hello", b"howdy")
    assert one.take(again[:at], 10) is None
    assert one.take(again[at:] + b"rest", 20) == b"rest"
    assert (one.phase, one.body, one.first_ns) == (IDLE, b"howdy", 10)


@pytest.mark.parametrize("digits", [b"5", b"05", b"0" * 14 + b"5"])
@pytest.mark.parametrize("at", [1, 30, len(HEADS) - 1])
def test_a_head_that_repeats_in_parts_is_read_once(digits: bytes, at: int) -> None:
    """The second one comes in two reads and differs in its length alone."""
    one = intake()
    assert one.take(WHOLE, 1) == b""
    head = one.head
    data = WHOLE.replace(b"length: 5", b"length: " + digits)
    assert one.take(data[:at], 2) is None
    assert one.take(data[at:] + b"rest", 3) == b"rest"
    assert one.head is head
    assert one.body == b"hello"


@pytest.mark.parametrize("at", [1, 30])
@pytest.mark.parametrize("digits", [b"0" * 15 + b"5", b"", b"-5", b"5 5", "\u0665".encode()])
def test_a_length_that_is_none_is_refused_in_a_head_that_repeats(digits: bytes, at: int) -> None:
    one = intake()
    assert one.take(WHOLE, 1) == b""
    data = WHOLE.replace(b"length: 5", b"length: " + digits)
    with pytest.raises(RequestError):
        one.take(data[:at], 2) or one.take(data[at:], 3)


@pytest.mark.parametrize("at", [0, 1, 20])
def test_nothing_is_held_of_a_head_that_was_read(at: int) -> None:
    one, data = intake(), b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"
    if at:
        assert one.take(data[:at], 1) is None
        assert (one._buffer, one._scanned) == (data[:at], at)
    assert one.take(data[at:], 2) == b""
    assert (one._buffer, one._scanned, one.phase, one.is_head_method) == (b"", 0, IDLE, False)
    assert one.take(HEADS, 3) is None
    assert (one._buffer, one._scanned, one.phase) == (b"", 0, BODY)


@pytest.mark.parametrize(("size", "asked"), [(99, 0), (100, 0), (101, 1)])
def test_a_body_that_came_with_its_head_needs_no_place(size: int, asked: int) -> None:
    """Up to the limit, that is: of a larger one it is asked where it may go."""
    heads: list[RequestHead] = []

    def sink_of(head: RequestHead) -> None:
        heads.append(head)

    one = Intake(LIMITS, sink_of)
    data = HEADS.replace(b"length: 5", b"length: %d" % size) + bytes(size)
    if asked:
        with pytest.raises(RequestError, match="larger than 100 bytes"):
            one.take(data, 1)
    else:
        assert one.take(data, 1) == b""
        assert one.body == bytes(size)
    assert len(heads) == asked


@pytest.mark.parametrize("digits", [b"5", b"05", b"0" * 14 + b"5"])
@pytest.mark.parametrize("rest", [b"", b"r", WHOLE])
def test_a_whole_request_that_repeats_is_taken_at_once(digits: bytes, rest: bytes) -> None:
    """Without a look at its head, which is as large as it may be here; the body is, too."""
    data = WHOLE.replace(b"length: 5", b"length: " + digits)
    one = intake(head_bytes=len(data) - 5, body_bytes=5)
    assert one.take(WHOLE, 1) == b""
    one.body = b""
    repeat = one._repeat
    assert repeat is not None
    assert one._take_again(data + rest, repeat) == rest
    assert one.body == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        WHOLE.replace(b"length: 5", b"length: " + b"0" * 15 + b"5"),  # a digit too many
        WHOLE.replace(b"length: 5", b"length: "),
        WHOLE.replace(b"length: 5", b"length: +5"),
        WHOLE.replace(b"length: 5", b"length: 6"),  # a byte of the body is missing
        WHOLE.replace(b"length: 5", b"length: 7") + b"hello",  # larger than it may be
        WHOLE.replace(b"5\r\n", b"5\r\nx: y\r\n"),
        HEADS[:-4],
        HEADS[:-4] + b"5555",
        HEADS[:-3],
    ],
)
def test_a_request_that_repeats_in_part_is_left_to_the_usual_way(data: bytes) -> None:
    one = intake(body_bytes=6)
    assert one.take(WHOLE, 1) == b""
    repeat = one._repeat
    assert repeat is not None
    assert one._take_again(data, repeat) is None
    assert (one.body, one.phase) == (b"hello", IDLE)


def test_a_head_that_is_larger_than_it_may_be_is_left_to_the_usual_way() -> None:
    one = intake(head_bytes=len(HEADS))
    assert one.take(WHOLE, 1) == b""
    repeat = one._repeat
    assert repeat is not None
    assert one._take_again(WHOLE.replace(b"length: 5", b"length: 05"), repeat) is None


class Store:
    """A place for bodies that keeps them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = b""
        self.dropped = 0

    def write(self, data: bytes, /) -> int:
        self.data += data
        return len(data)

    def tell(self) -> int:
        return len(self.data)

    def attach(self, pause: object, resume: object) -> None:
        """Nothing is stopped here."""

    def drop(self) -> None:
        self.dropped += 1


def test_the_place_of_a_body_is_this_requests_alone() -> None:
    stores: list[Store] = []

    def sink_of(_: RequestHead) -> Store:
        stores.append(Store(200))
        return stores[-1]

    one = Intake(LIMITS, sink_of)
    large = HEADS.replace(b"length: 5", b"length: 150")
    heads = []
    for _ in range(2):
        assert one.take(large, 1) is None
        assert any(one.sink is store for store in stores[-1:])
        heads.append(one.head)
        assert one.take(b"x" * 150 + b"rest", 2) == b"rest"
        assert (one.body, one.sink) == (b"", None)
    assert heads[0] is not heads[1]
    assert [head.notes.sink for head in heads] == stores
    assert [store.data for store in stores] == [b"x" * 150] * 2
    assert one._repeat is None
    assert one.take(WHOLE, 3) == b""
    assert (one.head.notes.sink, one.body) == (None, b"hello")


def test_a_body_that_is_too_large_for_its_place_is_refused_without_a_hint() -> None:
    one = Intake(LIMITS, lambda _: Store(200))
    with pytest.raises(RequestError) as caught:
        one.take(HEADS.replace(b"length: 5", b"length: 201"), 1)
    assert (caught.value.status, caught.value.reason) == (413, "The body is larger than 200 bytes.")
    one = Intake(LIMITS, lambda _: Store(200))
    one.take(CHUNKED, 1)
    with pytest.raises(RequestError) as caught:
        one.take(b"c9\r\n", 1)
    assert (caught.value.status, caught.value.reason) == (413, "The body is larger than 200 bytes.")
