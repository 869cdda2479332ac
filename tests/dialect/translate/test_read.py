"""Reading clients' bodies: forms that the golden files do not show, and what must be refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.dialect.anthropic.read import SHAPE as ANTHROPIC_SHAPE
from lightgate.dialect.gemini.build import GEMINI
from lightgate.dialect.gemini.read import _beside
from lightgate.dialect.registry import TRANSLATED, dialect_for
from lightgate.dialect.request import Image, Message, Request, Text, Thought, Tool, ToolCall
from lightgate.dialect.translate import BadField, Untranslatable, read_request
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.request import Untold

HI: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Hi."}]},
    "openai-responses": {"input": "Hi."},
    "anthropic-messages": {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 9},
    "gemini": {"contents": [{"parts": [{"text": "Hi."}]}]},
}


def read(dialect: str, untranslatable: Untold = "refuse", /, **fields: Any) -> Request:
    body = json.dumps(HI[dialect] | fields).encode()
    return read_request(dialect, body, model="m", untranslatable=untranslatable)


def said(dialect: str, **fields: Any) -> list[Message]:
    """Read messages, without the places where they were said."""
    found = read(dialect, **fields).messages
    return [msgspec.structs.replace(message, place="") for message in found]


def built(family: Any, request: Request, kind: Any = "chat") -> Any:
    return json.loads(dialect_for(family, kind).build(request).body)


@pytest.mark.parametrize("dialect", TRANSLATED)
def test_model_and_stream_come_from_the_body_or_from_the_caller(dialect: str) -> None:
    body = json.dumps(HI[dialect] | {"model": "a", "stream": True}).encode()
    request = read_request(dialect, body)
    assert (request.model, request.stream, request.client) == ("a", True, dialect)
    request = read_request(dialect, body, model="b", stream=False)
    assert (request.model, request.stream) == ("b", False)
    assert read(dialect).stream is False
    with pytest.raises(BadField, match="'model' is needed"):
        read_request(dialect, json.dumps(HI[dialect]).encode())


@pytest.mark.parametrize("dialect", TRANSLATED)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"a": "\xc3"}', b'{"model": 1e999}', b"nonsense", b"{} {}"]
)
def test_what_is_no_json_is_a_usage_error(dialect: str, body: bytes) -> None:
    with pytest.raises(UsageError, match="not JSON"):
        read_request(dialect, body, model="m")


@pytest.mark.parametrize("dialect", TRANSLATED)
@pytest.mark.parametrize("body", [b"[]", b"3", b"null", b'"x"'])
def test_a_body_must_be_an_object(dialect: str, body: bytes) -> None:
    with pytest.raises(BadField, match="must be an object") as caught:
        read_request(dialect, body, model="m")
    assert caught.value.field == "body"


def refusal(dialect: str, body: bytes) -> str:
    """Say why a body cannot be translated, nothing if it can; any other error is a failure."""
    try:
        request = read_request(dialect, body, model="m")
        for family in ("openai", "anthropic", "gemini"):
            built(family, request)
    except UsageError as error:
        return error.message
    return ""


@pytest.mark.parametrize("dialect", TRANSLATED)
@pytest.mark.parametrize("depth", [100, 400, 900, 100_000])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")])
def test_no_depth_crashes(dialect: str, depth: int, pair: tuple[str, str]) -> None:
    deep = pair[0] * depth + "1" + pair[1] * depth
    hi = json.dumps(HI[dialect])[:-1]
    schemas = {
        "openai-chat": '"response_format": {"type": "json_schema", "json_schema": {"name": "x", '
        '"schema": {"items": DEEP}}}',
        "openai-responses": '"tools": [{"type": "function", "name": "f", "parameters": '
        '{"items": DEEP}}]',
        "anthropic-messages": '"tools": [{"name": "f", "input_schema": {"items": DEEP}}]',
        "gemini": '"tools": [{"functionDeclarations": [{"name": "f", "parameters": '
        '{"items": DEEP}}]}]',
    }
    for field in ('"unknown": DEEP', schemas[dialect]):
        body = f"{hi}, {field.replace('DEEP', deep)}}}".encode()
        message = refusal(dialect, body)
        assert len(message) < 500
        assert message or depth < 1000  # what is said to be read must be sayable, too


@pytest.mark.parametrize("dialect", TRANSLATED)
@pytest.mark.parametrize("name", ["new_wish", "logit_bias", "", "x" * 10_000])
def test_an_unknown_field_is_refused_by_name(dialect: str, name: str) -> None:
    with pytest.raises(Untranslatable) as caught:
        read(dialect, **{name: {"a": 1}})
    camel = {"new_wish": "newWish", "logit_bias": "logitBias"} if dialect == "gemini" else {}
    expected = camel.get(name, name)
    assert caught.value.field.removesuffix("...") == expected[:200]
    assert len(caught.value.message) < 300
    assert read(dialect, **{name: None}) == read(dialect)  # null is none
    if (dialect, name) == ("openai-chat", "logit_bias"):  # it says what the answer may say
        with pytest.raises(Untranslatable):
            read(dialect, "drop", **{name: {"a": 1}})
        return
    dropped = read(dialect, "drop", **{name: {"a": 1}})
    assert dropped.dropped == (expected,)
    assert msgspec.structs.replace(dropped, dropped=()) == read(dialect, "drop")


@pytest.mark.parametrize(
    ("dialect", "fields", "place"),
    [
        ("openai-chat", {"messages": "Hi"}, "messages"),
        ("openai-chat", {"messages": [3]}, "messages[0]"),
        ("openai-chat", {"messages": [{"content": "x"}]}, "messages[0].role"),
        ("openai-chat", {"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ("openai-chat", {"temperature": "hot"}, "temperature"),
        ("openai-chat", {"temperature": True}, "temperature"),
        ("openai-chat", {"seed": 1.5}, "seed"),
        ("openai-chat", {"stream": "yes"}, "stream"),
        ("openai-chat", {"stop": ["a", 3]}, "stop[1]"),
        ("openai-chat", {"stop": 3}, "stop"),
        ("openai-chat", {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ("openai-chat", {"tool_choice": "always"}, "tool_choice"),
        ("openai-chat", {"tool_choice": {"type": "function"}}, "tool_choice.function"),
        (
            "openai-chat",
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages[0].tool_call_id",
        ),
        ("openai-chat", {"tools": [{"type": "function"}]}, "tools[0].function"),
        (
            "openai-chat",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ("openai-responses", {"input": 3}, "input"),
        (
            "openai-responses",
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            "openai-responses",
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "input[0].content[0].file_data",
        ),
        ("openai-responses", {"input": [{"role": "user", "content": [3]}]}, "input[0].content[0]"),
        ("anthropic-messages", {"system": 3}, "system"),
        ("anthropic-messages", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("anthropic-messages", {"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ("anthropic-messages", {"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ("gemini", {"contents": [{"parts": [{}]}]}, "contents[0].parts[0]"),
        ("gemini", {"generationConfig": {"topK": "40"}}, "generationConfig.topK"),
        (
            "gemini",
            {"generationConfig": {"responseSchema": {"type": "OBJECT"}}},
            "generationConfig.responseMimeType",
        ),
        ("gemini", {"generationConfig": {"topK": 1, "top_k": 2}}, "generationConfig"),
        (
            "anthropic-messages",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "application/pdf",
                                    "data": "AA==",
                                },
                            }
                        ],
                    }
                ]
            },
            "messages[0].content[0].source.media_type",
        ),
        (
            "gemini",
            {
                "tools": [
                    {
                        "functionDeclarations": [
                            {
                                "name": "f",
                                "parameters": {"type": "OBJECT"},
                                "parametersJsonSchema": {"type": "object"},
                            }
                        ]
                    }
                ]
            },
            "tools[0].functionDeclarations[0].parameters",
        ),
        (
            "gemini",
            {
                "generationConfig": {
                    "responseMimeType": "application/json",
                    "responseJsonSchema": {"type": "object"},
                    "responseSchema": {"type": "OBJECT"},
                }
            },
            "generationConfig.responseSchema",
        ),
        (
            "gemini",
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0, "thinkingLevel": "LOW"}}},
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
        (
            "gemini",
            {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {}}}]}]},
            "contents[0].parts[0].functionResponse",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_place(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(BadField) as caught:
        read(dialect, **fields)
    assert caught.value.field == place
    assert repr(place) in caught.value.message


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


HARD: list[tuple[str, dict[str, Any], str]] = [  # without them the answer would be another
    ("openai-chat", {"n": 2}, "n"),
    ("openai-chat", {"n": True}, "n"),
    ("openai-chat", {"logit_bias": {"50256": -100}}, "logit_bias"),
    ("openai-chat", {"modalities": ["text", "audio"]}, "modalities"),
    ("openai-chat", {"audio": {"voice": "alloy"}}, "audio"),
    ("openai-chat", {"functions": [{"name": "f"}]}, "functions"),
    ("openai-chat", {"messages": [{"role": "function", "content": ""}]}, "messages[0].role"),
    ("openai-chat", user({"type": "video_url"}), "messages[0].content[0].type"),
    (
        "openai-chat",
        user({"type": "file", "file": {"file_id": "f"}}),
        "messages[0].content[0].file.file_id",
    ),
    (
        "openai-chat",
        user({"type": "file", "file": {"file_data": "file:///etc/passwd"}}),
        "messages[0].content[0].file.file_data",
    ),
    (
        "openai-chat",
        user({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
        "messages[0].content[0].image_url.url",
    ),
    (
        "openai-chat",
        user({"type": "image_url", "image_url": {"url": "data:application/pdf;base64,AA=="}}),
        "messages[0].content[0].image_url.url",
    ),
    ("openai-chat", {"response_format": {"type": "grammar"}}, "response_format.type"),
    ("openai-responses", {"previous_response_id": "r"}, "previous_response_id"),
    ("openai-responses", {"conversation": "c"}, "conversation"),
    ("openai-responses", {"prompt": {"id": "p"}}, "prompt"),
    ("openai-responses", {"background": True}, "background"),
    ("openai-responses", {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    ("openai-responses", {"input": [{"type": "compaction"}]}, "input[0].type"),
    (
        "openai-responses",
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0].file_id",
    ),
    ("anthropic-messages", {"inference_geo": "eu"}, "inference_geo"),
    ("anthropic-messages", user({"type": "container_upload"}), "messages[0].content[0].type"),
    ("anthropic-messages", {"messages": [{"role": "judge"}]}, "messages[0].role"),
    (
        "anthropic-messages",
        {"messages": [{"role": "assistant", "content": "Dear"}]},
        "messages[0]",
    ),
    (
        "anthropic-messages",
        user({"type": "image", "source": {"type": "file", "file_id": "f"}}),
        "messages[0].content[0].source.type",
    ),
    ("gemini", {"cachedContent": "c"}, "cachedContent"),
    ("gemini", {"contents": [{"role": "tool", "parts": [{"text": "x"}]}]}, "contents[0].role"),
    (
        "gemini",
        {"generationConfig": {"responseMimeType": "text/x.enum"}},
        "generationConfig.responseMimeType",
    ),
    ("gemini", {"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount"),
    ("gemini", {"generationConfig": {"speechConfig": {"a": 1}}}, "generationConfig.speechConfig"),
    (
        "gemini",
        {"generation_config": {"response_modalities": ["AUDIO"]}},
        "generationConfig.responseModalities",
    ),
]
SOFT: list[tuple[str, dict[str, Any], str]] = [  # dropped and named, where the model allows it
    ("openai-chat", {"service_tier": "flex"}, "service_tier"),
    ("openai-chat", {"prediction": {"type": "content"}}, "prediction"),
    ("openai-chat", {"stream_options": {"later": True}}, "stream_options.later"),
    ("openai-chat", user({"type": "text", "text": "", "x": 1}), "messages[0].content[0].x"),
    (
        "openai-chat",
        {"messages": [{"role": "assistant", "audio": {"id": "a"}}]},
        "messages[0].audio",
    ),
    ("openai-chat", {"tools": [{"type": "mcp"}]}, "tools[0]"),
    ("openai-responses", {"reasoning": {"summary": "long"}}, "reasoning.summary"),
    ("openai-responses", {"truncation": "auto"}, "truncation"),
    ("openai-responses", {"max_tool_calls": 3}, "max_tool_calls"),
    ("openai-responses", {"context_management": [{"type": "x"}]}, "context_management"),
    ("openai-responses", {"tools": [{"type": "file_search"}]}, "tools[0]"),
    ("openai-responses", {"tool_choice": {"type": "mcp"}}, "tool_choice"),
    ("openai-responses", {"input": [{"type": "web_search_call", "id": "x"}]}, "input[0]"),
    ("anthropic-messages", {"container": "c"}, "container"),
    ("anthropic-messages", {"context_management": {"edits": [{}]}}, "context_management"),
    ("anthropic-messages", {"mcp_servers": [{}]}, "mcp_servers"),
    ("anthropic-messages", {"speed": "fast"}, "speed"),
    ("anthropic-messages", {"tools": [{"type": "computer_20250124"}]}, "tools[0]"),
    ("anthropic-messages", {"thinking": {"type": "wild"}}, "thinking.type"),
    ("gemini", {"safetySettings": [{}]}, "safetySettings"),
    ("gemini", {"tools": [{"googleMaps": {"a": 1}}]}, "tools[0].googleMaps"),
    ("gemini", {"toolConfig": {"retrievalConfig": {"a": 1}}}, "toolConfig.retrievalConfig"),
    (
        "gemini",
        {
            "tools": [
                {"functionDeclarations": [{"name": "f", "parameters": {"type": "X", "$ref": "y"}}]}
            ]
        },
        "tools[0].functionDeclarations[0].parameters.$ref",
    ),
]
LEFT: list[tuple[str, dict[str, Any], str]] = [  # named, and never a reason to refuse
    ("openai-chat", {"store": True}, "store"),
    ("openai-chat", {"user": "u"}, "user"),
    ("openai-chat", {"metadata": {"a": "b"}}, "metadata"),
    ("openai-responses", {"include": ["file_search_call.results"]}, "include[0]"),
    ("openai-responses", {"client_metadata": {"a": "b"}}, "client_metadata"),
    ("openai-responses", {"prompt_cache_key": "k"}, "prompt_cache_key"),
    ("openai-responses", {"input": [{"type": "item_reference", "id": "rs_1"}]}, "input[0]"),
    ("anthropic-messages", {"metadata": {"user_id": "u"}}, "metadata"),
    ("anthropic-messages", {"cache_control": {"type": "ephemeral"}}, "cache_control"),
    (
        "anthropic-messages",
        {"thinking": {"type": "enabled", "budget_tokens": 9}, "output_config": {"effort": "low"}},
        "output_config.effort",
    ),
    ("gemini", {"labels": {"a": "b"}}, "labels"),
    ("gemini", {"contents": [{"parts": [{"executableCode": {}}]}]}, "contents[0].parts[0]"),
]


@pytest.mark.parametrize(("dialect", "fields", "place"), HARD + SOFT)
def test_what_cannot_be_translated_is_named_with_its_place(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(Untranslatable) as caught:
        read(dialect, **fields)
    assert caught.value.field == place
    assert repr(place) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("dialect", "fields", "place"), HARD)
def test_what_the_answer_hangs_on_is_refused_in_any_case(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(Untranslatable) as caught:
        read(dialect, "drop", **fields)
    assert caught.value.field == place


@pytest.mark.parametrize(("dialect", "fields", "place"), SOFT + LEFT)
def test_what_the_answer_does_not_hang_on_is_dropped_and_named(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    assert read(dialect, "drop", **fields).dropped == (place,)


@pytest.mark.parametrize(("dialect", "fields", "place"), LEFT)
def test_what_has_no_effect_on_the_answer_is_never_refused(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    assert read(dialect, "refuse", **fields).dropped == (place,)


@pytest.mark.parametrize(
    ("role", "kind"), [("user", "functionCall"), ("model", "functionResponse")]
)
def test_gemini_has_calls_in_the_models_turns_and_results_in_all_others(
    role: str, kind: str
) -> None:
    with pytest.raises(Untranslatable) as caught:
        read("gemini", contents=[{"role": role, "parts": [{kind: {"name": "f"}}]}])
    assert caught.value.field == f"contents[0].parts[0].{kind}"


def test_a_stored_file_of_gemini_is_its_own() -> None:
    uri = "https://generativelanguage.googleapis.com/v1beta/files/x"
    file = {"fileData": {"mimeType": "image/png", "fileUri": uri}}
    with pytest.raises(Untranslatable, match="stored file"):
        read("gemini", contents=[{"parts": [file]}])


def test_chat_takes_the_forms_that_servers_and_sdks_use() -> None:
    assistant: dict[str, Any] = {
        "role": "assistant",
        "content": None,
        "refusal": "No.",
        "annotations": [],
        "audio": None,
        "function_call": None,
        "reasoning": "Hm.",
        "tool_calls": None,
    }
    thought = Thought(
        dialect="openai-chat",
        raw={"reasoning_content": "Hm."},
        place="messages[1].reasoning",
    )
    request = read(
        "openai-chat",
        messages=[{"role": "developer", "content": "D", "name": "boss"}, assistant],
        stop="END",
        n=1,
        user="u",
        metadata={"a": "b"},
        presence_penalty=0,
        logprobs=False,
        response_format={"type": "text"},
    )
    assert [msgspec.structs.replace(m, place="") for m in request.messages] == [
        Message(role="developer", content="D", name="boss"),
        Message(role="assistant", content=(thought, Text("No."))),
    ]
    assert request.stop == ("END",)
    assert request.presence_penalty is None
    assert not request.logprobs
    assert request.schema is None


def test_a_name_is_refused_where_messages_have_none() -> None:
    request = read("openai-chat", messages=[{"role": "user", "content": "x", "name": "ann"}])
    for family, kind in (("openai", "responses"), ("anthropic", "chat"), ("gemini", "chat")):
        with pytest.raises(Untranslatable) as caught:
            built(family, request, kind)
        assert caught.value.field == "messages[0].name"


def test_items_of_responses_become_turns() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": name, "name": "f", "arguments": "", "id": "x"}

    def answer(name: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": name, "output": name}

    def text(words: str) -> dict[str, Any]:
        part = {"type": "output_text", "text": words, "annotations": []}
        return {"type": "message", "role": "assistant", "content": [part], "status": "completed"}

    items = [text("a"), text("b"), call("1"), text("c"), call("2"), answer("2"), answer("1")]
    items += [text("d"), {"role": "user", "content": "e"}]

    def made(name: str) -> ToolCall:
        return ToolCall(id=name, name="f", arguments="")

    assert said("openai-responses", input=items, instructions="I") == [
        Message(role="system", content="I"),
        Message(role="assistant", content="a"),
        Message(role="assistant", content="bc", tool_calls=(made("1"), made("2"))),
        Message(role="tool", content="2", tool_call_id="2"),
        Message(role="tool", content="1", tool_call_id="1"),
        Message(role="assistant", content="d"),
        Message(role="user", content="e"),
    ]


def test_responses_are_strict_by_habit_where_the_schema_allows_it() -> None:
    shut = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "string"}]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    ajar = shut | {"properties": {"a": {"type": "object"}}}
    tools = [
        {"type": "function", "name": "a", "parameters": shut},
        {"type": "function", "name": "b", "parameters": ajar},
        {"type": "function", "name": "c"},
        {"type": "function", "name": "d", "parameters": shut, "strict": False},
    ]
    found = read("openai-responses", tools=tools).tools
    assert [tool.strict for tool in found] == [True, None, None, False]


def test_a_turn_of_anthropic_may_hold_results_and_words() -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    words = {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}
    image = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
    assert said("anthropic-messages", **user(words, block, image)) == [
        Message(role="tool", tool_call_id="t", is_error=True),
        Message(role="user", content=(Text("Go on."), Image(url="https://x.test/a.png"))),
    ]


def test_texts_of_an_assistant_are_one_text_and_those_of_a_user_stay_apart() -> None:
    texts = [{"type": "text", "text": word} for word in ("Go ", "on.")]
    spoken = [{"role": role, "content": texts} for role in ("assistant", "user")]
    assert said("anthropic-messages", messages=spoken) == [
        Message(role="assistant", content="Go on."),
        Message(role="user", content=(Text("Go "), Text("on."))),
    ]


def test_effort_of_anthropic_stands_alone_or_with_adaptive_thinking() -> None:
    dialect = "anthropic-messages"
    assert read(dialect, output_config={"effort": "max"}).reasoning == "max"
    assert read(dialect, thinking={"type": "adaptive"}).reasoning == "high"
    thinking = {"type": "adaptive", "display": "omitted"}
    request = read(dialect, thinking=thinking, output_config={"effort": "low"})
    assert (request.reasoning, request.thoughts) == ("low", "omitted")


def test_the_older_place_of_a_schema_at_anthropic_is_read() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    found = read("anthropic-messages", output_format=form).schema
    assert found is not None
    assert (found.schema, found.strict) == ({"type": "object"}, False)


def test_results_of_gemini_find_their_calls() -> None:
    def call(name: str, **more: Any) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": {}} | more}

    def answer(name: str, **more: Any) -> dict[str, Any]:
        return {"function_response": {"name": name, "response": {"n": name}} | more}

    contents = [
        {
            "role": "model",
            "parts": [call("f"), call("g", id="call_2"), call("f"), call("f", id="z")],
        },
        {"role": "user", "parts": [answer("f"), answer("g"), answer("f", id="z"), answer("f")]},
    ]
    found = said("gemini", contents=contents)
    assert [call.id for call in found[0].tool_calls] == ["call_0", "call_2", "call_3", "z"]
    assert [m.tool_call_id for m in found[1:]] == ["call_0", "call_2", "z", "call_3"]


def test_results_for_gemini_come_in_the_order_of_their_calls() -> None:
    calls = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in "ab"
    ]
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in "ba"]
    request = read("openai-chat", messages=[{"role": "assistant", "tool_calls": calls}, *results])
    parts = built("gemini", request)["contents"][1]["parts"]
    assert [part["functionResponse"]["response"]["result"] for part in parts] == ["a", "b"]


def test_a_result_that_looks_like_a_number_stays_a_text_for_gemini() -> None:
    calls = ({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},)
    request = read(
        "openai-chat",
        messages=[
            {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "1.10"},
        ],
    )
    part = built("gemini", request)["contents"][1]["parts"][0]
    assert part["functionResponse"]["response"] == {"result": "1.10"}


def test_seals_of_gemini_are_handed_back_to_gemini_alone() -> None:
    parts = [{"text": "A", "thoughtSignature": "s"}, {"text": "", "thoughtSignature": "t"}]
    request = read(
        "gemini", contents=[{"role": "model", "parts": parts}, {"parts": [{"text": "B"}]}]
    )
    assert built("gemini", request)["contents"][0]["parts"] == parts
    assert built("openai", request)["messages"][0] == {"role": "assistant", "content": "A"}


def test_a_budget_that_gemini_chooses_itself_is_no_wish() -> None:
    config = {"thinkingConfig": {"thinkingBudget": -1, "includeThoughts": False}}
    request = read("gemini", generationConfig=config)
    assert (request.reasoning, request.thoughts) == (None, "omitted")


def test_validated_calls_of_gemini_are_strict_where_the_schema_allows_it() -> None:
    shut = {"type": "object", "properties": {}, "additionalProperties": False}
    declared = [{"name": "a", "parametersJsonSchema": shut}, {"name": "b"}]
    config = {"functionCallingConfig": {"mode": "VALIDATED"}}
    request = read("gemini", tools=[{"functionDeclarations": declared}], toolConfig=config)
    assert request.tools == (Tool(name="a", parameters=shut, strict=True), Tool(name="b"))
    assert request.tool_choice == "auto"


def test_a_tool_named_like_a_word_of_choice_is_refused() -> None:
    choice = {"type": "function", "name": "auto"}
    with pytest.raises(Untranslatable, match=r"tool_choice\.name"):
        read("openai-responses", tool_choice=choice)
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["auto"]}}
    with pytest.raises(Untranslatable) as caught:
        read("gemini", toolConfig=config)
    place = "toolConfig.functionCallingConfig.allowedFunctionNames[0]"
    assert caught.value.field == place


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_what_the_system_said_to_anthropic_knows_its_place(system: Any) -> None:
    first = read("anthropic-messages", system=system).messages[0]
    assert first == Message(role="system", content="Be brief.", place="system")


def test_allowed_tools_must_be_tools() -> None:
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "b"]}}
    with pytest.raises(BadField, match="must name tools"):
        read("gemini", toolConfig=config)


def test_ids_of_calls_are_spelt_for_anthropic_and_stay_apart() -> None:
    ids = ["functions.f:0", "functions_f_0", "functions.f:0".replace(".", ":"), ""]
    calls = [{"id": i, "function": {"name": "f", "arguments": "{}"}} for i in ids]
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in ids]
    request = read("openai-chat", messages=[{"role": "assistant", "tool_calls": calls}, *results])
    turns = built("anthropic", request)["messages"]
    made = [block["id"] for block in turns[0]["content"]]
    assert made[1] == "functions_f_0"
    assert len(set(made)) == 4
    assert [block["tool_use_id"] for block in turns[1]["content"]] == made
    assert all(i and all(c.isalnum() or c in "_-" for c in i) for i in made)


def test_a_history_that_anthropic_would_misread_is_refused() -> None:
    request = read("openai-chat", messages=[{"role": "assistant", "content": "Dear"}])
    with pytest.raises(Untranslatable, match=r"messages\[0\]"):
        built("anthropic", request)


def test_a_budget_is_dropped_where_the_thinking_before_a_call_is_lost() -> None:
    call = {"functionCall": {"name": "f"}}
    answer = {"functionResponse": {"name": "f", "response": {}}}
    loop = {
        "contents": [{"role": "model", "parts": [call]}, {"parts": [answer]}],
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}},
    }
    with pytest.raises(Untranslatable, match="thinkingBudget"):
        built("anthropic", read("gemini", **loop))
    found = dialect_for("anthropic", "chat").build(read("gemini", "drop", **loop))
    assert found.dropped == ("generationConfig.thinkingConfig.thinkingBudget",)
    assert "thinking" not in json.loads(found.body)


def test_a_budget_is_added_to_the_cap_that_anthropic_needs() -> None:
    config = {"thinkingConfig": {"thinkingBudget": 1024}}
    assert built("anthropic", read("gemini", generationConfig=config))["max_tokens"] == 33_024


def test_broken_base64_is_refused_when_it_is_said() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "%%%"}
    request = read("anthropic-messages", **user({"type": "image", "source": source}))
    with pytest.raises(UsageError, match="base64"):
        built("openai", request)


def test_a_description_beside_a_schema_moves_into_it() -> None:
    form = {"name": "n", "schema": {"type": "object"}, "description": "D"}
    request = read("openai-chat", response_format={"type": "json_schema", "json_schema": form})
    config = built("gemini", request)["generationConfig"]
    assert config["responseJsonSchema"] == {"type": "object", "description": "D"}
    assert built("openai", request)["response_format"]["json_schema"]["description"] == "D"


def test_other_dialects_are_not_read() -> None:
    with pytest.raises(UsageError, match="openai-completions"):
        read_request("openai-completions", b"{}")


def test_tools_of_an_input_item_are_offered() -> None:
    """Codex's own models have no tools in any other place."""
    inside = [
        {"type": "custom", "name": "exec", "description": "Runs a program."},
        {"type": "function", "name": "wait", "parameters": {"type": "object"}, "strict": False},
    ]
    item = {
        "type": "additional_tools",
        "id": "at_1",
        "role": "developer",
        "tools": [{"type": "namespace", "name": "functions", "description": "", "tools": inside}],
    }
    asked = [item, {"type": "message", "role": "user", "content": "Hi."}]
    request = read("openai-responses", input=asked)
    assert [tool.name for tool in request.tools] == ["functions__exec", "functions__wait"]
    assert [message.role for message in request.messages] == ["user"]


