"""Items of an answer in their order, however the provider's pieces are mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.dialect.kinds import TEXT
from lightgate.dialect.neutral.item_stream import ItemStream
from lightgate.dialect.neutral.items import Item, ItemListener
from lightgate.dialect.neutral.seal import Unsealed, opened, sealed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.dialect.neutral.events import Logprob


class Told(ItemListener):
    """Everything that a writer is told, as short words."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, item: Item) -> None:
        self.log.append(f"open {item.name or item.kind}")

    def piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:
        self.log.append(text)

    def close(self, item: Item) -> None:
        self.log.append(f"close {item.name or item.kind}")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def stream(told: Told) -> ItemStream:
    return ItemStream({"stop": "stop"}, told)


def test_a_call_that_is_complete_lets_the_next_one_begin_at_once(
    stream: ItemStream, told: Told
) -> None:
    stream.tool(0, "a", "first", None)
    stream.tool(1, "b", "second", '{"x": 1}')
    assert told.log == ["open first"]  # whose arguments may still come
    stream.tool_end(0)
    assert told.log == ["open first", "{}", "close first", "open second", '{"x": 1}']
    stream.tool_end(1)
    stream.end()
    assert told.log[5:] == ["close second"]


def test_the_end_of_a_call_that_waits_changes_nothing(stream: ItemStream, told: Told) -> None:
    stream.tool(0, "a", "first", '{"x"')
    stream.tool(1, "b", "second", "{}")
    stream.tool_end(1)
    assert told.log == ["open first", '{"x"']
    stream.tool(0, None, None, ": 1}")
    stream.end()
    assert told.log[2:] == [": 1}", "close first", "open second", "{}", "close second"]


def test_text_after_a_call_waits_for_its_arguments(stream: ItemStream, told: Told) -> None:
    stream.tool(0, "a", "first", '{"x"')
    stream.say(TEXT, "and")
    stream.say(TEXT, " so on")
    assert told.log == ["open first", '{"x"']
    stream.tool(0, None, None, ": 1}")
    stream.tool_end(0)
    assert told.log[2:] == [": 1}", "close first", f"open {TEXT}", "and so on"]


def test_arguments_after_the_end_of_a_call_are_left_out(stream: ItemStream, told: Told) -> None:
    stream.tool(0, "a", "first", "{}")
    stream.tool_end(0)
    stream.tool(0, None, None, "more")
    stream.end()
    assert told.log == ["open first", "{}", "close first"]


def test_arguments_of_a_call_that_never_began_are_left_out(stream: ItemStream, told: Told) -> None:
    stream.tool(0, None, None, "{}")
    stream.tool_end(0)
    stream.end()
    assert told.log == []


def test_half_of_an_emoji_has_no_seal() -> None:
    assert sealed("gemini", "sig\ud83d") == ""
    assert sealed("gemini", "sig", "text\ud83d") == ""
    assert opened(sealed("gemini", "sig", "text")) == Unsealed("gemini", "sig", "text")
    assert opened("") is None
    assert opened(sealed("gemini", "sig")[:-4]) is None
