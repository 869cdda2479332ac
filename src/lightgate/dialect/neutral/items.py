"""Items of an answer, in no dialect: text, reasoning, refusal, calls; and how the answer ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.neutral.events import Logprob, Reason
from lightgate.dialect.neutral.json_text import object_within
from lightgate.dialect.request import CallForm

if TYPE_CHECKING:
    from lightgate.dialect.errors import Fault


class AnswerHead(msgspec.Struct, frozen=True):
    """Facts that every event or body of one answer repeats; `created` in seconds since 1970.

    `asked` are the fields of the client's request, for answers whose form hangs on one of them.
    `origin` is the dialect of the provider, empty where it is the client's own. `forms` are the
    tools, by the names that the provider knows, whose calls the client knows otherwise.
    """

    model: str
    id: str
    created: int
    include_usage: bool = False
    asked: Mapping[str, msgspec.Raw] = {}
    origin: str = ""
    forms: Mapping[str, CallForm] = {}


class Item:
    """One run of text, reasoning or refusal, or one call; `index` counts items, `number` calls.

    `cut`: the answer broke off in the middle of it. `form` is how the client knows the tool, where
    that is no plain function.
    """

    __slots__ = (
        "cut",
        "ended",
        "form",
        "id",
        "index",
        "kind",
        "logprobs",
        "name",
        "number",
        "signature",
        "texts",
    )

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.index = -1
        self.number = -1
        self.id = ""
        self.name = ""
        self.signature = ""
        self.texts: list[str] = []
        self.logprobs: list[Logprob] = []
        self.ended = False
        self.cut = False
        self.form: CallForm | None = None

    @property
    def text(self) -> str:
        """All pieces so far, joined."""
        return "".join(self.texts)


class Ending(msgspec.Struct, frozen=True):
    """End of an answer; `sequence` is the stop sequence that ended it, where that is known."""

    reason: Reason
    sequence: str | None
    usage: Usage | None


MOST_KEPT: Final = 1024 * 1024  # eight for each token of the longest answer of any model


class ItemListener:
    """Hears one answer as items in order, and passes over what is not overridden.

    `keeps`: the items' texts are needed after they came. `call_prefix`: what the ids of calls
    begin with, for those that the provider gave none. `seals_text`: clients lose the reasoning
    beside a signature, so that a seal has to carry it. `most_kept`: so much may be kept of the
    items, in characters, until it is told in one turn of the loop; 0 is no limit.
    """

    keeps = False
    most_kept = 0
    call_prefix = "call"
    seals_text = False

    def start(self, first: Item | None, usage: Usage | None) -> None:
        """Begin the answer."""

    def open(self, item: Item) -> None:
        """Begin an item."""

    def piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:
        """Go on with the open item."""

    def sign(self, item: Item) -> None:
        """Take the signature of the open item, which is reasoning."""

    def close(self, item: Item) -> None:
        """End the open item."""

    def end(self, ending: Ending) -> None:
        """End the answer."""

    def fail(self, fault: Fault) -> None:
        """End the answer with an error."""


class Writer(ItemListener, ABC):
    """Writes one answer in a client's dialect; the events of a stream are added to `out`."""

    most_kept = MOST_KEPT

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self.out: list[bytes] = []

    @abstractmethod
    def whole(self, items: list[Item], ending: Ending) -> bytes:
        """Write the whole answer as one body."""


class KeptItems(ItemListener):
    """Keeps the items, which keep their own texts."""

    keeps = True

    def __init__(self, call_prefix: str = "call", *, seals_text: bool = False) -> None:
        self.call_prefix = call_prefix
        self.seals_text = seals_text
        self.items: list[Item] = []

    def open(self, item: Item) -> None:
        """Keep an item."""
        self.items.append(item)


class CallPlaces:
    """Tells the calls of a chat answer apart, whose pieces may come mixed.

    An index is the rule. Some servers leave it out, and some give all calls the same one: then an
    id that is not the call's own begins another.
    """

    __slots__ = ("_first", "_ids", "_places", "_turn")

    def __init__(self) -> None:
        self._ids: list[str] = []  # the id that each call's first piece had
        self._first: dict[str, int] = {}  # the first call with an id
        self._places: dict[int, int] = {}  # the call that an index means now
        self._turn: int | None = None  # the call that a piece without index and id goes on with

    def find(self, index: Any, call_id: Any, *, named: bool) -> int:
        """Return the number of the call that a piece belongs to."""
        indexed = isinstance(index, int)
        place = self._places.get(index) if indexed else self._turn
        own = call_id if isinstance(call_id, str) else ""
        if not indexed and own in self._first:
            place = self._first[own]
        elif place is None or (named and (own != self._ids[place] if own else not indexed)):
            place = len(self._ids)
            self._ids.append(own)
            if own:
                self._first.setdefault(own, place)
        if indexed:
            self._places[index] = place
        self._turn = place
        return place


def arguments_of(item: Item) -> msgspec.Raw | None:
    """Read a call's arguments as the object that they should be; None if they are not."""
    return object_within(item.text)
