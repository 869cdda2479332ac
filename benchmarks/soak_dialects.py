"""The requests of soak.py in four dialects, and what their answers say.

Written apart from `lightgate.dialect`, so that each checks the other. The simulated models say
their prompt back, so a complete answer is the prompt, letter for letter, and nothing else is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST = 1600  # tokens; more than any prompt here has, with seeds of up to five digits


class Told(NamedTuple):
    """What a body says: its text, whether it ended as its dialect says, its usage, its error."""

    text: str
    ended: bool
    usage: tuple[int, int] | None = None
    error: str = ""


class SoakDialect(NamedTuple):
    """One dialect: how to ask in it, and how to read its answers."""

    ask: Callable[[str, str, bool], tuple[str, dict[str, Any]]]  # model, prompt, streamed
    whole: Callable[[Any], Told]
    stream: Callable[[list[Any]], Told]


def events(body: bytes) -> Iterator[Any]:
    """The JSON of every event of a stream; a piece that is none is an error of the gateway's."""
    for block in body.split(b"\n\n"):
        for line in block.splitlines():
            if line.startswith(b"data:"):
                data = line[5:].strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)


def read(dialect: SoakDialect, body: bytes, *, streamed: bool) -> Told:
    """What a body that is complete by its framing says."""
    if not streamed:
        tree = json.loads(body)
        if tree.get("error"):
            return Told("", ended=False, error=error_in(tree))
        return dialect.whole(tree)
    seen = list(events(body))
    broken = [one for one in seen if isinstance(one, dict) and _failed(one)]
    if broken:
        return Told("", ended=False, error=error_in(broken[0].get("response") or broken[0]))
    return dialect.stream(seen)


def _failed(event: dict[str, Any]) -> bool:
    return bool(event.get("error")) or event.get("type") in {"error", "response.failed"}


def error_in(tree: Any) -> str:
    """The code of an error, or whatever says most."""
    error = tree.get("error") if isinstance(tree, dict) else None
    if not isinstance(error, dict):
        return str(tree)[:100]
    code = error.get("code")  # of Gemini the number of the status, which says nothing more
    return str((isinstance(code, str) and code) or error.get("status") or error.get("type"))


# OpenAI's chat


def _chat(model: str, prompt: str, streamed: bool) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": LONGEST,
        "stream": streamed,
    }
    if streamed:
        body["stream_options"] = {"include_usage": True}
    return "/v1/chat/completions", body


def _chat_usage(usage: Any) -> tuple[int, int] | None:
    return (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None


def _chat_whole(tree: Any) -> Told:
    choice = tree["choices"][0]
    ended = choice["finish_reason"] == "stop"
    return Told(choice["message"]["content"], ended, _chat_usage(tree.get("usage")))


def _chat_stream(seen: list[Any]) -> Told:
    pieces, finish, usage = [], None, None
    for one in seen:
        if one == "[DONE]":
            continue
        usage = one.get("usage") or usage
        for choice in one["choices"]:
            pieces.append(choice["delta"].get("content") or "")
            finish = choice["finish_reason"] or finish
    return Told("".join(pieces), finish == "stop", _chat_usage(usage))


# Anthropic's messages


def _messages(model: str, prompt: str, streamed: bool) -> tuple[str, dict[str, Any]]:
    talk = [{"role": "user", "content": prompt}]
    body = {"model": model, "messages": talk, "max_tokens": LONGEST, "stream": streamed}
    return "/v1/messages", body


def _messages_whole(tree: Any) -> Told:
    usage = tree["usage"]
    text = "".join(block.get("text", "") for block in tree["content"])
    ended = tree["stop_reason"] == "end_turn"
    return Told(text, ended, (usage["input_tokens"], usage["output_tokens"]))


def _messages_stream(seen: list[Any]) -> Told:
    pieces, ended = [], False
    usage: dict[str, int] = {}
    for one in seen:
        kind = one["type"]
        if kind == "message_start":
            usage |= one["message"]["usage"]
        elif kind == "content_block_delta":
            pieces.append(one["delta"].get("text", ""))
        elif kind == "message_delta":
            usage |= one.get("usage") or {}
        ended = ended or kind == "message_stop"
    return Told("".join(pieces), ended, (usage["input_tokens"], usage["output_tokens"]))


# Gemini


def _gemini(model: str, prompt: str, streamed: bool) -> tuple[str, dict[str, Any]]:
    verb = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    return f"/v1beta/models/{model}:{verb}", {
        "contents": [{"role": "user", "parts": [{"text": prompt}]}],
        "generationConfig": {"maxOutputTokens": LONGEST},
    }


def _gemini_stream(seen: list[Any]) -> Told:
    pieces, finish, usage = [], None, None
    for one in seen:
        usage = one.get("usageMetadata") or usage
        for candidate in one.get("candidates") or ():
            parts = (candidate.get("content") or {}).get("parts") or ()
            pieces += [part.get("text", "") for part in parts]
            finish = candidate.get("finishReason") or finish
    told = (usage["promptTokenCount"], usage["candidatesTokenCount"]) if usage else None
    return Told("".join(pieces), finish == "STOP", told)


# OpenAI's responses


def _responses(model: str, prompt: str, streamed: bool) -> tuple[str, dict[str, Any]]:
    body = {"model": model, "input": prompt, "max_output_tokens": LONGEST, "stream": streamed}
    return "/v1/responses", body


def _responses_whole(tree: Any) -> Told:
    usage = tree["usage"]
    text = "".join(
        part.get("text", "")
        for item in tree["output"]
        if item["type"] == "message"
        for part in item["content"]
    )
    ended = tree["status"] == "completed"
    return Told(text, ended, (usage["input_tokens"], usage["output_tokens"]))


def _responses_stream(seen: list[Any]) -> Told:
    pieces = [one["delta"] for one in seen if one["type"] == "response.output_text.delta"]
    last = next((one for one in seen if one["type"] == "response.completed"), None)
    if last is None:
        return Told("".join(pieces), ended=False)
    told = _responses_whole(last["response"])
    return told if told.text == "".join(pieces) else Told("", ended=True, error="two texts")


DIALECTS = {
    "chat": SoakDialect(_chat, _chat_whole, _chat_stream),
    "messages": SoakDialect(_messages, _messages_whole, _messages_stream),
    "gemini": SoakDialect(_gemini, lambda tree: _gemini_stream([tree]), _gemini_stream),
    "responses": SoakDialect(_responses, _responses_whole, _responses_stream),
}
