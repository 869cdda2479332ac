"""The simulator's log, and the error of one measured request against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.clock import timing
from lightgate.dialect import kinds

if TYPE_CHECKING:
    from lightgate.bench.loop import Done

NS_PER_S: Final = 1_000_000_000


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """One write of the simulator: planned and actual instant, tokens and their kind."""

    planned_ns: int
    actual_ns: int
    tokens: int
    kind: str


class Entry(msgspec.Struct, frozen=True):
    """One request as the simulator saw it."""

    id: str
    model: str
    received_ns: int
    plan: tuple[Sent, ...]
    outcome: str
    tokens: dict[str, int]
    usage: dict[str, int] | None = None


class Log(msgspec.Struct, frozen=True):
    """What `GET /sim/log` gives."""

    entries: tuple[Entry, ...]
    dropped: int = 0


class Errors(NamedTuple):
    """Measured minus true for one request; None where the number does not exist."""

    ttft_ns: int | None
    e2e_ns: int | None
    speed: float | None  # as a share of the true speed
    wrong_kind: bool
    wrong_tokens: bool
    wrong_outcome: bool
    flagged: bool  # late, or a burst with a bound of more than a millisecond
    pacing_ns: tuple[int, ...]  # the simulator's own |actual - planned|


decode_log: Final = msgspec.json.Decoder(Log).decode


def compare(done: Done, entry: Entry) -> Errors:
    """Hold one measured request against the log."""
    marks, called = done.marks, done.called
    bursts = [sent for sent in entry.plan if sent.tokens > 0 and sent.actual_ns > 0]
    ttft = e2e = None
    speed: float | None = None
    wrong_kind = wrong_tokens = False
    if bursts and called.streamed:
        ttft = _minus(timing.ttft(marks), bursts[0].actual_ns - entry.received_ns)
        wrong_kind = kinds.names(called.first_kinds) != (bursts[0].kind,)
    if bursts and called.streamed and entry.outcome == "ok":
        e2e = _minus(timing.e2e(marks), bursts[-1].actual_ns - entry.received_ns)
        speed = _speed_error(timing.speed(marks, called.tokens), bursts)
    if entry.usage is not None and called.outcome == "ok":
        wrong_tokens = called.tokens.out != entry.usage.get("tokens_out")
    bound = timing.burst_bound_ns(marks) or 0
    return Errors(
        ttft,
        e2e,
        speed,
        wrong_kind,
        wrong_tokens,
        called.outcome != entry.outcome,
        timing.late(marks) or bound > 1_000_000,
        tuple(abs(sent.actual_ns - sent.planned_ns) for sent in entry.plan if sent.actual_ns > 0),
    )


def _minus(measured: int | None, true: int) -> int | None:
    return None if measured is None else measured - true


def _speed_error(measured: float | None, bursts: list[Sent]) -> float | None:
    span = bursts[-1].actual_ns - bursts[0].actual_ns
    if measured is None or span <= 0:
        return None
    true = sum(sent.tokens for sent in bursts[1:]) * NS_PER_S / span
    return measured / true - 1
