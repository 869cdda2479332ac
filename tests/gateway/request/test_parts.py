"""Parts of a kind that is not known are found, and no part that an official SDK defines is one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.request.given import given_parts
from lightgate.gateway.request.parts import KNOWN, references, unknown_parts
from sdk.environment import HERE, python_of, run_in

if TYPE_CHECKING:
    from collections.abc import Callable

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"
URL = "https://example.com/a"


def said(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def contents(*parts: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}]}


MADE_UP = {"type": "hologram", "hologram": {"url": URL}}
BARE = {"hologram": URL}
UNKNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, said({"type": "text", "text": "Hi"}, MADE_UP)),
    "without a type": (CHAT, said(BARE)),
    "a type that is no word": (CHAT, said({"type": {"is": "text"}})),
    "one part instead of a list": (CHAT, {"messages": [{"role": "user", "content": MADE_UP}]}),
    "lists in lists": (CHAT, said([[MADE_UP]])),
    "messages": (MESSAGES, said(MADE_UP)),
    "the system's prompt": (MESSAGES, {"system": [MADE_UP]}),
    "a result of a tool": (MESSAGES, said({"type": "tool_result", "content": [MADE_UP]})),
    "a document of parts": (
        MESSAGES,
        said({"type": "document", "source": {"type": "content", "content": [MADE_UP]}}),
    ),
    "an item": (RESPONSES, {"input": [MADE_UP]}),
    "instructions": (RESPONSES, {"instructions": [MADE_UP]}),
    "a part of an item": (RESPONSES, {"input": [{"role": "user", "content": [MADE_UP]}]}),
    "an output": (RESPONSES, {"input": [{"type": "function_call_output", "output": [MADE_UP]}]}),
    "gemini": ("gemini", contents({"text": "Hi"}, BARE)),
    "gemini's instruction": ("gemini", {"system_instruction": {"parts": [BARE]}}),
    "a response of a function": (
        "gemini",
        contents({"function_response": {"name": "f", "response": {}, "parts": [BARE]}}),
    ),
    "an embedding of gemini's": (
        "gemini-embed-batch",
        {"requests": [{"content": {"parts": [BARE]}}]},
    ),
    "an embedding": ("openai-embeddings", {"input": [{"image": URL}]}),
}


@pytest.mark.parametrize(("dialect", "body"), UNKNOWN.values(), ids=list(UNKNOWN))
@pytest.mark.parametrize("spaces", [False, True])
def test_a_part_of_an_unknown_kind_is_found(
    dialect: str, body: dict[str, Any], spaces: bool
) -> None:
    raw = json.dumps(body, indent=2 if spaces else None).encode()
    assert given_parts(raw, dialect).unknown == 1


TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "a text": (CHAT, {"messages": [{"role": "user", "content": "a hologram"}]}),
    "calls of tools": (
        CHAT,
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"type": "other"}]}]},
    ),
    "arguments": (
        MESSAGES,
        said({"type": "tool_use", "name": "f", "input": {"content": [MADE_UP]}}),
    ),
    "a cache mark and citations": (
        MESSAGES,
        said({"type": "text", "text": "", "cache_control": {"type": "new"}, "citations": [BARE]}),
    ),
    "an output of a shell": (
        RESPONSES,
        {"input": [{"type": "shell_call_output", "output": [{"stdout": "", "stderr": ""}]}]},
    ),
    "a function of gemini's": ("gemini", contents({"functionCall": {"args": {"parts": [BARE]}}})),
    "tokens": ("openai-embeddings", {"input": [[1, 2], [3]]}),
    "no object": (CHAT, {"messages": "hologram"}),
    "a message that is no object": (RESPONSES, {"input": ["hologram"]}),
}


@pytest.mark.parametrize(("dialect", "body"), TEXT.values(), ids=list(TEXT))
def test_what_is_no_part_is_not_taken_for_one(dialect: str, body: dict[str, Any]) -> None:
    assert given_parts(json.dumps(body).encode(), dialect).unknown == 0


@pytest.mark.parametrize("sdk", ["openai", "anthropic", "google"])
def test_every_part_that_an_official_sdk_defines_is_known(
    sdk: str, missing: Callable[[str], None]
) -> None:
    """The SDKs' own types are asked, by their own Python."""
    if not python_of(sdk).exists():
        missing(f"the {sdk} SDK's environment is missing: make .venv-sdk-{sdk}/stamp")
    ran = run_in(sdk, HERE / "content_parts.py", sdk)
    assert ran.returncode == 0, ran.stderr
    for dialect, kinds in json.loads(ran.stdout).items():
        assert len(kinds) >= 5
        if dialect == "gemini":
            unknown = [kind for kind in kinds if unknown_parts(dialect, contents({kind: {}}))]
        elif dialect == RESPONSES:
            unknown = [
                kind for kind in kinds if unknown_parts(dialect, {"input": [{"type": kind}]})
            ]
        else:
            unknown = [kind for kind in kinds if unknown_parts(dialect, said({"type": kind}))]
        assert unknown == [], dialect


