"""OpenAI completions: a prompt in, its continuation out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.facts import built, need, put, refuse
from lightgate.dialect.fault import Fault, error_of, malformed
from lightgate.dialect.kinds import TEXT
from lightgate.dialect.openai_chat import marker, stray
from lightgate.dialect.openai_fields import chat_usage, sampling, streaming
from lightgate.dialect.scanner import Grammar, Scanner, decoded

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request

NAME: Final = "openai completions"


def build(request: Request, quirks: Quirks) -> Built:
    """Say a request as POST /completions."""
    refuse(request, NAME, "messages", "inputs", "tools", "tool_choice", "schema", "reasoning")
    body: dict[str, Any] = {"model": request.model, "prompt": need(request, NAME, "prompt")}
    streaming(body, request, quirks)
    put(body, max_tokens=request.max_tokens)
    sampling(body, request, quirks, NAME)
    return built("/completions", body, request.extra, stream=request.stream)


class _Choice(msgspec.Struct, gc=False):
    text: Any = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Chunk)


def _event(scanner: Scanner, name: bytes, data: bytes) -> None:
    chunk = decoded(_decoder, data)
    if chunk is None:
        marker(scanner, data)
        return
    _chunk(scanner, chunk)
    if scanner.error is None and (name == b"error" or chunk.choices is msgspec.UNSET):
        stray(scanner, name, data)


def _whole(scanner: Scanner, body: bytes) -> None:
    chunk = decoded(_decoder, body)
    if chunk is None or (not chunk.choices and chunk.error is None):
        scanner.saw_error(malformed(body))
    else:
        _chunk(scanner, chunk)


def _chunk(scanner: Scanner, chunk: _Chunk) -> None:
    if chunk.error is not None:
        scanner.saw_error(error_of(chunk.error))
    if chunk.choices is None and chunk.error is None and chunk.usage is None:
        scanner.saw_error(Fault("malformed", "The provider sent null in place of choices."))
    for choice in chunk.choices or ():
        if choice.text and isinstance(choice.text, str):
            scanner.saw_token(TEXT, choice.text)
        scanner.saw_finish(choice.finish_reason)
    if chunk.usage is not None:
        scanner.saw_usage(chat_usage(chunk.usage))


GRAMMAR: Final = Grammar(event=_event, whole=_whole)
