"""Gemini generateContent and streamGenerateContent: contents of parts in, candidates out."""

from __future__ import annotations

from typing import Final

from lightgate.dialect.gemini.answer import GeminiAssembler, GeminiWriter, error_event, error_words
from lightgate.dialect.gemini.build import GEMINI, build
from lightgate.dialect.gemini.events import READER
from lightgate.dialect.gemini.read import SHAPE, read
from lightgate.dialect.neutral.dialect import Dialect

DIALECT: Final = Dialect(
    name=GEMINI,
    family="gemini",
    kind="chat",
    verb="generateContent",
    builder=build,
    reader=READER,
    read=read,
    camel=True,
    writer=GeminiWriter,
    assembler=GeminiAssembler,
    error_words=error_words,
    error_event=error_event,
    shape=SHAPE,
)
