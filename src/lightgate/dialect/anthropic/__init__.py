"""Anthropic messages: blocks in, typed events of blocks out."""

from __future__ import annotations

from typing import Final

from lightgate.dialect.anthropic.answer import (
    MessagesAssembler,
    MessagesWriter,
    error_event,
    error_words,
)
from lightgate.dialect.anthropic.build import MESSAGES, build
from lightgate.dialect.anthropic.events import READER
from lightgate.dialect.anthropic.read import SHAPE, read
from lightgate.dialect.neutral.dialect import Dialect

DIALECT: Final = Dialect(
    name=MESSAGES,
    family="anthropic",
    kind="chat",
    path="/messages",
    builder=build,
    reader=READER,
    read=read,
    writer=MessagesWriter,
    assembler=MessagesAssembler,
    error_words=error_words,
    error_event=error_event,
    shape=SHAPE,
)
