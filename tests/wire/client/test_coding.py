"""Compressed answers: what one read stands for, and how much may stand behind few bytes."""

from __future__ import annotations

import gzip
import zlib

import pytest

from lightgate.errors import Malformed, TooLarge
from lightgate.wire.client.coding import PIECE, Inflater, Unread, inflater_for

MB = 1024 * 1024


def cut(data: bytes, count: int) -> list[bytes]:
    step = -(-len(data) // count)
    return [data[at : at + step] for at in range(0, len(data), step)]


def all_of(inflater: Inflater, data: bytes) -> bytes:
    """Read everything that some bytes stand for, piece by piece."""
    parts = [inflater.read(data)]
    while inflater.more:
        parts.append(inflater.read(b""))
    assert all(len(part) <= PIECE for part in parts)
    return b"".join(parts)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_what_stands_behind_few_bytes_comes_in_pieces(size: int) -> None:
    inflater = Inflater(b"gzip", "there")
    assert len(inflater.read(gzip.compress(bytes(size)))) == min(size, PIECE)
    assert inflater.more is (size >= PIECE)
    assert len(all_of(inflater, b"")) == max(0, size - PIECE)
    inflater.end()


def test_bodies_without_a_byte_in_them_come_in_pieces_too() -> None:
    inflater = Inflater(b"gzip", "there")
    packed = gzip.compress(b"") * 3000 + gzip.compress(b"abc")
    calls, plain = 1, inflater.read(packed)
    while inflater.more:
        calls, plain = calls + 1, plain + inflater.read(b"")
    assert plain == b"abc"
    assert calls == 3001 // 256 + 1
    inflater.end()


def test_the_limit_counts_all_reads_together() -> None:
    inflater = Inflater(b"gzip", "there")
    pieces = cut(gzip.compress(bytes(4 * MB)), 40)
    assert sum([len(all_of(inflater, piece)) for piece in pieces[:9]]) < MB
    with pytest.raises(TooLarge, match="there: the answer is more than 100 times as large"):
        [all_of(inflater, piece) for piece in pieces[9:11]]


def test_the_first_megabyte_needs_no_look() -> None:
    inflater = Inflater(b"gzip", "there")
    assert all_of(inflater, gzip.compress(bytes(MB))) == bytes(MB)
    inflater.end()


def test_an_ordinary_answer_may_be_as_long_as_it_likes() -> None:
    words = "".join([f"token {number * 7919 % 10007} " for number in range(300_000)]).encode()
    inflater = Inflater(b"deflate", "there")
    pieces = cut(zlib.compress(words), 100)
    assert b"".join([all_of(inflater, piece) for piece in pieces]) == words
    inflater.end()


def test_an_end_before_the_end_is_noticed() -> None:
    inflater = Inflater(b"gzip", "there")
    inflater.read(gzip.compress(b"abc")[:-4])
    with pytest.raises(Malformed, match="cut its compressed answer off"):
        inflater.end()


def test_who_reads_which_coding() -> None:
    assert inflater_for(b"identity", 200, "there") is None
    assert isinstance(inflater_for(b"x-gzip", 500, "there"), Inflater)
    assert isinstance(inflater_for(b"br", 500, "there"), Unread)
    with pytest.raises(Malformed, match="'br'"):
        inflater_for(b"br", 200, "there")


@pytest.mark.parametrize("coding", [b"sk-canary-0123", b"gzip, identity", b"x", b"\xff"])
def test_a_word_that_is_no_coding_is_not_repeated(coding: bytes) -> None:
    with pytest.raises(Malformed) as refused:
        inflater_for(coding, 200, "there")
    said = (
        "there compressed its answer in an unknown way, which nobody asked for and cannot be read."
    )
    assert refused.value.message == said


@pytest.mark.parametrize("coding", [b"gzip", b"x-gzip", b"deflate"])
def test_what_is_not_compressed_is_named(coding: bytes) -> None:
    inflater = Inflater(coding, "there")
    with pytest.raises(Malformed, match=f"there sent a body that is not {coding.decode()}"):
        inflater.read(b"\xff plain text")


def test_only_a_deflate_may_lack_its_header_and_only_from_its_beginning_on() -> None:
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    data = bare.compress(b"abc") + bare.flush()
    assert Inflater(b"deflate", "there").read(data) == b"abc"
    with pytest.raises(Malformed, match="is not gzip"):
        Inflater(b"gzip", "there").read(data)
    inflater = Inflater(b"deflate", "there")
    assert inflater.read(zlib.compress(b"abc")) == b"abc"
    with pytest.raises(Malformed, match="is not deflate"):
        inflater.read(data)


def test_several_large_bodies_in_one_read_are_given_out_in_pieces_all_the_same() -> None:
    inflater = Inflater(b"gzip", "there")
    packed = gzip.compress(bytes(PIECE - 10))
    assert len(all_of(inflater, packed * 3)) == 3 * (PIECE - 10)
    inflater.end()


def test_no_more_is_unpacked_than_shows_that_it_is_too_much() -> None:
    inflater = Inflater(b"gzip", "there")
    packed = gzip.compress(bytes(40 * MB))
    with pytest.raises(TooLarge):
        all_of(inflater, packed)
    assert inflater._given == 100 * len(packed) + 1


def test_several_bodies_in_one_read_are_one_after_the_other() -> None:
    inflater = Inflater(b"gzip", "there")
    assert inflater.more is False  # nothing has come
    assert inflater.read(gzip.compress(b"abc") + gzip.compress(b"def")) == b"abcdef"
    inflater.end()
    assert Unread().read(b"whatever it is") == b""
