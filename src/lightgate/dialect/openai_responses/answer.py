"""Writes answers as OpenAI responses, and assembles streams of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.errors import status_of
from lightgate.dialect.kinds import REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.neutral.events import CUT, Likely, Logprob
from lightgate.dialect.neutral.folding import ITEM, encoded, object_of, raw_weight
from lightgate.dialect.neutral.items import Writer, arguments_of
from lightgate.dialect.neutral.json_text import dumped, named, odd_value
from lightgate.dialect.neutral.names import free_text
from lightgate.dialect.neutral.numbers import number
from lightgate.dialect.neutral.terms import ErrorTerms, terms
from lightgate.dialect.openai_responses.events import LAST
from lightgate.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.tokens import Usage
    from lightgate.dialect.errors import Fault
    from lightgate.dialect.neutral.events import Reason
    from lightgate.dialect.neutral.items import AnswerHead, Ending, Item
    from lightgate.dialect.neutral.json_text import Object
    from lightgate.dialect.request import Form

# A response has a status, and a reason only where that is `incomplete`.
FINISHES: Final[dict[Reason, str]] = {
    "stop": "completed",
    "sequence": "completed",
    "length": "max_output_tokens",
    "context": "max_output_tokens",
    "tool": "completed",
    "refusal": "completed",
    "filter": "content_filter",
}
_PREFIXES: Final = {TEXT: "msg", REFUSAL: "msg", REASONING: "rs", TOOL: "fc"}
_CALL_PREFIXES: Final[dict[Form, str]] = {"function": "fc", "custom": "ctc", "local_shell": "lsh"}
_CALLS: Final[dict[Form, str]] = {
    "function": "function_call",
    "custom": "custom_tool_call",
    "local_shell": "local_shell_call",
}
_TEXT: Final = "response.output_text.delta"
_DELTAS: Final = {
    REFUSAL: "response.refusal.delta",
    REASONING: "response.reasoning_summary_text.delta",
    TOOL: "response.function_call_arguments.delta",
}
_NONE: Final = msgspec.Raw(b"[]")
Words = str | msgspec.Raw  # a text, or the JSON that it is
# The only codes that a failed response may have, by status; everything else is the server's.
_CODES: Final = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class _Shell(msgspec.Struct):
    """What a local shell is to do; other names that a model made up are left out."""

    type: msgspec.Raw = msgspec.Raw(b'"exec"')
    command: msgspec.Raw = msgspec.Raw(b"[]")
    env: msgspec.Raw = msgspec.Raw(b"{}")
    timeout_ms: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    user: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    working_directory: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_shell: Final = msgspec.json.Decoder(_Shell)


class _TextDelta(msgspec.Struct, gc=False):
    type: str
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: msgspec.Raw


class ResponsesWriter(Writer):
    """Writes one response; `keeps`, because the last events repeat the whole text."""

    keeps = True

    def __init__(self, head: AnswerHead) -> None:
        super().__init__(head)
        self._number = 0
        self._started = False
        self._summary = False  # the open reasoning has a part
        self._done: list[msgspec.Raw] = []
        self._likely: list[bytes] = []  # entries of the open text, as they were written

    def start(self, first: Item | None, usage: Usage | None) -> None:  # noqa: ARG002 - written at the end
        """Write that there is a response."""
        self._started = True
        response = self._response("in_progress", [])
        self._event("response.created", {"response": response})
        self._event("response.in_progress", {"response": response})

    def open(self, item: Item) -> None:
        """Add an item, and a part where it has one from the beginning."""
        fields = {"output_index": item.index, "item": self._item(item)}
        self._event("response.output_item.added", fields)
        if item.kind in {TEXT, REFUSAL}:
            part = _part(item.kind, "", [])
            self._event("response.content_part.added", {**self._place(item), "part": part})

    def piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:
        """Write one piece."""
        if item.kind == TEXT:
            number, self._number = self._number, self._number + 1
            likely = _once(_with_bytes(logprobs)) if logprobs else _NONE
            if logprobs:
                self._likely.append(bytes(likely)[1:-1])
            delta = _TextDelta(_TEXT, number, self._id(item), item.index, 0, text, likely)
            self.out.append(named(_TEXT.encode("ascii"), delta))
            return
        if item.kind == TOOL and _form(item) != "function":
            return  # its words are in the arguments, which are known once they are whole
        if item.kind == REASONING and not self._summary:
            self._summary = True
            part = {"type": "summary_text", "text": ""}
            fields = {**self._place(item), "part": part}
            self._event("response.reasoning_summary_part.added", fields)
        self._event(_DELTAS[item.kind], {**self._place(item), "delta": text})

    def close(self, item: Item) -> None:
        """Repeat the item as a whole, up to four times: its words are encoded once."""
        words = _once(item.text)
        likely, self._likely = msgspec.Raw(b"[%b]" % b",".join(self._likely)), []
        part = _part(item.kind, words, likely) if item.kind in {TEXT, REFUSAL} else None
        self._close_part(item, words, part)
        done = _once(self._item(item, words, part))
        self._event("response.output_item.done", {"output_index": item.index, "item": done})
        self._done.append(done)

    def end(self, ending: Ending) -> None:
        """Repeat the response as a whole, with its usage."""
        response = self._final(self._done, ending)
        self._event(f"response.{response['status']}", {"response": response})

    def fail(self, fault: Fault) -> None:
        """Fail the response, or write an error where none has begun yet."""
        if not self._started:
            self._event("error", error_fields(terms("openai", fault), self._number))
            return
        response = self._response("failed", self._done)
        code = _CODES.get(status_of(fault), "server_error")
        response["error"] = {"code": code, "message": fault.message}
        self._event("response.failed", {"response": response})

    def whole(self, items: list[Item], ending: Ending) -> bytes:
        """Write the response object."""
        return dumped(self._final([self._whole_item(item) for item in items], ending))

    def _whole_item(self, item: Item) -> dict[str, Any]:
        text = item.text
        return self._item(item, text, _part(item.kind, text, _with_bytes(item.logprobs)))

    def _close_part(self, item: Item, words: msgspec.Raw, part: dict[str, Any] | None) -> None:
        """End what the item is made of; `part` is that of a message."""
        place = self._place(item)
        if item.kind == TOOL and _form(item) == "custom":
            said = _once(free_text(item.text))
            self._event("response.custom_tool_call_input.delta", {**place, "delta": said})
            self._event("response.custom_tool_call_input.done", {**place, "input": said})
        elif item.kind == TOOL and _form(item) == "local_shell":
            return
        elif item.kind == TOOL:
            fields = {**place, "name": item.name, "arguments": words}
            self._event("response.function_call_arguments.done", fields)
        elif item.kind == REASONING:
            if self._summary:
                self._summary = False
                shown = {"type": "summary_text", "text": words}
                self._event("response.reasoning_summary_text.done", {**place, "text": words})
                self._event("response.reasoning_summary_part.done", {**place, "part": shown})
        elif part is not None:
            if item.kind == TEXT:
                fields = {**place, "text": words, "logprobs": part["logprobs"]}
                self._event("response.output_text.done", fields)
            else:
                self._event("response.refusal.done", {**place, "refusal": words})
            self._event("response.content_part.done", {**place, "part": part})

    def _place(self, item: Item) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self._id(item), "output_index": item.index}
        if item.kind == REASONING:
            place["summary_index"] = 0
        elif item.kind != TOOL:
            place["content_index"] = 0
        return place

    def _id(self, item: Item) -> str:
        prefix = _PREFIXES[item.kind]
        if item.kind == TOOL:
            prefix = _CALL_PREFIXES[_form(item)]
        return f"{prefix}_{self._head.id}_{item.index}"

    def _item(
        self, item: Item, words: Words | None = None, part: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Write an item that is done, or one without words that has just begun."""
        done = words is not None
        status = "incomplete" if item.cut else "completed" if done else "in_progress"
        fields: dict[str, Any] = {"id": self._id(item)}
        if item.kind == REASONING:
            shown = [{"type": "summary_text", "text": words}] if done and item.texts else []
            fields |= {"type": "reasoning", "summary": shown}
            return fields | ({"encrypted_content": item.signature} if item.signature else {})
        if item.kind == TOOL:
            return fields | _call(item, status, words)
        fields |= {"type": "message", "status": status, "role": "assistant"}
        return fields | {"content": [part] if done else []}

    def _final(self, output: Sequence[object], ending: Ending) -> dict[str, Any]:
        word = FINISHES[ending.reason]
        cut = ending.reason in CUT
        response = self._response("incomplete" if cut else "completed", output)
        if cut:
            response["incomplete_details"] = {"reason": word}
        if ending.usage is not None:
            response["usage"] = usage_words(ending.usage)
        return response

    def _response(self, status: str, output: Sequence[object]) -> dict[str, Any]:
        """Write the response object; what it echoes of the request is what holds by default."""
        return {
            "id": f"resp_{self._head.id}",
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "model": self._head.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "metadata": {},
            "usage": None,
        }

    def _event(self, name: str, fields: dict[str, Any]) -> None:
        data = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        self.out.append(named(name.encode("ascii"), data))


