"""Trimming: the same meaning in fewer bytes, code and all that is not prose untouched."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.prompt.hint import CONCISE, with_hint
from lightgate.route.prompt.prose import without_trailing
from lightgate.route.prompt.trim import trim

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
CODE = "```python\nx = 1  \n\n    y = 2\t \n```"


def fields_of(body: Any) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])


def shown(fields: Any) -> Any:
    return {name: msgspec.json.decode(value) for name, value in fields.items()}


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("a  \nb \n", "a\nb"),
        ("a\t\n   \n\nb", "a\n\n\nb"),
        ("a  \n" + CODE + "\nb  ", "a\n" + CODE + "\nb"),
        ("~~~\nx  \n```\ny  \n~~~\nz  ", "~~~\nx  \n```\ny  \n~~~\nz"),
        ("> ```\n> x  \n> ```\nz  ", "> ```\n> x  \n> ```\nz"),
        ("a  \n```\nx  \n", "a\n```\nx  \n"),
        ("a  \n    indented  \nb", "a\n    indented  \nb"),
        ("a\tb\t\t\nc  ", "a\tb\t\t\nc"),
        ("see `x  \ny  ` there  \n", "see `x  \ny  ` there"),
        ("   \n", "   \n"),
        ("", ""),
        ("nothing to do", "nothing to do"),
        ("diff --git a/x b/x\n-a  \n+b \n", "diff --git a/x b/x\n-a  \n+b \n"),
        ("<pre>\na  \n</pre>", "<pre>\na  \n</pre>"),
        ("Keep the trailing ones.  \n", "Keep the trailing ones.  \n"),
    ],
)
def test_prose(text: str, shorter: str) -> None:
    assert without_trailing(text) == shorter


pieces = st.lists(
    st.sampled_from(
        [
            "word",
            "  ",
            "\t",
            "\n",
            "\n\n",
            "```",
            "~~~",
            "`",
            "    ",
            "> ",
            "- ",
            "@@ ",
            "\r\n",
            "é",
        ]
    ),
    max_size=30,
).map("".join)


@given(pieces)
def test_trimming_twice_is_trimming_once(text: str) -> None:
    once = without_trailing(text)

    assert without_trailing(once) == once


@given(pieces)
def test_nothing_but_whitespace_at_the_ends_of_lines_goes(text: str) -> None:
    before, after = text.split("\n"), without_trailing(text).split("\n")

    assert len(after) <= len(before)
    assert all(not line.strip() for line in before[len(after) :])
    for old, new in zip(before, after, strict=False):
        assert old.startswith(new)
        assert not old[len(new) :].strip()


@given(before=pieces, code=st.text(alphabet="ab \t\n", max_size=20), after=pieces)
def test_a_fenced_block_keeps_every_byte(before: str, code: str, after: str) -> None:
    plain = before.replace("`", "").replace("~", "")
    block = f"```\n{code}\n```"

    assert block in without_trailing(f"{plain}\n\n{block}\n{after}x")


SYSTEM = "You are careful.  \nYou answer in French."
CLEAN = "You are careful.\nYou answer in French."
TOOL = {"name": "f", "description": "d  \n", "parameters": {"type": "object", "title": "t  \n"}}


def test_chat() -> None:
    untouched = [
        {"role": "assistant", "content": "said  \nthis  "},
        {"role": "tool", "tool_call_id": "1", "content": "result  \n"},
        {"role": "system", "content": SYSTEM.replace("  ", "")},
    ]
    body = {
        "model": "m  ",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "developer", "content": CLEAN},
            {"role": "user", "content": "Hi  \n"},
            *untouched,
            {
                "role": "user",
                "content": [{"type": "text", "text": "a  \nb"}, {"type": "x", "text": "c "}],
            },
        ],
        "tools": [{"type": "function", "function": TOOL}],
    }

    trimmed = trim("openai-chat", fields_of(body))

    new = shown(trimmed.fields)
    assert new["messages"] == [
        {"role": "system", "content": CLEAN},
        {"role": "user", "content": "Hi"},
        *untouched,
        {
            "role": "user",
            "content": [{"type": "text", "text": "a\nb"}, {"type": "x", "text": "c "}],
        },
    ]
    assert new["tools"] == body["tools"]
    assert (trimmed.doubled, trimmed.shortened) == (1, 3)
    assert trimmed.saved > len(CLEAN)


def test_responses() -> None:
    body: dict[str, Any] = {
        "instructions": SYSTEM,
        "input": [
            {"role": "system", "content": [{"type": "input_text", "text": CLEAN}]},
            {"type": "function_call_output", "call_id": "1", "output": "x  \n"},
            {"role": "user", "content": "Hi  "},
        ],
    }

    new = shown(trim("openai-responses", fields_of(body)).fields)

    assert new == {
        "instructions": CLEAN,
        "input": [body["input"][1], {"role": "user", "content": "Hi"}],
    }
    assert shown(trim("openai-responses", fields_of({"input": "Hi  "})).fields) == {"input": "Hi"}


def test_anthropic() -> None:
    marked = {"type": "text", "text": CLEAN, "cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "x  \n"}
    body = {
        "system": [{"type": "text", "text": SYSTEM}, {"type": "text", "text": CLEAN}, marked],
        "messages": [{"role": "user", "content": [result, {"type": "text", "text": "Hi  "}]}],
    }

    new = shown(trim("anthropic-messages", fields_of(body)).fields)

    assert new["system"] == [{"type": "text", "text": CLEAN}, marked]
    assert new["messages"][0]["content"] == [result, {"type": "text", "text": "Hi"}]


def test_gemini() -> None:
    answered = {"functionResponse": {"name": "f", "response": {"a": "x  \n"}}}
    body: dict[str, Any] = {
        "systemInstruction": {"parts": [{"text": CLEAN}, {"text": SYSTEM}]},
        "contents": [
            {"role": "model", "parts": [{"text": "said  "}]},
            {"role": "user", "parts": [answered, {"text": "Hi  "}]},
        ],
    }

    new = shown(trim("gemini", fields_of(body)).fields)

    assert new["systemInstruction"] == {"parts": [{"text": CLEAN}]}
    assert new["contents"] == [
        body["contents"][0],
        {"role": "user", "parts": [answered, {"text": "Hi"}]},
    ]


def test_nothing_to_trim_is_the_very_same_fields() -> None:
    fields = fields_of({"messages": [{"role": "user", "content": "Hi"}]})

    trimmed = trim("openai-chat", fields)

    assert trimmed.fields is fields
    assert trimmed.saved == 0


def test_a_users_repetition_is_the_users_business() -> None:
    twice = [{"role": "user", "content": "Hi"}, {"role": "user", "content": "Hi"}]
    fields = fields_of({"messages": twice})

    assert trim("openai-chat", fields).fields is fields


def test_completions_and_embeddings_are_never_touched() -> None:
    fields = fields_of({"prompt": "Hi  ", "input": "x  "})

    assert trim("openai-completions", fields).fields is fields
    assert trim("openai-embeddings", fields).fields is fields


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | pieces,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "parts", "type", "text", "x"]), inner, max_size=4
        )
        | st.builds(
            lambda role, content: {"role": role, "content": content},
            st.sampled_from(["system", "user", "assistant", "tool"]),
            inner,
        )
    ),
    max_leaves=12,
)
NAMES = ("messages", "input", "contents", "system", "instructions", "systemInstruction")


def squeezed(value: Any) -> Any:
    """Everything that trimming may not change: all but whitespace, and doubled system text."""
    if isinstance(value, str):
        return "".join(value.split())
    if isinstance(value, dict):
        return {name: squeezed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [squeezed(inner) for inner in value]
    return value


@given(
    dialect=st.sampled_from(DIALECTS),
    body=st.dictionaries(st.sampled_from(NAMES), json_values, max_size=4),
)
def test_any_body_is_trimmed_once_and_keeps_its_words(dialect: str, body: dict[str, Any]) -> None:
    trimmed = trim(dialect, fields_of(body))
    again = trim(dialect, trimmed.fields)

    assert trimmed.saved >= 0
    assert shown(again.fields) == shown(trimmed.fields)
    if not trimmed.doubled:
        assert squeezed(shown(trimmed.fields)) == squeezed(body)


@given(dialect=st.sampled_from(DIALECTS), raw=st.binary(max_size=30), deep=st.booleans())
def test_fields_that_are_no_json_are_sent_as_they_are(dialect: str, raw: bytes, deep: bool) -> None:
    fields = dict.fromkeys(NAMES, msgspec.Raw(b"[" * 5000 if deep else raw))

    trimmed = trim(dialect, fields)

    assert set(trimmed.fields) == set(fields)


# The hint


@pytest.mark.parametrize(
    ("dialect", "body", "expected"),
    [
        (
            "openai-chat",
            {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]},
            {
                "messages": [
                    {"role": "system", "content": "S"},
                    {"role": "system", "content": CONCISE},
                    {"role": "user", "content": "U"},
                ]
            },
        ),
        ("openai-responses", {}, {"instructions": CONCISE}),
        ("openai-responses", {"instructions": "S"}, {"instructions": f"S\n\n{CONCISE}"}),
        ("anthropic-messages", {"system": "S"}, {"system": f"S\n\n{CONCISE}"}),
        (
            "anthropic-messages",
            {"system": [{"type": "text", "text": "S"}]},
            {"system": [{"type": "text", "text": "S"}, {"type": "text", "text": CONCISE}]},
        ),
        ("gemini", {}, {"systemInstruction": {"parts": [{"text": CONCISE}]}}),
        (
            "gemini",
            {"systemInstruction": {"role": "x", "parts": [{"text": "S"}]}},
            {"systemInstruction": {"role": "x", "parts": [{"text": "S"}, {"text": CONCISE}]}},
        ),
        ("openai-completions", {"prompt": "x"}, {"prompt": "x"}),
    ],
)
def test_the_hint_follows_the_system_text(dialect: str, body: Any, expected: Any) -> None:
    hinted = with_hint(dialect, fields_of(body))

    assert shown(hinted) == expected
    assert shown(with_hint(dialect, hinted)) == expected


@given(
    dialect=st.sampled_from(DIALECTS),
    body=st.dictionaries(st.sampled_from(NAMES), json_values, max_size=4),
)
def test_the_hint_never_raises(dialect: str, body: dict[str, Any]) -> None:
    assert set(with_hint(dialect, fields_of(body))) >= set(body)


@pytest.mark.parametrize(
    ("dialect", "turn", "expected"),
    [
        ("openai-responses", {"type": "message", "role": "user", "content": "a  "}, "content"),
        ("openai-responses", {"type": "reasoning", "role": "user", "content": "a  "}, None),
        ("openai-responses", {"type": "message", "role": "assistant", "content": "a  "}, None),
        ("openai-chat", {"role": "user", "content": "a  "}, "content"),
        ("openai-chat", {"role": "user", "name": "n", "content": "a  "}, "content"),
        ("openai-chat", {"role": "system", "content": "a  "}, "content"),
        ("openai-chat", {"role": "developer", "content": "a  "}, "content"),
        ("openai-chat", {"role": "function", "content": "a  "}, None),
        ("openai-chat", {"content": "a  "}, None),  # nobody said it
        ("openai-chat", {"role": "user"}, None),
        ("openai-chat", {"role": "user", "content": None}, None),
        ("openai-chat", {"role": "user", "content": 3}, None),
        ("openai-chat", "a  ", None),
    ],
)
def test_which_turns_are_trimmed(dialect: str, turn: Any, expected: str | None) -> None:
    name = "input" if dialect == "openai-responses" else "messages"
    (found,) = shown(trim(dialect, fields_of({name: [turn]})).fields)[name]
    assert found == (turn if expected is None else {**turn, expected: "a"})


@pytest.mark.parametrize("role", ["user", None, "model"])
def test_turns_of_gemini_without_a_role_are_the_users(role: str | None) -> None:
    turn = {"parts": [{"text": "a  "}], **({} if role is None else {"role": role})}
    (found,) = shown(trim("gemini", fields_of({"contents": [turn]})).fields)["contents"]
    assert found["parts"] == ([{"text": "a  "}] if role == "model" else [{"text": "a"}])


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("a  ", "a  "),
        ({"role": "x"}, {"role": "x"}),
        ({"parts": [{"text": "a"}]}, {"parts": [{"text": "a"}]}),
        ({"role": "x", "parts": [{"text": "a  "}]}, {"role": "x", "parts": [{"text": "a"}]}),
        ({"parts": [{"text": "a"}, {"text": "a  "}]}, {"parts": [{"text": "a"}]}),
        ({"parts": 3}, {"parts": 3}),
    ],
)
def test_geminis_instruction(instruction: Any, expected: Any) -> None:
    body = {"systemInstruction": instruction, "contents": [{"parts": [{"text": "b "}]}]}
    new = shown(trim("gemini", fields_of(body)).fields)
    assert new["systemInstruction"] == expected


@pytest.mark.parametrize(
    ("second", "dropped"),
    [
        ({"role": "system", "content": "a"}, True),
        ({"role": "developer", "content": "a  "}, True),
        ({"role": "system", "content": "a", "name": "n"}, False),  # it says more
        ({"role": "system", "content": "b"}, False),
        ({"role": "system", "content": "  "}, False),
        ({"role": "user", "content": "a"}, False),
    ],
)
def test_system_text_that_repeats_is_left_out(second: dict[str, str], dropped: bool) -> None:
    first = {"role": "system", "content": "a"}
    trimmed = trim("openai-chat", fields_of({"messages": [first, second]}))
    assert len(shown(trimmed.fields)["messages"]) == (1 if dropped else 2)
    assert trimmed.doubled == dropped
    later = [first, {"role": "user", "content": "x"}, first]
    assert len(shown(trim("openai-chat", fields_of({"messages": later})).fields)["messages"]) == 3
