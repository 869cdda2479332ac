"""Gathers a stream of OpenAI chat completions."""

from __future__ import annotations

from typing import Any, Final

from lightgate.dialect.gather.chunks import ChunkGatherer
from lightgate.dialect.gather.folding import PIECE, Object, Said, fold, keep, objects, say, told
from lightgate.dialect.scanner import as_json

_CALLS: Final = " calls"  # where a message keeps its calls until it is whole: no provider's name
_OWN: Final = frozenset({"content", "tool_calls", "function_call", "reasoning_details"})
_UNSAID: Final = ("reasoning_content", "reasoning")  # left out of a message that has none


class ChatGatherer(ChunkGatherer):
    """A choice is a message, whose deltas are folded."""

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
        """The choice with its message, and the fields in their usual order."""
        rest = dict(choice)
        message = rest.pop("message", {"role": "assistant", "content": None})
        finish = rest.pop("finish_reason", None)
        return {"index": place, "message": _whole(message), **told(rest), "finish_reason": finish}


def _fold_message(message: Object, delta: Object) -> int:
    content = delta.get("content")
    size = 0 if content is None else _content(message, content)
    if len(delta) == 1 and content is not None:  # what nearly every delta is
        return size
    size += fold(message, {name: value for name, value in delta.items() if name not in _OWN})
    for piece in objects(delta.get("tool_calls")):
        size += PIECE + fold(_call(message, piece), _plain(piece))
    if isinstance(delta.get("function_call"), dict):  # before tools there were functions
        size += fold(message.setdefault("function_call", {}), _written(delta["function_call"]))
    for detail in objects(delta.get("reasoning_details")):
        size += PIECE + _detail(message.setdefault("reasoning_details", []), detail)
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
        known = message["content"] = [{"type": "text", "text": Said((text,))}] if text else []
    return sum(_part(known, part) for part in objects(content))


def _part(parts: list[Object], part: Object) -> int:
    if not parts or parts[-1].get("type") != part.get("type"):
        parts.append({})
    thinking = objects(part.get("thinking"))
    size = fold(parts[-1], {name: one for name, one in part.items() if name != "thinking"})
    for piece in thinking:
        size += _part(parts[-1].setdefault("thinking", []), piece)
    return size


def _call(message: Object, piece: Object) -> Object:
    """The call that a piece belongs to.

    An index is the rule. Some leave it out, and some give all calls the same one: then an id that
    is not the call's own begins another.
    """
    calls: list[tuple[Any, Object]] = message.setdefault(_CALLS, [])
    index, own = piece.get("index"), piece.get("id")
    placed = isinstance(index, int)
    mine = [call for place, call in calls if place == index] if placed else []
    if not placed:
        same = [call for _, call in calls if own and call.get("id") == own]
        mine = same or [call for _, call in calls]
    named = _is_named(piece)
    found = mine[-1] if mine else None
    if found is not None and named and (own != found.get("id") if own else not placed):
        found = None
    if found is None:
        found = {}
        calls.append((index if placed else len(calls), found))
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
    """A function whose arguments are text, as the model wrote them."""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return {**function, "arguments": as_json(arguments)}
    return function


def _detail(details: list[Object], detail: Object) -> int:
    """Aggregators number the runs of their reasoning, or tell them apart by type alone."""
    index, kind = detail.get("index"), detail.get("type")
    found = next(
        (one for one in reversed(details) if index is not None and one.get("index") == index),
        details[-1] if index is None and details else None,
    )
    if found is None or found.get("type") != kind:
        found = {}
        details.append(found)
    return fold(found, detail)


def _whole(message: Object) -> Object:
    calls = [call for _, call in sorted(message.get(_CALLS, ()), key=_index)]
    whole: Object = {name: told(value) for name, value in message.items() if name != _CALLS}
    if calls:
        whole["tool_calls"] = [_done(told(call)) for call in calls]
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
    """A call without parameters is an empty object, not an empty text."""
    if not function.get("arguments"):
        function["arguments"] = "{}"
