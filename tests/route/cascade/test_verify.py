"""Checks of an answer: what passes, what fails, and that what was not looked at never passes."""

# ruff: noqa: RUF001 - refusals in other alphabets

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.dialect.request import ToolCall
from lightgate.errors import ConfigError
from lightgate.provider.answer import Answer, AnswerReader, read_answer, reads
from lightgate.route.cascade.features import Wants, wants_of
from lightgate.route.cascade.json_schema import Checked, check
from lightgate.route.cascade.refusal import declines
from lightgate.route.cascade.verify import BUILT_IN, CheckVerdict, checks_of, own_checks, verify

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")


def called(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments)


def judged(
    answer: Answer | None, *names: str, own: dict[str, Any] | None = None, **wants: Any
) -> CheckVerdict:
    return verify(answer, Wants(**wants), checks_of(names, own or {}))


# JSON schema


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0, -3], [1.5, "1", True, None]),
        ({"type": "number"}, [1, 1.5], ["1", False]),
        ({"type": ["string", "null"]}, ["", None], [0, []]),
        ({"type": "boolean"}, [True], [1]),
        ({"enum": ["a", 1, None]}, ["a", 1.0, None], ["b", True, 0]),
        ({"const": {"a": [1]}}, [{"a": [1.0]}], [{"a": [True]}, {"a": []}]),
        (
            PERSON,
            [{"name": "A"}, {"name": "A", "age": 3}],
            [{}, {"name": 1}, {"name": "A", "x": 1}],
        ),
        ({"additionalProperties": {"type": "string"}}, [{"a": "b"}, 3], [{"a": 1}]),
        ({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], ["a"]]),
        ({"minimum": 1, "maximum": 3}, [1, 3, "x"], [0, 4]),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [1, 3]),
        ({"minLength": 1, "maxLength": 2}, ["a", "ab", 7], ["", "abc"]),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["a", None], [1]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, [1, 5.5, "x"], [7, 1.5]),
        ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, [7], [1, "x"]),
        ({"$ref": "#/$defs/p", "$defs": {"p": PERSON}}, [{"name": "A"}], [{}]),
        (
            {"$ref": "#/$defs/a~1b~0c~01", "$defs": {"a/b~c~1": PERSON}},
            [{"name": "A"}],
            [{}],
        ),
        (True, [1, None], []),
        (False, [], [1, None]),
    ],
)
def test_what_is_checked_is_checked(schema: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert check(schema, value) == Checked(), value
    for value in bad:
        assert check(schema, value).errors, value


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^a"},
        {"format": "email"},
        {"not": {"type": "string"}},
        {"multipleOf": 3},
        {"uniqueItems": True},
        {"prefixItems": [{}], "items": False},
        {"items": [{}]},
        {"patternProperties": {}, "additionalProperties": False},
        {"if": {}, "then": {}},
        {"$ref": "https://example.com/s.json"},
        {"$ref": "#/nowhere"},
        {"type": "money"},
        {"type": {}},
        {"minimum": "1"},
        {"enum": 3},
        {"a_word_of_tomorrow": 1},
        {"anyOf": [{"pattern": "x"}]},
        [],
    ],
)
def test_what_is_not_checked_is_said_and_never_passes(schema: Any) -> None:
    found = check(schema, {"a": 1})

    assert found.unchecked
    assert not found.errors


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["v"]}

    assert check(node, {"v": 1, "next": {"v": 2}}) == Checked()
    assert check(node, {"v": 1, "next": {}}).errors == ("$.next lacks 'v'",)
    assert check({"$ref": "#"}, 1).unchecked


def test_branches_that_double_at_every_level_end_too() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(40):
        schema = {"anyOf": [schema, schema]}

    assert check(schema, "x").unchecked or check(schema, "x").errors


def test_a_long_list_of_values_is_not_compared_for_ever() -> None:
    found = check({"items": {"enum": list(range(5000))}}, list(range(6000, 7000)))

    assert found.unchecked


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
WORDS = [
    "type",
    "properties",
    "required",
    "enum",
    "items",
    "additionalProperties",
    "const",
    "anyOf",
]
WORDS += ["minimum", "maxLength", "$ref", "oneOf", "allOf", "exclusiveMaximum", "pattern"]
schemas = st.recursive(
    json_values | st.sampled_from([{"type": "string"}, True, False]),
    lambda inner: st.dictionaries(
        st.sampled_from(WORDS), inner | st.lists(inner, max_size=2), max_size=4
    ),
    max_leaves=10,
)


