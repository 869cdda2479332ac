"""The simulator's log, the errors of measured requests against it, and what a cell came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.bench.selftest.plan import BUDGETS, ErrorBudget, SelftestCell
from lightgate.clock import timing
from lightgate.clock.load import Span, Window, inflight
from lightgate.clock.quantile import quantile, quantiles
from lightgate.dialect import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.load.drive import Finished


MS: Final = 1e6
OFF_NS: Final = 1_000_000  # a stamp may be off from its bounds by this: the simulator's own delay


class ErrorSpread(msgspec.Struct, frozen=True):
    """The size of an error over a cell."""

    n: int
    p50: float
    p99: float
    max: float


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """One cell; errors of times in milliseconds, of speed as a share of the true speed."""

    scenario: str
    title: str
    concurrency: int
    stamps: str
    requests: int
    tokens: int
    send_ms: ErrorSpread | None
    ttft_ms: ErrorSpread | None
    speed: ErrorSpread | None
    e2e_ms: ErrorSpread | None
    unsure_share: float
    outside: int
    wrong_kinds: int
    wrong_tokens: int
    wrong_outcomes: tuple[str, ...]
    unmeasured: int
    lost: int
    offered: float | None
    cpu_us_per_token: float
    pacing_p99_ms: float | None
    misses: tuple[str, ...]


def summarise(
    cell: SelftestCell, done: list[Finished], errors: list[RequestErrors], cpu_ns: int
) -> CellResult:
    """Put a cell's errors together and hold them against the budget."""
    tokens = sum(item.called.tokens.streamed or 0 for item in done)
    pacing = [p for error in errors for p in error.pacing_ns]
    result = CellResult(
        scenario=cell.name,
        title=cell.scenario.title,
        concurrency=cell.concurrency,
        stamps=cell.stamps,
        requests=len(done),
        tokens=tokens,
        send_ms=_spread([e.send_ns for e in errors], MS),
        ttft_ms=_spread([e.ttft_ns for e in errors], MS),
        speed=_spread([e.speed for e in errors], 1.0),
        e2e_ms=_spread([e.e2e_ns for e in errors], MS),
        unsure_share=sum(e.unsure for e in errors) / max(1, len(errors)),
        outside=sum(e.outside for e in errors),
        wrong_kinds=sum(e.wrong_kind for e in errors),
        wrong_tokens=sum(e.wrong_tokens for e in errors),
        wrong_outcomes=tuple(e.wrong_outcome for e in errors if e.wrong_outcome),
        unmeasured=sum(e.unmeasured for e in errors),
        lost=len(done) - len(errors),
        offered=offered(done, cell.concurrency),
        cpu_us_per_token=cpu_ns / 1000 / max(1, tokens),
        pacing_p99_ms=_in_ms(quantile(pacing, 0.99)),
        misses=(),
    )
    return msgspec.structs.replace(result, misses=tuple(_misses(result, BUDGETS[cell.stamps])))


def offered(done: list[Finished], concurrency: int) -> float | None:
    """Mean requests in flight while every worker was at work, as a share of what was asked.

    The window runs from the last worker's first send to the first worker's last end.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    spans: list[Span] = []
    for item in done:
        begin, end = item.marks.send, item.marks.end
        if begin is None or end is None:
            continue
        spans.append(Span(begin, end))
        first[item.worker] = min(begin, first.get(item.worker, begin))
        last[item.worker] = max(end, last.get(item.worker, end))
    if len(first) < concurrency or min(last.values()) <= max(first.values()):
        return None
    mean = inflight(spans, Window(max(first.values()), min(last.values())))
    return None if mean is None else mean / concurrency


def _misses(result: CellResult, budget: ErrorBudget) -> list[str]:
    found = []
    ttft, speed, e2e = result.ttft_ms, result.speed, result.e2e_ms
    if ttft is not None and ttft.p50 > budget.ttft_p50_ns / MS:
        found.append(f"ttft error p50 {ttft.p50:.3f} ms > {budget.ttft_p50_ns / MS} ms")
    limit = budget.ttft_p99_ns
    if ttft is not None and limit is not None and ttft.p99 > limit / MS:
        found.append(f"ttft error p99 {ttft.p99:.3f} ms > {limit / MS} ms")
    if speed is not None and budget.speed_p99 is not None and speed.p99 > budget.speed_p99:
        found.append(f"speed error p99 {speed.p99:.2%} > {budget.speed_p99:.1%}")
    limit = budget.e2e_p99_ns
    if e2e is not None and limit is not None and e2e.p99 > limit / MS:
        found.append(f"e2e error p99 {e2e.p99:.3f} ms > {limit / MS} ms")
    if result.offered is not None and result.offered < budget.offered:
        found.append(f"offered {result.offered:.1%} of the concurrency < {budget.offered:.0%}")
    if result.outside:
        found.append(f"{result.outside} samples whose bounds do not hold the truth")
    for number, what in (
        (result.wrong_kinds, "wrong first-token kinds"),
        (result.wrong_tokens, "wrong token counts"),
        (len(result.wrong_outcomes), f"wrong outcomes ({', '.join(set(result.wrong_outcomes))})"),
        (result.unmeasured, "good answers without a ttft, speed or e2e"),
        (result.lost, "requests that the simulator did not log"),
    ):
        if number:
            found.append(f"{number} {what}")
    return found


def _spread(values: Sequence[float | None], unit: float) -> ErrorSpread | None:
    sizes = [abs(value) / unit for value in values if value is not None]
    p50, p99, largest = quantiles(sizes, (0.5, 0.99, 1.0))
    if p50 is None or p99 is None or largest is None:
        return None
    return ErrorSpread(len(sizes), p50, p99, largest)


def _in_ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / MS


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
    """A page of `GET /sim/log`: some entries, and where to go on."""

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
    unsure: bool  # a stamp of the first or last token that may be off by more than a millisecond
    outside: bool  # the truth is not within the bounds of such a stamp
    pacing_ns: tuple[int, ...]  # the simulator's own |actual - planned|


decode_page: Final = msgspec.json.Decoder(LogPage).decode


def errors_of(done: Finished, entry: LogEntry) -> RequestErrors:
    """Hold one measured request against the log."""
    marks, called = done.marks, done.called
    first_ns = (marks.first or 0) - (marks.first_since or marks.first or 0)
    last_ns = (marks.last or 0) - (marks.last_since or marks.last or 0)
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
        unsure=max(first_ns, last_ns) > UNSURE_NS,
        outside=_outside(ttft, first_ns) or _outside(e2e, last_ns),
        pacing_ns=tuple(abs(at - sent.planned_ns) for sent, at in written),
    )


def _outside(error_ns: int | None, bound_ns: int) -> bool:
    """Whether a stamp that may be too late by its bound is wrong by more than that."""
    return error_ns is not None and not -OFF_NS <= error_ns <= bound_ns + OFF_NS


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
