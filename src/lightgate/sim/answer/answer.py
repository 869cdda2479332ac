"""The facts of one answer, and what the renderer of each dialect provides."""

from __future__ import annotations

import itertools
from typing import Protocol

import msgspec

from lightgate.sim.answer.script import REASONING, TEXT, TOOL, Counts
from lightgate.sim.answer.words import TokenText, plain
from lightgate.sim.world import UsageStyle


class SimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one answer; the instants are in its script."""

    id: str
    created: int  # seconds since 1970
    model: str  # as the request spelled it
    counts: Counts
    tokens_in: int
    tokens_cached: int = 0
    reason: str  # stop | length | tool
    words: TokenText
    tool_words: TokenText
    tool_name: str
    usage: UsageStyle
    usage_asked: bool = False  # stream_options.include_usage
    reasoning_field: str = "reasoning_content"
    events: int = 1  # SSE events per segment
    finish: str | None = None  # verbatim finish reason, instead of `reason`
    finish_every: bool = False
    null_choices: bool = False

    def reason_in(self, names: dict[str, str]) -> str | None:
        """The finish reason in a dialect's words; a verbatim one as it is, `null` as None."""
        if self.finish is not None:
            return None if self.finish == "null" else self.finish
        return names[self.reason]

    def piece(self, kind: int, first: int, tokens: int) -> bytes:
        """The streamed tokens first … first + tokens - 1, all of one kind, inside a JSON string."""
        if kind == REASONING:
            return self.words.piece(first, tokens)
        if kind == TEXT:
            return self.words.piece(first - self.counts.reasoning, tokens)
        return self.tool_words.piece(first - self.counts.reasoning - self.counts.text, tokens)

    def text(self, kind: int) -> str:
        """All tokens of one kind as plain text."""
        counts = self.counts
        count = {REASONING: counts.reasoning, TEXT: counts.text}.get(kind, counts.tool)
        return plain((self.tool_words if kind == TOOL else self.words).piece(0, count))


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