def _form(item: Item) -> Form:
    return "function" if item.form is None else item.form.form


def _call(item: Item, status: str, words: Words | None) -> dict[str, Any]:
    """Write a call as the client knows the tool; without words, one that has just begun."""
    form, done = _form(item), words is not None
    call: dict[str, Any] = {"type": _CALLS[form], "status": status, "call_id": item.id}
    if form == "local_shell":
        return call | {"action": _action(arguments_of(item) if done else None)}
    call["name"] = item.name
    if form == "custom":
        call["input"] = free_text(item.text) if done else ""
    else:
        call["arguments"] = words if done else ""
    if item.form is not None and item.form.namespace:
        call["namespace"] = item.form.namespace
    return call


def _action(given: msgspec.Raw | None) -> _Shell | dict[str, Any]:
    """Write what a local shell is to do, as far as the arguments say it."""
    if given is None:
        return _Shell()
    try:
        return _shell.decode(given)
    except msgspec.DecodeError:  # half an emoji
        said = odd_value(bytes(given))
        known = {name: said[name] for name in _Shell.__struct_fields__ if name in said}
        return {"type": "exec", "command": [], "env": {}, **known}


def _part(kind: int, text: Words, likely: list[Logprob] | msgspec.Raw) -> dict[str, Any]:
    if kind == REFUSAL:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": likely}