def test_made_up_words_are_not_known() -> None:
    assert KNOWN.isdisjoint(("hologram", "smell", "video_call", ""))


def test_what_stands_for_an_earlier_item_is_as_long_as_a_file() -> None:
    for item in ({"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}):
        found = given_parts(json.dumps({"input": [item]}).encode(), RESPONSES)
        assert (found.files, found.unknown) == (1, 0)
    earlier = {"role": "assistant", "audio": {"id": "audio_1"}}
    assert given_parts(json.dumps({"messages": [earlier]}).encode(), CHAT).sounds == 1


@pytest.mark.parametrize("body", [b'{"messages": [{"type": ', b'["image_url"]', b"[" * 50_000])
def test_a_body_that_cannot_be_read_has_no_parts(body: bytes) -> None:
    """It is refused elsewhere."""
    found = given_parts(body + b'"type": "image_url"', CHAT)
    assert (found.images, found.files, found.sounds, found.unknown) == (0, 0, 0, 0)


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES, "gemini", "openai-embeddings"])
def test_what_is_no_object_has_no_parts(dialect: str) -> None:
    assert [unknown_parts(dialect, root) for root in ([MADE_UP], "text", None, 7)] == [0] * 4


def test_parts_of_gemini_that_are_no_objects_are_no_parts() -> None:
    assert unknown_parts("gemini", contents("text", 5, None, BARE)) == 1


@pytest.mark.parametrize("name", ["contents", "content", "systemInstruction", "system_instruction"])
def test_every_place_of_geminis_parts_is_looked_at(name: str) -> None:
    assert unknown_parts("gemini", {name: {"parts": [BARE]}}) == 1
    assert unknown_parts("gemini", {"requests": [{name: [{"parts": [BARE, BARE]}]}]}) == 2
    assert (
        unknown_parts("gemini", {name: {"parts": [{"inline_data": {}}, {"inlineData": {}}]}}) == 0
    )


def test_only_the_response_of_a_function_has_parts_of_its_own() -> None:
    held = {"parts": [BARE]}
    assert unknown_parts("gemini", contents({"inlineData": held})) == 0
    assert unknown_parts("gemini", contents({"functionResponse": held})) == 1
    assert unknown_parts("gemini", contents({"functionResponse": [held]})) == 0


def test_messages_that_are_no_objects_have_no_parts() -> None:
    assert unknown_parts(CHAT, {"messages": ["text", 5, None, {"content": [MADE_UP]}]}) == 1


@pytest.mark.parametrize(
    ("item", "count"),
    [
        ({"role": "user", "content": [MADE_UP]}, 1),
        ({"role": "user", "content": "text"}, 0),
        ({"id": "msg_1"}, 0),
        ({"content": "neither a role nor an id"}, 1),
        ({"type": "hologram", "role": "user"}, 1),
        ({"type": "hologram", "id": "msg_1"}, 1),
    ],
)
def test_items_without_a_type_are_messages_or_stand_for_others(
    item: dict[str, Any], count: int
) -> None:
    assert unknown_parts(RESPONSES, {"input": [item]}) == count


def test_only_what_a_tool_is_called_with_is_free() -> None:
    """A picture is counted by its value, but not in the input of a call."""
    picture = {"type": "image", "source": {"type": "base64", "data": "A" * 5000}}
    assert given_parts(json.dumps(said(picture)).encode(), MESSAGES).value_bytes == 5000
    called = {"type": "tool_use", "input": {"x": picture}}
    assert given_parts(json.dumps(said(called)).encode(), MESSAGES).value_bytes == 0
    other = {"type": "tool_result", "input": {"x": picture}}
    assert given_parts(json.dumps(said(other)).encode(), MESSAGES).value_bytes == 5000
    beside = {"type": "tool_use", "content": [picture]}
    assert given_parts(json.dumps(said(beside)).encode(), MESSAGES).value_bytes == 5000


def test_a_kind_that_is_no_word_is_no_part() -> None:
    found = given_parts(json.dumps(said({"type": ["image"], "image_url": {}})).encode(), CHAT)
    assert (found.images, found.files, found.sounds) == (0, 0, 0)


def test_an_item_that_is_only_an_id_stands_for_an_earlier_one() -> None:
    known, message = {"id": "item_1"}, {"id": "m", "role": "user", "content": "hi"}
    typed = {"id": "item_2", "type": "item_reference"}
    root = {"input": [known, message, typed, "text", None, 7, ["id"]]}
    assert references("openai-responses", root) == 1
    assert references("openai-responses", {"input": known}) == 1
    assert references("openai-chat", root) == 0
    nothing: list[Any] = [["id"], "id", None, {}]
    assert [references("openai-responses", one) for one in nothing] == [0] * 4
