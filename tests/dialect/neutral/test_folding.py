"""Pieces of a stream that are folded into one answer, and the bytes that it is said to take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.neutral.folding import (
    ITEM,
    ONCE,
    PIECE,
    VALUE,
    Grown,
    Said,
    encoded,
    fold,
    joined,
    keep,
    object_of,
    placed,
    say,
    weight,
)
from lightgate.errors import Malformed


def folded(*deltas: dict[str, Any]) -> tuple[dict[str, Any], int]:
    into: dict[str, Any] = {}
    size = sum(fold(into, delta) for delta in deltas)
    return joined(into), size


def nested(depth: int, inner: Any, name: str = "a") -> Any:
    for _ in range(depth):
        inner = {name: inner}
    return inner


def test_texts_go_on_and_each_piece_takes_its_letters_and_its_place() -> None:
    assert folded({"text": "He"}, {"text": "llo"}) == ({"text": "Hello"}, 5 + 3 * PIECE + 4)
    for text, size in {"\u4e2d\U0001f600\n": 9, "\ud83d": 6}.items():  # bytes of its JSON
        assert folded({"a": text})[1] == 2 * PIECE + 1 + size


@pytest.mark.parametrize("name", sorted(ONCE))
def test_a_fact_of_a_piece_stays_as_it_was_said_first(name: str) -> None:
    assert folded({name: "ab"}, {name: "cde"}) == ({name: "ab"}, PIECE + len(name) + 2)


def test_an_empty_fact_is_replaced_by_one_that_says_something() -> None:
    assert folded({"id": ""}, {"id": "x"}) == ({"id": "x"}, PIECE + 2 + 1)


def test_nothing_is_kept_only_where_nothing_was_said() -> None:
    assert folded({"text": None}) == ({"text": None}, PIECE + 4)
    assert folded({"text": "a"}, {"text": None})[0] == {"text": "a"}


def test_lists_go_on_and_what_is_neither_text_nor_list_is_replaced() -> None:
    whole, size = folded({"parts": [1]}, {"parts": [2]}, {"count": 1}, {"count": 2})
    assert whole == {"parts": [1, 2], "count": 2}
    fields = PIECE + len("parts") + PIECE + len("count")
    assert size == fields + 2 * (VALUE + 3)  # "[1]" and "[2]"


def test_a_list_takes_the_place_of_what_is_none() -> None:
    assert folded({"parts": 3}, {"parts": [2]})[0] == {"parts": [2]}


def test_objects_are_folded_and_one_takes_the_place_of_what_is_none() -> None:
    assert folded({"f": {"text": "a"}}, {"f": {"text": "b"}})[0] == {"f": {"text": "ab"}}
    assert folded({"f": 3}, {"f": {"text": "b"}})[0] == {"f": {"text": "b"}}


@pytest.mark.parametrize(("depth", "text"), [(4, "ab"), (5, "b")])
def test_objects_are_folded_four_deep_and_deeper_ones_replaced(depth: int, text: str) -> None:
    pieces = [nested(depth, {"text": one}) for one in ("a", "b")]
    assert folded(*pieces)[0] == nested(depth, {"text": text})


def kept(*facts: dict[str, Any]) -> tuple[dict[str, Any], int]:
    into: dict[str, Any] = {}
    return into, sum(keep(into, one) for one in facts)


def test_the_last_event_knows_facts_best_but_nothing_replaces_something() -> None:
    facts = ({"a": "xyz", "b": 1, "c": None}, {"a": "", "b": None, "c": None}, {"a": "u", "b": 0})
    assert kept(*facts) == ({"a": "u", "b": 0, "c": None}, 3 * (PIECE + 1) + 1)


def test_a_first_fact_is_kept_even_if_it_says_nothing() -> None:
    assert kept({"a": "", "b": None}) == ({"a": "", "b": None}, 2 * (PIECE + 1))


@pytest.mark.parametrize(("depth", "whole"), [(4, {"x": 1, "y": 2}), (5, {"y": 2})])
def test_facts_of_objects_are_kept_four_deep(depth: int, whole: dict[str, int]) -> None:
    """An object of facts within five others is the deepest that is not replaced as a whole."""
    found, _ = kept(nested(depth, {"x": 1}), nested(depth, {"y": 2}))
    assert found == nested(depth, whole)


def test_an_object_is_taken_in_the_place_of_a_fact() -> None:
    assert kept({"a": 1}, {"a": {"b": 2}})[0] == {"a": {"b": 2}}


def test_a_text_that_goes_on_is_kept_in_pieces() -> None:
    into: dict[str, Any] = {"text": 3}
    assert [say(into, "text", piece) for piece in ("ab", "c")] == [PIECE + 2, PIECE + 1]
    assert type(into["text"]) is Said
    assert into == {"text": ["ab", "c"]}


@pytest.mark.parametrize(("index", "place"), [(0, 0), (2, 2), ("2", 0), (None, 0)])
def test_a_piece_belongs_to_what_has_its_index_or_else_to_the_first(index: Any, place: int) -> None:
    known: dict[int, dict[str, Any]] = {}
    assert placed(known, {"index": index}) == ({}, ITEM)
    known[place]["text"] = "a"
    assert placed(known, {"index": index}) == ({"text": "a"}, 0)
    assert list(known) == [place]


def test_texts_are_joined_as_deep_as_pieces_are_folded_in_lists_and_objects() -> None:
    said = [{"a": Said(("a", "b"))}, {"b": Said("cd")}]
    assert joined({"x": Grown(said)}) == {"x": [{"a": "ab"}, {"b": "cd"}]}
    plain = [{"a": ["b"]}, 3]  # has no pieces, and may be long
    assert joined({"x": plain})["x"] is plain
    assert joined(nested(8, Said("ab"))) == nested(8, "ab")
    assert joined(nested(9, Said("ab"))) == nested(9, ["a", "b"])


def test_a_whole_answer_is_encoded_and_one_that_no_encoder_ends_is_malformed() -> None:
    assert encoded({"a": "\ud83d\ude00"}) == b'{"a":"\\ud83d\\ude00"}'
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with pytest.raises(Malformed, match="nested too deeply"):
        encoded(endless)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("abc", 3),
        (3, 0),
        (None, 0),
        ([1, 2], VALUE + 5),
        ([1, 2, 3, 4], 2 * VALUE + 9),  # small values take more time than their bytes say
        ([[], {}], 3 * VALUE + 7),
        ({"a": 1}, VALUE + 7),
        ({"a": 1, "b": "[:,"}, 2 * VALUE + 17),
        (["\ud83d"], VALUE + 4 + 3),  # half of an emoji
    ],
)
def test_a_value_weighs_its_bytes(value: Any, size: int) -> None:
    assert weight(value) == size


def test_the_object_of_an_event_is_read_and_what_is_none_is_not() -> None:
    assert object_of(b'{"a": 1}') == {"a": 1}
    assert [object_of(data) for data in (b"[DONE]", b"[1]", b"3")] == [None, None, None]
    assert json.dumps(object_of(b'{"a": 1.50}')) == '{"a": 1.5}'
