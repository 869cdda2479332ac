"""The script of one answer: which beat goes out when, counted from the start of the request.

A beat is one planned write. Beats that carry tokens are bursts; the others are the status line, the
role chunk, the tail, comments, and the ways in which a connection can end. Offsets are nanoseconds.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lightgate.sim.world import AnswerShape

(
    HEAD,  # status line and headers
    ROLE,  # the event that opens a stream, without a token
    REASONING,
    TEXT,
    TOOL,
    FINISH,
    USAGE,
    DONE,  # the dialect's terminal marker
    ERROR,  # an error event inside the stream
    PART,  # the first bytes of the next beat, up to the middle of a character
    JUNK,  # bytes that a fault made up, framed
    RAW,  # the same without framing
    WHOLE,  # a complete answer that is not streamed
    HALF,  # its first half
    END,  # the body ends as HTTP says it should
    CUT,  # the connection closes, the body is not complete
    RESET,  # the same with a TCP reset
    HANG,  # nothing more, the connection stays open
) = range(18)
KINDS: Final = (
    "head", "role", "reasoning", "text", "tool", "finish", "usage", "done", "error", "part",
    "junk", "raw", "whole", "half", "end", "cut", "reset", "hang",
)  # fmt: skip
BURSTS: Final = frozenset((REASONING, TEXT, TOOL))
LAST_BEATS: Final = frozenset((END, CUT, RESET, HANG))


class Counts(NamedTuple):
    """The tokens of an answer by kind; `hidden` reasoning is only seen in the usage."""

    reasoning: int
    hidden: int
    text: int
    tool: int

    @property
    def streamed(self) -> int:
        """Tokens that go over the wire."""
        return self.reasoning + self.text + self.tool

    @property
    def total(self) -> int:
        """Tokens that the usage counts."""
        return self.streamed + self.hidden


class Pace(NamedTuple):
    """The instants of tokens: the first at `ttft_ns`, each later one a gap after the one before."""

    ttft_ns: int
    gaps_ns: int | list[int]  # one for all, or one per streamed token (the first is unused)
    stall_ns: int = 0
    stall_after: int = 0  # streamed tokens before the stall

    def instants_ns(self, count: int, first: int = 1) -> list[int]:
        """The offset of every token; the `first` ones come together."""
        at, out = self.ttft_ns, []
        gaps, stall = self.gaps_ns, max(self.stall_after, first)
        for index in range(count):
            if index >= first:
                at += gaps if isinstance(gaps, int) else gaps[index]
                if index == stall:
                    at += self.stall_ns
            out.append(at)
        return out


class Script:
    """The beats of one answer, as three columns."""

    __slots__ = ("at_ns", "kind", "streamed", "tokens")

    def __init__(self, *, streamed: bool) -> None:
        self.streamed = streamed
        self.at_ns = array("q")
        self.kind = bytearray()
        self.tokens = array("l")

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end_ns(self) -> int:
        """The offset of the last beat."""
        return self.at_ns[-1] if self.at_ns else 0

    def add(self, at_ns: int, kind: int, tokens: int = 0) -> None:
        """Append one beat."""
        self.at_ns.append(at_ns)
        self.kind.append(kind)
        self.tokens.append(tokens)

    def insert(self, index: int, at_ns: int, kind: int) -> None:
        """Insert one beat without tokens."""
        self.at_ns.insert(index, at_ns)
        self.kind.insert(index, kind)
        self.tokens.insert(index, 0)

    def truncate(self, length: int) -> None:
        """Forget the beats from this index on."""
        del self.at_ns[length:]
        del self.kind[length:]
        del self.tokens[length:]

    def remove(self, index: int) -> None:
        """Forget one beat."""
        del self.at_ns[index]
        del self.kind[index]
        del self.tokens[index]

    def replace(self, *beats: tuple[int, int]) -> None:
        """Forget all beats and plan these, (offset, kind), without tokens."""
        self.truncate(0)
        for at_ns, kind in beats:
            self.add(at_ns, kind)

    def after(self, tokens: int) -> int:
        """The index of the first beat, head and role apart, that follows so many tokens."""
        seen = 0
        for index, kind in enumerate(self.kind):
            if seen >= tokens and kind not in {HEAD, ROLE}:
                return index
            seen += self.tokens[index]
        return len(self.kind)

    def shift(self, index: int, by_ns: int) -> None:
        """Move all beats from this index on later."""
        for later in range(index, len(self.at_ns)):
            self.at_ns[later] += by_ns

    def first_of(self, kind: int) -> int | None:
        """The index of the first beat of a kind."""
        found = self.kind.find(kind)
        return None if found < 0 else found


def divide(total: int, shape: AnswerShape, *, tool: bool) -> Counts:
    """Split the tokens of an answer by kind; at least one of them is text or a tool call."""
    reasoning = min(round(total * shape.reasoning), total - 1)
    hidden = min(round(total * shape.hidden), total - 1 - reasoning)
    rest = total - reasoning - hidden
    if tool or shape.answer == "tool":
        return Counts(reasoning, hidden, 0, rest)
    if shape.answer == "mixed" and rest > 1:
        return Counts(reasoning, hidden, rest // 2, rest - rest // 2)
    return Counts(reasoning, hidden, rest, 0)


class Tail(NamedTuple):
    """The beats of a dialect after the last token, and how the dialect opens and calls tools."""

    beats: tuple[int, ...]
    whole_tools: bool = False  # a tool call comes in one piece
    opens: bool = True  # there is an event before the first token


def stream_script(counts: Counts, pace: Pace, shape: AnswerShape, tail: Tail) -> Script:
    """The beats of a streamed answer."""
    script = Script(streamed=True)
    script.add(_ns(shape.head_ms), HEAD)
    if shape.role_ms is not None and tail.opens:
        script.add(max(_ns(shape.role_ms), _ns(shape.head_ms)), ROLE)
    instants = pace.instants_ns(counts.streamed, max(shape.first, 1))
    for kind, first, last in _bursts(counts, shape, whole_tools=tail.whole_tools):
        at = instants[last - 1]
        if shape.split_ms is not None and kind == TEXT:
            script.add(max(at - _ns(shape.split_ms), script.end_ns), PART)
        script.add(max(at, script.end_ns), kind, last - first)
    at = script.end_ns + _ns(shape.tail_ms)
    for kind in tail.beats:
        late = kind == USAGE or (kind == FINISH and USAGE not in tail.beats)
        if late and shape.usage == "late":
            at += _ns(shape.usage_late_ms)
        script.add(at, kind)
    script.add(at, END)
    return script


def whole_script(counts: Counts, pace: Pace) -> Script:
    """The beats of an answer that is not streamed: everything at the instant of the last token."""
    script = Script(streamed=False)
    script.add(pace.instants_ns(max(counts.streamed, 1))[-1], WHOLE, counts.streamed)
    return script


def _bursts(counts: Counts, shape: AnswerShape, *, whole_tools: bool) -> list[tuple[int, int, int]]:
    """(kind, first token, one past the last) of every burst; no burst mixes kinds."""
    size = shape.chunk * shape.events
    out: list[tuple[int, int, int]] = []
    index = 0
    for kind, count in ((REASONING, counts.reasoning), (TEXT, counts.text), (TOOL, counts.tool)):
        end = index + count
        while index < end:
            step = max(shape.first, 1) if not out else size
            if whole_tools and kind == TOOL:
                step = count
            out.append((kind, index, min(index + step, end)))
            index = out[-1][2]
    return out


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)
