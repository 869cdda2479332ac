"""The framing that a head declares, also where the parser behind it lets more through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools
import pytest

from lightgate.wire.door.inbound import (
    DoorLimits,
    Inbound,
    Repeat,
    RequestError,
    RequestHead,
    repeat_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[..., RequestHead]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads a head whose fields the parser hands over without a look at them."""

    def head(*fields: tuple[bytes, bytes], minor: bytes = b"1") -> RequestHead:
        class Lenient:
            def __init__(self, owner: RequestHead) -> None:
                self._owner = owner

            def feed_data(self, _: bytes) -> None:
                for name, value in ((b"Host", b"a"), *fields):
                    self._owner.on_header(name, value)

        monkeypatch.setattr(httptools, "HttpRequestParser", Lenient)
        return RequestHead(b"POST /v1/x HTTP/1.%b\r\nhost: a\r\n\r\n" % minor, DoorLimits())

    return head


def refused(read: Read, *fields: tuple[bytes, bytes], minor: bytes = b"1") -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        read(*fields, minor=minor)
    return caught.value.status, caught.value.reason


def test_a_length_and_a_coding_exclude_each_other(read: Read) -> None:
    both = ((b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked"))
    said = (400, "Content-Length and Transfer-Encoding exclude each other.")
    assert refused(read, *both) == refused(read, *reversed(both)) == said


@pytest.mark.parametrize("coding", [b"gzip", b"chunked, gzip", b"gzip, chunked", b"", b"xchunked"])
def test_the_only_coding_is_chunked(read: Read, coding: bytes) -> None:
    said = (400, "The only transfer coding is chunked, on HTTP/1.1.")
    assert refused(read, (b"transfer-encoding", coding)) == said
    assert refused(read, (b"transfer-encoding", b"chunked"), minor=b"0") == said
    head = read((b"transfer-encoding", b"CHUNKED \t"))
    assert (head.chunked, head.length) == (True, 0)


@pytest.mark.parametrize(
    "length", [b"", b"+5", b"-5", b"5,5", b"0x5", b"5 5", b"5.0", b"\xb2", b"1" * 16]
)
def test_a_length_is_a_number_of_some_digits(read: Read, length: bytes) -> None:
    assert refused(read, (b"content-length", length)) == (400, "Content-Length is not a number.")
    head = read((b"content-length", b"000000000000012"))
    assert (head.chunked, head.length) == (False, 12)
    assert (read().length, read().chunked) == (0, False)


@pytest.mark.parametrize("name", [b"content-length", b"transfer-encoding", b"host", b"expect"])
def test_a_field_that_frames_stands_once(read: Read, name: bytes) -> None:
    value = {b"content-length": b"5", b"expect": b"100-continue", b"host": b"a"}.get(
        name, b"chunked"
    )
    said = f"More than one {name.decode()} field."
    assert refused(read, (name, value), (name.upper(), value)) == (400, said)


@pytest.mark.parametrize(
    ("minor", "values", "kept"),
    [
        (b"1", [], True),
        (b"0", [], False),
        (b"1", [b"close"], False),
        (b"1", [b"CLOSE"], False),
        (b"1", [b"keep-alive"], True),
        (b"1", [b"keep-alive, close"], False),
        (b"1", [b"x", b" close\t"], False),
        (b"1", [b"close", b"x"], False),
        (b"1", [b"closer"], True),
        (b"0", [b"keep-alive"], True),
        (b"0", [b"Keep-Alive , x"], True),
        (b"0", [b"x"], False),
        (b"0", [b"keep-alive", b"x"], True),
        (b"0", [b"keep-alive", b"close"], False),
    ],
)
def test_whether_a_connection_is_kept(
    read: Read, minor: bytes, values: list[bytes], kept: bool
) -> None:
    assert read(*[(b"connection", value) for value in values], minor=minor).keep_alive is kept


def test_the_only_expectation(read: Read) -> None:
    assert read((b"expect", b"100-Continue")).expects
    assert not read().expects
    assert not read((b"expect", b"anything"), minor=b"0").expects  # HTTP/1.0 has none
    said = (417, "The only expectation that is met is 100-continue.")
    assert refused(read, (b"expect", b"200-ok")) == said


def test_a_compressed_body_is_refused_and_the_length_is_no_field(read: Read) -> None:
    said = (415, "Request bodies must not be compressed.")
    assert refused(read, (b"content-encoding", b"gzip")) == said
    head = read((b"Content-Length", b"5"), (b"X-A", b"v \t"))
    assert head.headers == ((b"host", b"a"), (b"x-a", b"v"))


def test_every_byte_of_a_head_is_text_or_part_of_a_line_end() -> None:
    sound = {9, *range(32, 127), *range(128, 256)}
    for code in range(256):
        raw = b"GET / HTTP/1.1\r\nhost: a\r\nx: a%cb\r\n\r\n" % code
        if code in sound:
            assert RequestHead(raw, DoorLimits()).headers[1] == (b"x", b"a%cb" % code)
            continue
        with pytest.raises(RequestError) as caught:
            RequestHead(raw, DoorLimits())
        assert caught.value.reason.startswith("A control character ")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET / HTTP/1.0", 0), (b"GET / HTTP/1.1", 0), (b"GET / HTTP/1.2", 505),
        (b"GET / HTTP/2.0", 505), (b"GET / HTTP/0.1", 505), (b"GET / HTTP/1.X", 400),
        (b"GET  / HTTP/1.1", 400), (b"GET /  HTTP/1.1", 400), (b"GET /\x80 HTTP/1.1", 400),
        (b"CONNECT a:1 HTTP/1.1", 501), (b"BREW / HTTP/1.1", 501),
    ],
)  # fmt: skip
def test_request_lines(line: bytes, status: int) -> None:
    raw = line + b"\r\nhost: a\r\n\r\n"
    if not status:
        head = RequestHead(raw, DoorLimits())
        assert (head.method, head.target, head.minor) == (b"GET", b"/", int(line[-1:]))
        return
    with pytest.raises(RequestError) as caught:
        RequestHead(raw, DoorLimits())
    assert caught.value.status == status


