"""Reads a client's request, in its own dialect, into the neutral `Request`.

What the neutral request cannot carry is refused with its JSON path, an unknown field included. A
few fields have no effect on the answer and are left out: docs/reference/translation.md lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.facts import Untranslatable
from lightgate.dialect.read import anthropic_messages, gemini, openai_chat, openai_responses
from lightgate.dialect.read.fields import BadField, Fields, Sheet
from lightgate.dialect.request import Request
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["READERS", "BadField", "Untranslatable", "read_request"]

READERS: Final[dict[str, Callable[[Fields, Sheet], None]]] = {
    "openai-chat": openai_chat.read,
    "openai-responses": openai_responses.read,
    "anthropic-messages": anthropic_messages.read,
    "gemini": gemini.read,
}


def read_request(
    dialect: str, body: bytes, *, model: str | None = None, stream: bool | None = None
) -> Request:
    """Read a client's body; `model` and `stream` win over it (Gemini has them in the path)."""
    reader = READERS.get(dialect)
    if reader is None:
        raise UsageError(f"A request in the dialect {dialect!r} cannot be translated.")
    try:
        return _read(reader, dialect, body, model=model, stream=stream)
    except RecursionError:
        raise UsageError("The request body is nested too deeply.") from None


def _read(
    reader: Callable[[Fields, Sheet], None],
    dialect: str,
    body: bytes,
    *,
    model: str | None,
    stream: bool | None,
) -> Request:
    try:
        value: Any = msgspec.json.decode(body)
    except ValueError as reason:
        raise UsageError(f"The request body is not JSON: {reason}.") from None
    fields = Fields(value, "", camel=dialect == "gemini")
    sheet = Sheet()
    named = fields.text("model")
    sheet.put("stream", fields.flag("stream") or False, "stream")
    reader(fields, sheet)
    fields.done()
    if stream is not None:
        sheet.facts["stream"] = stream
    if not (model or named):
        raise BadField("model", "is needed")
    return Request(model=model or named or "", client=dialect, places=sheet.places, **sheet.facts)