def test_a_field_of_a_custom_tool_that_nobody_knows_is_named() -> None:
    tool = {"type": "custom", "custom": {"name": "patch", "colour": "red"}}
    assert read("openai-chat", "drop", tools=[tool]).dropped == ("tools[0].custom.colour",)


def test_the_thoughts_before_a_signature_are_those_of_its_dialect() -> None:
    parts: list[Any] = [
        Thought(dialect=GEMINI, raw={"text": "a", "thought": True}),
        Thought(dialect="anthropic-messages", raw={"text": "b", "thought": True}),
        Thought(dialect=GEMINI, raw={"text": "c"}),
        Text(text="d"),
        Thought(dialect=GEMINI, raw={"thought": True}),
        Thought(dialect=GEMINI, raw={"text": "e", "thought": True}),
    ]
    assert _beside(parts) == "ae"
    assert _beside([]) == ""


def test_a_part_of_gemini_without_a_text_is_named_by_what_it_holds() -> None:
    parts: tuple[dict[str, Any], ...] = (
        {"hologram": {}},
        {"hologram": {}, "thoughtSignature": "s"},
    )
    for part in parts:
        with pytest.raises(Untranslatable) as found:
            read("gemini", contents=[{"role": "model", "parts": [part]}])
        assert found.value.field == "contents[0].parts[0].hologram"
    with pytest.raises(BadField, match=r"'contents\[0\]\.parts\[0\]' is empty"):
        read("gemini", contents=[{"parts": [{}]}])


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("output_config", {"format": {"type": "json_object"}}, {"type": "object"}),
        ("output_format", {"type": "json_object"}, {"type": "object"}),
        ("output_config", {"format": {"type": "json_schema", "schema": {"a": 1}}}, {"a": 1}),
        ("output_format", {"type": "json_schema", "schema": {"a": 1}}, {"a": 1}),
        ("output_format", {"type": "json_schema", "schema": "none"}, None),
        ("output_config", {"effort": "low"}, None),
    ],
)
def test_the_form_that_a_message_asks_for_is_seen_without_translation(
    field: str, value: dict[str, Any], found: dict[str, Any] | None
) -> None:
    body = {field: msgspec.Raw(json.dumps(value).encode())}
    assert ANTHROPIC_SHAPE.schema(body) == found
