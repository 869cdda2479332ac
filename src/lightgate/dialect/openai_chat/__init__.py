"""OpenAI chat completions, and every server that speaks them."""

from __future__ import annotations

from typing import Final

from lightgate.dialect.neutral.dialect import Dialect
from lightgate.dialect.openai_chat.answer import ChatWriter, error_event, error_words
from lightgate.dialect.openai_chat.assemble import ChatAssembler
from lightgate.dialect.openai_chat.build import CHAT, build
from lightgate.dialect.openai_chat.events import READER
from lightgate.dialect.openai_chat.read import SHAPE, read

DIALECT: Final = Dialect(
    name=CHAT,
    family="openai",
    kind="chat",
    path="/chat/completions",
    builder=build,
    reader=READER,
    read=read,
    writer=ChatWriter,
    assembler=ChatAssembler,
    whole_only=("audio",),
    error_words=error_words,
    error_event=error_event,
    shape=SHAPE,
)
