"""OpenAI chat completions, and everybody who speaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.facts import built, cannot, need, put, refuse
from lightgate.dialect.fault import error_of
from lightgate.dialect.kinds import AUDIO, REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.openai_chunks import chunk_grammar
from lightgate.dialect.openai_fields import (
    chat_usage,
    message,
    sampling,
    schema_words,
    streaming,
    tools,
)

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request
    from lightgate.dialect.scanner import Scanner

NAME: Final = "openai chat"


def build(request: Request, quirks: Quirks) -> Built:
    """Say a request as POST /chat/completions."""
    refuse(request, NAME, "prompt", "inputs", "top_k")
    need(request, NAME, "messages")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [message(said, quirks, NAME) for said in request.messages],
    }
    streaming(body, request, quirks)
    put(body, **{quirks.max_tokens_field: request.max_tokens})
    sampling(body, request, quirks, NAME)
    tools(body, request)
    if request.schema is not None:
        if not quirks.schema:
            raise cannot(NAME, "schema", "this provider does not know it")
        form = {"type": "json_schema", "json_schema": schema_words(request.schema)}
        body["response_format"] = form
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    put(
        body,
        **_reasoning(request, quirks),
        logprobs=request.logprobs or None,
        top_logprobs=request.top_logprobs,
        verbosity=request.verbosity,
    )
    return built("/chat/completions", body, request.extra, stream=request.stream)


def _reasoning(request: Request, quirks: Quirks) -> dict[str, Any]:
    wish = request.reasoning
    if wish is None:
        return {}
    if quirks.reasoning_style == "object":
        return {"reasoning": {"effort": wish} if isinstance(wish, str) else {"max_tokens": wish}}
    if quirks.reasoning_style == "none":
        raise cannot(NAME, "reasoning", "this provider does not know it")
    if not isinstance(wish, str):
        raise cannot(NAME, "reasoning", "an effort in words is known, a budget in tokens is not")
    return {"reasoning_effort": wish}


# The fields that are acted on, and no others. A leaf is Any where providers disagree on its type.


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None
    input: Any = None  # custom tools


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None
    custom: _Function | None = None


class _Audio(msgspec.Struct, gc=False):
    data: Any = None
    transcript: Any = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None  # before tools there were functions
    audio: _Audio | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    error: Any = None


class _XGroq(msgspec.Struct, gc=False):
    usage: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: Any = None
    x_groq: _XGroq | None = None


_decoder: Final = msgspec.json.Decoder(_Chunk)


def _choices(scanner: Scanner, chunk: _Chunk) -> None:
    for choice in chunk.choices or ():
        for delta in (choice.delta, choice.message):
            if delta is not None:
                _delta(scanner, delta)
        scanner.saw_finish(choice.finish_reason)
        if choice.error is not None:
            scanner.saw_error(error_of(choice.error))
    if chunk.x_groq is not None:
        scanner.saw_usage(chat_usage(chunk.x_groq.usage))
        if chunk.x_groq.error is not None:
            scanner.saw_error(error_of(chunk.x_groq.error))


def _delta(scanner: Scanner, delta: _Delta) -> None:
    if delta.content:
        _content(scanner, delta.content)
    _reasoned(scanner, delta)
    if delta.refusal and isinstance(delta.refusal, str):
        scanner.saw_token(REFUSAL, delta.refusal)
    for call in delta.tool_calls or ():
        _call(scanner, call.function)
        _call(scanner, call.custom)
    if delta.function_call is not None:
        _call(scanner, delta.function_call)
    if delta.audio is not None:
        transcript = delta.audio.transcript
        if transcript and isinstance(transcript, str):
            scanner.saw_token(AUDIO, transcript)
        elif delta.audio.data:
            scanner.saw_token(AUDIO, "")


def _reasoned(scanner: Scanner, delta: _Delta) -> None:
    """Take reasoning once: aggregators repeat the same words under several names."""
    for text in (delta.reasoning_content, delta.reasoning):
        if text and isinstance(text, str):
            scanner.saw_token(REASONING, text)
            return
    if not isinstance(delta.reasoning_details, list):
        return
    for detail in delta.reasoning_details:
        if isinstance(detail, dict):
            text = detail.get("text") or detail.get("summary")
            if text and isinstance(text, str):
                scanner.saw_token(REASONING, text)


def _content(scanner: Scanner, content: Any) -> None:
    if isinstance(content, str):
        scanner.saw_token(TEXT, content)
    elif isinstance(content, list):  # Mistral sends parts, thinking among them
        for part in content:
            if isinstance(part, dict):
                _part(scanner, part)


def _part(scanner: Scanner, part: dict[str, Any]) -> None:
    thinking = part.get("thinking")
    for piece in thinking if isinstance(thinking, list) else ():
        thought = piece.get("text") if isinstance(piece, dict) else None
        if thought and isinstance(thought, str):
            scanner.saw_token(REASONING, thought)
    text = part.get("text")
    if text and isinstance(text, str):
        scanner.saw_token(TEXT, text)


def _call(scanner: Scanner, function: _Function | None) -> None:
    if function is None:
        return
    words = (function.name, function.arguments, function.input)
    text = "".join(word for word in words if isinstance(word, str))
    if text:
        scanner.saw_token(TOOL, text)


GRAMMAR: Final = chunk_grammar(_decoder, _choices)
