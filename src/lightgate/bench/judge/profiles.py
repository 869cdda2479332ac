"""Which target to take for a use: the demands, the number that decides, and who wins by it.

A demand that a number cannot show for lack of samples is not met. Intervals that overlap are a tie;
the next number decides among those that tie, and if none is left they tie.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lightgate.bench.statistics.summary import error_rate, lightest_first
from lightgate.clock.load import Slo
from lightgate.clock.quantile import smallest_n
from lightgate.ledger.runs.doubt import doubt
from lightgate.ledger.runs.run import Pick, Profile
from lightgate.price.cost import money

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lightgate.ledger.runs.run import CellSummary, Estimate

TURNS: Final = 10  # of an agent: 002 counts ten calls in a row
MOST_FAILURES: Final = 0.05  # above this, a target has no p95 that holds for all requests
SAME_THROUGHPUT: Final = 0.05  # throughput has no interval; closer than this it decides nothing


class Demand(NamedTuple):
    """One number that must be kept; durations are judged with failures as infinite."""

    metric: str
    q: float
    limit: float

    @property
    def is_rate(self) -> bool:
        """Whether larger is better."""
        return self.metric.endswith("_tps")

    @property
    def wanted(self) -> str:
        """The limit in words."""
        if self.is_rate:
            return f"at least {self.limit:.3g} tok/s wanted"
        return f"at most {self.limit:g} ms wanted"

    def __str__(self) -> str:
        name = self.metric.removesuffix("_ms").removesuffix("_tps")
        return f"{name} slow 5 %" if self.is_rate and self.q < 0.5 else f"{name} p{self.q * 100:g}"


class Preset(NamedTuple):
    """A use: its demands with their source, and at which load it is judged."""

    demands: tuple[Demand, ...]
    load: Literal["lightest", "heaviest"]
    source: str

    @property
    def slo(self) -> Slo:
        """The demands on a single request, for goodput."""
        return Slo(**{demand.metric: demand.limit for demand in self.demands})


PRESETS: Final[dict[Profile, Preset]] = {
    "voice": Preset(
        (Demand("ttfa_ms", 0.95, 450.0), Demand("speed_tps", 0.05, 25.0)),
        "heaviest",
        "MLPerf LoadGen, llama2-70b interactive: TTFT 450 ms, 40 ms a token (p99 there, p95 here)",
    ),
    "coding": Preset(
        (Demand("ttft_ms", 0.95, 500.0), Demand("speed_tps", 0.05, 1000.0 / 150.0)),
        "lightest",
        "GuideLLM, code generation: TTFT 500 ms, 150 ms a token (p99 there, p95 here)",
    ),
    "agent": Preset(
        (Demand("e2e_ms", 0.95, 5000.0),),
        "lightest",
        "GuideLLM, agent: 5 s for each call",
    ),
    "batch": Preset((), "heaviest", "no demand on latency: nobody waits for a single answer"),
}


class Score(NamedTuple):
    """The number that decides between targets, lower is better, with its interval and its text."""

    value: float
    low: float
    high: float
    text: str


def picks(cells: Iterable[CellSummary], twins: Iterable[str] = ()) -> tuple[Pick, ...]:
    """Pick a target for every use; `twins` are the second halves of A/A pairs, left out."""
    hidden = set(twins)
    shown = [cell for cell in cells if cell.target not in hidden]
    return tuple(pick(profile, shown) for profile in PRESETS) if shown else ()


def pick(profile: Profile, cells: Sequence[CellSummary]) -> Pick:
    """Pick a target for one use, from the cells of all targets."""
    preset = PRESETS[profile]
    field = _at(preset, cells)
    problems = {cell.target: problem for cell in field if (problem := _problem(preset, cell))}
    fit = [cell for cell in field if cell.target not in problems]
    tokens = _tokens(field)
    winner, because = None, "none fits" if field else "nothing was measured"
    if fit:
        winner, because = _decide(fit, _DECIDERS[profile], tokens)
    load = field[0].load if field else "no load"
    return Pick(
        profile=profile,
        target=winner,
        because="; ".join([f"At {load}: {because}", *_out(problems)]),
        slo={demand.metric: demand.limit for demand in preset.demands},
        source=preset.source,
    )


def turns_ms(ttft_ms: float, speed_tps: float, tokens: float) -> float:
    """Time of an agent's turns, one after the other: turns x (ttft + tokens / speed)."""
    return TURNS * (ttft_ms + 1000.0 * tokens / speed_tps)


