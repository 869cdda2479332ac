"""Reads answers of Anthropic messages: typed events of blocks, or a message of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.errors import error_of, malformed
from lightgate.dialect.kinds import REASONING, TEXT, TOOL
from lightgate.dialect.neutral.events import Reader, finishes
from lightgate.dialect.neutral.json_text import Count, as_json, decoded, dict_of
from lightgate.dialect.neutral.numbers import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.tokens import Calls
    from lightgate.dialect.neutral.events import Listener

FINISHES: Final = finishes(
    {
        "stop": "end_turn",
        "sequence": "stop_sequence",
        # One of its own tools took long; a client of another dialect cannot let it go on.
        "length": "max_tokens pause_turn",
        "context": "model_context_window_exceeded",
        "tool": "tool_use",
        "filter": "refusal",
    }
)


class _OutDetails(msgspec.Struct, gc=False):
    thinking_tokens: Count = None


class _Kept(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: Count = None


class _Called(msgspec.Struct, gc=False):
    web_search_requests: Count = None
    web_fetch_requests: Count = None
    code_execution_requests: Count = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count = None
    output_tokens: Count = None
    cache_read_input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_creation: _Kept | None = None
    output_tokens_details: _OutDetails | None = None
    server_tool_use: _Called | None = None
    service_tier: Any = None
    speed: Any = None


class _Delta(msgspec.Struct, gc=False):
    text: Any = None  # text_delta
    thinking: Any = None  # thinking_delta
    signature: Any = None  # signature_delta
    partial_json: Any = None  # input_json_delta
    stop_reason: Any = None
    stop_sequence: Any = None
    stop_details: Any = None


class _Block(msgspec.Struct, gc=False):
    type: Any = None
    id: Any = None
    name: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    input: Any = None


class _Message(msgspec.Struct, gc=False):
    content: list[_Block] | None = None
    usage: _Usage | None = None
    stop_reason: Any = None
    stop_sequence: Any = None
    stop_details: Any = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    index: Any = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_event_decoder: Final = msgspec.json.Decoder(_Event, float_hook=number)
_whole_decoder: Final = msgspec.json.Decoder(_Message, float_hook=number)
_OWN_TOOLS: Final = ("server_tool_use", "mcp_tool_use")  # called and answered by the provider
_NOTHING: Final = Usage()


def _event(listener: Listener, name: bytes, data: bytes) -> None:
    event = decoded(_event_decoder, data)
    if event is None:
        if data.strip():
            listener.fail(malformed(data))
        return
    kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
    take = _TAKES.get(kind)
    if take is not None:
        take(listener, event)
    elif kind == "error" or name == b"error" or event.error is not None:
        listener.fail(error_of(event.error) if event.error else malformed(data))


def _whole(listener: Listener, body: bytes) -> None:
    message = decoded(_whole_decoder, body)
    if message is not None and message.error is not None:
        listener.fail(error_of(message.error))
    elif message is None or message.content is None:
        listener.fail(malformed(body))
    else:
        for place, block in enumerate(message.content):
            _block(listener, place, block)
            _ended(listener, place)
        _use(listener, message.usage)
        _finish(listener, message)
        listener.end()


def _message_start(listener: Listener, event: _Event) -> None:
    if event.message is not None:
        _use(listener, event.message.usage, begun=True)


def _message_delta(listener: Listener, event: _Event) -> None:
    _use(listener, event.usage)
    if event.delta is not None:
        _finish(listener, event.delta)


def _message_stop(listener: Listener, _event: _Event) -> None:
    listener.end()


def _block_start(listener: Listener, event: _Event) -> None:
    if event.content_block is not None:
        _block(listener, _place(event), event.content_block)


def _block_delta(listener: Listener, event: _Event) -> None:
    delta = event.delta
    if delta is None:
        return
    if delta.text and isinstance(delta.text, str):
        listener.say(TEXT, delta.text)
    elif delta.thinking and isinstance(delta.thinking, str):
        listener.say(REASONING, delta.thinking)
    elif delta.partial_json and isinstance(delta.partial_json, str):
        listener.tool(_place(event), None, None, delta.partial_json)
    elif delta.signature and isinstance(delta.signature, str):
        listener.sign(delta.signature)


def _block_stop(listener: Listener, event: _Event) -> None:
    _ended(listener, _place(event))


# Events that are not here (ping, what is yet to come) carry nothing that is acted on.
_TAKES: Final[dict[str, Callable[[Listener, _Event], None]]] = {
    "content_block_delta": _block_delta,
    "content_block_start": _block_start,
    "content_block_stop": _block_stop,
    "message_start": _message_start,
    "message_delta": _message_delta,
    "message_stop": _message_stop,
}


def _place(event: _Event) -> int:
    return event.index if isinstance(event.index, int) else 0


def _block(listener: Listener, place: int, block: _Block) -> None:
    """Take what a block begins with, which in a whole answer is all of it."""
    kind = block.type
    if kind == "text":
        if block.text and isinstance(block.text, str):
            listener.say(TEXT, block.text)
    elif kind == "thinking":
        if block.thinking and isinstance(block.thinking, str):
            listener.say(REASONING, block.thinking)
        if block.signature and isinstance(block.signature, str):
            listener.sign(block.signature)
    elif kind == "tool_use":
        listener.tool(place, block.id or "", block.name, _input(block))
    elif kind in _OWN_TOOLS:
        name = block.name if isinstance(block.name, str) else ""
        listener.other(TOOL, name + _input(block))


def _input(block: _Block) -> str:
    return as_json(block.input) if block.input and isinstance(block.input, dict) else ""


def _ended(listener: Listener, place: int) -> None:
    listener.tool_end(place)
    listener.part_end()


def _finish(listener: Listener, said: _Delta | _Message) -> None:
    """Take the reason; a refusal may come with its own explanation."""
    why = None if said.stop_details is None else dict_of(said.stop_details).get("explanation")
    listener.stop(said.stop_reason, sequence=said.stop_sequence, refusal=why)


def _use(listener: Listener, said: _Usage | None, *, begun: bool = False) -> None:
    """Take usage; it is cumulative, and a later one may name less than the first did.

    Unlike elsewhere, `input_tokens` leaves out what was read from or written to the cache. What an
    answer that has just `begun` says of its output is a placeholder, not a count.
    """
    if said is None or said == _UNSAID:
        return
    before = listener.usage or _NOTHING
    cached = _or(said.cache_read_input_tokens, before.tokens_cached)
    written = _or(said.cache_creation_input_tokens, before.tokens_cache_write)
    fresh = said.input_tokens
    details = said.output_tokens_details
    thinking = None if details is None else details.thinking_tokens
    hour = None if said.cache_creation is None else said.cache_creation.ephemeral_1h_input_tokens
    called = said.server_tool_use
    listener.use(
        Usage(
            tokens_in=before.tokens_in if fresh is None else fresh + (cached or 0) + (written or 0),
            tokens_out=None if begun else _or(said.output_tokens, before.tokens_out),
            tokens_reasoning=_or(thinking, before.tokens_reasoning),
            tokens_cached=cached,
            tokens_cache_write=written,
            tokens_cache_write_1h=_or(hour, before.tokens_cache_write_1h),
            calls=before.calls if called is None else _calls(called),
            tier=_tier(said) or before.tier,
        )
    )


def _tier(said: _Usage) -> str | None:
    """Return the service tier that answered; a faster answer is dearer in any of them."""
    if said.speed == "fast":
        return "fast"
    return said.service_tier if isinstance(said.service_tier, str) else None


def _calls(said: _Called) -> Calls:
    """Calls of Anthropic's own tools, by kind."""
    counts = {
        "web_search": said.web_search_requests,
        "web_fetch": said.web_fetch_requests,
        "code_execution": said.code_execution_requests,
    }
    return tuple((kind, count) for kind, count in counts.items() if count)


_UNSAID: Final = _Usage()


def _or(value: int | None, other: int | None) -> int | None:
    return other if value is None else value


# After a tool's result Claude may end its turn without a word, and Anthropic calls that an answer.
READER: Final = Reader(event=_event, whole=_whole, finishes=FINISHES, bare=frozenset())
