"""Prompts at the edges: what is too much work, what is no prose, and where no hint can go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lightgate.route.prompt.cache_key import Beside, cache_key, cacheable, may_share
from lightgate.route.prompt.hint import CONCISE, with_hint
from lightgate.route.prompt.prose import without_trailing
from lightgate.route.prompt.trim import MOST_BYTES, trim


def raw(**fields: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


# Trimming


def test_what_was_left_out_is_counted_in_bytes_of_json() -> None:
    trimmed = trim("openai-chat", raw(messages=[{"role": "user", "content": "Hi  \n\tyou  "}]))
    # A line that holds a tab keeps its end; two spaces of the first line go.
    assert (trimmed.saved, trimmed.doubled, trimmed.shortened) == (2, 0, 1)
    twice = [{"role": "system", "content": "S"}] * 2
    trimmed = trim("openai-chat", raw(messages=[*twice, {"role": "user", "content": "U"}]))
    assert trimmed.saved == len(msgspec.json.encode(twice[0])) + 1
    assert (trimmed.doubled, trimmed.shortened) == (1, 0)


@pytest.mark.parametrize(("more", "touched"), [(0, True), (1, False)])
def test_more_than_a_mebibyte_is_sent_as_it_is(more: int, touched: bool) -> None:
    frame = len(msgspec.json.encode([{"role": "user", "content": "  "}]))
    fields = raw(messages=[{"role": "user", "content": "x" * (MOST_BYTES - frame + more) + "  "}])
    assert len(bytes(fields["messages"])) == MOST_BYTES + more
    assert (trim("openai-chat", fields).fields is not fields) is touched


@pytest.mark.parametrize(
    "text",
    [
        *(
            "@@ -1 +1 @@\na  \n",
            "x\n--- a/x\na  \n",
            "x\n--- b/x\na  \n",
            "x\nDIFF --GIT a b\na  \n",
        ),
        *(f"<{mark}>a  \n" for mark in ("pre", "code", "script", "style", "textarea")),
        *(f"<{mark}>a  \n" for mark in ("file", "source", "patch")),
        *(f"Mind {word}.  \n" for word in ("whitespace", "the space", "trailing", "Leerzeichen")),
        *(f"Mind {word}.  \n" for word in ("espacio", "espaces")),
    ],
)
def test_a_text_in_which_spaces_may_matter_is_left_alone(text: str) -> None:
    assert without_trailing(text) == text
    assert without_trailing("Mind the gap.  \n") == "Mind the gap."


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("a  \n   b  \n    c  \nd", "a\n   b\n    c  \nd"),  # four spaces are code
        ("a `b  \nc` d  \ne  ", "a `b  \nc` d\ne"),
        ("a `b  \n\nc  ", "a `b  \n\nc"),  # a paragraph ends it
        ("````\na  \n```\nb  \n````\nc  ", "````\na  \n```\nb  \n````\nc"),
        ("```\na  \n``` x\nb  \n```\nc  ", "```\na  \n``` x\nb  \n```\nc"),
        ("```a``` b  \nc  ", "```a``` b\nc"),  # code in a line is no fence
        ("1. ```\na  \n```\nb  ", "1. ```\na  \n```\nb"),
        ("a\n\n  \n", "a"),
        ("``` \n\n", "``` \n\n"),
    ],
)
def test_code_keeps_its_spaces(text: str, shorter: str) -> None:
    assert without_trailing(text) == shorter


# The hint


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("openai-chat", {}),
        ("openai-chat", {"messages": 3}),
        ("openai-responses", {"instructions": 3}),
        ("openai-responses", {"instructions": ["x"]}),
        ("anthropic-messages", {"system": {"a": 1}}),
        ("gemini", {"systemInstruction": {"parts": 3}}),
        ("gemini", {"systemInstruction": "x"}),
        ("openai-embeddings", {"input": "x"}),
    ],
)
def test_where_no_hint_can_go_nothing_changes(dialect: str, fields: dict[str, Any]) -> None:
    before = raw(**fields)
    assert with_hint(dialect, before) is before


def test_a_hint_stands_behind_the_first_system_messages_alone() -> None:
    first = [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}]
    rest = [{"role": "user", "content": "c"}, {"role": "system", "content": "d"}, 7]
    for odd in (["user"], {"a": 1}):  # of no type that a role has
        alone = with_hint("openai-chat", raw(messages=[{"role": odd}]))
        assert msgspec.json.decode(alone["messages"])[1] == {"role": odd}
    found = with_hint("openai-chat", raw(messages=[*first, *rest], n=1))
    added = {"role": "system", "content": CONCISE}
    assert msgspec.json.decode(found["messages"]) == [*first, added, *rest]
    assert bytes(found["n"]) == b"1"
    empty = with_hint("openai-responses", raw(instructions=""))
    assert msgspec.json.decode(empty["instructions"]) == CONCISE
    null = with_hint("anthropic-messages", raw(system=None), "Be brief.")
    assert msgspec.json.decode(null["system"]) == "Be brief."


# Cache keys


def key(dialect: str, **fields: Any) -> bytes:
    return cache_key("t", dialect, "m", raw(**fields), Beside(streamed=False))


@pytest.mark.parametrize(
    "name",
    [
        *("parameters", "parametersJsonSchema", "schema", "input_schema", "responseSchema"),
        *("response_schema", "responseJsonSchema", "guided_json", "json", "input", "args"),
        *("arguments", "response"),
    ],
)
def test_the_order_of_what_a_model_reads_counts(name: str) -> None:
    one, other = {"b": 1, "a": 2}, {"a": 2, "b": 1}
    assert key("gemini", x={name: one}) != key("gemini", x={name: other})
    assert key("gemini", x={"other": one}) == key("gemini", x={"other": other})


@pytest.mark.parametrize(
    "name",
    [
        *("n", "best_of", "presence_penalty", "frequency_penalty", "logprobs", "response_format"),
        *("logit_bias", "seed", "stop", "stream_options", "temperature", "tools", "top_logprobs"),
        *("top_p", "max_tokens"),
    ],
)
def test_null_says_nothing(name: str) -> None:
    for dialect in ("openai-chat", "openai-completions"):
        assert key(dialect, prompt="x", **{name: None}) == key(dialect, prompt="x")
    assert key("anthropic-messages", **{name: None}) != key("anthropic-messages")


def test_null_in_a_field_of_responses_says_nothing() -> None:
    for name in ("temperature", "top_p", "instructions", "tools"):
        assert key("openai-responses", **{name: None}) == key("openai-responses")
    assert key("openai-responses", store=None) != key("openai-responses")


@pytest.mark.parametrize(
    "name",
    [
        *("web_search_options", "search_parameters", "plugins", "mcp_servers", "container"),
        *("background", "conversation"),
    ],
)
def test_what_looks_at_the_world_is_not_kept(name: str) -> None:
    assert not cacheable("openai-chat", raw(temperature=0, **{name: {}}), "any")
    assert cacheable("openai-chat", raw(temperature=0, **{name: False}), "any")
    assert cacheable("openai-chat", raw(temperature=0, **{name: None}), "any")


def test_a_body_is_looked_into_up_to_a_bound() -> None:
    largest = 4 * 1024 * 1024
    assert cacheable("openai-chat", raw(messages="x" * (largest - 2)), "any")
    assert not cacheable("openai-chat", raw(messages="x" * (largest - 1)), "any")
    nodes = msgspec.Raw(b"[" + b"{}," * 49_999 + b"0]")  # a bracket, and two signs for each
    assert cacheable("openai-chat", {"messages": nodes}, "any")
    over = msgspec.Raw(b"[" + b"{}," * 49_999 + b"0,0]")
    assert cacheable("openai-chat", {"messages": over}, "any")
    over = msgspec.Raw(b"[" + b"{}," * 49_999 + b"0,0,0]")
    assert not cacheable("openai-chat", {"messages": over}, "any")


def test_a_text_that_is_none_is_left_as_it_is() -> None:
    fields = raw(
        messages=[{"role": "user", "content": [{"type": "text", "text": 5}, {"text": "a  "}]}]
    )
    trimmed = trim("openai-chat", fields)
    assert msgspec.json.decode(trimmed.fields["messages"])[0]["content"][0] == {
        "type": "text",
        "text": 5,
    }


def test_what_cannot_be_read_is_not_shared() -> None:
    assert not may_share("openai-chat", {"temperature": msgspec.Raw(b"{0")}, "any")
    assert may_share("openai-chat", {"temperature": msgspec.Raw(b"0")}, "any")


SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    "again",
    [SYSTEM, SYSTEM | {"type": "message"}, {"type": "message", "role": "system",
                                            "content": "Be brief."}],
)  # fmt: skip
def test_system_text_that_is_said_again_before_the_first_turn_is_left_out(
    again: dict[str, Any],
) -> None:
    trimmed = trim("openai-chat", raw(messages=[SYSTEM, again, ASKED]))
    assert trimmed.doubled == 1
    assert bytes(trimmed.fields["messages"]) == msgspec.json.encode([SYSTEM, ASKED])


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, SYSTEM | {"name": "other"}, ASKED],  # what else stands there may count
        [SYSTEM, ASKED, SYSTEM],
        [ASKED, SYSTEM, SYSTEM],
        [SYSTEM, {"role": "user", "content": "Be brief."}],
    ],
)
def test_other_turns_are_never_taken_for_a_repetition(messages: list[dict[str, Any]]) -> None:
    fields = raw(messages=messages)
    trimmed = trim("openai-chat", fields)
    assert trimmed.doubled == 0
    assert trimmed.fields["messages"] is fields["messages"]  # not even written anew
