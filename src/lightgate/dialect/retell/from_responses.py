"""Reads an answer of OpenAI responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.fault import Fault, error_of, malformed
from lightgate.dialect.kinds import REASONING, REFUSAL, TEXT
from lightgate.dialect.retell.from_chat import DONE
from lightgate.dialect.retell.logprobs import read as read_logprobs
from lightgate.dialect.retell.usage import read_responses
from lightgate.dialect.scanner import decoded

if TYPE_CHECKING:
    from lightgate.dialect.retell.telling import Key, Telling

_DELTAS: Final = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": REFUSAL,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
}
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_FAILED: Final = ("failed", "cancelled")  # no set: a status may be anything, a list even
BETWEEN: Final = "\n\n"  # the parts of a summary are paragraphs


class _Item(msgspec.Struct, gc=False):
    id: Any = None
    type: Any = None
    call_id: Any = None
    name: Any = None
    arguments: Any = None
    content: list[dict[str, Any]] | None = None
    summary: list[dict[str, Any]] | None = None
    encrypted_content: Any = None


class _Why(msgspec.Struct, gc=False):
    reason: Any = None


class _Response(msgspec.Struct, gc=False):
    status: Any = None
    error: Any = None
    incomplete_details: _Why | None = None
    usage: Any = None
    output: list[_Item] | None = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    delta: Any = None
    logprobs: Any = None
    output_index: Any = None
    item_id: Any = None
    summary_index: Any = None
    arguments: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None


_event_decoder: Final = msgspec.json.Decoder(_Event)
_whole_decoder: Final = msgspec.json.Decoder(_Response)


class ResponsesReader:
    """The state of one answer: which items were told in pieces, and need not be told when done."""

    __slots__ = ("_telling", "_told")

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._told: set[Key] = set()

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event."""
        event = decoded(_event_decoder, data)
        if event is None:
            word = data.strip()
            if word and word != DONE:  # some servers add chat's marker after their own
                self._telling.fail(malformed(data))
            return
        kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
        flag = _DELTAS.get(kind)
        if flag is None:
            self._other(kind, event, data)
        elif event.delta and isinstance(event.delta, str):
            self._told.add(_key(event))
            likely = read_logprobs(event.logprobs) if event.logprobs else []
            self._telling.say(flag, event.delta, likely)

    def whole(self, body: bytes) -> None:
        """Take a whole answer."""
        response = decoded(_whole_decoder, body)
        if response is None or (response.output is None and response.error is None):
            self._telling.fail(malformed(body))
            return
        self._settle(response, failed=response.status in _FAILED)

    def _other(self, kind: str, event: _Event, data: bytes) -> None:
        key = _key(event)
        if kind == "response.function_call_arguments.delta":
            if event.delta and isinstance(event.delta, str):
                self._telling.arguments(key, event.delta)
        elif kind == "response.function_call_arguments.done":
            self._rest(key, event.arguments)
        elif event.item is not None:
            self._item_event(kind, key, event.item)
        elif kind == "response.reasoning_summary_part.added":
            if event.summary_index and key in self._told:
                self._telling.say(REASONING, BETWEEN, [])
        elif kind in _LAST:
            response = event.response or _Response(status=kind.removeprefix("response."))
            self._settle(response, failed=kind == "response.failed")
        elif kind == "error" or event.error is not None:
            self._telling.fail(error_of(event.error) if event.error else malformed(data))

    def _item_event(self, kind: str, key: Key, item: _Item) -> None:
        if kind == "response.output_item.done":
            self._item(key, item)
        elif kind == "response.output_item.added":
            self._telling.part_end()
            if item.type == "function_call":
                self._telling.call(key, item.call_id or item.id, item.name)

    def _settle(self, response: _Response, *, failed: bool) -> None:
        """Take the response object that ends an answer, and what it has that was not told yet."""
        telling = self._telling
        telling.usage = read_responses(response.usage) or telling.usage
        if response.error is not None:
            telling.fail(error_of(response.error))
        elif failed:
            telling.fail(Fault("failed", "The provider failed the response and gave no reason."))
        if not telling.items:
            for at, item in enumerate(response.output or ()):
                self._item(at, item)
        details = response.incomplete_details
        telling.finish((details.reason if details is not None else None) or response.status)
        telling.end()

    def _item(self, key: Key, item: _Item) -> None:
        """Take a done item: whatever of it did not come in pieces."""
        telling = self._telling
        if item.type == "function_call":
            telling.call(key, item.call_id or item.id, item.name)
            self._rest(key, item.arguments)
        elif item.type == "reasoning":
            if key not in self._told:
                self._reasoning(item)
            if item.encrypted_content and isinstance(item.encrypted_content, str):
                telling.sign(item.encrypted_content)
        elif item.type == "message" and key not in self._told:
            for part in item.content or ():
                self._part(part)
                telling.part_end()
        telling.part_end()

    def _reasoning(self, item: _Item) -> None:
        parts = item.summary or item.content or ()
        texts = [text for part in parts if isinstance(text := part.get("text"), str) and text]
        if texts:
            self._telling.say(REASONING, BETWEEN.join(texts), [])

    def _part(self, part: dict[str, Any]) -> None:
        text, refusal = part.get("text"), part.get("refusal")
        likely = read_logprobs(part.get("logprobs"))
        if isinstance(text, str) and (text or likely):
            self._telling.say(TEXT, text, likely)
        if refusal and isinstance(refusal, str):
            self._telling.say(REFUSAL, refusal, [])

    def _rest(self, key: Key, arguments: Any) -> None:
        if isinstance(arguments, str) and arguments and not self._telling.has_arguments(key):
            self._telling.arguments(key, arguments)
        self._telling.call_end(key)


def _key(event: _Event) -> Key:
    if isinstance(event.output_index, int):
        return event.output_index
    return event.item_id if isinstance(event.item_id, str) else -1
