"""Shorter prompts that say the same: doubled system text and trailing whitespace are left out.

Off unless the configuration asks for it. Only system and user text is touched. The model's own
answers, calls and results of tools, tools, schemas and every unknown field keep every byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.prompt.prose import without_trailing

if TYPE_CHECKING:
    from collections.abc import Callable

Fields = dict[str, msgspec.Raw]
MOST_BYTES: Final = 1_048_576  # of messages; more is sent as it is

_fields: Final = msgspec.json.Decoder(Fields)
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_text: Final = msgspec.json.Decoder(str)
_encode: Final = msgspec.json.Encoder().encode
_SYSTEM: Final = frozenset(("system", "developer"))
_PLAIN: Final = frozenset(("type", "text", "cache_control"))  # of a part that is text and no more
_KINDS: Final = frozenset((b'"text"', b'"input_text"', b""))


class Trimmed(msgspec.Struct, frozen=True):
    """The fields of a request after trimming; the same object if nothing was left out.

    `saved` counts bytes of JSON. `doubled` and `shortened` count texts.
    """

    fields: Mapping[str, msgspec.Raw]
    saved: int = 0
    doubled: int = 0
    shortened: int = 0


def trim(dialect: str, fields: Mapping[str, msgspec.Raw]) -> Trimmed:
    """Trim a request; whatever cannot be read is sent as it is."""
    places = _PLACES.get(dialect)
    if places is None or sum(len(bytes(fields[name])) for name in places if name in fields) > (
        MOST_BYTES
    ):
        return Trimmed(fields)
    work, new = _Trimmer(), dict(fields)
    for name, part in places.items():
        if name in fields:
            try:
                new[name] = part(work, fields[name])
            except (ValueError, RecursionError):
                return Trimmed(fields)
    saved = sum(len(bytes(fields[name])) - len(bytes(new[name])) for name in places if name in new)
    if not work.doubled and not work.shortened:
        return Trimmed(fields)
    return Trimmed(new, saved, work.doubled, work.shortened)


class _Trimmer:
    """The trimming of one request; doubled text is dropped only before the first turn."""

    __slots__ = ("_system", "doubled", "shortened")

    def __init__(self) -> None:
        self._system: set[str] = set()
        self.doubled = 0
        self.shortened = 0

    def system(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Trim a system field: a text, or a list of parts."""
        return self._content(raw, standing=True) or raw

    def instruction(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Gemini's: an object with parts."""
        if bytes(raw).startswith(b'"'):
            return raw
        return self._with(raw, "parts", standing=True)

    def turns(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Trim messages, items or contents."""
        if not bytes(raw).startswith(b"["):
            return self._content(raw, standing=False) or raw
        kept: list[msgspec.Raw] = []
        changed, leading = False, True
        for turn in _list.decode(raw):
            told = self._turn(turn, leading=leading)
            leading = leading and _role(turn) in _SYSTEM
            changed = changed or told is not turn
            if told is not None:
                kept.append(told)
        return msgspec.Raw(_encode(kept)) if changed else raw

    def _turn(self, raw: msgspec.Raw, *, leading: bool) -> msgspec.Raw | None:
        """Trim one turn; None: it repeats system text that came before it."""
        if not bytes(raw).startswith(b"{"):
            return raw
        fields = _fields.decode(raw)
        role = _word(fields.get("role"))
        kind = _word(fields.get("type"))
        if kind not in {"", "message"} or role not in {"", "user", *_SYSTEM}:
            return raw
        name = "parts" if "parts" in fields else "content"
        if name not in fields or (not role and name != "parts"):
            return raw
        standing = leading and role in _SYSTEM and fields.keys() <= {"role", "content", "type"}
        content = self._content(fields[name], standing=standing)
        if content is None:
            return None
        if content is fields[name]:
            return raw
        fields[name] = content
        return msgspec.Raw(_encode(fields))

    def _with(self, raw: msgspec.Raw, name: str, *, standing: bool) -> msgspec.Raw:
        fields = _fields.decode(raw)
        if name not in fields:
            return raw
        content = self._content(fields[name], standing=standing)
        if content is None or content is fields[name]:
            return raw
        fields[name] = content
        return msgspec.Raw(_encode(fields))

    def _content(self, raw: msgspec.Raw, *, standing: bool) -> msgspec.Raw | None:
        """Trim a text or a list of parts; None: all of it is a repetition."""
        if bytes(raw).startswith(b'"'):
            return self._text(raw, standing=standing)
        if not bytes(raw).startswith(b"["):
            return raw
        kept: list[msgspec.Raw] = []
        changed = False
        for part in _list.decode(raw):
            told = self._part(part, standing=standing)
            changed = changed or told is not part
            if told is not None:
                kept.append(told)
        if not changed:
            return raw
        return msgspec.Raw(_encode(kept)) if kept else None

    def _part(self, raw: msgspec.Raw, *, standing: bool) -> msgspec.Raw | None:
        if not bytes(raw).startswith(b"{"):
            return raw
        fields = _fields.decode(raw)
        kind = bytes(fields.get("type", msgspec.Raw(b"")))
        if "text" not in fields or kind not in _KINDS or not fields.keys() <= _PLAIN:
            return raw
        # A mark for the provider's cache has to stay where it is.
        said = self._text(fields["text"], standing=standing and "cache_control" not in fields)
        if said is None or said is fields["text"]:
            return None if said is None else raw
        fields["text"] = said
        return msgspec.Raw(_encode(fields))

    def _text(self, raw: msgspec.Raw, *, standing: bool) -> msgspec.Raw | None:
        if not bytes(raw).startswith(b'"'):
            return raw
        text = _text.decode(raw)
        shorter = without_trailing(text)
        if standing:
            if shorter in self._system and shorter.strip():
                self.doubled += 1
                return None
            self._system.add(shorter)
        if shorter == text:
            return raw
        self.shortened += 1
        return msgspec.Raw(_encode(shorter))


def _role(raw: msgspec.Raw) -> str:
    return _word(_fields.decode(raw).get("role")) if bytes(raw).startswith(b"{") else "?"


def _word(raw: msgspec.Raw | None) -> str:
    if raw is None or bytes(raw) == b"null":
        return ""
    return _text.decode(raw) if bytes(raw).startswith(b'"') else "?"


# The fields that are trimmed, by dialect, in the order in which a model reads them.
_PLACES: Final[dict[str, dict[str, Callable[[_Trimmer, msgspec.Raw], msgspec.Raw]]]] = {
    "openai-chat": {"messages": _Trimmer.turns},
    "openai-responses": {"instructions": _Trimmer.system, "input": _Trimmer.turns},
    "anthropic-messages": {"system": _Trimmer.system, "messages": _Trimmer.turns},
    "gemini": {
        "systemInstruction": _Trimmer.instruction,
        "system_instruction": _Trimmer.instruction,
        "contents": _Trimmer.turns,
    },
}
