"""Reads an answer of OpenAI chat completions, as its many speakers give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from lightgate.dialect.fault import Fault, error_of, malformed
from lightgate.dialect.kinds import REASONING, REFUSAL, TEXT
from lightgate.dialect.openai_fields import chat_usage
from lightgate.dialect.retell.logprobs import read as read_logprobs
from lightgate.dialect.scanner import as_json, decoded

if TYPE_CHECKING:
    from lightgate.dialect.retell.telling import Key, Telling

DONE: Final = b"[DONE]"

# The fields that are told, and no others. A leaf is Any where providers disagree on its type.


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _Call(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None  # before tools there were functions


class _Choice(msgspec.Struct, gc=False):
    index: Any = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    logprobs: Any = None
    finish_reason: Any = None
    error: Any = None


class _XGroq(msgspec.Struct, gc=False):
    usage: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | UnsetType | None = UNSET
    usage: Any = None
    error: Any = None
    x_groq: _XGroq | None = None


_decoder: Final = msgspec.json.Decoder(_Chunk)


class ChatReader:
    """The state of one answer: which call has which index and id."""

    __slots__ = ("_ids", "_keys", "_telling", "_turn")

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._ids: list[str] = []  # the id that each call's first piece had
        self._keys: dict[int, int] = {}  # the call that an index means now
        self._turn: int | None = None  # the call that a piece without index and id goes on with

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event."""
        chunk = decoded(_decoder, data)
        if chunk is None:
            word = data.strip()
            if word == DONE:
                self._telling.end()
            elif word:
                self._telling.fail(malformed(data))
            return
        self._chunk(chunk)
        if name == b"error" or chunk.choices is UNSET:  # an error in another shape, or nothing
            found = malformed(data)
            if name == b"error" or found.code != "malformed":
                self._telling.fail(found)

    def whole(self, body: bytes) -> None:
        """Take a whole answer."""
        chunk = decoded(_decoder, body)
        if chunk is None or (not chunk.choices and chunk.error is None):
            self._telling.fail(malformed(body))
            return
        self._chunk(chunk)
        self._telling.end()

    def _chunk(self, chunk: _Chunk) -> None:
        telling = self._telling
        if chunk.error is not None:
            telling.fail(error_of(chunk.error))
        if chunk.choices is None and chunk.usage is None:
            telling.fail(Fault("malformed", "The provider sent null in place of choices."))
        for choice in chunk.choices or ():
            if not choice.index:  # one answer was asked for
                self._choice(choice)
        if chunk.usage is not None:
            telling.usage = chat_usage(chunk.usage) or telling.usage
        if chunk.x_groq is not None:
            telling.usage = chat_usage(chunk.x_groq.usage) or telling.usage
            if chunk.x_groq.error is not None:
                telling.fail(error_of(chunk.x_groq.error))

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is None and not self._telling.items:  # a whole answer, or one dressed as a stream
            delta = choice.message
        if delta is not None:
            if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
                self._reasoning(delta)
            if choice.logprobs is None and delta.content and isinstance(delta.content, str):
                self._telling.say(TEXT, delta.content, [])
            else:
                self._content(delta.content, choice.logprobs)
            self._rest(delta)
        if choice.finish_reason is not None:
            self._telling.finish(choice.finish_reason)
        if choice.error is not None:
            self._telling.fail(error_of(choice.error))

    def _reasoning(self, delta: _Delta) -> None:
        """Tell reasoning, once: aggregators repeat the same words under several names."""
        telling = self._telling
        for text in (delta.reasoning_content, delta.reasoning):
            if text and isinstance(text, str):
                telling.say(REASONING, text, [])
                break
        else:
            for detail in _dicts(delta.reasoning_details):
                text = detail.get("text") or detail.get("summary")
                if text and isinstance(text, str):
                    telling.say(REASONING, text, [])
        for detail in _dicts(delta.reasoning_details):
            signature = detail.get("signature") or detail.get("data")
            if signature and isinstance(signature, str):
                telling.sign(signature)

    def _content(self, content: Any, logprobs: Any) -> None:
        telling = self._telling
        likely = read_logprobs(logprobs.get("content")) if isinstance(logprobs, dict) else []
        if isinstance(content, str) or likely:
            said = content if isinstance(content, str) else ""
            if said or likely:
                telling.say(TEXT, said, likely)
            return
        for part in _dicts(content):  # Mistral sends parts, thinking among them
            for piece in _dicts(part.get("thinking")):
                thought = piece.get("text")
                if thought and isinstance(thought, str):
                    telling.say(REASONING, thought, [])
            text = part.get("text")
            if text and isinstance(text, str):
                telling.say(TEXT, text, [])

    def _rest(self, delta: _Delta) -> None:
        if delta.refusal and isinstance(delta.refusal, str):
            self._telling.say(REFUSAL, delta.refusal, [])
        if delta.tool_calls is not None:
            for call in delta.tool_calls:
                if call.function is not None:
                    self._call(self._key(call), call.id, call.function)
        if delta.function_call is not None:
            self._call("function", None, delta.function_call)

    def _key(self, call: _Call) -> int:
        """Find the call that a piece belongs to.

        An index is the rule. Some leave it out, and some give all calls the same one: then an id
        that is not the call's own begins another.
        """
        placed = isinstance(call.index, int)
        key = self._keys.get(call.index) if placed else self._turn
        own = call.id if isinstance(call.id, str) else ""
        named = call.function is not None and bool(call.function.name)
        if not placed and own and own in self._ids:
            key = self._ids.index(own)
        elif key is None or (named and (own != self._ids[key] if own else not placed)):
            key = len(self._ids)
            self._ids.append(own)
        if placed:
            self._keys[call.index] = key
        self._turn = key
        return key

    def _call(self, key: Key, call_id: Any, function: _Function) -> None:
        self._telling.call(key, call_id, function.name)
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = as_json(arguments)
        if arguments and isinstance(arguments, str):
            self._telling.arguments(key, arguments)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
