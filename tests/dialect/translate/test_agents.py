"""What coding agents send, in the shapes that were recorded from them, and what they get back.

Claude Code 2.1, Codex 0.166 and gemini-cli 0.61; their texts are shortened.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dialect.translate.cases import events
from lightgate.dialect.neutral.seal import START, opened, sealed
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.translate import read_request, translator

if TYPE_CHECKING:
    from lightgate.dialect.request import Built

CHAT, RESPONSES, MESSAGES, GEMINI = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
)
FILES = Path(__file__).parents[2] / "fixtures" / "translate" / "agents"


def sent(agent: str, dialect: str) -> dict[str, Any]:
    """A recorded request; what a framework with all its options sends is the fourth."""
    found: dict[str, Any] = json.loads((FILES / f"{agent}.{dialect}.json").read_text("utf-8"))
    return found


CLAUDE = sent("claude_code", MESSAGES)
CODEX = sent("codex", RESPONSES)
GEMINI_CLI = sent("gemini_cli", GEMINI)
AGENTS = {MESSAGES: CLAUDE, RESPONSES: CODEX, GEMINI: GEMINI_CLI}


def built(client: str, body: dict[str, Any], target: str, quirks: Quirks | None = None) -> Built:
    request = read_request(
        client, json.dumps(body).encode(), model="m", stream=True, untranslatable="drop"
    )
    return DIALECTS[target].build(request, quirks or Quirks())


def body_of(client: str, body: dict[str, Any], target: str) -> Any:
    return json.loads(built(client, body, target).body)


@pytest.mark.parametrize("target", [CHAT, MESSAGES, GEMINI])
@pytest.mark.parametrize("client", list(AGENTS))
def test_every_agent_is_told_to_every_dialect(client: str, target: str) -> None:
    text = built(client, AGENTS[client], target).body.decode()
    assert "hello.txt" in text
    result = "done" if client == RESPONSES else "xylophone"
    assert result in text


def test_what_claude_code_sends_is_named_where_it_cannot_be_told() -> None:
    assert set(built(MESSAGES, CLAUDE, CHAT).dropped) == {
        "system[0].cache_control",
        "messages[2].content[0]",  # thinking that Anthropic signed
        "messages[3].content[0].cache_control",
        "metadata",
        "context_management",
    }


def test_what_codex_sends_is_named_where_it_cannot_be_told() -> None:
    assert set(built(RESPONSES, CODEX, CHAT).dropped) == {
        "input[2]",  # reasoning that OpenAI encrypted
        "tools[1].description",
        "tools[4]",
        "tools[4].external_web_access",
        "prompt_cache_key",
        "client_metadata",
    }


PLACE = "tools[0].functionDeclarations[0].behavior"


def test_what_gemini_cli_sends_is_named_where_it_cannot_be_told() -> None:
    dropped = built(GEMINI, GEMINI_CLI, CHAT).dropped
    assert set(dropped) == {"generationConfig.topK", "contents[1].parts[0].thoughtSignature"}


@pytest.mark.parametrize(
    ("behavior", "dropped"), [("UNSPECIFIED", ()), ("BLOCKING", ()), ("NON_BLOCKING", (PLACE,))]
)
def test_a_tool_of_gemini_that_does_not_block_is_named(
    behavior: str, dropped: tuple[str, ...]
) -> None:
    declared = {"name": "f", "behavior": behavior}
    body = {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [declared]}],
    }
    assert built(GEMINI, body, CHAT).dropped == dropped


def test_what_a_framework_sends_is_told_or_named() -> None:
    body = sent("framework", CHAT)
    made = built(CHAT, body, MESSAGES)
    assert set(made.dropped) >= {"seed", "frequency_penalty", "service_tier", "verbosity", "user"}
    told = json.loads(made.body)
    assert told["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert [tool["name"] for tool in told["tools"]] == ["patch", "look"]
    assert told["output_config"]["format"]["schema"]["additionalProperties"] is False
    made = built(CHAT, body, GEMINI)
    assert {"parallel_tool_calls", "messages[0].name"} <= set(made.dropped)


def test_system_text_in_the_middle_stays_there() -> None:
    roles = [turn["role"] for turn in body_of(MESSAGES, CLAUDE, CHAT)["messages"]]
    assert roles == ["system", "user", "system", "assistant", "tool"]
    told = body_of(MESSAGES, CLAUDE, GEMINI)
    assert told["systemInstruction"] == {"parts": [{"text": "You help."}]}
    assert [turn["role"] for turn in told["contents"]] == ["user", "user", "model", "user"]
    assert told["contents"][1]["parts"] == [
        {"text": "<system>\nAvailable agents: none.\n</system>"}
    ]


def test_system_text_never_parts_calls_from_their_results() -> None:
    turns = [
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for i in "ab"
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "system", "content": "Hurry."},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "And?"},
    ]
    told = body_of(CHAT, {"messages": turns}, MESSAGES)["messages"]
    assert [turn["role"] for turn in told] == ["user", "assistant", "user", "user", "user"]
    assert [block["tool_use_id"] for block in told[2]["content"]] == ["a", "b"]
    assert told[3]["content"] == "<system>\nHurry.\n</system>"


# Tools that no other dialect knows


def test_tools_of_codex_are_functions_elsewhere() -> None:
    told = body_of(RESPONSES, CODEX, CHAT)
    functions = [tool["function"] for tool in told["tools"]]
    assert [f["name"] for f in functions] == ["exec", "agents__spawn", "apply_patch", "local_shell"]
    assert functions[2]["parameters"]["required"] == ["input"]
    assert "start: patch" in functions[2]["description"]
    calls = [turn["tool_calls"][0]["function"] for turn in told["messages"] if "tool_calls" in turn]
    assert calls == [
        {"name": "agents__spawn", "arguments": '{"cmd": "x"}'},
        {"name": "apply_patch", "arguments": '{"input":"*** Begin"}'},
    ]


def answered(client: str, body: dict[str, Any], calls: list[tuple[str, Any]]) -> Any:
    """The items that a client gets, streamed and whole, where a chat target makes these calls."""
    made = built(client, body, CHAT)
    told = [
        {
            "index": n,
            "id": f"c{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for n, (name, given) in enumerate(calls)
    ]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": told}, "finish_reason": None}]}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    streaming = translator(CHAT, client, model="m", id="i", created=1)
    streaming.know(made.forms)
    out = b"".join(streaming.event(b"", json.dumps(one).encode()) for one in (chunk, last))
    out += streaming.event(b"", b"[DONE]")
    whole = translator(CHAT, client, model="m", id="i", created=1)
    whole.know(made.forms)
    message = {"role": "assistant", "content": None, "tool_calls": told}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    return list(events(out)), json.loads(whole.whole(json.dumps(answer).encode()))


def test_calls_come_back_to_codex_as_it_knows_them() -> None:
    calls = [
        ("agents__spawn", {"cmd": "y"}),
        ("apply_patch", {"input": "*** End"}),
        ("local_shell", {"command": ["ls"], "timeout_ms": 5}),
        ("exec", {"cmd": "z"}),
    ]
    said, whole = answered(RESPONSES, CODEX, calls)
    items = [
        {name: value for name, value in item.items() if name not in {"id", "status", "call_id"}}
        for item in whole["output"]
    ]
    assert items == [
        {
            "type": "function_call",
            "namespace": "agents",
            "name": "spawn",
            "arguments": '{"cmd": "y"}',
        },
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** End"},
        {
            "type": "local_shell_call",
            "action": {"type": "exec", "command": ["ls"], "timeout_ms": 5, "env": {}},
        },
        {"type": "function_call", "name": "exec", "arguments": '{"cmd": "z"}'},
    ]
    last = json.loads(said[-1][1])
    assert last["response"]["output"] == whole["output"]
    typed = [json.loads(data) for name, data in said if b"custom_tool_call_input" in name]
    assert [one.get("delta") or one["input"] for one in typed] == ["*** End", "*** End"]
    # And they can be handed back.
    again = CODEX | {"input": [{"role": "user", "content": "Go."}, *whole["output"]]}
    told = body_of(RESPONSES, again, CHAT)["messages"][1]["tool_calls"]
    assert [call["function"]["name"] for call in told] == [name for name, _ in calls]
    assert json.loads(told[2]["function"]["arguments"])["command"] == ["ls"]


def test_custom_tools_of_chat_come_back_as_such() -> None:
    tool = {"type": "custom", "custom": {"name": "patch", "description": "Edits."}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [tool]}
    request = read_request(CHAT, json.dumps(body).encode(), model="m")
    made = DIALECTS[MESSAGES].build(request)
    whole = translator(MESSAGES, CHAT, model="m", id="i", created=1)
    whole.know(made.forms)
    block = {"type": "tool_use", "id": "t", "name": "patch", "input": {"input": "text"}}
    answer = {"type": "message", "content": [block], "stop_reason": "tool_use", "usage": {}}
    told = json.loads(whole.whole(json.dumps(answer).encode()))
    assert told["choices"][0]["message"]["tool_calls"] == [
        {"id": "t", "type": "custom", "custom": {"name": "patch", "input": "text"}}
    ]


def test_odd_names_go_out_plain_and_come_back_odd() -> None:
    told = body_of(GEMINI, GEMINI_CLI, CHAT)
    name = told["tools"][0]["function"]["name"]
    assert name.startswith("mcp_fs_read_")
    assert told["messages"][2]["tool_calls"][0]["function"]["name"] == name
    _, whole = answered(GEMINI, GEMINI_CLI, [(name, {"cmd": "q"})])
    call = whole["candidates"][0]["content"]["parts"][0]["functionCall"]
    assert (call["name"], call["args"]) == ("mcp.fs:read", {"cmd": "q"})


def test_anthropics_own_tools_have_their_schema_elsewhere() -> None:
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "computer_20250124", "name": "computer"},
    ]
    made = built(MESSAGES, CLAUDE | {"tools": tools}, CHAT)
    functions = [tool["function"] for tool in json.loads(made.body)["tools"]]
    assert [f["name"] for f in functions] == ["bash", "str_replace_based_edit_tool"]
    assert functions[1]["parameters"]["required"] == ["command", "path"]
    assert {"tools[2]", "tools[2].max_uses", "tools[3]"} <= set(made.dropped)


def test_hosted_tools_are_carried_where_the_target_has_them() -> None:
    search = {"input": "Hi.", "tools": [{"type": "web_search"}]}
    quirks = Quirks(hosted=("web_search",))
    made = built(RESPONSES, search, MESSAGES, quirks)
    assert made.dropped == ()
    assert json.loads(made.body)["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
    made = built(RESPONSES, search, GEMINI, quirks)
    assert json.loads(made.body)["tools"] == [{"googleSearch": {}}]
    assert built(RESPONSES, CODEX, GEMINI, quirks).dropped.count("tools[4]") == 1
    for target in (MESSAGES, GEMINI, CHAT):
        assert built(RESPONSES, search, target).dropped == ("tools[0]",)


def test_a_choice_of_a_tool_that_was_dropped_is_dropped_with_it() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    for choice, place in (
        ({"type": "tool", "name": "web_search"}, "tool_choice.name"),
        ({"type": "any"}, "tool_choice.type"),
    ):
        made = built(MESSAGES, CLAUDE | {"tools": tools, "tool_choice": choice}, CHAT)
        assert place in made.dropped
        assert "tool_choice" not in json.loads(made.body)


def test_a_tool_must_be_called_only_where_one_is_left() -> None:
    asked = {"messages": [{"role": "user", "content": "Hi."}], "tool_choice": "required"}
    made = built(CHAT, asked | {"tools": [{"type": "web_search"}]}, MESSAGES)
    assert made.dropped == ("tools[0]", "tool_choice")
    assert "tool_choice" not in json.loads(made.body)
    function = {"type": "function", "function": {"name": "f"}}
    made = built(CHAT, asked | {"tools": [{"type": "web_search"}, function]}, MESSAGES)
    assert made.dropped == ("tools[0]",)
    assert json.loads(made.body)["tool_choice"]["type"] == "any"


# Reasoning that is handed back


def signed(source: str, client: str) -> Any:
    """What a client gets of an answer with signed reasoning and a call, as one body."""
    answers: dict[str, Any] = {
        MESSAGES: {
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            ],
            "stop_reason": "tool_use",
        },
        GEMINI: {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"text": "hm", "thought": True},
                            {
                                "functionCall": {"name": "f", "args": {}, "id": "t"},
                                "thoughtSignature": "c2ln",
                            },
                        ]
                    },
                    "finishReason": "STOP",
                }
            ]
        },
    }
    telling = translator(source, client, model="m", id="i", created=1)
    return json.loads(telling.whole(json.dumps(answers[source]).encode()))


def handed_back(client: str, answer: Any) -> dict[str, Any]:
    """The next request of a tool loop: the answer as it came, and the tool's result."""
    if client == CHAT:
        message = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": "t", "content": "1"}
        return {"messages": [{"role": "user", "content": "Go."}, message, result]}
    if client == RESPONSES:
        output = {"type": "function_call_output", "call_id": "t", "output": "1"}
        return {"input": [{"role": "user", "content": "Go."}, *answer["output"], output]}
    if client == MESSAGES:
        result = {"type": "tool_result", "tool_use_id": "t", "content": "1"}
        turns = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [result]},
        ]
        return {"messages": turns, "max_tokens": 9}
    content = answer["candidates"][0]["content"]
    # gemini-cli keeps no thoughts in its history.
    content["parts"] = [part for part in content["parts"] if not part.get("thought")]
    response = {"functionResponse": {"id": "t", "name": "f", "response": {"a": 1}}}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "Go."}]},
            content,
            {"role": "user", "parts": [response]},
        ]
    }


