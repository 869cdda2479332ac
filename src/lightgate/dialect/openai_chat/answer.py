"""Writes answers as OpenAI chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from lightgate.dialect.errors import word_of
from lightgate.dialect.kinds import REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.neutral.items import Writer
from lightgate.dialect.neutral.json_text import dumped, event
from lightgate.dialect.neutral.names import free_text
from lightgate.dialect.neutral.terms import ErrorTerms, terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.tokens import Usage
    from lightgate.dialect.errors import Fault
    from lightgate.dialect.neutral.events import Logprob, Reason
    from lightgate.dialect.neutral.items import AnswerHead, Ending, Item

CHUNK: Final = "chat.completion.chunk"
DONE: Final = b"data: [DONE]\n\n"

FINISHES: Final[dict[Reason, str]] = {
    "stop": "stop",
    "sequence": "stop",
    "length": "length",
    "context": "length",
    "tool": "tool_calls",
    "refusal": "stop",
    "filter": "content_filter",
}
ERROR_WORDS: Final = {  # by status; see word_of for others
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
    499: "server_error",
    500: "server_error",
}


class _Delta(msgspec.Struct, omit_defaults=True, gc=False):
    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[dict[str, Any]] | UnsetType = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET


class _Choice(msgspec.Struct, gc=False):
    index: int
    delta: _Delta
    logprobs: dict[str, Any] | None
    finish_reason: str | None


class _Chunk(msgspec.Struct, gc=False):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[_Choice, ...]
    usage: dict[str, Any] | UnsetType | None = UNSET


class ChatWriter(Writer):
    """Writes one chat completion."""

    def __init__(self, head: AnswerHead) -> None:
        super().__init__(head)
        self._id = f"chatcmpl-{head.id}"

    def start(self, first: Item | None, usage: Usage | None) -> None:  # noqa: ARG002 - written at the end
        """Name the role; text is empty before its first piece, and null if there will be none."""
        spoken = first is None or first.kind == TEXT
        self._chunk(_Delta(role="assistant", content="" if spoken else None, refusal=None))

    def open(self, item: Item) -> None:
        """Name a call; nothing else needs an opening."""
        if item.kind == TOOL and not _is_free(item):
            function = {"name": item.name, "arguments": ""}
            call = {"index": item.number, "id": item.id, "type": "function", "function": function}
            self._chunk(_Delta(tool_calls=[call]))

    def piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:
        """Write one piece."""
        kind = item.kind
        if kind == TEXT:
            self._chunk(_Delta(content=text), logprobs)
        elif kind == REASONING:
            self._chunk(_Delta(reasoning_content=text))
        elif kind == REFUSAL:
            self._chunk(_Delta(refusal=text))
        elif not _is_free(item):
            call = {"index": item.number, "function": {"arguments": text}}
            self._chunk(_Delta(tool_calls=[call]))

    def close(self, item: Item) -> None:
        """Write the call of a tool that takes free text, which is known once it is whole."""
        if item.kind == TOOL and _is_free(item):
            self._chunk(_Delta(tool_calls=[{"index": item.number, **_call(item)}]))

    def sign(self, item: Item) -> None:
        """Write a signature where aggregators put it."""
        self._chunk(_Delta(reasoning_details=[_signed(item)]))

    def end(self, ending: Ending) -> None:
        """Write the reason, usage if it was asked for, and the marker."""
        reason = FINISHES[ending.reason]
        self._chunk(_Delta(), finish=reason)
        if self._head.include_usage and ending.usage is not None:
            head, used = self._head, usage_words(ending.usage)
            chunk = _Chunk(self._id, CHUNK, head.created, head.model, (), used)
            self.out.append(event(chunk))
        self.out.append(DONE)

    def fail(self, fault: Fault) -> None:
        """Write an error."""
        self.out.append(error_event(terms("openai", fault)))

    def whole(self, items: list[Item], ending: Ending) -> bytes:
        """Write the chat.completion object."""
        choice = {
            "index": 0,
            "message": _message(items),
            "logprobs": _logprobs([one for item in items for one in item.logprobs]),
            "finish_reason": FINISHES[ending.reason],
        }
        body: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [choice],
        }
        if ending.usage is not None:
            body["usage"] = usage_words(ending.usage)
        return dumped(body)

    def _chunk(
        self, delta: _Delta, logprobs: Sequence[Logprob] | None = None, finish: str | None = None
    ) -> None:
        head = self._head
        choice = _Choice(0, delta, _logprobs(logprobs) if logprobs else None, finish)
        chunk = _Chunk(self._id, CHUNK, head.created, head.model, (choice,))
        if head.include_usage:
            chunk.usage = None
        self.out.append(event(chunk))


def _message(items: list[Item]) -> dict[str, Any]:
    def joined(kind: int) -> str | None:
        texts = [item.text for item in items if item.kind == kind]
        return "".join(texts) if texts else None

    text, refusal, reasoning = joined(TEXT), joined(REFUSAL), joined(REASONING)
    calls = [item for item in items if item.kind == TOOL]
    silent = text is None and refusal is None and not calls
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "" if silent else text,
        "refusal": refusal,
    }
    if reasoning:
        message["reasoning_content"] = reasoning
    signed = [_signed(item) for item in items if item.signature]
    if signed:
        message["reasoning_details"] = signed
    if calls:
        message["tool_calls"] = [_call(item) for item in calls]
    return message


def _is_free(item: Item) -> bool:
    """Say whether the client knows the tool as one that takes free text."""
    return item.form is not None and item.form.form == "custom"


def _call(item: Item) -> dict[str, Any]:
    if _is_free(item):
        custom = {"name": item.name, "input": free_text(item.text)}
        return {"id": item.id, "type": "custom", "custom": custom}
    function = {"name": item.name, "arguments": item.text}
    return {"id": item.id, "type": "function", "function": function}


def _signed(item: Item) -> dict[str, Any]:
    return {"type": "reasoning.text", "signature": item.signature, "index": item.index}


def _logprobs(logprobs: Sequence[Logprob]) -> dict[str, Any] | None:
    return {"content": logprobs, "refusal": None} if logprobs else None


def usage_words(usage: Usage) -> dict[str, Any]:
    """Write chat's usage object."""
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    details = {"cached_tokens": usage.tokens_cached or 0}
    if usage.tokens_cache_write:
        details["cache_write_tokens"] = usage.tokens_cache_write
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.tokens_reasoning or 0},
    }


def error_words(said: ErrorTerms) -> dict[str, Any]:
    """Write an error in the shape of all OpenAI endpoints."""
    kind = said.kind or word_of(ERROR_WORDS, said.status)
    words = {"message": said.message, "type": kind, "param": said.param, "code": said.code}
    return {"error": words}


def error_event(said: ErrorTerms) -> bytes:
    """Write the error that ends a stream."""
    return event(error_words(said))
