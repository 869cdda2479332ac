"""Puts what a reader reports in order: one item after the other, for a writer.

An item is a run of text, of reasoning or of refusal, or one tool call. Chat and responses may mix
the pieces of parallel calls; Anthropic and Gemini cannot. So an item that begins while a call is
still unfinished is held back until that call is complete, and every writer sees whole items in
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.errors import CODE_LIMIT, Fault, clean
from lightgate.dialect.kinds import REASONING, REFUSAL, TOOL
from lightgate.dialect.neutral.events import CUT, SILENT, Listener
from lightgate.dialect.neutral.items import (
    AnswerHead,
    CallPlaces,
    Ending,
    Item,
    ItemListener,
    arguments_of,
)
from lightgate.dialect.neutral.seal import sealed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.clock.tokens import Usage
    from lightgate.dialect.neutral.events import Logprob, Place, Reason

NO_HEAD: Final = AnswerHead("", "", 0)
# Of one answer; parts that wait for the end of a call are handed on in one turn of the loop.
MOST_CALLS: Final = 1024
# What is kept beside text, in characters that cost as much when the answer is told at its end.
_ITEM: Final = 100  # what a text, a reasoning or a call has around its words
_LIKELY: Final = 6  # a token with its probability, which is not escaped again
_SILENT: Final = ItemListener()


class ItemStream(Listener):
    """A listener that hands one answer on as items, in order; no words of a provider make it raise.

    `finishes` are the words of the provider's dialect for an end. The made-up ids of calls have the
    id of `head` in their middle.
    """

    counting = False

    __slots__ = (
        "_broken",
        "_calls",
        "_finishes",
        "_heard",
        "_held",
        "_ids",
        "_keeps",
        "_kept",
        "_last",
        "_made",
        "_most",
        "_named",
        "_open",
        "_origin",
        "_places",
        "_reason",
        "_refused",
        "_seals",
        "_sequence",
        "_started",
        "_writer",
        "closed",
        "error",
        "forms",
        "items",
        "usage",
    )

    def __init__(
        self,
        finishes: Mapping[str, Reason],
        writer: ItemListener,
        head: AnswerHead = NO_HEAD,
    ) -> None:
        id_ = head.id
        self._finishes = finishes
        self._writer = writer
        self._keeps = writer.keeps
        self._kept = 0
        self._most = writer.most_kept
        self._origin = head.origin
        self._seals = bool(head.origin) and writer.seals_text  # with all of an item's text
        self.forms = head.forms
        self._made = f"{writer.call_prefix}_{id_}_" if id_ else f"{writer.call_prefix}_"
        self._open: Item | None = None  # what the writer is in the middle of
        self._last: Item | None = None  # what text of the same kind goes on with
        self._held: list[Item] = []
        self._calls: dict[Place, Item] = {}
        self._places = CallPlaces()
        self._heard: set[Place] = set()  # items of which pieces have come
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
        self.error: Fault | None = None

    # What a reader reports.

    def say(
        self, kind: int, text: str, logprobs: Sequence[Logprob] = (), place: Place | None = None
    ) -> None:
        """Go on with text, reasoning or refusal."""
        if place is not None and place not in self._heard:
            self._heard.add(place)
            if isinstance(place, str):
                self._keep(len(place))
        item = self._last
        if item is None or item.kind != kind:
            item = Item(kind)
            self._begin(item)
            self._refused = self._refused or kind == REFUSAL
        self._piece(item, text, logprobs)

    def sign(self, signature: str, *, alone: bool = True) -> None:
        """Sign the reasoning that came last, or else, if `alone`, reasoning that was not shown."""
        item = self._last
        if item is None or item.kind != REASONING:
            if not alone:
                return
            item = Item(REASONING)
            self._begin(item)
        if self._origin and not self._seals:
            signature = sealed(self._origin, signature)
        if self._keeps or item is not self._open:
            self._keep(len(signature) - len(item.signature))
        item.signature = signature
        if item is self._open and not self._seals:
            self._writer.sign(item)

    def tool(self, place: Place, call_id: Any, name: Any, arguments: Any) -> None:
        """Begin a call, name one that has begun without a name, or go on with its arguments."""
        item = self._calls.get(place)
        if item is None:
            if name is None and call_id is None:
                return  # arguments of a call that never began
            if len(self._calls) >= MOST_CALLS:
                self.fail(Fault("malformed", f"The answer has more than {MOST_CALLS} calls."))
                return
            item = self._calls[place] = Item(TOOL)
            if isinstance(call_id, str) and call_id and call_id not in self._ids:
                item.id = call_id
            else:
                item.id = f"{self._made}{len(self._calls) - 1}"
            self._ids.add(item.id)
            self._keep(len(item.id))
        if item.index < 0 and isinstance(name, str) and name:
            item.form = self.forms.get(name)
            item.name = name if item.form is None else item.form.name
            self._keep(len(item.name))
            self._begin(item)
        if arguments and isinstance(arguments, str) and not item.ended:
            self._piece(item, arguments, ())

    def tool_place(self, index: Any, call_id: Any, *, named: bool) -> Place:
        """Find the call that a piece belongs to, by what the piece says of itself."""
        return self._places.find(index, call_id, named=named)

    def heard(self, place: Place) -> bool:
        """Say whether pieces of an item have come; of a call, whether it has arguments."""
        call = self._calls.get(place)
        return place in self._heard if call is None else bool(call.texts)

    def tool_end(self, place: Place) -> None:
        """Note that a call is complete."""
        item = self._calls.get(place)
        if item is not None:
            item.ended = True
            if item is self._open and self._held:
                self._advance()

    def use(self, usage: Usage | None) -> None:
        """Note token counts; the last ones win."""
        self.usage = usage or self.usage

    def part_end(self) -> None:
        """Note that what comes next is a new item, even if it is of the same kind."""
        self._last = None

    def stop(
        self, word: Any, *, sequence: Any = None, message: Any = None, refusal: Any = None
    ) -> None:
        """Note a finish reason in the provider's word; a mere stop takes back no other."""
        if refusal and isinstance(refusal, str):
            self.say(REFUSAL, refusal)
        if not isinstance(word, str) or word.lower() in SILENT:
            return
        reason = self._finishes.get(word.lower())
        if reason is None:
            said = f": {clean(message)}" if isinstance(message, str) and message else "."
            self._broken = f"The provider ended the answer with {clean(word, CODE_LIMIT)!r}{said}"
        elif self._reason is None or reason != "stop":
            self._reason = reason
        if isinstance(sequence, str):
            self._sequence = sequence

    def fail(self, fault: Fault) -> None:
        """End with an error; the first one counts."""
        if not self.closed:
            self.closed = True
            self.error = fault
            self._writer.fail(fault)
            self._writer = _SILENT  # the rest of an event may go on

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
        """Say how the answer ended; after a call, a mere stop waits for the call's result."""
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
        if self._keeps:
            self._keep(_ITEM)
        before = self._open
        if before is not None and (self._held or not _complete(before)):
            self._held.append(item)
            if len(self._held) > MOST_CALLS:
                why = f"More than {MOST_CALLS} parts of the answer wait for the end of a call."
                self.fail(Fault("malformed", why))
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
        if item.signature and not self._seals:
            writer.sign(item)

    def _piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:
        if item is self._open:
            self._writer.piece(item, text, logprobs)
            if not self._keeps and item.kind != TOOL:
                if item.kind == REASONING and self._seals:
                    item.texts.append(text)
                return
        item.texts.append(text)
        size = len(text)
        if logprobs:
            item.logprobs.extend(logprobs)
            size += _LIKELY * sum([1 + len(entry.top_logprobs) for entry in logprobs])
        self._keep(size)

    def _keep(self, size: int) -> None:
        """Count what is kept until it is told, and end an answer that is longer than any."""
        self._kept += size
        if self._kept > self._most > 0:
            self.fail(Fault("malformed", f"The answer has more than {self._most} characters."))

    def _advance(self) -> None:
        """Hand on what was held back, as far as the order allows."""
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
                self._writer.piece(item, "{}", ())
        elif self._seals and item.signature:  # a provider may sign again and again
            item.signature = sealed(self._origin, item.signature, item.text)
            self._writer.sign(item)
        self._writer.close(item)


def _complete(item: Item) -> bool:
    """Say whether an item can have no more pieces once another has begun."""
    return item.kind != TOOL or item.ended or arguments_of(item) is not None
