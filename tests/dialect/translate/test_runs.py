"""Answers of several texts, thoughts and refusals: a client with one place for them gets all."""

from __future__ import annotations

import json
from typing import Any

from dialect.translate.cases import made

WHOLE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "x",
    "content": [
        {"type": "thinking", "thinking": "Hm. ", "signature": ""},
        {"type": "text", "text": "One. "},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        {"type": "thinking", "thinking": "So.", "signature": ""},
        {"type": "text", "text": "Two."},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def told(target: str) -> Any:
    return json.loads(made("anthropic-messages", target).whole(json.dumps(WHOLE).encode()))


def test_a_chat_message_joins_the_texts_and_the_thoughts_with_nothing_between() -> None:
    message = told("openai-chat")["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("One. Two.", "Hm. So.")
    assert message["refusal"] is None
    assert [(call["id"], call["function"]["name"]) for call in message["tool_calls"]] == [
        ("c1", "f"),
        ("c2", "g"),
    ]


def test_a_response_and_a_gemini_answer_keep_them_in_their_order() -> None:
    kinds = [item["type"] for item in told("openai-responses")["output"]]
    runs = ["reasoning", "message", "function_call"]
    assert kinds == [*runs, *runs]
    parts = told("gemini")["candidates"][0]["content"]["parts"]
    assert [part.get("text") for part in parts] == ["Hm. ", "One. ", None, "So.", "Two.", None]
    assert [part.get("thought") for part in parts] == [True, None, None, True, None, None]


def test_a_message_without_words_says_nothing_rather_than_null() -> None:
    bare = {**WHOLE, "content": [], "stop_reason": "end_turn"}
    whole = made("anthropic-messages", "openai-chat").whole(json.dumps(bare).encode())
    message = json.loads(whole)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "refusal": None}
