"""The tables of the four translated dialects, side by side."""

from __future__ import annotations

from lightgate.dialect import anthropic, gemini, openai_chat, openai_responses
from lightgate.dialect.errors import word_of
from lightgate.dialect.registry import DIALECTS, TRANSLATED

ROOMS = dict(zip(TRANSLATED, (openai_chat, openai_responses, anthropic, gemini), strict=True))
READ = {name: DIALECTS[name].reader.finishes for name in TRANSLATED}
WRITE = {name: room.answer.FINISHES for name, room in ROOMS.items()}
USAGE = {name: room.answer.usage_words for name, room in ROOMS.items()}
_ERRORS = (openai_chat.answer.ERROR_WORDS, anthropic.answer.ERROR_WORDS, gemini.answer.ERROR_WORDS)
_STATUSES = sorted({status for words in _ERRORS for status in words})
WORDS = {status: tuple(word_of(words, status) for words in _ERRORS) for status in _STATUSES}