@given(schema=schemas, value=json_values)
def test_no_schema_and_no_value_raises(schema: Any, value: Any) -> None:
    found = check(schema, value)

    assert isinstance(found, Checked)
    assert found == check(schema, value)


@given(value=json_values)
def test_every_value_is_equal_to_itself_and_only_so(value: Any) -> None:
    assert check({"const": value}, value) == Checked()
    assert check({"const": [value]}, value).errors


def _finite(value: Any) -> bool:
    return "Infinity" not in json.dumps(value)


# The checks


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('{"name": "A"}', "passed"),
        (' {"name": "A"}\n', "passed"),
        ('{"age": 3}', "failed"),
        ('```json\n{"name": "A"}\n```', "failed"),
        ("", "failed"),
    ],
)
def test_json_schema(text: str, state: str) -> None:
    assert judged(Answer(text=text), "json_schema", schema=PERSON).state == state


def test_json_schema_has_nothing_to_say_without_a_schema() -> None:
    assert judged(Answer(text="x"), "json_schema") == CheckVerdict()


def test_a_schema_with_unknown_words_is_unchecked() -> None:
    verdict = judged(Answer(text='"a"'), "json_schema", schema={"type": "string", "format": "date"})

    assert verdict.state == "unchecked"
    assert verdict.text == "json_schema unchecked: format at $"


def test_the_text_of_a_verdict_leaves_out_what_passed() -> None:
    found = judged(Answer(text="{}"), "not_refused", "json_schema", schema=PERSON)
    assert [one.state for one in found.findings] == ["passed", "failed"]
    assert found.text.startswith("json_schema failed: ")


def test_a_call_instead_of_the_answer_is_unchecked() -> None:
    answer = Answer(calls=(called("f", "{}"),), finish="tool")

    assert judged(answer, "json_schema", schema=PERSON).state == "unchecked"


@pytest.mark.parametrize(
    ("call", "state"),
    [
        (called("add", '{"name": "A"}'), "passed"),
        (called("free", '{"x": [1]}'), "passed"),
        (called("free", ""), "passed"),
        (called("add", '{"age": 1}'), "failed"),
        (called("add", '{"name": '), "failed"),
        (called("add", "[]"), "failed"),
        (called("other", "{}"), "failed"),
        (called("odd", "{}"), "unchecked"),
    ],
)
def test_tool_arguments(call: ToolCall, state: str) -> None:
    tools: dict[str, Any] = {"add": PERSON, "free": None, "odd": {"if": {}}}
    good = called("free", "{}")

    verdict = judged(Answer(calls=(good, call)), "tool_arguments", tools=tools)
    assert verdict.state == state
    assert [(one.check, one.state) for one in verdict.findings] == [("tool_arguments", state)]


def test_a_call_that_must_be_made() -> None:
    said = Answer(text="Sure.")

    assert judged(said, "tool_arguments", tools={"f": None}, must_call=True).state == "failed"
    assert judged(said, "tool_arguments", tools={"f": None}) == CheckVerdict()


@pytest.mark.parametrize(
    ("finish", "limit", "state"),
    [
        ("stop", None, "passed"),
        ("tool", 10, "passed"),
        ("length", None, "failed"),
        ("length", 1024, "failed"),
        ("length", 10, "unchecked"),
        ("context", 10, "failed"),
    ],
)
def test_not_truncated(finish: Any, limit: int | None, state: str) -> None:
    assert judged(Answer(text="x", finish=finish), "not_truncated", limit=limit).state == state


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Answer(text="Paris."), "passed"),
        (Answer(refusal="No."), "failed"),
        (Answer(text="x", finish="filter"), "failed"),
        (Answer(text="x", finish="refusal"), "failed"),
        (Answer(text="I'm sorry, but I can't help with that."), "failed"),
        (Answer(text="I can't help with that.", calls=(called("f", "{}"),)), "passed"),
    ],
)
def test_not_refused(answer: Answer, state: str) -> None:
    assert judged(answer, "not_refused").state == state


