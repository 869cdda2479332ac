"""OpenAI embeddings: texts in, vectors out; nothing is streamed and no token is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.endpoints.vectors import (
    Vectors,
    as_base64,
    as_floats,
    read_texts,
    tokens_of,
)
from lightgate.dialect.errors import error_of, malformed
from lightgate.dialect.neutral.build import built, need, put, refuse
from lightgate.dialect.neutral.dialect import Dialect, WholeFacts
from lightgate.dialect.neutral.events import Reader, unstreamed
from lightgate.dialect.neutral.json_text import decoded, dumped
from lightgate.dialect.neutral.numbers import number
from lightgate.dialect.openai_chat.answer import error_event, error_words
from lightgate.dialect.openai_chat.events import ChatUsage, usage_of
from lightgate.errors import Malformed

if TYPE_CHECKING:
    from lightgate.dialect.neutral.events import Listener
    from lightgate.dialect.neutral.items import AnswerHead
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request

NAME: Final = "openai embeddings"
_UNKNOWN: Final = (
    *("messages", "prompt", "max_tokens", "min_tokens", "ignore_eos", "temperature"),
    *("top_p", "stop", "seed", "tools", "tool_choice", "schema", "reasoning"),
    *("json_object", "top_k", "presence_penalty", "frequency_penalty", "logprobs"),
    *("top_logprobs", "verbosity"),
)


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Build POST /embeddings; `stream` has no effect, since a vector comes in one piece."""
    refuse(request, NAME, *_UNKNOWN)
    body: dict[str, Any] = {"model": request.model, "input": list(need(request, NAME, "inputs"))}
    put(body, dimensions=request.dimensions)
    if request.client:  # and not our own: the vectors are written anew for it
        body["encoding_format"] = "float"
    return built("/embeddings", body, request.extra, stream=False)


class _Vector(msgspec.Struct, gc=False):
    embedding: msgspec.Raw = msgspec.Raw()  # thousands of floats that are not read


class _Answer(msgspec.Struct, gc=False):
    data: list[_Vector] | None = None
    usage: ChatUsage | None = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Answer, float_hook=number)


def _whole(listener: Listener, body: bytes) -> None:
    answer = decoded(_decoder, body)
    if answer is not None and answer.error is not None:
        listener.fail(error_of(answer.error))
    elif answer is None or not answer.data or not all(bytes(v.embedding) for v in answer.data):
        listener.fail(malformed(body))
    else:
        listener.use(usage_of(answer.usage))


def _read_vectors(body: bytes) -> Vectors:
    answer = decoded(_decoder, body)
    found = [] if answer is None or answer.data is None else answer.data
    if answer is None or not found or not all(bytes(one.embedding) for one in found):
        raise Malformed("The answer holds no vectors.")
    usage = usage_of(answer.usage)
    tokens = None if usage is None else usage.tokens_in
    return Vectors(tuple([as_floats(one.embedding) for one in found]), tokens)


def _write_vectors(vectors: Vectors, head: AnswerHead) -> bytes:
    packed = bytes(head.asked.get("encoding_format", b"")) == b'"base64"'
    data = [
        {"object": "embedding", "index": place, "embedding": as_base64(raw) if packed else raw}
        for place, raw in enumerate(vectors.values)
    ]
    tokens = tokens_of(vectors, head.asked, "input")
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return dumped({"object": "list", "data": data, "model": head.model, "usage": usage})


DIALECT: Final = Dialect(
    name="openai-embeddings",
    family="openai",
    kind="embedding",
    path="/embeddings",
    tokens=False,
    builder=build,
    reader=Reader(event=unstreamed(_decoder), whole=_whole),
    read=read_texts,
    facts=WholeFacts(read=_read_vectors, write=_write_vectors),
    error_words=error_words,
    error_event=error_event,
)
