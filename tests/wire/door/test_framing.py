"""The framing that a head declares, also where the parser behind it lets more through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools
import pytest

from lightgate.wire.door.inbound import DoorLimits, RequestError, RequestHead

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
