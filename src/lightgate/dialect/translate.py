"""Translates a client's request, and a provider's answer, event by event or whole.

The reader of the provider's dialect reports an answer to an `ItemStream`, which puts it in order
for the writer of the client's dialect: four of each make sixteen pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.dialect.errors import BadField, Fault, Untranslatable
from lightgate.dialect.neutral.fields import Fields, Sheet
from lightgate.dialect.neutral.item_stream import ItemStream
from lightgate.dialect.neutral.items import AnswerHead, KeptItems
from lightgate.dialect.neutral.json_text import dumped
from lightgate.dialect.neutral.names import with_plain_names
from lightgate.dialect.neutral.numbers import any_json
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.neutral.terms import terms
from lightgate.dialect.registry import DIALECTS, TRANSLATED
from lightgate.dialect.request import Request
from lightgate.errors import Malformed, StreamError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.dialect.neutral.dialect import WholeFacts
    from lightgate.dialect.neutral.events import Reader
    from lightgate.dialect.neutral.items import Writer
    from lightgate.dialect.request import CallForm, Untold

__all__ = [
    "BadField",
    "Translator",
    "Untranslatable",
    "error_body",
    "error_event",
    "read_request",
    "translator",
]


def read_request(
    dialect: str,
    body: bytes,
    *,
    model: str | None = None,
    stream: bool | None = None,
    untranslatable: Untold = "refuse",
) -> Request:
    """Read a client's body into the neutral request.

    What the neutral request cannot carry, an unknown field included, is dropped and named in
    `dropped`, or refused with its JSON path, as `untranslatable` says: every field is in
    docs/reference/translation.md. `model` and `stream` win over the body (Gemini has them in the
    path).
    """
    found = DIALECTS.get(dialect)
    if found is None or found.read is None:
        raise UsageError(f"A request in the dialect {dialect!r} cannot be translated.")
    sheet, out = Sheet(), Omissions(refuses=untranslatable == "refuse")
    try:
        fields = Fields(_decoded(body), "", camel=found.camel, out=out)
        named = fields.text("model")
        sheet.put("stream", fields.flag("stream") or False, "stream")
        found.read(fields, sheet)
    except RecursionError:
        raise UsageError("The request body is nested too deeply.") from None
    fields.done()
    if stream is not None:
        sheet.facts["stream"] = stream
    name = model or named
    if not name:
        raise BadField("model", "is needed")
    request = Request(
        model=name,
        client=dialect,
        places=sheet.places,
        untranslatable=untranslatable,
        dropped=out.paths,
        **sheet.facts,
    )
    return with_plain_names(request)


def _decoded(body: bytes) -> Any:
    try:
        return any_json.decode(body)
    except ValueError as reason:
        raise UsageError(f"The request body is not JSON: {reason}.") from None


class Translator:
    """Translates one answer; use `event` and `finish`, or `whole`, not both."""

    __slots__ = ("_head", "_items", "_reader", "_writer")

    def __init__(self, reader: Reader, writer: Writer, head: AnswerHead) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head
        self._items = ItemStream(reader.finishes, writer, head)

    def know(self, forms: Mapping[str, CallForm]) -> None:
        """Take the tools, by the provider's names, whose calls the client knows otherwise."""
        self._head = msgspec.structs.replace(self._head, forms=forms)
        self._items.forms = forms

    @property
    def failed(self) -> Fault | None:
        """The error that was written to the client, where the answer ended in one."""
        return self._items.error

    @property
    def closed(self) -> bool:
        """Whether everything is written that the client will get."""
        return self._items.closed

    def hear(self, asked: Mapping[str, msgspec.Raw]) -> None:
        """Take the fields of the client's request; a conversation's answer hangs on none."""

    def event(self, name: bytes, data: bytes) -> bytes:
        """Take one event of the provider; return the whole events that it means to the client."""
        if self._items.closed:
            return b""
        self._reader.event(self._items, name, data)
        return self._taken()

    def finish(self) -> bytes:
        """Note that the stream ended well; return the closing events that are still to come."""
        self._items.end()
        return self._taken()

    def fail(self, fault: Fault) -> bytes:
        """End a begun stream with an error; like `error_event`, but in sequence."""
        self._items.fail(fault)
        return self._taken()

    def whole(self, body: bytes) -> bytes:
        """Translate an answer that was not streamed; AttemptError if it is none."""
        kept = KeptItems(self._writer.call_prefix, seals_text=self._writer.seals_text)
        items = ItemStream(self._reader.finishes, kept, self._head)
        self._reader.whole(items, body)
        fault = items.error
        if fault is not None:
            if fault.code == "malformed":
                raise Malformed(fault.message)
            raise StreamError(fault.message, code=fault.status, word=fault.code, words=fault.words)
        return self._writer.whole(kept.items, items.ending())

    def _taken(self) -> bytes:
        out = self._writer.out
        if not out:
            return b""
        taken = b"".join(out)
        out.clear()
        return taken


class WholeTranslator(Translator):
    """Translates one answer of an endpoint that never streams, by the facts in it."""

    __slots__ = ("_facts_head", "_read", "_write")

    def __init__(self, source: WholeFacts, target: WholeFacts, head: AnswerHead) -> None:
        self._read = source.read
        self._write = target.write
        self._facts_head = head

    @property
    def failed(self) -> Fault | None:
        """The error that was written to the client: a whole answer has none."""
        return None

    @property
    def closed(self) -> bool:
        """Whether everything is written: a whole answer is, once it is there."""
        return True

    def hear(self, asked: Mapping[str, msgspec.Raw]) -> None:
        """Take the fields of the client's request, on which the form of its answer may hang."""
        self._facts_head = msgspec.structs.replace(self._facts_head, asked=asked)

    def whole(self, body: bytes) -> bytes:
        """Translate the answer; AttemptError if it is none."""
        return self._write(self._read(body), self._facts_head)


def translator(
    source: str,
    target: str,
    *,
    model: str,
    id: str,  # noqa: A002 - the seam's name
    created: int,
    include_usage: bool = False,
) -> Translator:
    """Make the translator of one answer from the provider's dialect to the client's.

    `model` is what the client asked for, `created` in seconds since 1970. `include_usage`: the
    client asked for chat's usage chunk.
    """
    read, write = facts_of(source), facts_of(target)
    if read is not None and write is not None:
        return WholeTranslator(read, write, AnswerHead(model, id, created, include_usage))
    if source not in TRANSLATED:
        raise UsageError(f"There is no translation from {source!r}.")
    writer = DIALECTS[target].writer if target in DIALECTS else None
    if writer is None:
        raise UsageError(f"There is no translation to {target!r}.")
    origin = source if source != target else ""
    head = AnswerHead(model, id, created, include_usage, origin=origin)
    return Translator(DIALECTS[source].reader, writer(head), head)


def facts_of(dialect: str) -> WholeFacts | None:
    """Return how the whole answers of a dialect are read and written by their facts."""
    found = DIALECTS.get(dialect)
    return None if found is None else found.facts


def error_body(dialect: str, fault: Fault, param: str | None = None) -> bytes:
    """Write an error answer in a dialect's shape; Gemini has no place for a code."""
    found = DIALECTS[dialect]
    return dumped(found.error_words(terms(found.family, fault, param)))


def error_event(dialect: str, fault: Fault) -> bytes:
    """Write the error that ends a stream whose status was already 200.

    No terminal marker follows: a client that overlooks the error must not see a good end.
    """
    found = DIALECTS[dialect]
    return found.error_event(terms(found.family, fault))
