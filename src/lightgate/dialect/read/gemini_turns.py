"""Reads Gemini's contents into turns, and finds out which call a result answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.facts import Untranslatable, put
from lightgate.dialect.read.content import content_of, image_at, image_of
from lightgate.dialect.read.fields import BadField
from lightgate.dialect.request import Message, Text, Thought, ToolCall

if TYPE_CHECKING:
    from lightgate.dialect.read.fields import Fields
    from lightgate.dialect.request import Image, Part

DIALECT: Final = "gemini"
_STORED: Final = "generativelanguage.googleapis.com/"  # files that Google alone can open


class Turns:
    """Builds the conversation; a call without an id gets one from its number.

    A result without an id answers the first open call of its function.
    """

    def __init__(self) -> None:
        self._said: list[Message] = []
        self._ids: set[str] = set()
        self._open: dict[str, list[str]] = {}  # ids of calls without a result, by function

    def messages(self) -> tuple[Message, ...]:
        """Return the conversation."""
        return tuple(self._said)

    def add(self, message: Message) -> None:
        """Add a turn that is read already."""
        self._said.append(message)

    def content(self, content: Fields) -> None:
        """Read one entry of `contents`."""
        role = content.text("role") or "user"
        if role not in {"user", "model", "function"}:
            raise Untranslatable(content.at("role"), f"the role {role!r}")
        parts: list[Part] = []
        calls: list[ToolCall] = []
        results: list[Message] = []
        for part in content.objects("parts"):
            signature = part.text("thoughtSignature")
            if role == "model" and part.peek("functionCall") is not None:
                calls.append(self._call(part, signature))
            elif role != "model" and part.peek("functionResponse") is not None:
                results.append(self._result(part))
            else:
                parts.append(_part(part, signature, role))
            part.done()
        content.done()
        if role == "model":
            words = content_of(parts, joined=True)
            message = Message(
                role="assistant", content=words, tool_calls=tuple(calls), place=content.place
            )
            self._said.append(message)
            return
        self._said += results
        if parts or not results:
            self._said.append(Message(role="user", content=content_of(parts), place=content.place))

    def _call(self, part: Fields, signature: str | None) -> ToolCall:
        call = part.need_object("functionCall")
        name = call.need_text("name")
        given = call.text("id") or self._made_up()
        self._ids.add(given)
        self._open.setdefault(name, []).append(given)
        args = msgspec.json.encode(call.json("args") or {}).decode()
        call.done()
        part.ignore("thought")
        return ToolCall(id=given, name=name, arguments=args, signature=signature)

    def _made_up(self) -> str:
        number = len(self._ids)
        while f"call_{number}" in self._ids:
            number += 1
        return f"call_{number}"

    def _result(self, part: Fields) -> Message:
        result = part.need_object("functionResponse")
        name = result.need_text("name")
        waiting = self._open.get(name, [])
        given = result.text("id")
        if given is None:
            given = waiting[0] if waiting else None
        if given not in self._ids or given is None:
            raise BadField(result.place, "answers no call of this conversation")
        if given in waiting:
            waiting.remove(given)
        response = result.json("response") or {}
        failed = set(response) == {"error"}
        value: Any = response["error"] if failed else response
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        result.only("willContinue", False)
        result.only("scheduling", "SCHEDULING_UNSPECIFIED")
        result.done()
        return Message(
            role="tool",
            content=text,
            tool_call_id=given,
            name=name,
            is_error=failed,
            place=result.place,
        )


def _part(part: Fields, signature: str | None, role: str) -> Part:
    thought = part.flag("thought")
    if part.peek("inlineData") is not None:
        return _data(part)
    if part.peek("fileData") is not None:
        return _file(part)
    text = part.text("text")
    if text is None:
        part.done()  # names what it is, if it is anything
        if signature is None:
            raise BadField(part.place, "is empty")
    if role != "model":
        return Text(text or "")
    if thought or not text:  # a seal may come alone, at the end of a stream
        raw: dict[str, Any] = {"text": text or ""}
        put(raw, thought=thought or None, thoughtSignature=signature)
        return Thought(dialect=DIALECT, raw=raw)
    return Text(text, signature)


def _data(part: Fields) -> Image:
    data = part.need_object("inlineData")
    found = image_of(data.need_text("mimeType"), data.need_text("data"), data.at("mimeType"))
    data.ignore("displayName")
    data.done()
    return found


def _file(part: Fields) -> Image:
    file = part.need_object("fileData")
    kind = file.need_text("mimeType")
    if not kind.startswith("image/"):
        raise Untranslatable(file.at("mimeType"), "only images can be translated")
    url = file.need_text("fileUri")
    if _STORED in url:
        raise Untranslatable(file.at("fileUri"), "a stored file is known to its provider alone")
    file.ignore("displayName")
    file.done()
    return msgspec.structs.replace(image_at(url, file.at("fileUri")), media_type=kind)