REFUSALS = [
    "I'm sorry, but I can't assist with that request.",
    "I\u2019m sorry, I cannot provide that.",
    "Sorry, I won't write this.",
    "I am unable to help with this.",
    "I'm not able to discuss that topic.",
    "Es tut mir leid, aber dabei kann ich nicht helfen.",
    "Je suis désolé, mais je ne peux pas répondre à cette demande.",
    "Lo siento, pero no puedo ayudar con eso.",
    "Mi dispiace, ma non posso aiutarti.",
    "Desculpe, mas não posso ajudar com isso.",
    "Het spijt me, maar ik kan je daar niet mee helpen.",
    "Przykro mi, ale nie mogę w tym pomóc.",
    "Извините, но я не могу помочь с этим.",
    "Üzgünüm, bu konuda yardımcı olamam.",
    "عذرًا، لا أستطيع المساعدة في ذلك.",
    "क्षमा करें, मैं यह नहीं कर सकता।",
    "抱歉,我无法回答这个问题。",
    "申し訳ありませんが、そのご質問にはお答えできません。",
    "죄송하지만 그 요청은 도와드릴 수 없습니다.",
]
ANSWERS = [
    "I can't believe how good this recipe is. Start with two eggs.",
    "Sorry for the delay! Here is the list.",
    "Unfortunately, the train is late.",
    "I cannot find the word in the text.",
    "Leider regnet es morgen.",
    "The letter says: I'm sorry, but I can't help with that.",
    "I'm sorry, but I can't help with the first part. " + "Here is the second part. " * 40,
    "",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_seen(text: str) -> None:
    assert declines(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_answers_are_not_taken_for_refusals(text: str) -> None:
    assert not declines(text)


@given(st.text(max_size=700))
def test_no_text_raises(text: str) -> None:
    assert declines(text) in {True, False}


def test_logprobs() -> None:
    sure, unsure = Answer(text="x", logprob=-0.2), Answer(text="x", logprob=-1.4)

    assert judged(sure, "logprobs").state == "passed"
    assert judged(unsure, "logprobs").state == "failed"
    assert judged(sure, "logprobs>-0.1").state == "failed"
    assert judged(Answer(text="x"), "logprobs").state == "unchecked"


@pytest.mark.parametrize("name", ["logprobs>", "logprobs>1", "logprobs>nan", "what"])
def test_a_check_that_there_is_not_is_an_error_at_start(name: str) -> None:
    with pytest.raises(ConfigError):
        checks_of([name], {})


def test_one_failure_fails_and_a_doubt_does_not_pass() -> None:
    said = Answer(text='{"name": 1}')
    names = tuple(BUILT_IN)

    verdict = judged(said, *names, schema=PERSON)

    assert verdict.state == "failed"
    assert [found.check for found in verdict.findings if found.state == "passed"] == [
        "not_refused",
        "not_truncated",
    ]
    assert judged(said, "not_refused", "logprobs").state == "unchecked"
    assert judged(None, *names).state == "unchecked"


# The user's own


class Point:
    def __init__(self, name: str, thing: Any) -> None:
        self.name = name
        self._thing = thing

    def load(self) -> Any:
        if isinstance(self._thing, Exception):
            raise self._thing
        return self._thing


def boom(_answer: Answer, _wants: Wants) -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("own", "state", "why"),
    [
        (lambda a, w: a.text == "x", "passed", ""),
        (lambda a, w: False, "failed", "it said no"),
        (lambda a, w: "too short", "failed", "too short"),
        (lambda a, w: None, "failed", "it returned NoneType, not True or False"),
        (boom, "failed", "it raised ZeroDivisionError"),
    ],
)
def test_an_own_check(own: Any, state: str, why: str) -> None:
    (found,) = judged(Answer(text="x"), "mine", own={"mine": own}).findings

    assert (found.state, found.why) == (state, why)


def test_own_checks_are_loaded_by_name_and_only_those() -> None:
    points = [Point("mine", boom), Point("broken", ImportError("no module")), Point("no", 3)]

    assert own_checks(["mine", "json_schema"], points) == {"mine": boom}
    for name in ("broken", "no"):
        with pytest.raises(ConfigError):
            own_checks([name], points)
    with pytest.raises(ConfigError):
        own_checks(["mine"], [*points, Point("mine", boom)])


# What was asked, and what was answered, in every dialect

BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": PERSON}},
        "tools": [{"type": "function", "function": {"name": "add", "parameters": PERSON}}],
        "tool_choice": "required",
    },
    "openai-responses": {
        "text": {"format": {"type": "json_schema", "schema": PERSON}},
        "tools": [{"type": "function", "name": "add", "parameters": PERSON}],
        "tool_choice": {"type": "function", "name": "add"},
    },
    "anthropic-messages": {
        "output_config": {"format": {"type": "json_schema", "schema": PERSON}},
        "tools": [{"name": "add", "input_schema": PERSON}],
        "tool_choice": {"type": "any"},
    },
    "gemini": {
        "generationConfig": {"responseJsonSchema": PERSON},
        "tools": [{"functionDeclarations": [{"name": "add", "parametersJsonSchema": PERSON}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    },
}


def raw(body: Any) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_wants(dialect: str) -> None:
    wants = wants_of(dialect, raw(BODIES[dialect]), 9)

    assert wants == Wants(schema=PERSON, tools={"add": PERSON}, must_call=True, limit=9)
    assert wants_of(dialect, {}) == Wants()


def test_geminis_own_schema_is_read_too() -> None:
    said = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}}

    wants = wants_of("gemini", raw({"generationConfig": {"responseSchema": said}}))

    assert wants.schema == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}


