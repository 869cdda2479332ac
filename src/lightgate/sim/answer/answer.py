"""The facts of one answer, its text, and what the renderer of each dialect provides.

Every token of the text is exactly four characters, so a share of the characters is the same share
of the tokens, whatever a chunk holds.
"""

from __future__ import annotations

import itertools
from typing import Final, Protocol

import msgspec
from msgspec.json import decode, encode

from lightgate.sim.answer.script import REASONING, TEXT, TOOL, Counts
from lightgate.sim.answer.tools import OfferedTool
from lightgate.sim.world import UsageStyle

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
        """Tokens first … first + count - 1 as the inside of a JSON string, escaped, in UTF-8."""
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


class GivenText:
    """A text as it is; its last token may have fewer characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = -(-len(text) // TOKEN_CHARS)

    def piece(self, first: int, count: int) -> bytes:
        """Tokens of the text, escaped."""
        part = self.text[TOKEN_CHARS * first : TOKEN_CHARS * (first + count)]
        return encode(part)[1:-1]


class JsonText(GivenText):
    """A JSON object of exactly `count` tokens: {"a":" ant bat…"}."""

    def __init__(self, count: int) -> None:
        size = TOKEN_CHARS * count
        if size < 8:
            super().__init__("{}" + " " * max(size - 2, 0))
        else:
            filler = (_PLAIN * (size // len(_PLAIN) + 1))[: size - 8]
            super().__init__(f'{{"a":"{filler}"}}')


class SimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one answer; the instants are in its script."""

    id: str
    created: int  # seconds since 1970
    model: str  # as the request spelled it
    counts: Counts
    tokens_in: int
    tokens_cached: int = 0
    reason: str  # stop | length | tool
    thoughts: TokenText
    words: TokenText
    tool_words: TokenText
    tool: OfferedTool
    usage: UsageStyle
    usage_asked: bool = False  # stream_options.include_usage
    reasoning_field: str = "reasoning_content"
    events: int = 1  # SSE events per segment
    finish: str | None = None  # verbatim finish reason, instead of `reason`
    finish_every: bool = False
    null_choices: bool = False
    answers: int = 1  # that say the same

    @property
    def tool_name(self) -> str:
        """The name of the tool that is called."""
        return self.tool.name

    def reason_in(self, names: dict[str, str]) -> str | None:
        """The finish reason in a dialect's words; a verbatim one as it is, `null` as None."""
        if self.finish is not None:
            return None if self.finish == "null" else self.finish
        return names[self.reason]

    def piece(self, kind: int, first: int, tokens: int) -> bytes:
        """The streamed tokens first … first + tokens - 1, all of one kind, inside a JSON string."""
        if kind == REASONING:
            return self.thoughts.piece(first, tokens)
        if kind == TEXT:
            return self.words.piece(first - self.counts.reasoning, tokens)
        return self.tool_words.piece(first - self.counts.reasoning - self.counts.text, tokens)

    def text(self, kind: int) -> str:
        """All tokens of one kind as plain text."""
        counts = self.counts
        if kind == TOOL:
            return plain(self.tool_words.piece(0, counts.tool))
        if kind == REASONING:
            return plain(self.thoughts.piece(0, counts.reasoning))
        return plain(self.words.piece(0, counts.text))


class Renderer(Protocol):
    """The bytes of one answer in one dialect."""

    content_type: bytes  # of a stream

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """The bytes of one beat that holds the streamed tokens first … first + tokens - 1."""
        ...

    def whole(self) -> bytes:
        """The answer as one JSON document."""
        ...

    def usage(self, *, streamed: bool) -> dict[str, object] | None:
        """The usage that this answer carries; None where it carries none."""
        ...


def split_tokens(first: int, tokens: int, events: int) -> list[tuple[int, int]]:
    """(first token, tokens) of each event of a burst; as even as whole tokens allow."""
    events = max(min(events, tokens), 1)
    edges = [first + tokens * k // events for k in range(events + 1)]
    return [(a, b - a) for a, b in itertools.pairwise(edges)]
