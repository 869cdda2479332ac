"""The text of simulated answers: every token is exactly four characters.

So a share of the characters is the same share of the tokens, whatever a chunk holds. `piece` gives
tokens as they stand inside a JSON string, escaped and in UTF-8.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec.json import decode, encode

_PLAIN: Final = (
    " ant bat bay bee box bus cab cat cow cup day dog ear egg elm eye fan fig fog fox gem gum hat"
    " hen ice ink jam jar jet key kit lap leg log map mat mud net nut oak oar owl pan pea pen pie"
    " pig pot ray rib rod rug sea ski sky sun tea toe toy van web yak"
)
# Every token is a space and characters of three, two and four bytes of UTF-8: ten bytes.
_WIDE: Final = " 光é🙂 時ñ🚦 門ü🏁 速ß🌍"
TOKEN_CHARS: Final = 4
TOOL_NAME: Final = "look"  # four characters: it is a tool call's first token


def plain(piece: bytes) -> str:
    """A piece as the text that it stands for."""
    text: str = decode(b'"%b"' % piece, type=str)
    return text


class TokenText(Protocol):
    """A supply of tokens."""

    def piece(self, first: int, count: int) -> bytes:
        """Tokens first … first + count - 1 as the inside of a JSON string."""
        ...


class Prose:
    """Plain words without end; `start` lets two answers differ."""

    def __init__(self, start: int = 0, *, wide: bool = False) -> None:
        text = _WIDE if wide else _PLAIN
        self._cycle = len(text) // TOKEN_CHARS
        self._text = text * 2
        self._start = start

    def piece(self, first: int, count: int) -> bytes:
        """Tokens in the order of the list, over and over."""
        at = (self._start + first) % self._cycle
        if count <= self._cycle:
            return self._text[TOKEN_CHARS * at : TOKEN_CHARS * (at + count)].encode()
        turns = (at + count) // self._cycle + 1
        whole = self._text[: TOKEN_CHARS * self._cycle] * turns
        return whole[TOKEN_CHARS * at : TOKEN_CHARS * (at + count)].encode()


class JsonText:
    """A JSON object of exactly `count` tokens: {"a":" ant bat…"}."""

    def __init__(self, count: int) -> None:
        size = TOKEN_CHARS * count
        if size < 8:
            self._text = "{}" + " " * max(size - 2, 0)
        else:
            filler = (_PLAIN * (size // len(_PLAIN) + 1))[: size - 8]
            self._text = f'{{"a":"{filler}"}}'

    @property
    def text(self) -> str:
        """All of it."""
        return self._text

    def piece(self, first: int, count: int) -> bytes:
        """Tokens of the object, escaped."""
        part = self._text[TOKEN_CHARS * first : TOKEN_CHARS * (first + count)]
        return encode(part)[1:-1]
