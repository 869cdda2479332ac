"""A realistic run, made from seeded draws: five providers, three loads, an A/A pair, failures."""

from __future__ import annotations

import math
from decimal import Decimal
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.compare import compare, holm, standings
from lightgate.clock.load import successes, with_failures
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import interval, quantile
from lightgate.clock.tokens import Tokens
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import (
    Board,
    BreakEven,
    CellSummary,
    CellVerdict,
    CostFacts,
    Estimate,
    Health,
    Metric,
    Pick,
    Run,
    TargetFacts,
    Versus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MODEL = "llama-3.1-70b"
# TTFT p50 and p95 in ms, tokens/s p50, at 1, 8 and 32 requests in flight (world tables-2025).
PROVIDERS = {
    "generalcompute": ((180, 220, 310), (210, 310, 285), (280, 450, 245)),
    "groq": ((230, 290, 215), (290, 820, 180), (610, 2400, 140)),
    "fireworks": ((410, 580, 110), (520, 960, 95), (780, 1800, 72)),
    "together": ((480, 720, 85), (610, 1350, 70), (950, 2900, 52)),
    "replicate": ((620, 1100, 65), (890, 2200, 48), (1400, 4100, 30)),
}
PRICES = {
    "generalcompute": "0.90",
    "groq": "0.79",
    "fireworks": "0.90",
    "together": "0.88",
    "replicate": "2.75",
}
LOADS = (1, 8, 32)
DURATIONS = ("ttft_ms", "ttft_plan_ms", "ttfa_ms", "e2e_ms", "stall_ms", "tth_ms")
RATES = ("speed_tps", "speed_total_tps")


class Sample:
    """A run with the attempts and recordings that it came from."""

    def __init__(
        self, run: Run, attempts: list[AttemptRecord], recordings: dict[str, Recording]
    ) -> None:
        self.run = run
        self.attempts = attempts
        self.recordings = recordings


def make(n: int = 80, tokens: int = 96, seed: int = 7) -> Sample:
    """Draw everything; the twin of groq is groq again."""
    rng = np.random.default_rng(seed)
    curves = {**PROVIDERS, "groq-twin": PROVIDERS["groq"]}
    attempts: list[AttemptRecord] = []
    recordings: dict[str, Recording] = {}
    cells: list[CellSummary] = []
    for at, load in enumerate(LOADS):
        for provider, curve in curves.items():
            drawn = [draw(rng, provider, load, seq, curve[at], tokens) for seq in range(n)]
            mine = [attempt for attempt, _ in drawn]
            attempts += mine
            recordings |= {recording.id: recording for _, recording in drawn}
            cells.append(summary(mine, load, curve[at][2]))
    return Sample(whole(cells, attempts, rng), attempts, recordings)


def draw(
    rng: np.random.Generator,
    provider: str,
    load: int,
    seq: int,
    curve: tuple[float, float, float],
    tokens: int,
) -> tuple[AttemptRecord, Recording]:
    """One attempt; the heavier the load, the more of them fail."""
    p50, p95, tps = curve
    ttft = p50 * math.exp(rng.normal(0, math.log(p95 / p50) / 1.645))
    start = (seq * load + 1) * 1_000_000_000
    marks = Marks(plan=start, stamp_source="kernel")
    marks.send = start + 20_000
    marks.headers = marks.send + int(ttft * 0.4e6)
    failed = rng.random() < load / 800
    status, outcome, error = 200, Outcome.OK, None
    if failed:
        status, outcome = (429, Outcome.RATE_LIMITED) if load > 8 else (503, Outcome.HTTP_ERROR)
        error = "Too many requests." if load > 8 else "The server is overloaded."
        marks.end = marks.headers
    else:
        stamp = marks.send + int(ttft * 1e6)
        pace = 1e9 / (tps * math.exp(rng.normal(0, 0.05)))
        marks.event = marks.headers
        marks.answer = stamp
        for _ in range(tokens):
            marks.burst(stamp, stamp - 10_000, 1, 4, -1, 1)
            stamp += int(pace * rng.uniform(0.6, 1.4))
        marks.end = stamp
    identity = f"{provider}-{load}-{seq}"
    facts = AttemptFacts(
        id=identity,
        exchange_id=identity,
        run_id="run-1",
        source="bench",
        target=f"{provider}/{MODEL}",
        provider=provider,
        model=MODEL,
        dialect="openai",
        seq=seq,
        concurrency=load,
        outcome=outcome,
        status=status,
        error=error,
        wall_ns=1_763_000_000_000_000_000 + start,
    )
    counted = (
        Tokens()
        if failed
        else Tokens(out=tokens, streamed=tokens, tokens_in=512, source="usage", first_burst=1.0)
    )
    recording = Recording.of(identity, marks, load=f"c={load}", block=seq // 4, max_tokens=tokens)
    return AttemptRecord.of(facts, marks, counted), recording


def estimates(values: list[float], wanted: Iterable[float]) -> tuple[Estimate, ...]:
    made = []
    for q in wanted:
        between = interval(values, q)
        found = None if between is None else quantile(values, q)
        infinite = found is not None and math.isinf(found)  # JSON has no infinity
        if infinite or (between is not None and math.isinf(between.high)):
            between = None
        known = None if infinite else found
        made.append(Estimate(q=q, n=len(values), value=known, interval=between, infinite=infinite))
    return tuple(made)


def getter(name: str) -> Callable[[AttemptRecord], float | None]:
    def get(attempt: AttemptRecord) -> float | None:
        found: float | None = getattr(attempt, name)
        return found

    return get


def summary(mine: list[AttemptRecord], load: int, tps: float) -> CellSummary:
    outcomes: dict[str, int] = {}
    for attempt in mine:
        outcomes[attempt.outcome.value] = outcomes.get(attempt.outcome.value, 0) + 1
    quantiles = (0.5, 0.9, 0.95, 0.99)
    metrics = [
        Metric(
            name=name,
            quantiles=estimates(successes(mine, getter(name)), quantiles),
            with_failures=estimates(with_failures(mine, getter(name)), quantiles),
        )
        for name in DURATIONS
    ] + [
        Metric(name=name, quantiles=estimates(successes(mine, getter(name)), (0.5, 0.05)))
        for name in RATES
    ]
    provider = mine[0].provider
    price = PRICES.get(provider)
    return CellSummary(
        target=mine[0].target,
        load=f"c={load}",
        concurrency=load,
        requests=len(mine),
        warmup=4,
        outcomes=outcomes,
        metrics=tuple(metrics),
        window_s=60.0,
        steady=True,
        throughput_tps=tps * load * 0.8,
        inflight=load * 0.99,
        little=load * 0.985,
        offered_share=0.99,
        batch_eff=1 / (1 + load / 60),
        retain=0.9,
        goodput=outcomes["ok"] / len(mine),
        words_per_s=tps / 1.3,
        tokens_in_p50=512,
        tokens_out_p50=96,
        tokens_source={"usage": outcomes["ok"]},
        cost=CostFacts()
        if price is None
        else CostFacts(
            out_per_mtok=Decimal(price),
            in_per_mtok=Decimal(price),
            per_request=Decimal("0.00054"),
            per_good_request=Decimal("0.00055"),
            spent=Decimal("0.043"),
            source="list",
            per_1k=Decimal(price) / 2,
            tokens_per_dollar=177_778.0,
            speed_per_dollar=49.4,
        ),
    )


def whole(cells: list[CellSummary], attempts: list[AttemptRecord], rng: np.random.Generator) -> Run:
    boards, found = rankings(attempts, rng)
    facts = [
        TargetFacts(
            name=f"{provider}/{MODEL}",
            provider=provider,
            model=MODEL,
            base_url=f"https://{provider}.test/v1",
            dialect="openai",
            twin_of=f"groq/{MODEL}" if provider == "groq-twin" else None,
            price_output=Decimal(PRICES[provider]) if provider in PRICES else None,
            price_as_of="2025-06-01",
        )
        for provider in (*PROVIDERS, "groq-twin")
    ]
    return Run(
        id="01jb3k7q9x",
        started="2026-11-15T04:00:00Z",
        finished="2026-11-15T04:21:40Z",
        environment={"lightgate": "0.3.0", "python": "3.11.9", "system": "Linux x86_64"},
        options={"concurrency": "1,8,32", "requests": "80", "seed": "7"},
        workload={"prompt_tokens": "512", "max_tokens": "96", "prefix": "unique"},
        targets=tuple(facts),
        cells=tuple(cells),
        boards=boards,
        versus=found,
        verdicts=verdicts(),
        picks=picks(),
        break_even=(
            BreakEven(
                hosted=f"together/{MODEL}",
                api=f"replicate/{MODEL}",
                load="c=32",
                hosted_per_mtok=Decimal("0.51"),
                tokens_per_month=Decimal(714_000_000),
                hosted_per_1k=Decimal("0.049"),
                api_per_1k=Decimal("0.54"),
                requests_per_month=Decimal(7_437_500),
                utilisation=0.0907,
            ),
            BreakEven(
                hosted=f"together/{MODEL}",
                api=f"groq/{MODEL}",
                load="c=1",
                hosted_per_mtok=Decimal("9.10"),
                tokens_per_month=None,
                note="never at this load: busy all day, it still costs 1.6 times as much",
                hosted_per_1k=Decimal("0.87"),
                api_per_1k=Decimal("0.54"),
            ),
        ),
        health=Health(
            stamp_source="kernel",
            clock_steps=0,
            cpu_share=0.34,
            peak_rss_mb=84.0,
            cores=2,
            bound_p50_ms=0.0,
            bound_p99_ms=0.31,
        ),
    )


def rankings(
    attempts: list[AttemptRecord], rng: np.random.Generator
) -> tuple[tuple[Board, ...], tuple[Versus, ...]]:
    """Boards and comparisons as a run has them; a failed attempt leaves its pair out."""
    boards, pairs = [], []
    for load in LOADS:
        series: dict[str, dict[int, float]] = {}
        for attempt in attempts:
            if attempt.concurrency == load and attempt.ttft_ms is not None:
                series.setdefault(attempt.target, {})[attempt.seq] = attempt.ttft_ms
        shared = sorted(set.intersection(*(set(row) for row in series.values())))
        rows = {name: [row[seq] for seq in shared] for name, row in series.items()}
        labels = [seq // 4 for seq in shared]
        ranked = standings(
            {name: row for name, row in rows.items() if "twin" not in name},
            rng=rng,
            blocks=labels,
            rounds=600,
        )
        boards.append(Board(load=f"c={load}", metric="ttft_ms", standings=tuple(ranked)))
        names = list(rows)
        made = [
            (a, b, compare(rows[a], rows[b], rng=rng, blocks=labels))
            for at, a in enumerate(names)
            for b in names[at + 1 :]
        ]
        adjusted = holm([found.p_value for _, _, found in made])
        word = {"faster": "a faster", "slower": "b faster"}
        pairs += [
            Versus(
                load=f"c={load}",
                metric="ttft_ms",
                a=a,
                b=b,
                comparison=found,
                p_adjusted=p,
                verdict=word.get(found.verdict, found.verdict),
            )
            for (a, b, found), p in zip(made, adjusted, strict=True)
        ]
    return tuple(boards), tuple(pairs)


def verdicts() -> tuple[CellVerdict, ...]:
    return (
        CellVerdict(
            target=f"generalcompute/{MODEL}",
            name="healthy",
            evidence=("TTFT p50 rises 1.6x from c=1 to c=32", "speed keeps 79 %"),
            sentence="Holds up: TTFT p50 180 ms at c=1, 280 ms at c=32.",
        ),
        CellVerdict(
            target=f"groq/{MODEL}",
            name="intermittent queue",
            evidence=("p95/p50 of TTFT is 1.3 at c=1 and 3.9 at c=32", "TTFT p50 rises 2.7x"),
            sentence="The slow tail grows: TTFT p95 290 ms at c=1, 2,400 ms at c=32.",
        ),
        CellVerdict(
            target=f"replicate/{MODEL}",
            name="batch contention",
            evidence=("speed keeps 46 % at c=32",),
            sentence="Each stream slows down: 65 tok/s at c=1, 30 tok/s at c=32.",
        ),
    )


def picks() -> tuple[Pick, ...]:
    source = "GuideLLM SLO examples"
    return (
        Pick(
            profile="voice",
            target=f"generalcompute/{MODEL}",
            because="TTFA p95 450 ms at c=32 is the lowest",
            slo={"ttfa_ms": 500.0},
            source=source,
        ),
        Pick(
            profile="coding",
            target=f"generalcompute/{MODEL}",
            because="speed p50 310 tok/s at c=1 is the highest",
            slo={"ttft_ms": 500.0},
            source=source,
        ),
        Pick(
            profile="agent",
            target=None,
            because="generalcompute and groq tie over 10 turns",
            slo={"e2e_ms": 5000.0},
            source=source,
        ),
        Pick(
            profile="batch",
            target=f"groq/{MODEL}",
            because="$0.79 per million tokens is the lowest price that meets it",
            slo={},
            source="none needed",
        ),
    )


@pytest.fixture(scope="session")
def sample() -> Sample:
    return make()


VOID = {"meta", "br", "hr", "img", "link", "input"}


class Markup(HTMLParser):
    """Reads markup strictly: every element must be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []  # element, text
        self.feed(text)
        self.close()
        assert not self.stack, f"never closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack:
            self.texts.append((self.stack[-1], data))

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def renamed(run: Run, old: str, new: str) -> Run:
    """The run with one target called otherwise, everywhere."""

    def swap(node: object) -> object:
        if isinstance(node, dict):
            return {key: swap(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [swap(value) for value in node]
        return new if node == old else node

    return msgspec.convert(swap(msgspec.to_builtins(run)), Run)
