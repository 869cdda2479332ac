"""Reads an answer of Anthropic messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.fault import error_of, malformed
from lightgate.dialect.kinds import REASONING, REFUSAL, TEXT
from lightgate.dialect.retell.usage import read_messages
from lightgate.dialect.scanner import as_json, decoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.dialect.retell.telling import Telling


class _Details(msgspec.Struct, gc=False):
    explanation: Any = None


class _Delta(msgspec.Struct, gc=False):
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    stop_details: _Details | None = None


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
    usage: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    stop_details: _Details | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Any = None
    error: Any = None


_event_decoder: Final = msgspec.json.Decoder(_Event)
_whole_decoder: Final = msgspec.json.Decoder(_Message)


class MessagesReader:
    """The state of one answer; blocks of the provider's own tools are passed over."""

    __slots__ = ("_takes", "_telling")

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._takes: dict[str, Callable[[_Event], None]] = {
            "content_block_delta": self._delta,
            "content_block_start": self._start,
            "content_block_stop": self._stop,
            "message_start": self._message_start,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event."""
        event = decoded(_event_decoder, data)
        if event is None:
            if data.strip():
                self._telling.fail(malformed(data))
            return
        kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
        take = self._takes.get(kind)
        if take is not None:
            take(event)
        elif kind == "error" or name == b"error" or event.error is not None:
            self._telling.fail(error_of(event.error) if event.error else malformed(data))

    def whole(self, body: bytes) -> None:
        """Take a whole answer."""
        telling = self._telling
        message = decoded(_whole_decoder, body)
        if message is not None and message.error is not None:
            telling.fail(error_of(message.error))
        elif message is None or message.content is None:
            telling.fail(malformed(body))
        else:
            for index, block in enumerate(message.content):
                self._block(index, block)
                self._ended(index)
            telling.usage = read_messages(message.usage, None)
            self._finish(message)
            telling.end()

    def _message_start(self, event: _Event) -> None:
        if event.message is not None:
            self._telling.usage = read_messages(event.message.usage, None, begun=True)

    def _message_delta(self, event: _Event) -> None:
        self._telling.usage = read_messages(event.usage, self._telling.usage)
        if event.delta is not None:
            self._finish(event.delta)

    def _message_stop(self, _event: _Event) -> None:
        self._telling.end()

    def _finish(self, said: _Delta | _Message) -> None:
        """Take the reason; a refusal may come with its own explanation."""
        why = said.stop_details.explanation if said.stop_details is not None else None
        if why and isinstance(why, str):
            self._telling.say(REFUSAL, why, [])
        self._telling.finish(said.stop_reason, said.stop_sequence)

    def _start(self, event: _Event) -> None:
        if event.content_block is not None:
            self._block(event.index, event.content_block)

    def _block(self, index: int, block: _Block) -> None:
        """Take what a block begins with, which in a whole answer is all of it."""
        if block.type == "tool_use":
            self._telling.call(index, block.id, block.name)
            if block.input and isinstance(block.input, dict):
                self._telling.arguments(index, as_json(block.input))
        elif block.type == "text" and block.text and isinstance(block.text, str):
            self._telling.say(TEXT, block.text, [])
        elif block.type == "thinking":
            if block.thinking and isinstance(block.thinking, str):
                self._telling.say(REASONING, block.thinking, [])
            if block.signature and isinstance(block.signature, str):
                self._telling.sign(block.signature)

    def _delta(self, event: _Event) -> None:
        delta = event.delta
        if delta is None:
            return
        if delta.text and isinstance(delta.text, str):
            self._telling.say(TEXT, delta.text, [])
        elif delta.thinking and isinstance(delta.thinking, str):
            self._telling.say(REASONING, delta.thinking, [])
        elif delta.partial_json and isinstance(delta.partial_json, str):
            self._telling.arguments(event.index, delta.partial_json)
        elif delta.signature and isinstance(delta.signature, str):
            self._telling.sign(delta.signature)

    def _stop(self, event: _Event) -> None:
        self._ended(event.index)

    def _ended(self, index: int) -> None:
        self._telling.call_end(index)
        self._telling.part_end()
