"""A hint for short answers, added behind the system text. Off unless the configuration asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.neutral.numbers import any_json

if TYPE_CHECKING:
    from collections.abc import Mapping

CONCISE: Final = "Answer concisely: no preamble, no repetition of the question, no closing remarks."
_SYSTEM: Final = ("system", "developer")  # no set: a role may be anything, a list even
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_PLACES: Final = {
    "openai-responses": "instructions",
    "anthropic-messages": "system",
    "gemini": "systemInstruction",
}


def with_hint(
    dialect: str, fields: Mapping[str, msgspec.Raw], hint: str = CONCISE
) -> Mapping[str, msgspec.Raw]:
    """Put the hint behind the system text; return the same fields where that cannot be done."""
    name = "messages" if dialect == "openai-chat" else _PLACES.get(dialect, "")
    raw = fields.get(name)
    if not name or (raw is not None and hint.encode() in bytes(raw)):
        return fields
    try:
        new = _chat(raw, hint) if dialect == "openai-chat" else _standing(dialect, raw, hint)
    except (ValueError, RecursionError):
        return fields
    return fields if new is None else {**fields, name: msgspec.Raw(_encode(new))}


def _chat(raw: msgspec.Raw | None, hint: str) -> list[Any] | None:
    """Add a system message behind the first ones; no other byte changes."""
    if raw is None:
        return None
    messages = _list.decode(raw)
    place = 0
    for message in messages:
        said = any_json.decode(message)
        if not isinstance(said, dict) or said.get("role") not in _SYSTEM:
            break
        place += 1
    return [*messages[:place], {"role": "system", "content": hint}, *messages[place:]]


def _standing(dialect: str, raw: msgspec.Raw | None, hint: str) -> Any:
    said = None if raw is None else any_json.decode(raw)
    if dialect == "gemini":
        parts = said.get("parts") if isinstance(said, dict) else []
        if not isinstance(parts, list) or not isinstance(said, dict | None):
            return None
        return {**(said or {}), "parts": [*parts, {"text": hint}]}
    if isinstance(said, list) and dialect == "anthropic-messages":
        return [*said, {"type": "text", "text": hint}]
    if isinstance(said, str):
        return f"{said}\n\n{hint}" if said else hint
    return hint if said is None else None
