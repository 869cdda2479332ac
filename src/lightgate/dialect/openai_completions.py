"""OpenAI completions: a prompt in, its continuation out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.facts import built, need, put, refuse
from lightgate.dialect.kinds import TEXT
from lightgate.dialect.openai_chunks import chunk_grammar
from lightgate.dialect.openai_fields import sampling, streaming

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request
    from lightgate.dialect.scanner import Scanner

NAME: Final = "openai completions"
_CANNOT: Final = (
    "messages",
    "inputs",
    "tools",
    "tool_choice",
    "schema",
    "reasoning",
    "json_object",
    "top_k",
    "logprobs",
    "top_logprobs",
    "verbosity",
)


def build(request: Request, quirks: Quirks) -> Built:
    """Say a request as POST /completions."""
    refuse(request, NAME, *_CANNOT)
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


def _choices(scanner: Scanner, chunk: _Chunk) -> None:
    for choice in chunk.choices or ():
        if choice.text and isinstance(choice.text, str):
            scanner.saw_token(TEXT, choice.text)
        scanner.saw_finish(choice.finish_reason)


GRAMMAR: Final = chunk_grammar(_decoder, _choices)
