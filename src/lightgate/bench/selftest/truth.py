"""The simulator's log, and the error of one measured request against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.clock import timing
from lightgate.dialect import kinds

if TYPE_CHECKING:
    from lightgate.bench.load.drive import Finished

NS_PER_S: Final = 1_000_000_000
UNSURE_NS: Final = 1_000_000  # a burst of unknown age up to this is as good as exact


class LoggedWrite(msgspec.Struct, frozen=True, array_like=True):
    """One write of the simulator: planned and actual instant, tokens and their kind."""

    planned_ns: int
    actual_ns: int | None  # None: never written
    tokens: int
    kind: str


class LogEntry(msgspec.Struct, frozen=True):
    """One request as the simulator saw it."""

    request_id: str
    model: str
    received_ns: int
    plan: tuple[LoggedWrite, ...]
    outcome: str
    tokens: dict[str, int] | None = None  # made, by kind
    usage: dict[str, object] | None = None  # as it was sent


class LogPage(msgspec.Struct, frozen=True):
    """What `GET /sim/log` gives: some entries, and where to go on."""

    entries: tuple[LogEntry, ...]
    next: int
    more: bool
    dropped: int


class TokenWrite(NamedTuple):
    """One write that carried tokens."""

    at_ns: int
    tokens: int
    kind: str


class RequestErrors(NamedTuple):
    """Measured minus true for one request; None where the number does not exist.

    The true `ttft` (`e2e`) runs from our own `t_send`, which is ours to define, to the instant at
    which the simulator wrote the first (last) token. `send_ns` is how long after `t_send` the
    request was there: it would show a `t_send` that was taken too early.
    """

    send_ns: int | None
    ttft_ns: int | None
    e2e_ns: int | None
    speed: float | None  # as a share of the true speed
    wrong_kind: bool
    wrong_tokens: bool
    wrong_outcome: str  # empty where it is right
    unmeasured: bool  # a number that the log has of a good answer, and we have not
    late: bool
    unsure: bool  # a stamp of the first or last token that may be off by more than a millisecond
    pacing_ns: tuple[int, ...]  # the simulator's own |actual - planned|


decode_page: Final = msgspec.json.Decoder(LogPage).decode


def errors_of(done: Finished, entry: LogEntry) -> RequestErrors:
    """Hold one measured request against the log."""
    marks, called = done.marks, done.called
    written = [(sent, sent.actual_ns) for sent in entry.plan if sent.actual_ns is not None]
    bursts = [TokenWrite(at, sent.tokens, sent.kind) for sent, at in written if sent.tokens > 0]
    ttft = e2e = None
    speed: float | None = None
    wrong_kind = wrong_tokens = False
    if bursts and called.streamed:
        ttft = _minus(marks.first, bursts[0].at_ns)
        wrong_kind = kinds.names(called.first_kinds) != (bursts[0].kind,)
    if bursts and called.streamed and entry.outcome == "ok":
        e2e = _minus(marks.last, bursts[-1].at_ns)
        speed = _speed_error(timing.Timing.of(marks, called.tokens).speed_tps, bursts)
    if entry.usage is not None and entry.tokens is not None and called.outcome == "ok":
        wrong_tokens = called.tokens.out != sum(entry.tokens.values())
    return RequestErrors(
        send_ns=_minus(entry.received_ns, marks.send),
        ttft_ns=ttft,
        e2e_ns=e2e,
        speed=speed,
        wrong_kind=wrong_kind,
        wrong_tokens=wrong_tokens,
        wrong_outcome=_wrong(called.outcome, entry.outcome),
        unmeasured=entry.outcome == called.outcome == "ok" and _lacks(bursts, ttft, e2e, speed),
        late=timing.late(marks),
        unsure=(timing.stamp_bound_ns(marks) or 0) > UNSURE_NS,
        pacing_ns=tuple(abs(at - sent.planned_ns) for sent, at in written),
    )


def _minus(measured: int | None, true: int | None) -> int | None:
    return None if measured is None or true is None else measured - true


def _wrong(measured: str, true: str) -> str:
    return "" if measured == true else f"{measured} instead of {true}"


def _lacks(
    bursts: list[TokenWrite], ttft: int | None, e2e: int | None, speed: float | None
) -> bool:
    """Whether a number is missing although the bursts that define it were written."""
    if not bursts:
        return False
    lasts = bursts[-1].at_ns > bursts[0].at_ns
    return ttft is None or e2e is None or (lasts and speed is None)


def _speed_error(measured: float | None, bursts: list[TokenWrite]) -> float | None:
    span = bursts[-1].at_ns - bursts[0].at_ns
    if measured is None or span <= 0:
        return None
    true = sum(burst.tokens for burst in bursts[1:]) * NS_PER_S / span
    return measured / true - 1
