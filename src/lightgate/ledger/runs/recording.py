"""The bursts of one attempt, so that a run can be read again under other rules."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.clock.marks import Marks


class Instants(array):  # type: ignore[type-arg] # an array of ints, which its base cannot say
    """Instants of bursts; a run keeps all of them, and an array takes a fifth of a tuple."""

    __slots__ = ()


def instants(values: Iterable[int] = ()) -> Instants:
    """Make the instants of any numbers."""
    return Instants("q", values)


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's bursts; one entry of each list per burst, instants in ns after `t_send`.

    `kinds` are the flags of `dialect.kinds` for what each burst carried, `pieces` its deltas,
    `weight` the bytes of text in them, `tokens` what the provider counted along (-1: it did not).
    """

    id: str  # of the attempt
    at_ns: Instants = msgspec.field(default_factory=instants)
    since_ns: Instants = msgspec.field(default_factory=instants)
    pieces: tuple[int, ...] = ()
    weight: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    finish_ns: int | None = None  # the event with the finish reason
    closed_ns: int | None = None  # the end of the body
    max_tokens: int | None = None  # as asked for
    block: int | None = None  # of an interleaved run
    load: str = ""  # the cell's, as in `CellSummary.load`
    warmup: bool = False
    turn: int | None = None  # the stretch of unbroken load that it belongs to; None: its block
    headers_bound_ns: int | None = None  # how much earlier the headers may have come
    lag_ns: int = 0  # how late after its planned instant our own loop let it go
    part: str = ""  # ramp or filler, of a closed loop: under load, and marked as warm-up
    region: str = ""  # of the host that made the request; empty: the machine of the run

    def __post_init__(self) -> None:
        """Keep columns once that are equal: a run holds the recordings of all its attempts."""
        force_setattr(self, "pieces", _shared(self.pieces))
        force_setattr(self, "weight", _shared(self.weight))
        force_setattr(self, "tokens", _shared(self.tokens))
        force_setattr(self, "kinds", _shared(self.kinds))
        if self.since_ns == self.at_ns:  # every stamp is exact
            force_setattr(self, "since_ns", self.at_ns)

    @classmethod
    def of(cls, attempt_id: str, marks: Marks, **facts: object) -> Self:
        """Take the bursts out of the marks; instants before `t_send` cannot be."""
        zero = marks.send or 0
        bursts = {
            "at_ns": Instants("q", map((-zero).__add__, marks.burst_ns)),
            "since_ns": Instants("q", map((-zero).__add__, marks.burst_since_ns)),
            "pieces": tuple(marks.burst_pieces),
            "weight": tuple(marks.burst_weight),
            "tokens": tuple(marks.burst_tokens),
            "kinds": tuple(marks.burst_kinds),
            "finish_ns": None if marks.finish is None else marks.finish - zero,
            "closed_ns": None if marks.closed is None else marks.closed - zero,
            "headers_bound_ns": marks.headers - marks.headers_since
            if marks.headers is not None and marks.headers_since
            else None,
            "lag_ns": marks.dispatch_lag_ns,
        }
        return msgspec.convert({"id": attempt_id, **bursts, **facts}, cls)

    def to_line(self) -> bytes:
        """Encode as one line of JSON, with its newline."""
        return _ENCODER.encode(self) + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Recording:
        """Decode one line; raises ValueError on anything that is not a recording."""
        return _DECODER.decode(line)


@lru_cache(maxsize=1024)
def _shared(values: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first of equal columns: many answers have the same pieces, kinds and counts."""
    return values


_ENCODER: Final = msgspec.json.Encoder(enc_hook=Instants.tolist)
_DECODER: Final = msgspec.json.Decoder(Recording, dec_hook=lambda _, found: instants(found))