@given(dialect=st.sampled_from(DIALECTS), bad=json_values)
def test_hostile_wants_never_raise(dialect: str, bad: Any) -> None:
    names = ("tools", "tool_choice", "text", "response_format", "output_config", "generationConfig")
    body = raw(dict.fromkeys(names, bad)) if _finite(bad) else {}

    assert isinstance(wants_of(dialect, body), Wants)


ANSWERED: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "choices": [
            {
                "message": {
                    "content": "Hi.",
                    "tool_calls": [
                        {
                            "id": "1",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{}"},
                        }
                    ],
                },
                "logprobs": {"content": [{"token": "Hi.", "logprob": -0.5}]},
                "finish_reason": "length",
            }
        ]
    },
    "openai-responses": {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {
                "type": "message",
                "content": [
                    {
                        "type": "output_text",
                        "text": "Hi.",
                        "logprobs": [{"token": "Hi.", "logprob": -0.5}],
                    }
                ],
            },
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        ],
    },
    "anthropic-messages": {
        "content": [
            {"type": "text", "text": "Hi."},
            {"type": "tool_use", "id": "1", "name": "f", "input": {}},
        ],
        "stop_reason": "max_tokens",
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "parts": [{"text": "Hi."}, {"functionCall": {"name": "f", "args": {}}}]
                },
                "finishReason": "MAX_TOKENS",
                "logprobsResult": {"chosenCandidates": [{"token": "Hi.", "logProbability": -0.5}]},
            }
        ]
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_answer(dialect: str) -> None:
    answer = read_answer(dialect, json.dumps(ANSWERED[dialect]).encode(), streamed=False)

    assert answer is not None
    assert (answer.text, answer.finish) == ("Hi.", "length")
    assert [(call.name, call.arguments) for call in answer.calls] == [("f", "{}")]
    assert answer.logprob == (None if dialect == "anthropic-messages" else -0.5)


def test_a_streamed_answer() -> None:
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": "I can"}}]},
        {"choices": [{"delta": {"content": "'t help with that."}, "finish_reason": "stop"}]},
    ]
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)

    answer = read_answer("openai-chat", body + b"data: [DONE]\n\n", streamed=True)

    assert answer == Answer(text="I can't help with that.", finish="stop")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error": {"message": "no"}}', b"\xff"])
def test_what_is_no_answer_is_none(dialect: str, body: bytes) -> None:
    assert read_answer(dialect, body, streamed=False) is None


def test_a_dialect_without_a_reader_is_not_read() -> None:
    assert not reads("openai-completions")
    assert read_answer("openai-completions", b"{}", streamed=False) is None


@given(dialect=st.sampled_from(DIALECTS), body=st.binary(max_size=200), streamed=st.booleans())
def test_hostile_answers_never_raise(dialect: str, body: bytes, streamed: bool) -> None:
    answer = read_answer(dialect, body, streamed=streamed)

    assert answer is None or isinstance(answer, Answer)


def test_events_after_the_end_change_nothing() -> None:
    reader = AnswerReader("openai-chat")
    reader.event(b"", b'{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}')
    reader.event(b"", b"[DONE]")
    reader.event(b"", b'{"choices": [{"delta": {"content": "b"}}]}')

    assert reader.answer() == Answer(text="a")


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        ({"tool_choice": "required"}, False),  # there is nothing to call
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, False),
        (
            {
                "tools": [{"type": "function", "function": {"name": "add"}}],
                "tool_choice": "required",
            },
            True,
        ),
    ],
)
def test_an_answer_must_call_a_tool_where_there_is_one_and_it_was_asked_for(
    asked: dict[str, Any], bound: bool
) -> None:
    assert wants_of("openai-chat", raw(asked)).must_call is bound