def _once(value: object) -> msgspec.Raw:
    """Encode what stands in several events: a long answer is told four times at its end."""
    return msgspec.Raw(dumped(value))


def _with_bytes(entries: Sequence[Logprob]) -> list[Logprob]:
    """Fill the bytes in, which are not optional here."""
    return [
        Logprob(
            entry.token,
            entry.logprob,
            _bytes(entry),
            [Likely(top.token, top.logprob, _bytes(top)) for top in entry.top_logprobs],
        )
        for entry in entries
    ]


def _bytes(entry: Logprob | Likely) -> list[int]:
    return list(entry.token.encode("utf-8", "replace")) if entry.bytes is None else entry.bytes


def usage_words(usage: Usage) -> dict[str, Any]:
    """Write the usage object of the responses endpoint."""
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {
            "cached_tokens": usage.tokens_cached or 0,
            "cache_write_tokens": usage.tokens_cache_write or 0,
        },
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": usage.tokens_reasoning or 0},
        "total_tokens": tokens_in + tokens_out,
    }


def error_fields(said: ErrorTerms, number: int) -> dict[str, Any]:
    """Write the `error` event of a response that never was."""
    fields = {"type": "error", "code": said.code, "message": said.message, "param": said.param}
    return {**fields, "sequence_number": number}


def error_event(said: ErrorTerms) -> bytes:
    """Write the error that ends a stream."""
    return named(b"error", error_fields(said, 0))


class _Raw(msgspec.Struct, gc=False):
    type: Any = None
    response: msgspec.Raw = msgspec.Raw(b"")
    item: msgspec.Raw = msgspec.Raw(b"")
    output_index: Any = None


class _Told(msgspec.Struct, gc=False):
    output: list[msgspec.Raw] = []


def _odd_event(data: bytes) -> _Raw:
    """Read an event with half an emoji in it; one that is no object says nothing."""
    said = object_of(data) or {}
    raw = {name: _once(said[name]) for name in ("response", "item") if name in said}
    return _Raw(type=said.get("type"), output_index=said.get("output_index"), **raw)


_told_decoder: Final = msgspec.json.Decoder(_Told)
_raw_decoder: Final = msgspec.json.Decoder(_Raw, float_hook=number)


class ResponsesAssembler:
    """Assembles one response: its last object, or the done items where that leaves them out."""

    __slots__ = ("_items", "_last", "_response", "size")

    def __init__(self) -> None:
        self._items: dict[int, bytes] = {}
        self._response = b""
        self._last = ""  # the event that ended it
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event; deltas are passed over."""
        if b'"response"' not in data and b'"item"' not in data:
            return
        try:
            event = _raw_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = _odd_event(data)
        kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
        response, item = bytes(event.response), bytes(event.item)
        if kind in LAST:
            self._last = kind
        if response.startswith(b"{"):
            self.size += raw_weight(response) - raw_weight(self._response)
            self._response = response
        elif kind == "response.output_item.done" and item.startswith(b"{"):
            place = event.output_index
            self._items[place if isinstance(place, int) else len(self._items)] = item
            self.size += ITEM + raw_weight(item)

    def whole(self) -> bytes:
        """Return the response object as it came; missing output is not made up of deltas."""
        try:
            if _told_decoder.decode(self._response).output:
                return self._response
        except (ValueError, RecursionError):
            pass  # there is none, or one with halves of an emoji in it
        whole = object_of(self._response) if self._response else None
        if whole is not None and whole.get("output"):
            return self._response
        if whole is None or not self._items:
            raise Malformed("The stream had no response object with an output.")
        items: list[Object | None] = [object_of(item) for _, item in sorted(self._items.items())]
        whole["output"] = [item for item in items if item is not None]
        if self._last:
            whole["status"] = self._last.removeprefix("response.")
        return encoded(whole)
