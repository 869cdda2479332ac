"""Anthropic messages: blocks in, typed block events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.fault import error_of, malformed
from lightgate.dialect.kinds import REASONING, TEXT, TOOL
from lightgate.dialect.openai_fields import count, sub
from lightgate.dialect.scanner import Grammar, Scanner, as_json, decoded

if TYPE_CHECKING:
    from collections.abc import Callable


class _Delta(msgspec.Struct, gc=False):
    text: Any = None  # text_delta
    thinking: Any = None  # thinking_delta; signature_delta has neither
    partial_json: Any = None  # input_json_delta
    stop_reason: Any = None


class _Block(msgspec.Struct, gc=False):
    type: Any = None
    name: Any = None
    text: Any = None
    thinking: Any = None
    input: Any = None


class _Message(msgspec.Struct, gc=False):
    usage: Any = None
    stop_reason: Any = None
    content: list[_Block] | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Any = None
    error: Any = None


_event_decoder: Final = msgspec.json.Decoder(_Event)
_whole_decoder: Final = msgspec.json.Decoder(_Message)
_NAMED: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def _event(scanner: Scanner, name: bytes, data: bytes) -> None:
    event = decoded(_event_decoder, data)
    if event is None:
        if data.strip():
            scanner.saw_error(malformed(data))
        return
    kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
    take = _TAKES.get(kind)
    if take is not None:
        take(scanner, event)
    elif kind == "error" or name == b"error" or event.error is not None:
        scanner.saw_error(error_of(event.error) if event.error else malformed(data))


def _message_start(scanner: Scanner, event: _Event) -> None:
    if event.message is not None:
        _use(scanner, event.message.usage, begun=True)


def _message_delta(scanner: Scanner, event: _Event) -> None:
    _use(scanner, event.usage)
    if event.delta is not None:
        scanner.saw_finish(event.delta.stop_reason)


def _message_stop(scanner: Scanner, _event: _Event) -> None:
    scanner.saw_end()


def _block_start(scanner: Scanner, event: _Event) -> None:
    if event.content_block is not None:
        _block(scanner, event.content_block)


def _block_delta(scanner: Scanner, event: _Event) -> None:
    if event.delta is not None:
        _delta(scanner, event.delta)


# Events that are not here (ping, content_block_stop, what is yet to come) carry nothing of ours.
_TAKES: Final[dict[str, Callable[[Scanner, _Event], None]]] = {
    "message_start": _message_start,
    "content_block_start": _block_start,
    "content_block_delta": _block_delta,
    "message_delta": _message_delta,
    "message_stop": _message_stop,
}


def _whole(scanner: Scanner, body: bytes) -> None:
    message = decoded(_whole_decoder, body)
    if message is not None and message.error is not None:
        scanner.saw_error(error_of(message.error))
    elif message is None or message.content is None:
        scanner.saw_error(malformed(body))
    else:
        for block in message.content:
            _block(scanner, block)
        _use(scanner, message.usage)
        scanner.saw_finish(message.stop_reason)


def _delta(scanner: Scanner, delta: _Delta) -> None:
    for flag, text in (
        (TEXT, delta.text),
        (REASONING, delta.thinking),
        (TOOL, delta.partial_json),
    ):
        if text and isinstance(text, str):
            scanner.saw_token(flag, text)


def _block(scanner: Scanner, block: _Block) -> None:
    """Take a block: a tool's name is generated, an empty text is not, and neither is a result."""
    if block.type in _NAMED:
        given = as_json(block.input) if block.input else ""
        scanner.saw_token(TOOL, (block.name if isinstance(block.name, str) else "") + given)
    elif block.type == "text" and block.text and isinstance(block.text, str):
        scanner.saw_token(TEXT, block.text)
    elif block.type == "thinking" and block.thinking and isinstance(block.thinking, str):
        scanner.saw_token(REASONING, block.thinking)


def _use(scanner: Scanner, value: Any, *, begun: bool = False) -> None:
    """Take usage; it is cumulative, and a later one may name less than the first did.

    Unlike elsewhere, `input_tokens` leaves out what was read from or written to the cache. What an
    answer that has just `begun` says of its output is a placeholder, not a count.
    """
    if not isinstance(value, dict) or not value:
        return
    before = scanner.usage or Usage()
    cached = _or(count(value.get("cache_read_input_tokens")), before.tokens_cached)
    written = _or(count(value.get("cache_creation_input_tokens")), before.tokens_cache_write)
    fresh = count(value.get("input_tokens"))
    thinking = count(sub(value, "output_tokens_details").get("thinking_tokens"))
    scanner.saw_usage(
        Usage(
            tokens_in=before.tokens_in if fresh is None else fresh + (cached or 0) + (written or 0),
            tokens_out=None if begun else _or(count(value.get("output_tokens")), before.tokens_out),
            tokens_reasoning=_or(thinking, before.tokens_reasoning),
            tokens_cached=cached,
            tokens_cache_write=written,
        )
    )


def _or(value: int | None, other: int | None) -> int | None:
    return other if value is None else value


GRAMMAR: Final = Grammar(event=_event, whole=_whole)
