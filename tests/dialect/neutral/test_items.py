"""Items of an answer: the arguments of a call, and which call a piece of a stream belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.kinds import TOOL
from lightgate.dialect.neutral.items import CallPlaces, Item, arguments_of


def arguments(text: str) -> Any:
    item = Item(TOOL)
    item.texts.append(text)
    found = arguments_of(item)
    return None if found is None else json.loads(bytes(found))


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "null", '"a"', '{"a": 1} {}'])
def test_arguments_that_are_no_object_are_none(text: str) -> None:
    assert arguments(text) is None


def test_arguments_are_read_with_numbers_that_no_json_has_and_halves_of_an_emoji() -> None:
    assert arguments('{"a": "\\ud83d", "b": 1.5}') == {"a": "\ud83d", "b": 1.5}
    found = arguments('{"a": NaN, "b": -Infinity, "c": 1e999, "d": 2.5}')
    assert found == {"a": None, "b": None, "c": None, "d": 2.5}


def places(*pieces: tuple[Any, Any, bool]) -> list[int]:
    found = CallPlaces()
    return [found.find(index, call_id, named=named) for index, call_id, named in pieces]


def test_pieces_belong_to_the_call_of_their_index() -> None:
    pieces = ((0, "a", True), (1, "b", True), (0, None, False), (1, "", False), (0, "a", True))
    assert places(*pieces) == [0, 1, 0, 1, 0]


def test_another_id_beside_a_name_begins_a_call_at_an_index_that_is_taken() -> None:
    assert places((0, "a", True), (0, "b", True), (0, None, False)) == [0, 1, 1]
    assert places((0, "a", True), (0, "b", False)) == [0, 0]


def test_a_piece_without_index_belongs_to_the_call_of_its_id_or_to_the_last() -> None:
    pieces = ((None, "a", True), (None, "b", True), (None, "a", False), (None, None, False))
    assert places(*pieces) == [0, 1, 0, 0]


def test_a_name_without_index_and_id_begins_a_call() -> None:
    assert places((None, None, True), (None, None, False), (None, None, True)) == [0, 0, 1]
    assert places((0, None, True), (0, None, True)) == [0, 0]


def test_the_first_call_of_an_id_is_that_ids() -> None:
    assert places((0, "a", True), (1, "a", True), (None, "a", False)) == [0, 1, 0]


def test_a_first_piece_that_says_nothing_begins_a_call() -> None:
    assert places((None, None, False), (3, 7, False)) == [0, 1]
