"""The SSE splitter against a second reading of the specification, at every split point.

The reference follows the HTML standard, section 9.2.6 (interpreting an event stream), in the plain
way: all bytes at hand, one line after the other.
"""

from __future__ import annotations

import itertools
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.errors import TooLarge
from lightgate.wire.sse import EVENT_LIMIT, LINE_LIMIT, SseSplitter

Event = tuple[bytes, bytes]


def reference(stream: bytes) -> list[Event]:
    if stream.startswith(b"\xef\xbb\xbf"):
        stream = stream[3:]
    lines = re.split(rb"\r\n|\n|\r", stream)[:-1]  # what has no line end is not a line
    events: list[Event] = []
    data, name = b"", b""
    for line in lines:
        if not line:
            if data:
                events.append((name, data[:-1]))
            data, name = b"", b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if field == b"data":
                data += value + b"\n"
            elif field == b"event":
                name = value
    return events


def split_at(stream: bytes, cuts: list[int]) -> list[Event]:
    splitter = SseSplitter()
    events: list[Event] = []
    edges = [0, *sorted(cuts), len(stream)]
    for left, right in itertools.pairwise(edges):
        events += splitter.feed(stream[left:right])
    return events


STREAMS = {
    "LF": b'data: {"a":1}\n\ndata: [DONE]\n\n',
    "CRLF": b"event: ping\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n",
    "CR": b"event: ping\rdata: 1\r\rdata: 2\r\r",
    "mixed line ends": b"data: 1\r\ndata: 2\rdata: 3\n\r\ndata: 4\r\n\n\rdata: 5\n\r",
    "BOM": b"\xef\xbb\xbfdata: x\n\ndata: y\n\n",
    "BOM later is no BOM": b"data: x\n\n\xef\xbb\xbfdata: y\n\n",
    "two BOMs": b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\ndata: y\n\n",
    "comments": b": hello\n\n:\n\ndata: a\n: in between\ndata: b\n\n:ping\n\n",
    "several data lines": b"data: one\ndata:\ndata:  two\n\n",
    "no space after the colon": b"data:x\nevent:y\n\n",
    "two spaces after the colon": b"data:  x\n\n",
    "tab after the colon": b"data:\tx\n\n",
    "no colon": b"data\n\ndata\ndata\n\nevent\ndata: x\n\n",
    "empty data": b"data:\n\ndata: \n\n",
    "name without data": b"event: lost\n\ndata: x\n\n",
    "last name wins": b"event: a\nevent: b\ndata: x\n\ndata: y\n\n",
    "other fields": b"id: 7\nretry: 100\nfoo: bar\nDATA: no\n data: no\ndata : no\ndata: yes\n\n",
    "colons in the value": b"data: a:b: c\n\n",
    "UTF-8": "data: \u00e9 \u4e2d \U0001f600\n\n".encode(),
    "not UTF-8": b"data: \xff\xfe\n\n",
    "no blank line at the end": b"data: x\n\ndata: cut off\n",
    "no line end at the end": b"data: x\n\ndata: cut off",
    "blank lines only": b"\n\n\r\r\n\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", STREAMS)
def test_at_every_one_and_two_split_points(name: str) -> None:
    stream = STREAMS[name]
    expected = reference(stream)
    for cuts in itertools.combinations_with_replacement(range(len(stream) + 1), 2):
        assert split_at(stream, list(cuts)) == expected, cuts


@pytest.mark.parametrize("name", STREAMS)
def test_byte_by_byte(name: str) -> None:
    stream = STREAMS[name]
    assert split_at(stream, list(range(len(stream)))) == reference(stream)


def test_the_reference_reads_what_the_specification_shows() -> None:
    shown = (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third\n\n"
    )
    assert reference(shown) == [(b"", b"first event"), (b"", b"second event"), (b"", b" third")]
    stocks = b"data: YHOO\ndata: +2\ndata: 10\n\n"
    assert reference(stocks) == [(b"", b"YHOO\n+2\n10")]