@pytest.mark.parametrize("client", [CHAT, RESPONSES, GEMINI])
def test_claudes_thinking_comes_back_to_claude(client: str) -> None:
    made = built(client, handed_back(client, signed(MESSAGES, client)), MESSAGES)
    turn = json.loads(made.body)["messages"][1]
    assert turn["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert turn["content"][-1]["type"] == "tool_use"
    assert made.dropped == ()


@pytest.mark.parametrize("client", [CHAT, RESPONSES, MESSAGES])
def test_geminis_signature_comes_back_to_gemini_on_its_call(client: str) -> None:
    made = built(client, handed_back(client, signed(GEMINI, client)), GEMINI)
    parts = json.loads(made.body)["contents"][1]["parts"]
    assert parts == [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]
    assert made.dropped == ()


@pytest.mark.parametrize("source", [MESSAGES, GEMINI])
@pytest.mark.parametrize("client", [RESPONSES, MESSAGES, GEMINI])
def test_a_seal_is_left_out_and_named_for_every_other_dialect(source: str, client: str) -> None:
    if source == client:
        return
    made = built(client, handed_back(client, signed(source, client)), CHAT)
    assert b"c2ln" not in made.body
    assert START.encode() not in made.body
    assert len(made.dropped) == 1


def test_a_seal_is_base64_that_googles_sdk_can_decode() -> None:
    seal = sealed(MESSAGES, "c2ln", "Grüße \N{SNOWMAN}")
    again = base64.urlsafe_b64encode(base64.urlsafe_b64decode(seal)).decode()
    assert opened(again) == opened(seal) == (MESSAGES, "c2ln", "Grüße \N{SNOWMAN}")
    for broken in ("", "c2ln", START, START + "!!", seal[:-6], seal + "="):
        found = opened(broken)
        assert found is None or found.signature == "c2ln"


def test_reasoning_of_a_server_that_signs_nothing_comes_back_to_it() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    turns = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}]},
        {"role": "user", "content": "And?"},
    ]
    told = body_of(MESSAGES, {"messages": turns, "max_tokens": 9}, CHAT)
    assert told["messages"][1]["reasoning_content"] == "hm"


