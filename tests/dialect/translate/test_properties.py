"""Whatever a provider says, each event is one event, and says it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialect.translate.cases import events, made
from dialect.translate.heard import STREAMS
from dialect.translate.speakers import SPEAKERS
from lightgate.dialect.anthropic import events as messages_events
from lightgate.dialect.gemini import events as gemini_events
from lightgate.dialect.openai_chat import events as chat_events
from lightgate.dialect.openai_responses import events as responses_events
from lightgate.dialect.registry import TRANSLATED as DIALECTS
from lightgate.errors import AttemptError

NASTY = st.sampled_from(
    ["data: [DONE]", "\n\ndata: {}\n\n", "\r\n", "\r", "\x00", "\x85", "\u2028", "\u2029", "\ud83d",
     "\ude00", '"', "\\", "\\u2028", "event: error\n", "]}", "\x7f", "\ufeff", "👋"]
)  # fmt: skip
ANY_CHARACTER = st.characters(exclude_categories=())  # lone surrogates, too
TEXT = st.lists(NASTY | st.text(ANY_CHARACTER, min_size=1, max_size=6), min_size=1, max_size=4)
SAID = st.tuples(st.sampled_from(["text", "reasoning"]), st.just(""), TEXT)
ARGUMENTS = st.dictionaries(
    st.text(ANY_CHARACTER, max_size=4), st.text(ANY_CHARACTER, max_size=8) | st.integers()
)
CALL = st.builds(
    lambda name, given, cut: (
        "call", name, [p for p in (json.dumps(given)[:cut], json.dumps(given)[cut:]) if p],
    ),
    st.text(ANY_CHARACTER, min_size=1, max_size=5), ARGUMENTS, st.integers(0, 20),
)  # fmt: skip
SCRIPTS = st.lists(SAID | CALL, min_size=1, max_size=5)


def joined(text: str) -> str:
    """Halves of an emoji that came apart are together again, as in any client's UTF-16."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def deep(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize("target", DIALECTS)
@settings(max_examples=40)  # times sixteen pairs
@given(script=SCRIPTS)
def test_every_string_arrives_in_events_of_its_own(
    source: str, target: str, script: list[Any]
) -> None:
    telling = made(source, target)
    said = [telling.event(name, data) for name, data in SPEAKERS[source](script)]
    told = b"".join(said) + telling.finish()
    # Also for readers that end a line wherever Unicode does.
    lines = told.decode("utf-8").splitlines()
    assert all(line == "" or line.startswith(("data: ", "event: ")) for line in lines)
    assert lines == told.decode("utf-8").split("\n")[:-1]
    for _, data in events(told):
        assert data == b"[DONE]" or json.loads(data)
    heard = STREAMS[target](told)
    for kind in ("text", "reasoning"):
        want = "".join(joined("".join(pieces)) for k, _, pieces in script if k == kind)
        assert joined(heard[kind]) == joined(want)
    want_calls = [(deep(name), json.loads("".join(p))) for k, name, p in script if k == "call"]
    assert [(name, given) for _, name, given in heard["calls"]] == want_calls
    assert len({call[0] for call in heard["calls"]}) == len(want_calls)


FIELDS = sorted(
    {
        field.encode_name
        for module in (chat_events, gemini_events, messages_events, responses_events)
        for struct in vars(module).values()
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct)
        for field in msgspec.structs.fields(struct)
    }
)
WORDS = st.sampled_from(
    ["", "text", "error", "function_call", "tool_use", "message", "reasoning", "STOP", "stop", "é",
     "response.output_item.added", "response.output_item.done", "response.completed",
     "response.function_call_arguments.delta", "response.output_text.delta",
     "content_block_start", "content_block_delta", "message_delta", "message_stop", "{}"]
)  # fmt: skip
LEAF = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | WORDS
SHAPES = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=30,
)


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize("target", DIALECTS)
@settings(max_examples=60)
@given(shapes=st.lists(SHAPES, max_size=4), raw=st.binary(max_size=20))
def test_no_bytes_make_it_raise(source: str, target: str, shapes: list[Any], raw: bytes) -> None:
    telling = made(source, target)
    told = b""
    for shape in shapes:
        told += telling.event(b"", json.dumps(shape).encode())
    told += telling.event(b"error" if len(raw) % 2 else b"", raw) + telling.finish()
    for _, data in events(told):
        assert data == b"[DONE]" or isinstance(json.loads(data), dict)
    for shape in shapes:
        try:
            json.loads(made(source, target).whole(json.dumps(shape).encode()))
        except AttemptError:
            continue


@pytest.mark.parametrize("target", DIALECTS)
def test_arguments_of_any_depth_are_told_or_refused(target: str) -> None:
    for depth in (10, 300, 900, 5_000):
        arguments = '{"a":' + "[" * depth + "]" * depth + "}"
        telling = made("openai-chat", target)
        script: list[Any] = [("call", "f", [arguments])]
        told = [telling.event(name, data) for name, data in SPEAKERS["openai-chat"](script)]
        assert b"".join(told)
        assert telling.failed is None
