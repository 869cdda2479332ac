"""Streams of chunks with choices: what chat and completions have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from lightgate.dialect.fault import Fault, error_of, malformed
from lightgate.dialect.openai_fields import chat_usage
from lightgate.dialect.scanner import Grammar, Scanner, decoded

if TYPE_CHECKING:
    from collections.abc import Callable

DONE: Final = b"[DONE]"


class Chunk(Protocol):
    """The fields of a chunk that every endpoint has; `choices` may be missing, null or a list."""

    choices: Any
    usage: Any
    error: Any


C = TypeVar("C", bound=Chunk)


def chunk_grammar(
    decoder: msgspec.json.Decoder[C], take_choices: Callable[[Scanner, C], None]
) -> Grammar:
    """Make the grammar of an endpoint from its chunk and from what its choices mean."""

    def take(scanner: Scanner, chunk: C) -> None:
        if chunk.error is not None:
            scanner.saw_error(error_of(chunk.error))
        if chunk.choices is None and chunk.error is None and chunk.usage is None:
            scanner.saw_error(Fault("malformed", "The provider sent null in place of choices."))
        take_choices(scanner, chunk)
        if chunk.usage is not None:
            scanner.saw_usage(chat_usage(chunk.usage))

    def event(scanner: Scanner, name: bytes, data: bytes) -> None:
        chunk = decoded(decoder, data)
        if chunk is None:
            marker(scanner, data)
            return
        take(scanner, chunk)
        if scanner.error is None and (name == b"error" or chunk.choices is msgspec.UNSET):
            stray(scanner, name, data)

    def whole(scanner: Scanner, body: bytes) -> None:
        chunk = decoded(decoder, body)
        if chunk is None or (not chunk.choices and chunk.error is None):
            scanner.saw_error(malformed(body))
        else:
            take(scanner, chunk)

    return Grammar(event=event, whole=whole)


def marker(scanner: Scanner, data: bytes) -> None:
    """Take what is no chunk: the terminal marker, a blank line, or rubbish."""
    word = data.strip()
    if word == DONE:
        scanner.saw_end()
    elif word:
        scanner.saw_error(malformed(data))


def stray(scanner: Scanner, name: bytes, data: bytes) -> None:
    """Look at an object that is no chunk: an error in another shape, or something to pass over."""
    found = malformed(data)
    if name == b"error" or found.code != "malformed":
        scanner.saw_error(found)