# Files


def test_a_pdf_is_said_in_every_dialect() -> None:
    data = base64.b64encode(b"%PDF-1.7").decode()
    url = f"data:application/pdf;base64,{data}"
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    said: dict[str, Any] = {
        CHAT: {"type": "file", "file": {"filename": "a.pdf", "file_data": url}},
        RESPONSES: {"type": "input_file", "filename": "a.pdf", "file_data": url},
        MESSAGES: {"type": "document", "title": "a.pdf", "source": source},
        GEMINI: {"inlineData": {"mimeType": "application/pdf", "data": data}},
    }
    named = {"inlineData": {**said[GEMINI]["inlineData"], "displayName": "a.pdf"}}
    bodies: dict[str, Any] = {
        CHAT: {"messages": [{"role": "user", "content": [said[CHAT]]}]},
        RESPONSES: {"input": [{"role": "user", "content": [said[RESPONSES]]}]},
        MESSAGES: {"messages": [{"role": "user", "content": [said[MESSAGES]]}], "max_tokens": 9},
        GEMINI: {"contents": [{"role": "user", "parts": [named]}]},
    }
    for client, body in bodies.items():
        for target in (CHAT, RESPONSES, MESSAGES, GEMINI):
            text = json.dumps(body_of(client, body, target))
            assert json.dumps(said[target])[1:-1] in text or all(
                json.dumps(value) in text for value in said[target].values()
            ), (client, target)


