"""OpenAI responses: typed items in, typed events out."""

from __future__ import annotations

from typing import Final

from lightgate.dialect.neutral.dialect import Dialect
from lightgate.dialect.openai_chat.answer import error_words
from lightgate.dialect.openai_responses.answer import (
    ResponsesAssembler,
    ResponsesWriter,
    error_event,
)
from lightgate.dialect.openai_responses.build import RESPONSES, build
from lightgate.dialect.openai_responses.events import READER
from lightgate.dialect.openai_responses.read import SHAPE, read

DIALECT: Final = Dialect(
    name=RESPONSES,
    family="openai",
    kind="responses",
    path="/responses",
    builder=build,
    reader=READER,
    read=read,
    writer=ResponsesWriter,
    assembler=ResponsesAssembler,
    whole_only=("background",),
    error_words=error_words,
    error_event=error_event,
    shape=SHAPE,
)