pieces = st.sampled_from(
    [
        *(b"data: ", b"data:", b"data", b"event: ", b"event:x", b":", b": note", b"id: 1", b" "),
        *(b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\r\r", b"x", b"[DONE]", b"\xc3\xa9"),
        *(b"\xef\xbb\xbf", b'{"a":"b"}', b"data: token\n\n", b"event: ping\r\ndata: {}\r\n\r\n"),
    ]
)
streams = st.lists(pieces | st.binary(max_size=4), max_size=30).map(b"".join)


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(streams, st.lists(st.integers(0, 1 << 12), max_size=10))
def test_any_stream_split_anywhere(stream: bytes, cuts: list[int]) -> None:
    places = [cut % (len(stream) + 1) for cut in cuts]
    assert split_at(stream, places) == reference(stream)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=8).filter(lambda name: not set(name) & set(b"\r\n")),
            st.lists(st.binary(max_size=30).map(lambda x: x.translate(None, b"\r\n")), min_size=1),
        ),
        max_size=6,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.integers(1, 40),
)
def test_what_was_written_comes_back(
    sent: list[tuple[bytes, list[bytes]]], end: bytes, size: int
) -> None:
    stream = b""
    for name, lines in sent:
        if name:
            stream += b"event: " + name + end
        stream += b"".join(b"data: " + line + end for line in lines) + end
    expected = [(name, b"\n".join(lines)) for name, lines in sent]
    assert split_at(stream, list(range(0, len(stream), size))) == expected


def test_pending_tells_an_unfinished_event() -> None:
    splitter = SseSplitter()
    told = [splitter.pending]
    for read in (b"data: x", b"\n", b"\n", b"\n", b"event: y\n", b"data:"):
        splitter.feed(read)
        told.append(splitter.pending)
    assert told == [False, True, True, False, False, False, True]


def feed_all(splitter: SseSplitter, size: int, count: int) -> None:
    """Blocks without a line end, each in memory of its own, as reads are."""
    for number in range(count):
        splitter.feed(b"%d" % (number % 10) * size)