def test_a_document_that_is_text_becomes_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Once."}
    block = {"type": "document", "title": "Tale", "source": source}
    body = {"messages": [{"role": "user", "content": [block]}], "max_tokens": 9}
    assert body_of(MESSAGES, body, CHAT)["messages"][0]["content"] == [
        {"type": "text", "text": "Tale:"},
        {"type": "text", "text": "Once."},
    ]


def test_a_screenshot_in_a_result_follows_the_results() -> None:
    data = base64.b64encode(b"png").decode()
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    turns = [*CLAUDE["messages"][:3], {"role": "user", "content": [result]}]
    told = body_of(MESSAGES, CLAUDE | {"messages": turns}, CHAT)["messages"]
    assert told[-2]["role"] == "tool"
    assert told[-2]["content"]
    assert told[-1]["role"] == "user"
    assert told[-1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{data}"
    parts = body_of(MESSAGES, CLAUDE | {"messages": turns}, GEMINI)["contents"][-1]["parts"]
    assert "functionResponse" in parts[0]
    assert parts[1] == {"inlineData": {"mimeType": "image/png", "data": data}}


# Conversations that must go on


def test_broken_arguments_of_an_earlier_call_do_not_end_the_conversation() -> None:
    function = {"name": "f", "arguments": '{"a": '}
    turns = [
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "That was no JSON."},
    ]
    told = body_of(CHAT, {"messages": turns}, MESSAGES)
    assert told["messages"][1]["content"][0]["input"] == {"arguments": '{"a": '}
    told = body_of(CHAT, {"messages": turns}, GEMINI)
    assert told["contents"][1]["parts"][0]["functionCall"]["args"] == {"arguments": '{"a": '}


def test_turns_that_say_nothing_are_said_as_anthropic_takes_them() -> None:
    turns = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]},
    ]
    told = body_of(CHAT, {"messages": turns}, MESSAGES)["messages"]
    assert [turn["role"] for turn in told] == ["user", "user"]
    assert told[0]["content"]
    assert told[1]["content"] == [{"type": "text", "text": "a"}]