def _at(preset: Preset, cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Keep the cells of all targets at the load where the use is judged."""
    ordered = lightest_first(cells)
    if not ordered:
        return []
    load = ordered[0 if preset.load == "lightest" else -1].load
    return [cell for cell in ordered if cell.load == load]


def _problem(preset: Preset, cell: CellSummary) -> str:
    """Say why a target cannot be picked; empty where it can."""
    errors = error_rate(cell)
    if errors is None or errors > MOST_FAILURES:
        return "no request succeeded" if errors is None else f"{errors:.0%} of the requests failed"
    return next((text for demand in preset.demands if (text := _missed(demand, cell))), "")


def _out(problems: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each reason, with the targets that are out for it."""
    for problem in dict.fromkeys(problems.values()):
        names = [name for name, own in problems.items() if own == problem]
        listed = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
        yield f"{listed} out: {problem}"


def _missed(demand: Demand, cell: CellSummary) -> str:
    seen = cell.estimate(demand.metric, demand.q, failures=not demand.is_rate)
    if seen is None or seen.n < smallest_n(demand.q):
        return f"{demand} needs {smallest_n(demand.q)} requests"
    if seen.worth < smallest_n(demand.q):
        return (
            f"{demand} needs {smallest_n(demand.q)} independent requests, and these are worth "
            f"{seen.worth}"
        )
    if seen.value is None:
        return f"too many requests failed for {demand} ({demand.wanted})"
    surely = seen.value if seen.low is None else seen.low  # a time is kept by its latest end
    kept = surely >= demand.limit if demand.is_rate else seen.value <= demand.limit
    if not kept and seen.doubtful:
        return f"{doubt(demand.metric, seen)}, {demand.wanted}"
    unit = "tok/s" if demand.is_rate else "ms"
    return "" if kept else f"{demand} is {seen.value:.0f} {unit}, {demand.wanted}"


def _decide(
    fit: list[CellSummary], deciders: Sequence[Decider], tokens: float | None
) -> tuple[str | None, str]:
    said: list[str] = []
    for decider in deciders:
        scores = {cell.target: decider(cell, tokens) for cell in fit}
        known = {name: score for name, score in scores.items() if score is not None}
        if not known:
            continue
        order = sorted(known, key=lambda name: (known[name].value, name))
        best = known[order[0]]
        said.append(", ".join(f"{name} {known[name].text}" for name in order))
        fit = [cell for cell in fit if cell.target in known and known[cell.target].low <= best.high]
        if len(fit) == 1:
            return fit[0].target, "; then ".join(said)
    names = " and ".join(sorted(cell.target for cell in fit))
    if not said:
        return None, f"too few samples to tell {names} apart"
    return None, f"{names} tie: {'; then '.join(said)}"


def _tokens(cells: Iterable[CellSummary]) -> float | None:
    """Take one answer length for all targets: none may win by answering less."""
    known = [cell.tokens_out_p50 for cell in cells if cell.tokens_out_p50 is not None]
    return median(known) if known else None


def _ttfa(cell: CellSummary, _tokens: float | None) -> Score | None:
    return _duration(cell.estimate("ttfa_ms", 0.95, failures=True), "ttfa p95")


def _stall(cell: CellSummary, _tokens: float | None) -> Score | None:
    return _duration(cell.estimate("stall_ms", 0.95), "stall p95")


def _speed(cell: CellSummary, _tokens: float | None) -> Score | None:
    seen = cell.estimate("speed_tps", 0.5)
    if seen is None or not seen.value or seen.interval is None or seen.interval.low <= 0:
        return None
    low, high = 1.0 / seen.interval.high, 1.0 / seen.interval.low
    return Score(1.0 / seen.value, low, high, f"speed p50 {seen.value:.0f} tok/s")


def _turns(cell: CellSummary, tokens: float | None) -> Score | None:
    ttft, speed = cell.estimate("ttft_ms", 0.5), cell.estimate("speed_tps", 0.5)
    if ttft is None or speed is None or tokens is None or not speed.value or ttft.value is None:
        return None
    if ttft.interval is None or speed.interval is None or speed.interval.low <= 0:
        return None
    value = turns_ms(ttft.value, speed.value, tokens)
    return Score(
        value,
        turns_ms(ttft.interval.low, speed.interval.high, tokens),
        turns_ms(ttft.interval.high, speed.interval.low, tokens),
        f"{TURNS} turns of {tokens:.0f} tokens in {value / 1000.0:.1f} s",
    )


def _price(cell: CellSummary, _tokens: float | None) -> Score | None:
    price = cell.cost.per_1k
    if price is None:
        return None
    value = float(price)
    return Score(value, value, value, f"{money(price)} per 1,000 requests")


def _throughput(cell: CellSummary, _tokens: float | None) -> Score | None:
    rate = cell.throughput_tps
    if not rate:
        return None
    value = 1.0 / rate
    reach = SAME_THROUGHPUT / 2.0
    return Score(value, value * (1 - reach), value * (1 + reach), f"{rate:,.0f} tok/s in all")


def _duration(seen: Estimate | None, name: str) -> Score | None:
    if seen is None or seen.value is None:
        return None
    low = seen.value if seen.interval is None else seen.interval.low
    high = float("inf") if seen.interval is None else seen.interval.high
    return Score(seen.value, low, high, f"{name} {seen.value:.0f} ms")


if TYPE_CHECKING:
    Decider = Callable[[CellSummary, float | None], Score | None]

_DECIDERS: Final[dict[Profile, tuple[Decider, ...]]] = {
    "voice": (_ttfa, _stall),
    "coding": (_speed,),
    "agent": (_turns,),
    "batch": (_price, _throughput),
}