@pytest.mark.parametrize("size", [1000, 65_536])
def test_a_line_of_100_mib_is_refused_early_and_never_held(size: int) -> None:
    splitter = SseSplitter()
    splitter.feed(b"data: ")
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            feed_all(splitter, size, 100 * 1024 * 1024 // size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert EVENT_LIMIT < peak < 2 * EVENT_LIMIT


def test_an_event_has_a_limited_number_of_lines() -> None:
    splitter = SseSplitter()
    lines = b"data: x\n" * LINE_LIMIT
    assert splitter.feed(lines) == []
    assert splitter.feed(b"\n") == [(b"", b"x\n" * (LINE_LIMIT - 1) + b"x")]
    assert splitter.feed(lines) == []
    with pytest.raises(TooLarge, match="lines"):
        splitter.feed(b"data: x\n")


def test_an_event_of_many_lines_is_limited_too() -> None:
    splitter = SseSplitter(limit=1000)
    with pytest.raises(TooLarge):
        splitter.feed(b"data: 123456789\n" * 150)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_limit_is_for_one_event_not_for_the_stream(end: bytes) -> None:
    splitter = SseSplitter(limit=1000)
    event = b"data: " + b"x" * 900 + end + end
    whole = sum(len(splitter.feed(event)) for _ in range(50))
    in_halves = sum(len(splitter.feed(event[:450]) + splitter.feed(event[450:])) for _ in range(50))
    assert (whole, in_halves) == (50, 50)


@pytest.mark.parametrize("start", [b"event: ", b": ", b"unknown: ", b""])
def test_no_line_of_any_kind_grows_without_bound(start: bytes) -> None:
    splitter = SseSplitter(limit=1000)
    splitter.feed(start)
    feed_all(splitter, 100, 9)
    with pytest.raises(TooLarge):
        feed_all(splitter, 100, 2)


# What is held between reads


def test_a_splitter_is_at_rest_between_events_alone() -> None:
    splitter = SseSplitter()
    seen = []
    for data in (b"data: a", b"\n", b"\n", b": x\n", b"event: n\n", b"data: b\n\n", b"x\r", b"\n"):
        splitter.feed(data)
        seen.append((splitter.at_rest, splitter.pending))
    assert seen == [
        (False, True), (False, True), (True, False), (True, False), (False, False), (True, False),
        (False, False), (True, False),
    ]  # fmt: skip
    assert splitter.comments == 1
    assert not SseSplitter().at_rest


def test_an_event_may_be_as_large_as_the_limit() -> None:
    for line in (b"data: ", b"data:"):
        exact = SseSplitter(20)
        assert exact.feed(line + b"x" * 19 + b"\n\n") == [(b"", b"x" * 19)]
        with pytest.raises(TooLarge, match="larger than 20 bytes"):
            SseSplitter(20).feed(line + b"x" * 20 + b"\n\n")
    assert SseSplitter(20).feed(b"data: x\ndata: y\n\n") == [(b"", b"x\ny")]
    held = SseSplitter(20)
    assert held.feed(b"data: ") == []
    assert held.feed(b"x" * 14) == []
    with pytest.raises(TooLarge):
        held.feed(b"x")
    many = SseSplitter(20)
    for _ in range(10):
        assert many.feed(b"data: " + b"x" * 10 + b"\n\n") == [(b"", b"x" * 10)]
    two = SseSplitter(20)
    two.feed(b"data: " + b"x" * 10 + b"\n")
    with pytest.raises(TooLarge):
        two.feed(b"data: " + b"x" * 10 + b"\n")


def test_a_mark_of_the_byte_order_may_come_in_pieces() -> None:
    splitter = SseSplitter()
    assert [splitter.feed(data) for data in (b"\xef", b"\xbb", b"\xbf", b"data: a\n\n")] == [
        [], [], [], [(b"", b"a")],
    ]  # fmt: skip
    plain = SseSplitter()
    assert plain.feed(b"\xef") == []
    assert plain.feed(b"x: y\n\ndata: a\n\n") == [(b"", b"a")]
    later = SseSplitter()
    later.feed(b"data: a\n\n")
    assert later.feed(b"\xef\xbb\xbfdata: b\n\n") == []
    blank = SseSplitter()  # a blank line counts as a beginning: what follows it is no mark
    assert blank.feed(b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n") == [(b"", b"b")]


def test_the_last_event_may_lack_its_blank_line() -> None:
    for data in (b"event: n\ndata: a", b"event: n\ndata: a\n"):
        splitter = SseSplitter()
        assert splitter.feed(data) == []
        assert splitter.finish() == [(b"n", b"a")]
        assert splitter.finish() == []
    bare = SseSplitter()
    bare.feed(b"event: n\n")
    assert bare.finish() == []


def test_a_name_belongs_to_one_event() -> None:
    splitter = SseSplitter()
    said = b"event: n\n\ndata: a\n\nevent:m\ndata: b\n\nid: 5\nretry: 3\ndata\n\n"
    assert splitter.feed(said) == [(b"", b"a"), (b"m", b"b"), (b"", b"")]


def test_a_stream_may_begin_with_any_few_bytes() -> None:
    mark = SseSplitter()
    assert mark.feed(b"\xef\xbb\xbf") == []
    assert (mark.at_rest, mark.pending) == (True, False)  # the mark is no part of an event
    comment = SseSplitter()
    comment.feed(b":\n")
    assert (comment.comments, comment.at_rest) == (1, True)
    begun = SseSplitter()
    begun.feed(b"\xef\xbb")
    assert (begun.at_rest, begun.pending) == (False, True)


@pytest.mark.parametrize(("last", "fits"), [(6, True), (7, False)])
def test_the_lines_of_an_event_count_with_their_ends(last: int, fits: bool) -> None:
    splitter = SseSplitter(limit=40)
    lines = [b"x" * size for size in (10, 10, 10, last)]  # each of them and one byte more
    stream = b"".join(b"data: %b\n" % line for line in lines) + b"\n"
    if fits:
        assert splitter.feed(stream) == [(b"", b"\n".join(lines))]
    else:
        with pytest.raises(TooLarge):
            splitter.feed(stream)
