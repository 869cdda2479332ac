"""Events of an answer, in no dialect: what the reader of a dialect reports to its listener.

One reader for each dialect (its `events` module) serves every listener: the clock's `Scanner`,
which counts and weighs tokens, and the `ItemStream`, which puts an answer in order for
translation, for the checks of a cascade and for the conversations of the harness.

    say       a piece of text, reasoning or refusal
    tool      a piece of a tool call: its name, its arguments, or both
    other     a token that only its own dialect can say: sound, code, the provider's own tools
    sign      a signature on reasoning
    use       token counts
    stop      the provider's word for why the answer ended
    fail      an error
    end       the terminal marker
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from lightgate.dialect.errors import Fault, malformed
from lightgate.dialect.neutral.json_text import decoded, dicts_of, too_full

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lightgate.clock.tokens import Usage

# Why an answer ended:
#     stop      the model was done
#     sequence  the model wrote a stop sequence
#     length    the cap on tokens cut the answer off
#     context   the model's own window cut it off
#     tool      the model waits for the result of a tool
#     refusal   the model declined, in words of refusal
#     filter    a filter stopped the answer
Reason = Literal["stop", "sequence", "length", "context", "tool", "refusal", "filter"]
Place = int | str  # how a reader knows a call or an item again

CUT: Final[frozenset[Reason]] = frozenset({"length", "context", "filter"})  # may end in mid-word
DONE: Final = b"[DONE]"
TOO_MANY: Final = Fault("malformed", "One event holds more values than an answer can need.")
SILENT: Final = frozenset({"", "null", "none", "finish_reason_unspecified"})  # no reason at all


class Likely(msgspec.Struct, frozen=True):
    """A token that might have been; `bytes` is its UTF-8 where the provider sent it."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class Logprob(msgspec.Struct, frozen=True):
    """A token that was chosen, and the likeliest in its place."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[Likely] = []


def logprobs_of(value: Any) -> list[Logprob]:
    """Read the entries of chat and responses; what is not one of them is passed over."""
    out = []
    for entry in dicts_of(value):
        found = _likely(entry)
        if found is not None:
            top = [t for one in dicts_of(entry.get("top_logprobs")) if (t := _likely(one))]
            out.append(Logprob(found.token, found.logprob, found.bytes, top))
    return out


def _likely(entry: dict[str, Any]) -> Likely | None:
    token, logprob, raw = entry.get("token"), entry.get("logprob"), entry.get("bytes")
    if not isinstance(token, str) or not isinstance(logprob, int | float):
        return None
    good = isinstance(raw, list) and all(isinstance(b, int) and 0 <= b < 256 for b in raw)
    return Likely(token, logprob, raw if good else None) if math.isfinite(logprob) else None


class Listener:
    """Hears one answer from a reader, and passes over what is not overridden; nothing raises.

    `counting`: tokens of every choice count as they come. Otherwise the first choice alone is
    wanted, with log probabilities, and with whatever a done item has that its pieces had not.
    `items` is how many items have begun.
    """

    __slots__ = ()
    counting = True
    items = 0
    usage: Usage | None
    error: Fault | None

    def say(
        self, kind: int, text: str, logprobs: Sequence[Logprob] = (), place: Place | None = None
    ) -> None:
        """Take a piece of text, reasoning or refusal; `place` is the item that it belongs to."""

    def sign(self, signature: str, *, alone: bool = True) -> None:
        """Take a signature on reasoning; `alone`: also where no reasoning came before."""

    def tool(self, place: Place, call_id: Any, name: Any, arguments: Any) -> None:
        """Take a piece of a call; with neither id nor name, of a call that has begun before."""

    def tool_end(self, place: Place) -> None:
        """Note that a call is complete."""

    def tool_place(self, index: Any, call_id: Any, *, named: bool) -> Place:  # noqa: ARG002 - no difference here
        """Find the call that a piece belongs to, by what the piece says of itself."""
        return 0

    def part_end(self) -> None:
        """Note that what comes next is a new item, even if it is of the same kind."""

    def heard(self, place: Place) -> bool:  # noqa: ARG002 - no item comes twice
        """Say whether pieces of the item at this place have come."""
        return False

    def other(self, kind: int, text: str) -> None:
        """Take a token that only its own dialect can say; sound has no text to weigh."""

    def use(self, usage: Usage | None) -> None:
        """Take token counts; the last ones win."""

    def stop(
        self, word: Any, *, sequence: Any = None, message: Any = None, refusal: Any = None
    ) -> None:
        """Take the provider's word, the stop sequence, and what was said about either."""

    def fail(self, fault: Fault) -> None:
        """Take an error; the first one wins."""

    def end(self) -> None:
        """Take the terminal marker; what follows is ignored."""


class Reader(NamedTuple):
    """The reader of a dialect: each function reports to a listener what the bytes say.

    `finishes` maps the dialect's words for an end, in lower case, to ours; a word that is not
    there is an error, since to call it a good end would be a guess. `bare` are the words that do
    not explain an answer without a token; any other word does. `full` says of a large event
    whether it holds more values than can be read in one go.
    """

    event: Callable[[Listener, bytes, bytes], None]
    whole: Callable[[Listener, bytes], None]
    finishes: Mapping[str, Reason] = {}
    bare: frozenset[str] = frozenset({"stop"})
    full: Callable[[bytes], bool] = too_full


def finishes(words: Mapping[Reason, str]) -> dict[str, Reason]:
    """Map a dialect's words for an end to ours; `words` has them by reason, between spaces."""
    return {word: reason for reason, said in words.items() for word in said.split()}


def bare_stops(words: Mapping[str, Reason]) -> frozenset[str]:
    """Collect a dialect's words for a mere stop."""
    return frozenset(word for word, reason in words.items() if reason == "stop")


def marker(listener: Listener, data: bytes) -> None:
    """Take what is no chunk: the terminal marker, a blank line, or rubbish."""
    word = data.strip()
    if word == DONE:
        listener.end()
    elif word:
        listener.fail(malformed(data))


def stray(listener: Listener, name: bytes, data: bytes) -> None:
    """Look at an object that is no chunk: an error in another shape, or something to pass over."""
    if listener.error is None:
        found = malformed(data)
        if name == b"error" or found.code != "malformed":
            listener.fail(found)


def unstreamed(decoder: msgspec.json.Decoder[Any]) -> Callable[[Listener, bytes, bytes], None]:
    """Make the reader of events for an endpoint that does not stream: errors and markers only."""

    def event(listener: Listener, name: bytes, data: bytes) -> None:
        if decoded(decoder, data) is None:
            marker(listener, data)
        else:
            stray(listener, name, data)

    return event
