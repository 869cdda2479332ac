"""Gemini embeddings: embedContent has one text, batchEmbedContents a list of such requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect import gemini
from lightgate.dialect.endpoints.vectors import Vectors
from lightgate.dialect.errors import BadField, Untranslatable, error_of, malformed
from lightgate.dialect.neutral.build import built, need, put
from lightgate.dialect.neutral.dialect import Dialect, WholeFacts
from lightgate.dialect.neutral.events import Reader, unstreamed
from lightgate.dialect.neutral.json_text import Count, decoded, dumped
from lightgate.dialect.neutral.numbers import number
from lightgate.errors import Malformed

if TYPE_CHECKING:
    from lightgate.dialect.neutral.events import Listener
    from lightgate.dialect.neutral.fields import Fields, Sheet
    from lightgate.dialect.neutral.items import AnswerHead
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request

NAME: Final = "gemini embeddings"
_requests: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encode: Final = msgspec.json.Encoder().encode


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Build POST /models/{model}:batchEmbedContents, for one text as for many."""
    bare = request.model.removeprefix("models/")
    requests = []
    for text in need(request, NAME, "inputs"):
        one: dict[str, Any] = {"model": f"models/{bare}", "content": {"parts": [{"text": text}]}}
        put(one, outputDimensionality=request.dimensions)
        requests.append(one)
    path = f"/models/{quote(bare, safe='')}:batchEmbedContents"
    return built(path, {"requests": requests}, request.extra, stream=False)


def _address_one(fields: dict[str, msgspec.Raw], model: str) -> dict[str, msgspec.Raw]:
    return fields | {"model": msgspec.Raw(_encode(f"models/{model.removeprefix('models/')}"))}


def _address_all(fields: dict[str, msgspec.Raw], model: str) -> dict[str, msgspec.Raw]:
    """Write the model into every request of a batch; none may be for another one."""
    try:
        requests = _requests.decode(fields.get("requests", msgspec.Raw(b"null")))
    except (ValueError, RecursionError):
        raise BadField("requests", "must be a list of objects") from None
    told = [_address_one(one, model) for one in requests]
    return fields | {"requests": msgspec.Raw(_encode(told))}


def _read_one(body: Fields, sheet: Sheet) -> None:
    sheet.put("inputs", (_text(body),), "content")
    sheet.put("dimensions", body.whole("outputDimensionality"), "outputDimensionality")


def _read_all(body: Fields, sheet: Sheet) -> None:
    texts, sizes, place = [], set(), "requests"
    for one in body.objects("requests"):
        one.take("model")
        texts.append(_text(one))
        place = one.at("outputDimensionality")
        sizes.add(one.whole("outputDimensionality"))
        one.done()
    if not texts:
        raise BadField("requests", "is needed")
    if len(sizes) > 1:
        raise Untranslatable(place, "all vectors of a request have one size elsewhere")
    sheet.put("inputs", tuple(texts), "requests")
    sheet.put("dimensions", sizes.pop(), place)


def _text(body: Fields) -> str:
    content = body.need_object("content")
    content.take("role")
    texts = []
    for part in content.objects("parts"):
        texts.append(part.need_text("text"))
        part.done()
    content.done()
    return "".join(texts)


class _Embedding(msgspec.Struct, gc=False):
    values: msgspec.Raw = msgspec.Raw()


class _UsageMetadata(msgspec.Struct, gc=False):
    promptTokenCount: Count = None  # noqa: N815 - Gemini's own spelling


class _Embedded(msgspec.Struct, gc=False):
    embedding: _Embedding | None = None
    embeddings: list[_Embedding] | None = None
    usageMetadata: _UsageMetadata | None = None  # noqa: N815 - same
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Embedded, float_hook=number)


def _vectors(answer: _Embedded | None) -> Vectors | None:
    if answer is None:
        return None
    found = answer.embeddings or ([answer.embedding] if answer.embedding is not None else [])
    if not found or not all(bytes(one.values) for one in found):
        return None
    usage = answer.usageMetadata
    tokens = None if usage is None else usage.promptTokenCount
    return Vectors(tuple([one.values for one in found]), tokens)


def _whole(listener: Listener, body: bytes) -> None:
    answer = decoded(_decoder, body)
    vectors = _vectors(answer)
    if answer is not None and answer.error is not None:
        listener.fail(error_of(answer.error))
    elif vectors is None:
        listener.fail(malformed(body))
    elif vectors.tokens is not None:
        listener.use(Usage(tokens_in=vectors.tokens, tokens_out=0))


def _read_vectors(body: bytes) -> Vectors:
    found = _vectors(decoded(_decoder, body))
    if found is None:
        raise Malformed("The answer holds no vectors.")
    return found


def _write_one(vectors: Vectors, head: AnswerHead) -> bytes:  # noqa: ARG001 - every writer is called alike
    return dumped({"embedding": {"values": vectors.values[0]}, **_usage(vectors)})


def _write_all(vectors: Vectors, head: AnswerHead) -> bytes:  # noqa: ARG001 - same
    found = [{"values": value} for value in vectors.values]
    return dumped({"embeddings": found, **_usage(vectors)})


def _usage(vectors: Vectors) -> dict[str, Any]:
    if vectors.tokens is None:
        return {}
    return {"usageMetadata": {"promptTokenCount": vectors.tokens}}


DIALECTS: Final = (
    Dialect(
        name="gemini-embed",
        family="gemini",
        kind="embedding",
        verb="embedContent",
        tokens=False,
        builder=build,
        reader=Reader(event=unstreamed(_decoder), whole=_whole),
        read=_read_one,
        camel=True,
        address=_address_one,
        facts=WholeFacts(read=_read_vectors, write=_write_one),
        error_words=gemini.DIALECT.error_words,
        error_event=gemini.DIALECT.error_event,
    ),
    # The last of a kind is the one that other dialects' requests are built for.
    Dialect(
        name="gemini-embed-batch",
        family="gemini",
        kind="embedding",
        verb="batchEmbedContents",
        tokens=False,
        builder=build,
        reader=Reader(event=unstreamed(_decoder), whole=_whole),
        read=_read_all,
        camel=True,
        address=_address_all,
        facts=WholeFacts(read=_read_vectors, write=_write_all),
        error_words=gemini.DIALECT.error_words,
        error_event=gemini.DIALECT.error_event,
    ),
)
