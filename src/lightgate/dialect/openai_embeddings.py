"""OpenAI embeddings: texts in, vectors out; nothing is streamed and no token is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.facts import built, need, refuse
from lightgate.dialect.fault import error_of, malformed
from lightgate.dialect.openai_chunks import marker, stray
from lightgate.dialect.openai_fields import chat_usage
from lightgate.dialect.scanner import Grammar, Scanner, decoded

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request

NAME: Final = "openai embeddings"
_UNKNOWN: Final = (
    "messages",
    "prompt",
    "max_tokens",
    "min_tokens",
    "ignore_eos",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "tools",
    "tool_choice",
    "schema",
    "reasoning",
    "json_object",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "verbosity",
)


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Say a request as POST /embeddings.

    `stream` says nothing here: it is true unless told otherwise, and a vector comes in one piece.
    """
    refuse(request, NAME, *_UNKNOWN)
    body: dict[str, Any] = {"model": request.model, "input": list(need(request, NAME, "inputs"))}
    return built("/embeddings", body, request.extra, stream=False)


class _Vector(msgspec.Struct, gc=False):
    embedding: msgspec.Raw = msgspec.Raw()  # thousands of floats that nobody here reads


class _Answer(msgspec.Struct, gc=False):
    data: list[_Vector] | None = None
    usage: Any = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Answer)


def _event(scanner: Scanner, name: bytes, data: bytes) -> None:
    """Take an event of a stream that should not be one."""
    if decoded(_decoder, data) is None:
        marker(scanner, data)
    else:
        stray(scanner, name, data)


def _whole(scanner: Scanner, body: bytes) -> None:
    answer = decoded(_decoder, body)
    if answer is not None and answer.error is not None:
        scanner.saw_error(error_of(answer.error))
    elif answer is None or not answer.data or not all(bytes(v.embedding) for v in answer.data):
        scanner.saw_error(malformed(body))
    else:
        scanner.saw_usage(chat_usage(answer.usage))


GRAMMAR: Final = Grammar(event=_event, whole=_whole)
