"""The reading of a prompt at its edges: two paragraphs, commands at an end, other parts."""

from __future__ import annotations

import msgspec

from lightgate.route.cascade.asked import _QUOTED, _commands, _may_hold_material, _paragraphs
from lightgate.route.cascade.features import features_of


def test_a_list_belongs_to_the_paragraph_before_it_where_more_follows() -> None:
    assert _paragraphs("Do this:\n\n- one") == ["Do this:", "- one"]
    assert _paragraphs("Do this:\n\n- one\n\nThanks") == ["Do this:\n- one", "Thanks"]
    assert _paragraphs("Do this:\n\n- one\n\n- two") == ["Do this:\n- one\n- two"]
    assert _paragraphs("First\n\nsecond\n\n- one") == ["First", "second", "- one"]


def test_a_command_is_the_first_word_or_in_some_languages_among_the_last() -> None:
    words = ["es", "bitte", "kürze", "x", "übersetze"]
    assert [_commands(place, words) for place in (0, 4)] == [True, True]
    assert not _commands(3, words)  # its letters are plain
    many = ["wort", *["a"] * 20, "kürze", *["a"] * 20]
    assert not _commands(21, many)


def test_what_is_no_part_of_a_content_is_passed_over() -> None:
    picture = {"type": "image_url", "image_url": {"url": "u"}}
    turn = {"role": "user", "content": ["x", {"type": "text", "text": "Hi"}, 7, picture]}
    found = features_of("openai-chat", {"messages": msgspec.Raw(msgspec.json.encode([turn]))})
    assert (found.images, found.text) == (1, "Hi")


def test_a_short_text_holds_no_material() -> None:
    assert not _may_hold_material("x" * _QUOTED)
    assert _may_hold_material("x" * (_QUOTED + 1))
