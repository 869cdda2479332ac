"""Assembles streams of OpenAI chat and completions into the object of a whole answer."""

from __future__ import annotations

from typing import Any, Final

from lightgate.dialect.neutral.folding import (
    ITEM,
    PIECE,
    Grown,
    Said,
    encoded,
    fold,
    joined,
    keep,
    object_of,
    placed,
    say,
    weight,
)
from lightgate.dialect.neutral.items import CallPlaces
from lightgate.dialect.neutral.json_text import Object, as_json, dicts_of

# Padding against listeners, and what `usage` and `choices` are made of.
_NOT_KEPT: Final = frozenset({"choices", "usage", "object", "x_groq", "obfuscation"})
_CALLS: Final = " calls"  # where a message keeps its calls until it is whole: no provider's name
_DETAILS: Final = " details"  # likewise the details of its reasoning, by their numbers
_ASIDE: Final = frozenset({_CALLS, _DETAILS})
# Folded in a way of their own, or left out.
_OWN: Final = _ASIDE | {"content", "tool_calls", "function_call", "reasoning_details"}
_UNSAID: Final = ("reasoning_content", "reasoning")  # left out of a message that has none


class ChunkAssembler:
    """Assembles one answer of completions: its head, its choices by index, its last usage."""

    __slots__ = ("_choices", "_head", "_object", "_usage", "size")

    def __init__(self, kind: str = "text_completion") -> None:
        self._object = kind
        self._head: Object = {}
        self._choices: dict[int, Object] = {}
        self._usage: Any = None
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:  # noqa: ARG002 - these streams name none
        """Take one event."""
        chunk = object_of(data)
        if chunk is None:
            return
        for piece in dicts_of(chunk.get("choices")):
            choice, size = placed(self._choices, piece)
            self.size += size
            self._take(choice, piece)
        self._facts(chunk)

    def whole(self) -> bytes:
        """Return the answer as one object."""
        choices = [self.chosen(place, one) for place, one in sorted(self._choices.items())]
        head = {"id": "", "object": self._object, **self._head}
        usage = {} if self._usage is None else {"usage": self._usage}
        return encoded({**head, "choices": choices, **usage})

    # What an endpoint does in its own way.

    def delta(self, choice: Object, said: Object) -> int:
        """Take what a piece of a choice says; return the bytes that it adds."""
        text = said.pop("text", None)
        return keep(choice, said) + (say(choice, "text", text) if isinstance(text, str) else 0)

    def chosen(self, place: int, choice: Object) -> Object:
        """Return the choice as a whole answer has it."""
        return {"index": place, **joined(choice)}

    def _take(self, choice: Object, piece: Object) -> None:
        known = choice.get("finish_reason")
        finish = piece.pop("finish_reason", None)
        piece.pop("index", None)
        if "logprobs" in piece:
            self.size += fold(choice, {"logprobs": piece.pop("logprobs")})
        self.size += self.delta(choice, piece)
        # A mere stop takes back no other reason; a later word is better than none, or than a stop.
        if known is None or (known == "stop" and finish is not None):
            choice["finish_reason"] = finish
            self.size += 0 if finish is None else weight(finish)

    def _facts(self, chunk: Object) -> None:
        head = self._head
        for name, value in chunk.items():
            if name not in _NOT_KEPT and head.get(name, chunk) != value:  # nearly all repeat it
                self.size += keep(head, {name: value})
        usage = chunk.get("usage")
        groq = chunk.get("x_groq")
        if isinstance(groq, dict):
            own = {name: value for name, value in groq.items() if name != "usage"}
            self.size += keep(self._head, {"x_groq": own} if own else {})
            usage = usage or groq.get("usage")
        if usage is not None:
            self._usage = usage


