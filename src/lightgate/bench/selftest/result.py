"""The simulator's log, the errors of measured requests against it, and what a cell came to.

A cell misses a limit when its samples show with 95 % confidence that the quantile is above it: a
one-sided bound of order statistics. So one sample out of the row misses nothing by itself, however
few there are, and a shared machine does not fail by chance. Samples whose bounds are wide (unsure)
are held to their bounds alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.clock import timing
from lightgate.clock.bounds import ONE_BURST_NS, Bounds, SpeedFacts, of_speed
from lightgate.clock.load import Span, Window, inflight
from lightgate.clock.quantile import at_least, quantile, quantiles
from lightgate.dialect import kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.bench.load.drive import Finished
    from lightgate.bench.selftest.plan import ErrorBudget, SelftestCell
    from lightgate.clock.marks import Marks


MS: Final = 1e6
HELD_UP_NS: Final = 200_000  # a write of the simulator that took longer was interrupted
BUSY_SHARE: Final = 0.1  # above this share of unsure samples the machine is too busy to keep a load
EARLY_NS: Final = 20_000  # two processes read one clock: less than this is no difference


class ErrorSpread(msgspec.Struct, frozen=True):
    """The size of an error over a cell."""

    n: int
    p50: float
    p99: float
    max: float


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """One cell; errors of times in milliseconds, of speed as a share of the true speed.

    `beyond_ms` and `beyond_speed` are how far the truth lies outside the bounds of the stamps, for
    the first and last token; `early_sends` counts requests that were there before their t_send.
    """

    scenario: str
    title: str
    concurrency: int
    stamps: str
    hog: bool
    requests: int
    tokens: int
    send_ms: ErrorSpread | None
    ttft_ms: ErrorSpread | None
    speed: ErrorSpread | None
    e2e_ms: ErrorSpread | None
    beyond_ms: ErrorSpread | None
    beyond_speed: ErrorSpread | None
    unsure_share: float
    early_sends: int
    wrong_kinds: int
    wrong_tokens: int
    wrong_outcomes: tuple[str, ...]
    unmeasured: int
    lost: int
    offered: float | None
    cpu_us_per_token: float
    pacing_p99_ms: float | None
    misses: tuple[str, ...]
    first_misses: tuple[str, ...] = ()  # of a cell that was repeated because of them


def summarise(
    cell: SelftestCell,
    done: list[Finished],
    errors: list[RequestErrors],
    budget: ErrorBudget,
    *,
    cpu_ns: int,
) -> CellResult:
    """Put a cell's errors together and hold them against the budget."""
    tokens = sum(item.called.tokens.streamed or 0 for item in done)
    pacing = [p for error in errors for p in error.pacing_ns]
    result = CellResult(
        scenario=cell.name,
        title=cell.scenario.title,
        concurrency=cell.concurrency,
        stamps=cell.stamps,
        hog=cell.hog,
        requests=len(done),
        tokens=tokens,
        send_ms=_spread([e.send_ns for e in errors], MS),
        ttft_ms=_spread([e.ttft_ns for e in errors], MS),
        speed=_spread([e.speed for e in errors], 1.0),
        e2e_ms=_spread([e.e2e_ns for e in errors], MS),
        beyond_ms=_spread([ns for e in errors for ns in e.beyond_ns], MS),
        beyond_speed=_spread([e.beyond_speed for e in errors], 1.0),
        unsure_share=sum(e.unsure for e in errors) / max(1, len(errors)),
        early_sends=sum((e.send_ns or 0) < -EARLY_NS for e in errors),
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
    misses = [*_over(errors, budget), *_wrong_things(result, budget)]
    return msgspec.structs.replace(result, misses=tuple(misses))


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


def _over(errors: Sequence[RequestErrors], budget: ErrorBudget) -> Iterable[str]:
    """Say which quantiles are above their limits, with 95 % confidence."""
    beyond = [ns for e in errors for ns in e.beyond_ns]
    for what, q, values, limit in (
        ("ttft error", 0.5, [e.ttft_ns for e in errors if not e.unsure], budget.ttft_p50_ns),
        ("time from t_send to arrival", 0.5, [e.send_ns for e in errors], budget.send_p50_ns),
        ("truth outside the bounds by", 0.99, beyond, budget.beyond_p99_ns),
    ):
        least = at_least([abs(value) for value in values if value is not None], q)
        if limit is not None and least > limit:
            yield f"{what} p{q * 100:g} at least {least / MS:.3f} ms > {limit / MS:.3g} ms"
    least = at_least([e.beyond_speed for e in errors if e.beyond_speed is not None], 0.99)
    if least > budget.beyond_speed_p99:
        limit = budget.beyond_speed_p99
        yield f"true speed outside the bounds by p99 at least {least:.2%} > {limit:.1%}"


def _wrong_things(result: CellResult, budget: ErrorBudget) -> Iterable[str]:
    """Say what may not happen even once."""
    too_busy = result.unsure_share > BUSY_SHARE
    if result.offered is not None and result.offered < budget.offered and not too_busy:
        yield f"offered {result.offered:.1%} of the concurrency < {budget.offered:.0%}"
    for number, what in (
        (result.early_sends, "requests that had arrived before their t_send"),
        (result.wrong_kinds, "wrong first-token kinds"),
        (result.wrong_tokens, "wrong token counts"),
        (len(result.wrong_outcomes), f"wrong outcomes ({', '.join(set(result.wrong_outcomes))})"),
        (result.unmeasured, "good answers without a ttft, speed or e2e"),
        (result.lost, "requests that the simulator did not log"),
    ):
        if number:
            yield f"{number} {what}"


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
    """One request as the simulator saw it; `done_ns` are the ends of the writes that were made."""

    request_id: str
    model: str
    received_ns: int
    plan: tuple[LoggedWrite, ...]
    outcome: str
    tokens: dict[str, int] | None = None  # made, by kind
    usage: dict[str, object] | None = None  # as it was sent
    done_ns: tuple[int, ...] = ()


class LogPage(msgspec.Struct, frozen=True):
    """A page of `GET /sim/log`: some entries, and where to go on."""

    entries: tuple[LogEntry, ...]
    next: int
    more: bool
    dropped: int


class TokenWrite(NamedTuple):
    """One write that carried tokens; its bytes left between the two instants."""

    at_ns: int
    done_ns: int
    tokens: int
    kind: str

    def error(self, stamp: int) -> int:
        """A stamp minus the instant of the write; its nearer end, if the write was interrupted."""
        if self.done_ns - self.at_ns <= HELD_UP_NS or stamp < self.at_ns:
            return stamp - self.at_ns
        return max(0, stamp - self.done_ns)

    def beyond(self, stamp: int, bound_ns: int) -> int:
        """How far the write lies outside the bounds of its stamp."""
        return max(0, stamp - bound_ns - max(self.done_ns, self.at_ns), self.at_ns - stamp)


class RequestErrors(NamedTuple):
    """Measured minus true for one request; None where the number does not exist.

    The true `ttft` (`e2e`) runs from our own `t_send`, which is ours to define, to the instant at
    which the simulator wrote the first (last) token. `send_ns` is how long after `t_send` the
    request was there: it shows a `t_send` that was taken too early or too late.
    """

    send_ns: int | None
    ttft_ns: int | None
    e2e_ns: int | None
    speed: float | None  # as a share of the true speed
    beyond_ns: tuple[int, ...]  # of the first and the last token: see `TokenWrite.beyond`
    beyond_speed: float | None  # how far the true speed is outside its bounds, as a share of it
    wrong_kind: bool
    wrong_tokens: bool
    wrong_outcome: str  # empty where it is right
    unmeasured: bool  # a number that the log has of a good answer, and we have not
    unsure: bool  # a stamp of the first or last token that may be off by more than a millisecond
    pacing_ns: tuple[int, ...]  # the simulator's own |actual - planned|


decode_page: Final = msgspec.json.Decoder(LogPage).decode


def errors_of(done: Finished, entry: LogEntry) -> RequestErrors:
    """Hold one measured request against the log."""
    marks, called = done.marks, done.called
    first_ns, last_ns = _bound(marks.first, marks.first_since), _bound(marks.last, marks.last_since)
    bursts = _token_writes(entry)
    ttft = e2e = None
    beyond: list[int] = []
    seen, wrong_kind = kinds.names(called.first_kinds), False
    if bursts and called.streamed:
        if marks.first is not None:
            ttft = bursts[0].error(marks.first)
            beyond.append(bursts[0].beyond(marks.first, first_ns))
        alone = not _merged(marks)
        wrong_kind = seen != (bursts[0].kind,) if alone else bursts[0].kind not in seen
    speed: float | None = None
    beyond_speed: float | None = None
    if bursts and called.streamed and entry.outcome == "ok":
        if marks.last is not None:
            e2e = bursts[-1].error(marks.last)
            beyond.append(bursts[-1].beyond(marks.last, last_ns))
        speed, beyond_speed = _speed_errors(done, bursts)
    wrong_tokens = False
    if entry.usage is not None and entry.tokens is not None and called.outcome == "ok":
        wrong_tokens = called.tokens.out != sum(entry.tokens.values())
    written = [sent for sent in entry.plan if sent.actual_ns is not None]
    return RequestErrors(
        send_ns=None if marks.send is None else entry.received_ns - marks.send,
        ttft_ns=ttft,
        e2e_ns=e2e,
        speed=speed,
        beyond_ns=tuple(beyond),
        beyond_speed=beyond_speed,
        wrong_kind=wrong_kind,
        wrong_tokens=wrong_tokens,
        wrong_outcome=_wrong(called.outcome, entry.outcome),
        unmeasured=entry.outcome == called.outcome == "ok"
        and _lacks(marks, bursts, (ttft, e2e, speed)),
        unsure=max(first_ns, last_ns) > UNSURE_NS,
        pacing_ns=tuple(abs((sent.actual_ns or 0) - sent.planned_ns) for sent in written),
    )


def _token_writes(entry: LogEntry) -> list[TokenWrite]:
    found = []
    for place, sent in enumerate(entry.plan):
        if sent.actual_ns is not None and sent.tokens > 0:
            done = entry.done_ns[place] if place < len(entry.done_ns) else sent.actual_ns
            found.append(TokenWrite(sent.actual_ns, done, sent.tokens, sent.kind))
    return found


def _bound(stamp: int | None, since: int | None) -> int:
    return 0 if stamp is None or not since else stamp - since


def _merged(marks: Marks) -> bool:
    """Whether the first burst may hide several: pieces that a late client read at once."""
    pieces = marks.burst_pieces[0] if marks.burst_pieces else 0
    return pieces > 1 and _bound(marks.first, marks.first_since) > ONE_BURST_NS


def _wrong(measured: str, true: str) -> str:
    return "" if measured == true else f"{measured} instead of {true}"


def _lacks(marks: Marks, bursts: list[TokenWrite], found: tuple[float | None, ...]) -> bool:
    """Whether a number is missing although the bursts that define it were written.

    An answer that a late client read in one piece has no speed, and says by its bounds why.
    """
    if not bursts:
        return False
    ttft, e2e, speed = found
    lasts = bursts[-1].at_ns > bursts[0].at_ns and not (len(marks.burst_ns) == 1 and _merged(marks))
    return ttft is None or e2e is None or (lasts and speed is None)


def _speed_errors(done: Finished, bursts: list[TokenWrite]) -> tuple[float | None, float | None]:
    """The error of the speed, and how far the true one is outside its bounds; shares of it."""
    marks, tokens = done.marks, done.called.tokens
    measured = timing.Timing.of(marks, tokens).speed_tps
    first, last = marks.first, marks.last
    span = bursts[-1].at_ns - bursts[0].at_ns
    if measured is None or first is None or last is None or span <= 0:
        return None, None
    streamed = float(tokens.streamed or 0)
    ends = of_speed(
        SpeedFacts(
            rest=streamed - (tokens.first_burst or 0.0),
            streamed=streamed,
            pieces=marks.burst_pieces[0],
            first=first,
            last=last,
            first_ns=_bound(first, marks.first_since),
            last_ns=_bound(last, marks.last_since),
        )
    )
    rest = sum(burst.tokens for burst in bursts[1:])
    # Writes that follow each other at once are one burst if the client reads them together.
    fewest = sum(b.tokens for b in bursts[1:] if b.at_ns - bursts[0].at_ns > ONE_BURST_NS)
    longest = bursts[-1].done_ns - bursts[0].at_ns
    shortest = max(1, bursts[-1].at_ns - bursts[0].done_ns)
    true = rest * NS_PER_S / span
    truth = Bounds(fewest * NS_PER_S / max(longest, span), rest * NS_PER_S / min(shortest, span))
    beyond = max(0.0, ends.low - truth.high, truth.low - ends.high)
    return measured / true - 1, beyond / true
