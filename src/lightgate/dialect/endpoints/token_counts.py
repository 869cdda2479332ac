"""Counts of a request's tokens before it is sent: a request in, one number out, free of charge.

Anthropic has POST /messages/count_tokens, Gemini the verb countTokens and OpenAI
POST /responses/input_tokens. Each takes the body of a conversation, so it is read and built as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect import anthropic, gemini, openai_responses
from lightgate.dialect.errors import BadField, error_of, malformed
from lightgate.dialect.neutral.dialect import Dialect, WholeFacts
from lightgate.dialect.neutral.events import Reader, unstreamed
from lightgate.dialect.neutral.json_text import decoded, dumped
from lightgate.dialect.neutral.numbers import number
from lightgate.dialect.request import Built
from lightgate.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.dialect.neutral.events import Listener
    from lightgate.dialect.neutral.fields import Fields, Sheet
    from lightgate.dialect.neutral.items import AnswerHead
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Request

KIND: Final = "count"
# What each endpoint takes of a conversation; the rest is about the answer.
_ANTHROPIC: Final = frozenset(
    ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
)
_OPENAI: Final = frozenset(
    (
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls"),
        *("reasoning", "text", "truncation"),
    )
)
_WRAPPED: Final = "generateContentRequest"
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


def _kept(built: Built, path: str, fields: frozenset[str]) -> Built:
    """Keep what the endpoint takes of a body."""
    body = {name: value for name, value in _fields.decode(built.body).items() if name in fields}
    return Built(path=path, headers=built.headers, body=_encode(body), dropped=built.dropped)


def _build_anthropic(request: Request, quirks: Quirks) -> Built:
    chat = msgspec.structs.replace(request, stream=False, client=request.client or "any")
    return _kept(anthropic.DIALECT.builder(chat, quirks), "/messages/count_tokens", _ANTHROPIC)


def _build_openai(request: Request, quirks: Quirks) -> Built:
    # What the endpoint does not take is about the answer: it changes no count.
    bare = msgspec.structs.replace(
        request, stream=False, stop=(), seed=None, top_k=None, max_tokens=None,
        presence_penalty=None, frequency_penalty=None,
    )  # fmt: skip
    return _kept(openai_responses.DIALECT.builder(bare, quirks), "/responses/input_tokens", _OPENAI)


def _build_gemini(request: Request, quirks: Quirks) -> Built:
    built = gemini.DIALECT.builder(msgspec.structs.replace(request, stream=False), quirks)
    body = {_WRAPPED: msgspec.Raw(_encode(_addressed(_fields.decode(built.body), request.model)))}
    path = built.path.replace(":generateContent", ":countTokens")
    return Built(path=path, headers=built.headers, body=_encode(body), dropped=built.dropped)


def _addressed(fields: dict[str, msgspec.Raw], model: str) -> dict[str, msgspec.Raw]:
    name = model if model.startswith("models/") else f"models/{model}"
    return fields | {"model": msgspec.Raw(_encode(name))}


def _address_gemini(fields: dict[str, msgspec.Raw], model: str) -> dict[str, msgspec.Raw]:
    """Write the model into the request inside the body; it must not be another one's."""
    inner = fields.get(_WRAPPED)
    bare = {name: value for name, value in fields.items() if name != "model"}
    if inner is None or bytes(inner) == b"null":
        return bare
    try:
        said = _fields.decode(inner)
    except (ValueError, RecursionError):
        raise BadField(_WRAPPED, "must be an object") from None
    return {**bare, _WRAPPED: msgspec.Raw(_encode(_addressed(said, model)))}


def _read_gemini(body: Fields, sheet: Sheet) -> None:
    """Note what a countTokens body says: a whole request inside, or contents alone."""
    inner = body.object(_WRAPPED)
    if inner is None:
        gemini.DIALECT.read(body, sheet)  # type: ignore[misc] # it has one
        return
    inner.ignore("model")
    gemini.DIALECT.read(inner, sheet)  # type: ignore[misc] # same
    inner.done()


class _Count(msgspec.Struct, gc=False):
    input_tokens: Any = None
    totalTokens: Any = None  # noqa: N815 - Gemini's own spelling
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Count, float_hook=number)


def _number(answer: _Count | None) -> int | None:
    if answer is None:
        return None
    found = answer.input_tokens if answer.totalTokens is None else answer.totalTokens
    good = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    return found if good else None


def _whole(listener: Listener, body: bytes) -> None:
    answer = decoded(_decoder, body)
    if answer is not None and answer.error is not None:
        listener.fail(error_of(answer.error))
    elif _number(answer) is None:
        listener.fail(malformed(body))


def _read_count(body: bytes) -> int:
    found = _number(decoded(_decoder, body))
    if found is None:
        raise Malformed("The answer holds no count of tokens.")
    return found


def _facts(words: Callable[[int], dict[str, Any]]) -> WholeFacts:
    def write(count: int, head: AnswerHead) -> bytes:  # noqa: ARG001 - every writer is called alike
        return dumped(words(count))

    return WholeFacts(read=_read_count, write=write)


def _gemini_words(count: int) -> dict[str, Any]:
    details = [{"modality": "TEXT", "tokenCount": count}]
    return {"totalTokens": count, "promptTokensDetails": details}


DIALECTS: Final = (
    Dialect(
        name="openai-input-tokens",
        family="openai",
        kind=KIND,
        path="/responses/input_tokens",
        tokens=False,
        free=True,
        builder=_build_openai,
        reader=Reader(event=unstreamed(_decoder), whole=_whole),
        read=openai_responses.DIALECT.read,
        facts=_facts(lambda count: {"object": "response.input_tokens", "input_tokens": count}),
        error_words=openai_responses.DIALECT.error_words,
        error_event=openai_responses.DIALECT.error_event,
        shape=openai_responses.DIALECT.shape,
    ),
    Dialect(
        name="anthropic-count-tokens",
        family="anthropic",
        kind=KIND,
        path="/messages/count_tokens",
        tokens=False,
        free=True,
        builder=_build_anthropic,
        reader=Reader(event=unstreamed(_decoder), whole=_whole),
        read=anthropic.DIALECT.read,
        facts=_facts(lambda count: {"input_tokens": count}),
        error_words=anthropic.DIALECT.error_words,
        error_event=anthropic.DIALECT.error_event,
        shape=anthropic.DIALECT.shape,
    ),
    Dialect(
        name="gemini-count-tokens",
        family="gemini",
        kind=KIND,
        verb="countTokens",
        tokens=False,
        free=True,
        builder=_build_gemini,
        reader=Reader(event=unstreamed(_decoder), whole=_whole),
        read=_read_gemini,
        camel=True,
        address=_address_gemini,
        facts=_facts(_gemini_words),
        error_words=gemini.DIALECT.error_words,
        error_event=gemini.DIALECT.error_event,
        shape=gemini.DIALECT.shape,
    ),
)
