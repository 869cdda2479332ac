"""The record of one benchmark run: what `run.json` holds.

Written by `bench`, read by `report`, `compare` and `reread`. Fields are added at the end and never
renamed; a reader passes over fields that it does not know. Undefined is None.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final, Literal

import msgspec

from lightgate.clock.compare import BoardRow, Comparison
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.checked import ChecksRecord, PassRate
from lightgate.ledger.runs.hosts import HostHealth

SCHEMA: Final = 1  # of this record
DEFINITIONS: Final = "2026-11"  # of docs/reference/metrics.md

VerdictName = Literal[
    "healthy",
    "admission queue",
    "batch contention",
    "rate limiter",
    "intermittent queue",
    "client-bound",
    "network",
    "overloaded",
    "not judged",
]
Profile = Literal["voice", "coding", "agent", "batch"]


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One target of the run; never its key. Prices in dollars per million tokens."""

    name: str
    provider: str
    model: str
    base_url: str
    dialect: str
    twin_of: str | None = None  # the second half of an A/A pair
    price_input: Decimal | None = None
    price_output: Decimal | None = None
    price_as_of: str | None = None
    hourly_cost: Decimal | None = None
    drivers: dict[str, str] = {}  # size, quantisation, hardware, operator, where they are known


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A quantile of one metric over `n` samples.

    `value` is None where `n` is too small for it, or with `infinite` where it is a failure, which
    never arrives. An interval of None beside a value has a failure as its upper end.
    """

    q: float
    n: int
    value: float | None = None
    interval: Interval | None = None
    infinite: bool = False  # JSON has no infinity
    # The value at both ends of the bounds of the stamps: what the client's own lateness leaves
    # open. A `high` of None beside a `low` has no end. None of both: nobody watched.
    low: float | None = None
    high: float | None = None
    doubtful: bool = False  # it could move by more than max(1 ms, 2 %)
    n_eff: int | None = None  # independent samples among the `n`; None: taken as all of them

    @property
    def worth(self) -> int:
        """How many independent samples the quantile rests on."""
        return self.n if self.n_eff is None else min(self.n, self.n_eff)


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a cell: success quantiles, and (durations) those with failures as infinity."""

    name: str  # ttft_ms, ttft_plan_ms, ttfa_ms, e2e_ms, stall_ms, gap_ms, speed_tps, ...
    quantiles: tuple[Estimate, ...]
    with_failures: tuple[Estimate, ...] = ()


class CostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars at this cell's load, all from the same bill; `in_per_mtok` is the list's price."""

    out_per_mtok: Decimal | None = None  # the prompts are in it
    in_per_mtok: Decimal | None = None
    per_request: Decimal | None = None
    per_good_request: Decimal | None = None
    spent: Decimal | None = None
    source: str | None = None  # list | override | hourly
    per_1k: Decimal | None = None  # dollars per 1,000 requests of this workload
    tokens_per_dollar: float | None = None  # output tokens
    speed_per_dollar: float | None = None  # tok/s of a stream per dollar an hour of it


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine said of itself in the cell's windows, by `n` looks at its metrics."""

    engine: str
    n: int
    running: float  # requests, the mean
    waiting: float | None = None
    waiting_most: float | None = None
    cache_most: float | None = None  # share of the KV cache


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What nvidia-smi said in the cell's windows, by `n` looks; watts of all GPUs together."""

    n: int
    watts: float | None = None
    use: float | None = None  # share of the time
    tokens_per_joule: float | None = None


class PromptSlope(msgspec.Struct, frozen=True, kw_only=True):
    """How much later the first token comes for a longer prompt; lengths in tokens."""

    ms_per_1k: float  # milliseconds per 1,000 tokens
    interval: Interval
    shortest: int
    longest: int
    n: int


class CellSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One target under one load."""

    target: str
    load: str  # "c=8", "20/s poisson", "trace azure.csv x2"
    concurrency: int | None = None
    rate: float | None = None
    requests: int = 0
    warmup: int = 0  # requests cut at the start, never in the statistics
    outcomes: dict[str, int] = {}
    metrics: tuple[Metric, ...] = ()
    window_s: float | None = None
    steady: bool | None = None
    steady_note: str = ""
    throughput_tps: float | None = None
    inflight: float | None = None
    little: float | None = None
    offered_share: float | None = None
    batch_eff: float | None = None
    retain: float | None = None
    goodput: float | None = None
    words_per_s: float | None = None
    parallel_gain: float | None = None  # throughput here / throughput of one at a time
    tokens_in_p50: float | None = None
    tokens_out_p50: float | None = None
    tokens_source: dict[str, int] = {}
    cold_ttft_p50_ms: float | None = None  # requests without cached prompt tokens
    cached_ttft_p50_ms: float | None = None  # requests with them
    cost: CostFacts = CostFacts()
    # Of the requests that count, on the run's monotonic clock: sent (open loop: planned) from the
    # first instant of a pair to before its second. Empty: all but warm-up. None: an older file.
    windows_ns: tuple[tuple[int, int], ...] | None = None
    waves: int | None = None  # in which the requests came, where they did
    engine: EngineFacts | None = None
    gpu: GpuFacts | None = None
    slope: PromptSlope | None = None
    throughput_interval: Interval | None = None
    client_cpu: float | None = None  # how busy the client's own core was, from 0 to 1
    # Good answers that ended in the windows, and the tokens of their prompts, per second.
    requests_per_s: float | None = None
    tokens_in_per_s: float | None = None
    machine_cpu: float | None = None  # how busy all cores of the client's machine were
    checks: PassRate | None = None  # of the user's own cases, where they were asked

    def estimate(self, metric: str, q: float, *, failures: bool = False) -> Estimate | None:
        """Look one quantile up; None where the cell has no such metric or quantile."""
        for found in self.metrics:
            if found.name == metric:
                rows = found.with_failures if failures else found.quantiles
                return next((row for row in rows if math.isclose(row.q, q)), None)
        return None

    def value(self, metric: str, q: float) -> float | None:
        """Look the value of one quantile up; None where there is none."""
        found = self.estimate(metric, q)
        return None if found is None else found.value

    def doubts(self) -> list[tuple[str, Estimate]]:
        """List the metrics and quantiles that the client's own lateness leaves open."""
        return [
            (metric.name, found)
            for metric in self.metrics
            for found in metric.quantiles
            if found.doubtful
        ]


class CellVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a target behaves as it does under load, with the numbers that say so."""

    target: str
    name: VerdictName
    evidence: tuple[str, ...]
    sentence: str  # how it degrades from the lightest load to the heaviest


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """Which target to take for a use, and the numbers that decide."""

    profile: Profile
    target: str | None  # None: none meets it, or they tie
    because: str
    slo: dict[str, float]
    source: str  # where the SLO's numbers come from


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A question that people bring to a speed report, answered from the numbers of the run."""

    question: str
    text: str
    target: str | None = None  # None: of all targets together


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """Two targets at one load, one metric; `comparison.ratio` is a over b."""

    load: str
    metric: str
    a: str
    b: str
    comparison: Comparison
    p_adjusted: float  # Holm, over all pairs of this load and metric
    # "a faster", "b faster", "tie", "unsure" (differs, but not surely among so many), "too few
    # blocks" (nothing could have been sure among so many), "n too small", "void"
    verdict: str


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """The ranking of all targets at one load by one metric; void if an A/A pair differs."""

    load: str
    metric: str
    standings: tuple[BoardRow, ...]
    void: bool = False


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """From how many requests a month a self-hosted target is cheaper than an API.

    A month of the machine costs the same at any use; `utilisation` is the share of what it served
    at this load from which the API would cost more. None: never, or unknown; the note says which.
    """

    hosted: str
    api: str
    load: str
    hosted_per_mtok: Decimal | None
    tokens_per_month: Decimal | None  # output tokens
    note: str = ""
    hosted_per_1k: Decimal | None = None  # where the machine never waits for work
    api_per_1k: Decimal | None = None
    requests_per_month: Decimal | None = None
    utilisation: float | None = None
    models: tuple[str, ...] = ()  # the two, where they are not the same model


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the client itself fared."""

    stamp_source: str
    clock_steps: int
    cpu_share: float | None
    peak_rss_mb: float | None
    cores: int
    bound_p50_ms: float | None = None  # how much earlier than its stamp a token may have come:
    bound_p99_ms: float | None = None  # the first or the last one, over all requests


class RegionCells(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of a run, made of the attempts of one region alone."""

    region: str
    cells: tuple[CellSummary, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `lightgate bench`."""

    schema: int = SCHEMA
    definitions: str = DEFINITIONS
    id: str
    started: str  # RFC 3339, UTC
    finished: str | None = None  # None: it was interrupted
    environment: dict[str, str] = {}
    options: dict[str, str] = {}  # as asked for; what --resume goes on with
    workload: dict[str, str] = {}  # what was sent: lengths, hashes of the prompts, caching
    targets: tuple[TargetFacts, ...] = ()
    cells: tuple[CellSummary, ...] = ()
    boards: tuple[Board, ...] = ()
    versus: tuple[Versus, ...] = ()
    verdicts: tuple[CellVerdict, ...] = ()
    picks: tuple[Pick, ...] = ()
    break_even: tuple[BreakEven, ...] = ()
    health: Health | None = None
    notes: tuple[str, ...] = ()
    answers: tuple[RunAnswer, ...] = ()
    checks: ChecksRecord | None = None
    hosts: tuple[HostHealth, ...] = ()  # that made the load, where it was not this machine
    regions: tuple[RegionCells, ...] = ()  # where the load came from several

    def pass_rate(self, target: str) -> PassRate | None:
        """How many of the user's own cases a target passed, at its lightest load; None: unknown."""
        found = [cell for cell in self.cells if cell.target == target and cell.checks is not None]
        found.sort(key=lambda cell: cell.concurrency or 0)
        return found[0].checks if found else None
