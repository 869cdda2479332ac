"""Writes answers as Anthropic messages, and assembles streams of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.errors import word_of
from lightgate.dialect.kinds import REASONING, TOOL
from lightgate.dialect.neutral.events import CUT
from lightgate.dialect.neutral.folding import (
    ITEM,
    PIECE,
    Said,
    encoded,
    fold,
    joined,
    keep,
    object_of,
    say,
    values_weight,
)
from lightgate.dialect.neutral.items import Writer, arguments_of
from lightgate.dialect.neutral.json_text import dumped, named
from lightgate.dialect.neutral.terms import ErrorTerms, terms
from lightgate.errors import Malformed, StreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.dialect.errors import Fault
    from lightgate.dialect.neutral.events import Logprob, Reason
    from lightgate.dialect.neutral.items import Ending, Item
    from lightgate.dialect.neutral.json_text import Object

FINISHES: Final[dict[Reason, str]] = {
    "stop": "end_turn",
    "sequence": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "tool": "tool_use",
    "refusal": "refusal",
    "filter": "refusal",
}
ERROR_WORDS: Final = {  # by status; see word_of for others
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    499: "api_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_NOTHING: Final = Usage()
_INPUT: Final = " input"  # where a block keeps the JSON of its input: no provider's name
_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")  # no set: a list is none of them


class _Text(msgspec.Struct, gc=False, tag_field="type", tag="text_delta"):
    text: str


class _Thinking(msgspec.Struct, gc=False, tag_field="type", tag="thinking_delta"):
    thinking: str


class _Json(msgspec.Struct, gc=False, tag_field="type", tag="input_json_delta"):
    partial_json: str


class _Signature(msgspec.Struct, gc=False, tag_field="type", tag="signature_delta"):
    signature: str


class _Delta(msgspec.Struct, gc=False, tag_field="type", tag="content_block_delta"):
    index: int
    delta: _Text | _Thinking | _Json | _Signature


class MessagesWriter(Writer):
    """Writes one message."""

    call_prefix = "toolu"

    def start(self, first: Item | None, usage: Usage | None) -> None:  # noqa: ARG002 - all the same
        """Open the message; its usage is what is known by now, and the last event corrects it."""
        message = self._message([], None, None, usage)
        self._event("message_start", {"message": message})

    def open(self, item: Item) -> None:
        """Open a block; words of refusal are text here."""
        block: dict[str, Any] = {"type": "text", "text": ""}
        if item.kind == REASONING:
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif item.kind == TOOL:
            block = {"type": "tool_use", "id": item.id, "name": item.name, "input": {}}
        self._event("content_block_start", {"index": item.index, "content_block": block})

    def piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:  # noqa: ARG002 - unknown here
        """Write one piece."""
        kind = item.kind
        delta: _Text | _Thinking | _Json
        if kind == REASONING:
            delta = _Thinking(text)
        elif kind == TOOL:
            delta = _Json(text)
        else:
            delta = _Text(text)
        self.out.append(named(b"content_block_delta", _Delta(item.index, delta)))

    def sign(self, item: Item) -> None:
        """Write a signature."""
        delta = _Delta(item.index, _Signature(item.signature))
        self.out.append(named(b"content_block_delta", delta))

    def close(self, item: Item) -> None:
        """Close the block."""
        self._event("content_block_stop", {"index": item.index})

    def end(self, ending: Ending) -> None:
        """Write the reason and the usage, and close the message."""
        delta = {"stop_reason": FINISHES[ending.reason], "stop_sequence": ending.sequence}
        used = usage_words(ending.usage or _NOTHING)
        self._event("message_delta", {"delta": delta, "usage": used})
        self._event("message_stop", {})

    def fail(self, fault: Fault) -> None:
        """Write an error."""
        self.out.append(error_event(terms("anthropic", fault)))

    def whole(self, items: list[Item], ending: Ending) -> bytes:
        """Write the message object; a call that was cut off in mid-argument is left out."""
        content = [block for item in items if (block := _block(item, ending)) is not None]
        reason = FINISHES[ending.reason]
        return dumped(self._message(content, reason, ending.sequence, ending.usage))

    def _message(
        self,
        content: list[dict[str, Any]],
        reason: str | None,
        sequence: str | None,
        usage: Usage | None,
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self._head.id}",
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": usage_words(usage or _NOTHING),
        }

    def _event(self, name: str, fields: dict[str, Any]) -> None:
        self.out.append(named(name.encode("ascii"), {"type": name, **fields}))


def _block(item: Item, ending: Ending) -> dict[str, Any] | None:
    if item.kind == REASONING:
        return {"type": "thinking", "thinking": item.text, "signature": item.signature}
    if item.kind != TOOL:
        return {"type": "text", "text": item.text}
    given = arguments_of(item)
    if given is None:
        if ending.reason in CUT:
            return None
        raise StreamError("The provider made a tool call whose arguments are no JSON object.")
    return {"type": "tool_use", "id": item.id, "name": item.name, "input": given}


def usage_words(usage: Usage) -> dict[str, Any]:
    """Write the usage object; its input is what no cache had a part in."""
    cached, written = usage.tokens_cached or 0, usage.tokens_cache_write or 0
    out: dict[str, Any] = {
        "input_tokens": max(0, (usage.tokens_in or 0) - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.tokens_out or 0,
    }
    if usage.tokens_reasoning:
        out["output_tokens_details"] = {"thinking_tokens": usage.tokens_reasoning}
    return out


def error_words(said: ErrorTerms) -> dict[str, Any]:
    """Write an error in this dialect's shape."""
    kind = said.kind or word_of(ERROR_WORDS, said.status)
    error: dict[str, Any] = {"type": kind, "message": said.message}
    if said.details:
        error["details"] = msgspec.Raw(said.details.encode())
    return {"type": "error", "error": error}


