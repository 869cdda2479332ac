"""OpenAI completions: a prompt in, its continuation out; answers are read like chat's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.neutral.build import built, need, refuse
from lightgate.dialect.neutral.dialect import Dialect, Shape
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.openai_chat.answer import error_event, error_words
from lightgate.dialect.openai_chat.assemble import ChunkAssembler
from lightgate.dialect.openai_chat.build import sampling
from lightgate.dialect.openai_chat.events import READER

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Request

NAME: Final = "openai completions"
_CANNOT: Final = (
    *("messages", "inputs", "tools", "tool_choice", "schema", "reasoning", "json_object"),
    *("top_k", "logprobs", "top_logprobs", "verbosity"),
)


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /completions."""
    out = Omissions.of(request, NAME)
    refuse(request, NAME, *_CANNOT)
    body: dict[str, Any] = {"model": request.model, "prompt": need(request, NAME, "prompt")}
    sampling(body, request)
    quirks.adapt(body, out)
    return built("/completions", body, request.extra, stream=request.stream, out=out)


DIALECT: Final = Dialect(
    name="openai-completions",
    family="openai",
    kind="completion",
    path="/completions",
    builder=build,
    reader=READER,
    assembler=ChunkAssembler,
    whole_only=("best_of",),
    error_words=error_words,
    error_event=error_event,
    shape=Shape(turns="prompt"),
)
