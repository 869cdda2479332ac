"""Pictures, files and sound are found in every dialect, however they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.gateway.request.given import NOTHING, given_parts

CHAT = "openai-chat"
URL = "https://example.com/cat.png"
HIDDEN = ("type", "image", "ile", "udio", "nline")  # letters of all words that a part is known by
PARTS: list[tuple[dict[str, Any], tuple[int, int, int]]] = [
    ({"type": "image_url", "image_url": {"url": URL}}, (1, 0, 0)),
    ({"type": "input_image", "image_url": URL}, (1, 0, 0)),
    ({"type": "image", "source": {"type": "url", "url": URL}}, (1, 0, 0)),
    ({"type": "document", "source": {"type": "url", "url": URL}}, (0, 1, 0)),
    ({"type": "file", "file": {"file_id": "f"}}, (0, 1, 0)),
    ({"type": "input_file", "file_url": URL}, (0, 1, 0)),
    ({"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}, (0, 0, 1)),
    ({"inlineData": {"mimeType": "image/png", "data": "x"}}, (1, 0, 0)),
    ({"file_data": {"mime_type": "application/pdf", "file_uri": URL}}, (0, 1, 0)),
    ({"fileData": {"fileUri": URL}}, (0, 1, 0)),
    ({"inline_data": {"mime_type": "audio/wav", "data": "x"}}, (0, 0, 1)),
    ({"type": "text", "text": 'an "image_url" and a "file"'}, (0, 0, 0)),
]


@pytest.mark.parametrize(("part", "counts"), PARTS)
@pytest.mark.parametrize("hidden", [(), HIDDEN, (*HIDDEN, "content")])
def test_every_kind_of_part_is_found(
    part: dict[str, Any], counts: tuple[int, int, int], hidden: tuple[str, ...]
) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part, part]}]})
    for letters in hidden:  # the same JSON in other letters
        escaped = f"\\u{ord(letters[0]):04x}{letters[1:]}"
        body = body.replace(letters, escaped)
    found = given_parts(body.encode(), CHAT)
    assert (found.images, found.files, found.sounds) == tuple(2 * count for count in counts)


def test_plain_text_is_not_even_decoded() -> None:
    """What was decoded and found to be nothing else is equal to that, and another object."""
    body = rb'{"model": "m", "messages": [{"role": "user", "content": "hi,\n\"you\""}]}'
    assert given_parts(body, CHAT) is NOTHING
    assert given_parts(b'{"model": "m", "messages": [{"role": "user", "conte', CHAT) is NOTHING


def test_bytes_by_value_are_counted_apart() -> None:
    data = "data:image/png;base64," + "A" * 40_000
    part = {"type": "image_url", "image_url": {"url": data}}
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    assert given_parts(body, CHAT).value_bytes == len(data)


LONG = "long words of a client " * 100
FREE: dict[str, dict[str, Any]] = {
    "an object that is no part": {"type": "text", "text": "an image", "data": LONG},
    "what a tool is called with": {
        "type": "tool_use", "name": "save", "input": {"type": "image", "source": {"data": LONG}},
    },
    "what a function of Gemini's is called with": {
        "functionCall": {"name": "save", "args": {"inlineData": {"data": LONG}}}
    },
    "what a function of Gemini's returned": {
        "functionResponse": {"name": "load", "response": {"type": "file", "file_data": LONG}}
    },
    "the default of a parameter": {"parameters": {"type": "image", "url": LONG}},
}  # fmt: skip


@pytest.mark.parametrize("part", FREE.values(), ids=list(FREE))
def test_text_of_a_clients_own_is_text_whatever_it_is_named(part: dict[str, Any]) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    assert given_parts(body, CHAT).value_bytes == 0


def test_a_part_among_words_that_look_like_every_sign_of_one_is_counted() -> None:
    body = (
        rb'{"contents":[{"parts":[{"text":"\u0041 image file audio inline video","type":0},'
        rb'{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}]}'
    )
    assert given_parts(body, "gemini").images == 1


@pytest.mark.parametrize(("size", "counted"), [(256, 0), (257, 257)])
def test_a_short_value_is_an_address_and_counts_as_text(size: int, counted: int) -> None:
    part = {"type": "image_url", "image_url": {"url": "x" * size}}
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    assert given_parts(body, CHAT).value_bytes == counted


@pytest.mark.parametrize(
    ("body", "doubled"),
    [
        ('{"messages": [{"content": [{"type": "image_url", "type": "text"}]}]}', True),
        ('{"messages": [{"content": [{"type": "text", "ty\\u0070e": "image_url"}]}]}', True),
        ('{"tools": [{"a": 1, "a": 2}]}', True),
        ('{"search_parameters": {"mode": "on", "mode": "off"}}', True),
        ('{"plugins": [{"id": "web", "id": "x"}]}', True),
        ('{"type": "a: \\" \\\\", "b": {"type": ":"}, "c": [{"b": "{\\"b\\":1}"}]}', False),
        ('{"type": {}, "b": [[], {}, {"type": null}], "": {"": ":"}}', False),
        ('{"type": "\\\\", "b": "\\\\\\"", "c": 1}', False),
    ],
)  # fmt: skip
def test_a_name_that_stands_twice_in_one_object_is_found(body: str, doubled: bool) -> None:
    json.loads(body)
    assert given_parts(body.encode(), CHAT).doubled == doubled


@given(st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
))  # fmt: skip
def test_no_body_without_doubles_is_taken_for_one_with_them(value: Any) -> None:
    for ascii_only in (True, False):
        body = json.dumps({"type": value}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        assert not given_parts(body, CHAT).doubled