def error_event(said: ErrorTerms) -> bytes:
    """Write the error that ends a stream."""
    return named(b"error", error_words(said))


class MessagesAssembler:
    """Assembles one message: its beginning, its blocks by index, what the last events add."""

    __slots__ = ("_blocks", "_message", "size")

    def __init__(self) -> None:
        self._message: Object = {}
        self._blocks: dict[int, Object] = {}
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event."""
        event = object_of(data)
        if event is None:
            return
        kind = event.get("type") or name.decode("latin-1")
        index = event.get("index")
        place = index if isinstance(index, int) else 0
        delta = event.get("delta")
        if kind == "content_block_delta" and isinstance(delta, dict):
            block = self._blocks.setdefault(place, {})
            self.size += (PIECE if block else ITEM) + _grow(block, delta)
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            self._blocks[place] = {}
            self.size += ITEM + _open(self._blocks[place], event["content_block"])
        elif kind == "message_start" and isinstance(event.get("message"), dict):
            self.size += keep(self._message, event["message"])
        elif kind == "message_delta":
            self.size += keep(self._message, delta if isinstance(delta, dict) else {})
            rest = {n: v for n, v in event.items() if n not in {"type", "delta"}}
            self.size += keep(self._message, rest)

    def whole(self) -> bytes:
        """Return the message object."""
        message = self._message
        if not message:
            raise Malformed("The stream had no message.")
        cut = message.get("stop_reason") in _CUT_OFF
        blocks = [_whole(block, cut=cut) for _, block in sorted(self._blocks.items())]
        return encoded({**message, "content": blocks})


def _open(block: Object, start: Object) -> int:
    """Begin a block; its texts go on with the deltas."""
    size = 0
    for name, value in start.items():
        if name in {"text", "thinking"} and isinstance(value, str):
            size += say(block, name, value)
        else:
            size += keep(block, {name: value})
    return size


def _grow(block: Object, delta: Object) -> int:
    kind = delta.get("type")
    if kind == "input_json_delta":
        piece = delta.get("partial_json")
        return say(block, _INPUT, piece) + values_weight(piece) if isinstance(piece, str) else 0
    if kind == "citations_delta":
        if not isinstance(block.get("citations"), list):
            block["citations"] = []
        return fold(block, {"citations": [delta.get("citation")]})
    if kind == "signature_delta":
        return keep(block, {"signature": delta.get("signature")})
    return fold(block, {name: value for name, value in delta.items() if name != "type"})


def _whole(block: Object, *, cut: bool) -> Object:
    whole: Object = {name: joined(value) for name, value in block.items() if name != _INPUT}
    written = block.get(_INPUT)
    if isinstance(written, Said) and any(written):
        whole["input"] = _input("".join(written), cut=cut)
    return whole


def _input(text: str, *, cut: bool) -> Any:
    """Take the input that a model wrote in pieces as it is; input that was cut off is empty."""
    try:
        # The halves of an emoji from two pieces are one again, as two escapes.
        return msgspec.Raw(msgspec.json.format(text.encode("utf-8", "backslashreplace"), indent=-1))
    except (msgspec.DecodeError, RecursionError):
        if cut:
            return {}
        raise Malformed("A tool's input is not JSON.") from None
