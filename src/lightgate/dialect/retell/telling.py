"""The neutral middle: readers say here what they saw, writers hear it as one item after the other.

An item is a run of text, of reasoning or of refusal, or one tool call. Chat and responses may mix
the pieces of parallel calls; Anthropic and Gemini cannot. So an item that begins while a call is
still unfinished is held back until that call is complete, and every writer sees whole items in
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightgate.dialect.fault import CODE_LIMIT, Fault, clean
from lightgate.dialect.kinds import REASONING, REFUSAL, TOOL
from lightgate.dialect.retell.finish import CUT, READ, SILENT
from lightgate.dialect.retell.items import Ending, Item, arguments_of

if TYPE_CHECKING:
    from lightgate.clock.tokens import Usage
    from lightgate.dialect.retell.finish import Reason
    from lightgate.dialect.retell.items import Listener
    from lightgate.dialect.retell.logprobs import Logprob

Key = int | str  # how a reader knows a call again


class Telling:
    """What a reader reports to; it never raises on a provider's words."""

    __slots__ = (
        "_broken",
        "_calls",
        "_dialect",
        "_held",
        "_ids",
        "_keeps",
        "_last",
        "_made",
        "_named",
        "_open",
        "_reason",
        "_refused",
        "_sequence",
        "_started",
        "_writer",
        "closed",
        "failed",
        "items",
        "usage",
    )

    def __init__(self, dialect: str, writer: Listener, id_: str, *, keeps: bool) -> None:
        self._dialect = dialect
        self._writer = writer
        self._keeps = keeps
        self._made = f"{writer.call_prefix}_{id_}"
        self._open: Item | None = None  # what the writer is in the middle of
        self._last: Item | None = None  # what text of the same kind goes on with
        self._held: list[Item] = []
        self._calls: dict[Key, Item] = {}
        self._ids: set[str] = set()
        self._named = 0  # calls that began
        self._reason: Reason | None = None
        self._broken = ""
        self._sequence: str | None = None
        self._refused = False
        self._started = False
        self.items = 0  # begun so far
        self.usage: Usage | None = None
        self.closed = False
        self.failed: Fault | None = None

    # What a reader reports.

    def say(self, kind: int, text: str, logprobs: list[Logprob]) -> None:
        """Go on with text, reasoning or refusal."""
        item = self._last
        if item is None or item.kind != kind:
            item = Item(kind)
            self._begin(item)
            self._refused = self._refused or kind == REFUSAL
        self._piece(item, text, logprobs)

    def sign(self, signature: str) -> None:
        """Sign the reasoning that is open, or else reasoning that was not shown."""
        item = self._last
        if item is None or item.kind != REASONING:
            item = Item(REASONING)
            self._begin(item)
        item.signature = signature
        if item is self._open:
            self._writer.sign(item)

    @property
    def thinks(self) -> bool:
        """Whether reasoning is what came last."""
        return self._last is not None and self._last.kind == REASONING

    def call(self, key: Key, call_id: Any, name: Any) -> None:
        """Begin a call, or name one that has begun without a name."""
        item = self._calls.get(key)
        if item is None:
            item = self._calls[key] = Item(TOOL)
            if isinstance(call_id, str) and call_id and call_id not in self._ids:
                item.id = call_id
            else:
                item.id = f"{self._made}_{len(self._calls) - 1}"
            self._ids.add(item.id)
        if item.index < 0 and isinstance(name, str) and name:
            item.name = name
            self._begin(item)

    def arguments(self, key: Key, text: str) -> None:
        """Go on with a call's arguments, which are a piece of JSON."""
        item = self._calls.get(key)
        if item is not None and not item.ended:
            self._piece(item, text, [])

    def has_arguments(self, key: Key) -> bool:
        """Say whether a call is known and has any arguments yet."""
        item = self._calls.get(key)
        return item is not None and bool(item.texts)

    def call_end(self, key: Key) -> None:
        """Note that a call is complete."""
        item = self._calls.get(key)
        if item is not None:
            item.ended = True
            if item is self._open and self._held:
                self._advance()

    def part_end(self) -> None:
        """Note that what comes next is a new item, even if it is of the same kind."""
        self._last = None

    def finish(self, word: Any, sequence: Any = None, more: Any = None) -> None:
        """Note a finish reason in the provider's word; a mere stop takes back no other."""
        if not isinstance(word, str) or word.lower() in SILENT:
            return
        reason = READ[self._dialect].get(word.lower())
        if reason is None:
            said = f": {clean(more)}" if isinstance(more, str) and more else "."
            self._broken = f"The provider ended the answer with {clean(word, CODE_LIMIT)!r}{said}"
        elif self._reason is None or reason != "stop":
            self._reason = reason
        if isinstance(sequence, str):
            self._sequence = sequence

    def fail(self, fault: Fault) -> None:
        """End with an error; the first one counts."""
        if not self.closed:
            self.closed = True
            self.failed = fault
            self._writer.fail(fault)

    def end(self) -> None:
        """Note that the answer is complete."""
        if self.closed:
            return
        for item in self._calls.values():
            item.ended = True
            if item.index < 0:  # it never got a name
                self._begin(item)
        self._advance()
        if self._open is not None:
            self._open.cut = self._reason in CUT
            self._close()
        if self._broken and self._reason is None:
            self.fail(Fault("unknown_finish", self._broken))
            return
        if not self._started:
            self._writer.start(None, self.usage)
        self.closed = True
        self._writer.end(self.ending())

    def ending(self) -> Ending:
        """Say how it ended: whoever made a call and then just stopped waits for its result."""
        reason = self._reason or "stop"
        if reason in {"stop", "tool"}:
            reason = "tool" if self._calls else "refusal" if self._refused else "stop"
        return Ending(reason, self._sequence, self.usage)

    # One item after the other.

    def _begin(self, item: Item) -> None:
        item.index = self.items
        self.items += 1
        if item.kind == TOOL:
            item.number = self._named
            self._named += 1
        self._last = item
        before = self._open
        if before is not None and (self._held or not _complete(before)):
            self._held.append(item)
        else:
            self._close()
            self._tell(item)

    def _tell(self, item: Item) -> None:
        writer = self._writer
        if not self._started:
            self._started = True
            writer.start(item, self.usage)
        self._open = item
        writer.open(item)
        texts = item.texts
        if texts:
            writer.piece(item, "".join(texts), item.logprobs)
        if item.signature:
            writer.sign(item)

    def _piece(self, item: Item, text: str, logprobs: list[Logprob]) -> None:
        if item is self._open:
            self._writer.piece(item, text, logprobs)
            if not self._keeps and item.kind != TOOL:
                return
        item.texts.append(text)
        if logprobs:
            item.logprobs.extend(logprobs)

    def _advance(self) -> None:
        """Tell what was held back, as far as it may be told."""
        while self._held and (self._open is None or _complete(self._open)):
            self._close()
            self._tell(self._held.pop(0))

    def _close(self) -> None:
        item = self._open
        if item is None:
            return
        self._open = None
        if item.kind == TOOL:
            item.ended = True
            if not item.texts:  # a call without parameters
                item.texts.append("{}")
                self._writer.piece(item, "{}", [])
        self._writer.close(item)


def _complete(item: Item) -> bool:
    """Say whether an item can have no more pieces once another has begun."""
    return item.kind != TOOL or item.ended or arguments_of(item) is not None