class ChatAssembler(ChunkAssembler):
    """Assembles one chat answer: a choice is a message, whose deltas are folded."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("chat.completion")

    def delta(self, choice: Object, said: Object) -> int:
        """Take the delta, or a message that came dressed as one."""
        delta, message = said.pop("delta", None), said.pop("message", None)
        size = keep(choice, said) if said else 0
        known = choice.get("message")
        if not isinstance(delta, dict):
            delta = message if known is None else None
        if known is None:
            known = choice["message"] = {"role": "assistant", "content": None}
        return size + (_fold_message(known, delta) if isinstance(delta, dict) else 0)

    def chosen(self, place: int, choice: Object) -> Object:
        """Return the choice with its message, and the fields in their usual order."""
        rest = dict(choice)
        message = rest.pop("message", {"role": "assistant", "content": None})
        finish = rest.pop("finish_reason", None)
        return {"index": place, "message": _whole(message), **joined(rest), "finish_reason": finish}


def _fold_message(message: Object, delta: Object) -> int:
    content = delta.get("content")
    size = 0 if content is None else _content(message, content)
    if len(delta) == 1 and content is not None:  # what nearly every delta is
        return size
    size += fold(message, {name: value for name, value in delta.items() if name not in _OWN})
    for piece in dicts_of(delta.get("tool_calls")):
        call = _call(message, piece)
        size += (PIECE if call else ITEM) + fold(call, _plain(piece))
    if isinstance(delta.get("function_call"), dict):  # before tools there were functions
        size += fold(message.setdefault("function_call", {}), _written(delta["function_call"]))
    for detail in dicts_of(delta.get("reasoning_details")):
        size += _detail(message, detail)
    return size


def _content(message: Object, content: Any) -> int:
    """Go on with text; Mistral sends parts, thinking among them."""
    known = message["content"]
    if isinstance(content, str):
        if isinstance(known, Said) or not isinstance(known, list):
            return say(message, "content", content)
        content = [{"type": "text", "text": content}] if content else []
    if isinstance(known, Said) or known is None:
        text = "".join(known or ())
        first: list[Object] = [{"type": "text", "text": Said((text,))}] if text else []
        known = message["content"] = Grown(first)
    return sum(_part(known, part) for part in dicts_of(content))


def _part(parts: list[Object], part: Object) -> int:
    size = 0
    if not parts or parts[-1].get("type") != part.get("type"):
        parts.append({})
        size = ITEM
    thinking = dicts_of(part.get("thinking"))
    size += fold(parts[-1], {name: one for name, one in part.items() if name != "thinking"})
    for piece in thinking:
        size += _part(parts[-1].setdefault("thinking", Grown()), piece)
    return size


def _call(message: Object, piece: Object) -> Object:
    """Find the call that a piece belongs to."""
    places, calls = message.setdefault(_CALLS, (CallPlaces(), []))
    index = piece.get("index")
    place = places.find(index, piece.get("id"), named=_is_named(piece))
    if place == len(calls):
        calls.append((index if isinstance(index, int) else place, {}))
    found: Object = calls[place][1]
    return found


def _is_named(piece: Object) -> bool:
    kinds = (piece.get("function"), piece.get("custom"))
    return any(isinstance(kind, dict) and bool(kind.get("name")) for kind in kinds)


def _plain(piece: Object) -> Object:
    plain = {name: value for name, value in piece.items() if name != "index"}
    if isinstance(plain.get("function"), dict):
        plain["function"] = _written(plain["function"])
    return plain


def _written(function: Object) -> Object:
    """Return a function whose arguments are text, as the model wrote them."""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return {**function, "arguments": as_json(arguments)}
    return function


def _detail(message: Object, detail: Object) -> int:
    """Fold a detail of reasoning; aggregators number the runs, or tell them apart by type."""
    details = message.setdefault("reasoning_details", Grown())
    last: dict[Any, Object] = message.setdefault(_DETAILS, {})  # of each number
    index, kind = detail.get("index"), detail.get("type")
    if not isinstance(index, int | str):
        index = None
    found = last.get(index) if index is not None else details[-1] if details else None
    size = PIECE
    if found is None or found.get("type") != kind:
        found, size = {}, ITEM
        details.append(found)
    if index is not None:
        last[index] = found
    return size + fold(found, detail)


def _whole(message: Object) -> Object:
    _, placed_calls = message.get(_CALLS, (None, ()))
    calls = [call for _, call in sorted(placed_calls, key=_index)]
    whole: Object = {name: joined(value) for name, value in message.items() if name not in _ASIDE}
    if calls:
        whole["tool_calls"] = [_done(joined(call)) for call in calls]
    if "function_call" in whole:
        _full(whole["function_call"])
    if whole["content"] == "" and (calls or "function_call" in whole):
        whole["content"] = None  # a call says nothing beside itself
    for name in _UNSAID:
        if whole.get(name) == "":
            del whole[name]
    if whole.get("refusal") == "":
        whole["refusal"] = None
    return whole


def _index(placed: tuple[int, Object]) -> int:
    return placed[0]


def _done(call: Object) -> Object:
    if isinstance(call.get("function"), dict):
        _full(call["function"])
        call.setdefault("type", "function")
    return call


def _full(function: Object) -> None:
    """Write the arguments of a call without parameters as an empty object."""
    if not function.get("arguments"):
        function["arguments"] = "{}"
