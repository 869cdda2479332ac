"""Reads a provider's answer for the clock: tokens, usage, finish, errors, the terminal marker.

The dialect's reader parses an event and reports what it saw. The scanner spares it most of that
work: it remembers the exact bytes before and after the text of the last plain text event (the
skeleton). An event with the same head and tail, whose middle holds no quote, backslash or control
character (in fact: nothing unprintable), can differ from the remembered one in nothing but that
text, so it needs no parsing. Everything else is parsed.
docs/decisions/0003 has the argument and the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.errors import CODE_LIMIT, NOT_UTF8, Fault, clean
from lightgate.dialect.kinds import NONE, REASONING, TEXT, TOOL
from lightgate.dialect.neutral.events import SILENT, TOO_MANY, Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.outcome import End
    from lightgate.clock.tokens import Usage
    from lightgate.dialect.neutral.events import Logprob, Place, Reader

    ScanFacts = tuple[
        Usage | None, int, str | None, Fault | None, bool, End | None, int, int, int, int
    ]

BROKEN_FINISHES: Final = frozenset({"abort", "error"})  # the server gave up, whatever it calls it
_LEARNED: Final = frozenset({TEXT, REASONING})
_PATIENCE: Final = 4  # skeletons in a row that may be of no use before learning becomes rare
_LARGE: Final = 65_536  # bytes of an event above which its values are counted
_RARELY: Final = 64  # ... namely once in so many text events
_LF: Final = 0x0A


class Scanner(Listener):
    """The state of one answer, a listener of its dialect's reader; no bytes make it raise.

    `usage_running` are the output tokens so far where the provider counts along from its first
    token on, else -1. `weight` are the bytes of text in the last event's token-bearing deltas,
    `reasoning_weight` the bytes of all reasoning text, `chars` the characters of all text.
    `finish` is the provider's own word, `done` whether the answer is complete, and `ended_by` what
    said so. Bytes that are no UTF-8 are an error: clients stop at them with one of their own.
    """

    __slots__ = (
        "_cut",
        "_line",
        "_line_end",
        "_line_past",
        "_line_start",
        "_name",
        "_now",
        "_pieces",
        "_plain",
        "_prefix",
        "_reader",
        "_skeleton_kind",
        "_start",
        "_suffix",
        "_text",
        "_unused",
        "_used",
        "_wait",
        "chars",
        "done",
        "ended_by",
        "error",
        "finish",
        "kinds",
        "reasoning_weight",
        "usage",
        "usage_running",
        "weight",
    )

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.usage: Usage | None = None
        self.usage_running = -1
        self.finish: str | None = None
        self.error: Fault | None = None
        self.done = False
        self.ended_by: End | None = None
        self.kinds = NONE
        self.weight = 0
        self.chars = 0
        self.reasoning_weight = 0
        # The event at hand: kinds, token-bearing deltas, the last one's text, whether it holds
        # nothing but deltas, and its usage.
        self._now = NONE
        self._pieces = 0
        self._text = ""
        self._plain = True
        self._used: Usage | None = None
        # The skeleton; a start of 0 means that there is none.
        self._start = 0
        self._cut = 0
        self._prefix = b""
        self._suffix = b""
        self._name = b""
        self._skeleton_kind = NONE
        # The same as it stands in a stream, name and line ends included; likewise.
        self._line_start = 0
        self._line_past = 0
        self._line = b""
        self._line_end = b""
        self._unused = 0  # skeletons learned in a row that spared no parse
        self._wait = 0  # text events until one may be learned again

    def event(self, name: bytes, data: bytes) -> int:
        """Take one SSE event; return the kinds of its token-bearing deltas."""
        start = self._start
        if not start or data[:start] != self._prefix or data[self._cut :] != self._suffix:
            return self._parse(name, data)
        middle = data[start : self._cut]
        try:
            text = middle.decode()
        except UnicodeDecodeError:
            return self._parse(name, data, known=True)
        if not text or not text.isprintable() or '"' in text or "\\" in text or name != self._name:
            return self._parse(name, data, known=True)
        self.weight = len(middle)
        self.chars += len(text)
        self._unused = 0
        if self._skeleton_kind == REASONING:
            self.reasoning_weight += len(middle)
        return self._skeleton_kind

    def again(self, read: bytes) -> int:
        """Take a read of a stream that is one more event of the remembered form, and nothing else.

        Its kinds, or NONE for any other read, of which nothing is taken then. What comes before the
        event must have ended.
        """
        start = self._line_start
        if not start or read[:start] != self._line or read[self._line_past :] != self._line_end:
            return NONE
        middle = read[start : self._line_past]
        try:
            text = middle.decode()
        except UnicodeDecodeError:
            return NONE
        # Nothing printable ends a line: so this is one event.
        if not text or not text.isprintable() or '"' in text or "\\" in text:
            return NONE
        self.weight = len(middle)
        self.chars += len(text)
        self._unused = 0
        if self._skeleton_kind == REASONING:
            self.reasoning_weight += len(middle)
        return self._skeleton_kind

    def whole(self, body: bytes) -> int:
        """Take a whole answer that was not streamed; return the kinds in it."""
        self._now = NONE
        self.weight = 0
        try:
            if not body.isascii():
                body.decode()
        except UnicodeDecodeError:
            self.fail(NOT_UTF8)
        else:
            self._reader.whole(self, body)
        self.kinds |= self._now
        self.done = self.error is None
        self.ended_by = None if self.finish is None else "finish"
        return self._now

    def facts(self) -> ScanFacts:
        """What was read so far, for a scanner in another process."""
        return (
            self.usage, self.usage_running, self.finish, self.error, self.done, self.ended_by,
            self.kinds, self.weight, self.chars, self.reasoning_weight,
        )  # fmt: skip

    def adopt(self, facts: ScanFacts) -> None:
        """Take over what a scanner in another process has read."""
        (
            self.usage, self.usage_running, self.finish, self.error, self.done, self.ended_by,
            self.kinds, self.weight, self.chars, self.reasoning_weight,
        ) = facts  # fmt: skip
        if self.error == NOT_UTF8:
            self.error = NOT_UTF8  # which is known by its identity

    def eof(self) -> None:
        """Note that the body ended by its own framing; after a finish reason that is the end."""
        if self.finish is not None and not self.done and self.error is None:
            self.end()
            self.ended_by = "finish"

    @property
    def explains(self) -> bool:
        """Whether the finish reason says why an answer has no token; a mere stop does not."""
        return self.finish is not None and self.finish.lower() not in self._reader.bare

    def _parse(self, name: bytes, data: bytes, *, known: bool = False) -> int:
        """Read an event in full; `known`: the skeleton fits, it is the text that does not."""
        if self.done:  # duplicates of the terminal marker, and whatever follows it
            self.weight = 0
            return NONE
        self._begin()
        if len(data) > _LARGE and self._reader.full(data):
            self.fail(TOO_MANY)
            return NONE
        if not (data.isascii() and name.isascii()):
            try:
                (name + data).decode()
            except UnicodeDecodeError:
                self.fail(NOT_UTF8)
                return NONE
        self._reader.event(self, name, data)
        kinds = self._now
        if self._used is not None:
            self._count_along(self._used)
        if kinds:
            self.kinds |= kinds
            if self._plain and self._pieces == 1 and kinds in _LEARNED and not known:
                self._consider(name, data)
        return kinds

    # What a reader reports.

    def say(  # log probabilities and places weigh nothing
        self,
        kind: int,
        text: str,
        logprobs: Sequence[Logprob] = (),  # noqa: ARG002
        place: Place | None = None,  # noqa: ARG002
    ) -> None:
        """Count and weigh one token-bearing delta."""
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self.weight += size
        self.chars += len(text)
        if kind == REASONING:
            self.reasoning_weight += size
        self._now |= kind
        self._pieces += 1
        self._text = text

    def other(self, kind: int, text: str) -> None:
        """Count and weigh a token that only its own dialect can say."""
        self.say(kind, text)

    def tool(self, place: Place, call_id: Any, name: Any, arguments: Any) -> None:  # noqa: ARG002 - not generated
        """Count and weigh a piece of a tool call: its name and its arguments are generated."""
        text = name if isinstance(name, str) else ""
        if isinstance(arguments, str):
            text += arguments
        if text:
            self.say(TOOL, text)

    def use(self, usage: Usage | None) -> None:
        """Note usage; the last one wins."""
        if usage is not None:
            self.usage = self._used = usage
            self._plain = False

    def stop(  # only the word is kept in records
        self,
        word: Any,
        *,
        sequence: Any = None,  # noqa: ARG002
        message: Any = None,  # noqa: ARG002
        refusal: Any = None,  # noqa: ARG002
    ) -> None:
        """Note a finish reason; the first one wins, and null is none."""
        if not isinstance(word, str):
            return
        finishes = self._reader.finishes
        if word not in finishes and word.lower() in SILENT:
            return
        self._plain = False
        if word not in finishes and word.lower() not in finishes:
            word = clean(word, CODE_LIMIT)  # it goes into records and messages
            if word.lower() in BROKEN_FINISHES:
                self.fail(Fault(word, f"The provider ended the answer with {word!r}."))
        if self.finish is None:
            self.finish = word

    def fail(self, fault: Fault) -> None:
        """Note an error; the first one wins."""
        self._plain = False
        if self.error is None:
            self.error = fault

    def end(self) -> None:
        """Note the terminal marker; what follows is ignored."""
        self._plain = False
        self.done = True
        self.ended_by = "marker"
        self._start = self._line_start = 0

    # The skeleton.

    def _begin(self) -> None:
        self.weight = 0
        self._now = NONE
        self._pieces = 0
        self._text = ""
        self._plain = True
        self._used = None

    def _count_along(self, usage: Usage) -> None:
        """Follow a running count, but only one that was there from the first token on.

        One that appears later is the final usage beside the last words, not a count along.
        """
        starts = self._now and not self.kinds
        if usage.tokens_out is not None and (starts or self.usage_running >= 0):
            self.usage_running = usage.tokens_out

    def _consider(self, name: bytes, data: bytes) -> None:
        """Learn a skeleton from this event, unless the last ones were of no use."""
        if self._wait:
            self._wait -= 1
            return
        text = self._text.encode("utf-8", "surrogatepass")
        needle = b'"' + text + b'"'
        if data.count(needle) != 1:  # escaped, or in doubt: the next text will do as well
            return
        if self._unused >= _PATIENCE:
            self._wait, self._unused = _RARELY, _PATIENCE - 1
            self._start = self._line_start = 0
            return
        self._unused += 1
        start = data.index(needle) + 1
        stop = start + len(text)
        if self._is_text_at(name, data, start, stop):
            self._prefix, self._suffix = data[:start], data[stop:]
            self._start, self._cut = start, stop - len(data)
            self._name, self._skeleton_kind = name, self._now
            self._learn_line()

    def _learn_line(self) -> None:
        """Learn how an event of the skeleton stands in a stream, if it is a line of data there."""
        self._line_start = 0
        if _LF in self._prefix or _LF in self._suffix:
            return
        named = b"event: %b\n" % self._name if self._name else b""
        self._line = named + b"data: " + self._prefix
        self._line_end = self._suffix + b"\n\n"
        self._line_start, self._line_past = len(self._line), -len(self._line_end)

    def _is_text_at(self, name: bytes, data: bytes, start: int, stop: int) -> bool:
        """Prove that these bytes are the text: another text in their place must be read there."""
        other = "0" if self._text != "0" else "1"
        probe = Scanner(self._reader)
        self._reader.event(probe, name, data[:start] + other.encode() + data[stop:])
        return (probe._pieces, probe._now, probe._text, probe._plain) == (1, self._now, other, True)
