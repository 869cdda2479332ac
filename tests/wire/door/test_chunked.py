"""Chunked bodies: every limit at its edge, whatever the cuts between reads."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from lightgate.wire.door.chunked import EXTRA_BYTES, LINE_BYTES, ChunkedBody
from lightgate.wire.door.inbound import RequestError

WHOLE = b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nx: y\r\n\r\n"


def fed(data: bytes, limit: int = 100) -> tuple[bytes, bytes | None]:
    body = ChunkedBody(limit, "")
    rest = body.feed(data)
    return body.body, rest


def refused(data: bytes, limit: int = 100, hint: str = "") -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        ChunkedBody(limit, hint).feed(data)
    return caught.value.status, caught.value.reason


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_a_body_may_be_cut_anywhere(at: int) -> None:
    body = ChunkedBody(100, "")
    assert body.untouched
    assert body.feed(WHOLE[:at]) is None
    assert body.untouched is (at == 0)
    assert body.feed(WHOLE[at:] + b"next") == b"next"
    assert body.body == b"hello!"
    assert not body.untouched


def test_byte_by_byte() -> None:
    body = ChunkedBody(100, "")
    rests = [body.feed(WHOLE[n : n + 1]) for n in range(len(WHOLE))]
    assert rests == [None] * (len(WHOLE) - 1) + [b""]
    assert body.body == b"hello!"


def test_a_body_may_be_as_large_as_its_limit() -> None:
    assert fed(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 5) == (b"abcde", b"")
    says = (413, "The body is larger than 5 bytes. Ask.")
    assert refused(b"6\r\n", 5, " Ask.") == says
    assert refused(b"3\r\nabc\r\n3\r\n", 5, " Ask.") == says
    assert fed(b"0\r\n\r\n", 0) == (b"", b"")


@pytest.mark.parametrize("digits", ["1", "00000001", "A", "a", "F", "10", "2b"])
def test_sizes_are_hexadecimal(digits: str) -> None:
    size = int(digits, 16)
    raw = f"{digits}\r\n{'x' * size}\r\n0\r\n\r\n".encode()
    assert fed(raw) == (b"x" * size, b"")


@pytest.mark.parametrize(
    "line",
    [b"", b" 1", b"1 ", b"+1", b"-1", b"0x1", b"g", b"000000001", b"1;\x00", b"1;\x7f", b"1\n"],
)
def test_a_size_that_is_none_is_refused(line: bytes) -> None:
    assert refused(line + b"\r\nx\r\n") == (400, "The size of a chunk is malformed.")


def test_a_line_has_a_limit() -> None:
    longest = b"1;" + b"e" * (LINE_BYTES - 2)
    assert fed(longest + b"\r\nx\r\n0\r\n\r\n") == (b"x", b"")
    says = (400, "A line of the body's framing is too long.")
    assert refused(longest + b"e\r\n") == says
    malformed = (400, "A chunk of the body is malformed.")
    assert fed(longest + b"\r") == (b"", None)
    assert fed(longest) == (b"", None)
    assert refused(longest + b"ee") == malformed
    assert refused(b"1\n") == malformed


def test_what_follows_a_chunk_is_its_line_end() -> None:
    assert refused(b"1\r\nab\r\n") == (400, "A chunk is longer than its size.")
    malformed = (400, "A chunk of the body is malformed.")
    assert refused(b"1\r\nab") == malformed
    assert refused(b"1\r\na\n") == malformed
    assert fed(b"1\r\na\r") == (b"a", None)
    assert fed(b"1\r\na") == (b"a", None)


@pytest.mark.parametrize("line", [b"x", b": y", b"x y: z", b"x: \x00", b"x: \x7f"])
def test_a_trailer_that_is_none_is_refused(line: bytes) -> None:
    assert refused(b"0\r\n" + line + b"\r\n") == (400, "A trailer field is malformed.")


def test_all_extensions_and_trailers_together_have_a_limit() -> None:
    assert (LINE_BYTES, EXTRA_BYTES) == (256, 8192)
    chunk = b"1;" + b"e" * 128 + b"\r\nx\r\n"
    full = chunk * 63
    trailer = b"t:" + b"y" * 126
    assert fed(full + b"0\r\n" + trailer + b"\r\n\r\n") == (b"x" * 63, b"")
    says = (400, "The body's framing is out of proportion.")
    assert refused(full + b"0\r\n" + trailer + b"y\r\n") == says
    assert refused(full + chunk + b"1;e\r\n") == says


def test_a_body_that_goes_to_a_sink_is_held_nowhere_else() -> None:
    class Elsewhere:
        def __init__(self) -> None:
            file = BytesIO()
            self.write, self.tell, self.getvalue = file.write, file.tell, file.getvalue

    sink: Any = Elsewhere()
    body = ChunkedBody(100, "", sink)
    assert body.feed(WHOLE) == b""
    assert (sink.getvalue(), body.body) == (b"hello!", b"")
    with pytest.raises(RequestError, match="larger than 7 bytes"):
        ChunkedBody(7, "", sink).feed(b"2\r\n")