def target_of(
    line: bytes, host: bytes = b"host: a.b\r\n", limits: DoorLimits | None = None
) -> bytes:
    return RequestHead(line + b"\r\n" + host + b"\r\n", limits or DoorLimits()).target


def test_a_whole_url_is_taken_for_its_path() -> None:
    assert target_of(b"GET http://a.b/x?y=1 HTTP/1.1") == b"/x?y=1"
    assert target_of(b"GET HTTPS://A.B HTTP/1.1") == b"/"
    assert target_of(b"GET http://a.b?y HTTP/1.1") == b"/?y"
    assert target_of(b"OPTIONS * HTTP/1.1") == b"*"
    assert target_of(b"GET http://any/x HTTP/1.0", b"") == b"/x"


@pytest.mark.parametrize(
    ("line", "host", "said"),
    [
        (b"GET / HTTP/1.1", b"", "HTTP/1.1 needs a Host field."),
        (b"GET / HTTP/1.1", b"host: a b\r\n", "The Host field is malformed."),
        (b"GET / HTTP/1.0", b"host: a/b\r\n", "The Host field is malformed."),
        (b"GET /#a HTTP/1.1", b"host: a\r\n", "A request target has no fragment."),
        (b"GET * HTTP/1.1", b"host: a\r\n", "The request target is malformed."),
        (b"GET x HTTP/1.1", b"host: a\r\n", "The head of the request is malformed."),
        (b"GET ftp://a/ HTTP/1.1", b"host: a\r\n", "The request target is malformed."),
        (b"GET http://a@b/ HTTP/1.1", b"host: a\r\n", "The request target is malformed."),
        (b"GET http://b/ HTTP/1.1", b"host: a\r\n", "The request target and the Host field"),
    ],
)
def test_targets_and_hosts_that_could_be_read_in_two_ways(
    line: bytes, host: bytes, said: str
) -> None:
    with pytest.raises(RequestError) as caught:
        target_of(line, host)
    assert caught.value.status == 400
    assert caught.value.reason.startswith(said)


def test_a_head_has_as_many_fields_as_are_allowed() -> None:
    few = DoorLimits(headers=3)
    fields = b"host: a\r\nx: 1\r\ny: 2\r\n"
    assert target_of(b"GET / HTTP/1.1", fields, few) == b"/"
    with pytest.raises(RequestError) as caught:
        target_of(b"GET / HTTP/1.1", fields + b"z: 3\r\n", few)
    assert (caught.value.status, caught.value.reason) == (431, "More than 3 header fields.")


def test_the_first_value_of_a_field() -> None:
    inbound = Inbound(
        method=b"GET", target=b"/", headers=((b"x", b"1"), (b"y", b"2"), (b"x", b"3")), body=b"",
        peer="p:1", accepted_ns=1, first_byte_ns=2, received_ns=3,
    )  # fmt: skip
    assert (inbound.header(b"x"), inbound.header(b"y"), inbound.header(b"z")) == (b"1", b"2", None)
    assert (inbound.notes.read, inbound.notes.sink) == (None, None)  # nobody has read it yet


def test_a_head_that_is_repeated_differs_in_its_length_alone() -> None:
    raw = b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: \t12 \r\nx: y\r\n\r\n"
    before, _, after = raw.partition(b"12")
    assert repeat_of(raw, RequestHead(raw, DoorLimits())) == Repeat(before, after)
    for other in (
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
    ):
        assert repeat_of(other, RequestHead(other, DoorLimits())) is None
