"""What was found, in sentences: comparisons, what is wrong with a cell or a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import smallest_n
from lightgate.ledger.runs.doubt import REMEDY, doubt, quantile_name
from lightgate.report.tables.arrange import headline, names, sample_count
from lightgate.report.tables.figures import (
    DEFINITIONS,
    DOT,
    clean,
    milliseconds,
    number,
    percent,
    probability,
    reached,
)

if TYPE_CHECKING:
    from lightgate.clock.quantile import Interval
    from lightgate.ledger.runs.run import CellSummary, Health, Run, Versus
    from lightgate.report.tables.arrange import Block

_DOUBTS: Final = 3  # doubtful figures of a cell that are named; run.json has all
_FASTER: Final = {
    "ttft_ms": "faster to the first token than",
    "ttft_plan_ms": "faster from plan to first token than",
    "ttfa_ms": "faster to the first answer token than",
    "e2e_ms": "faster to the last token than",
    "e2e_plan_ms": "faster from plan to last token than",
    "speed_tps": "faster in tokens per second than",
    "speed_total_tps": "faster in tokens per second of the whole time than",
}
FASTER_MEANS: Final = (
    "x % faster: the typical request takes x % less time (durations), or has x % more tokens a "
    "second (speeds). P is the chance that a single request to it beats one to the other."
)


def versus_sentence(versus: Versus, short: dict[str, str]) -> str:
    """Say one comparison as a sentence, with its interval and P; a tie is called a tie.

    Neither a tie nor a finding: the interval excludes 1, but so many comparisons are read together
    that one of them would do so by chance.
    """
    a, b = (short.get(name, clean(name)) for name in (versus.a, versus.b))
    found = versus.comparison
    between = "" if found.interval is None else f" ({_span(found.interval)})"
    subject = title_of(versus.metric)
    if versus.verdict == "tie":
        return f"{a} and {b} tie on {subject}: ratio {found.ratio:.2f}{between}"
    if versus.verdict in {"unsure", "too few blocks"}:
        spans = found.interval is None or found.interval.spans(1.0)
        known = "too few blocks to tell" if spans else "differs, but too few blocks to be sure"
        return (
            f"{a} and {b}, {subject}: ratio {found.ratio:.2f}{between}: {known} among"
            f" {found.among:,} comparisons"
        )
    if versus.verdict not in {"a faster", "b faster"}:
        return f"{a} and {b}, {subject}: {clean(versus.verdict)} (n = {found.n:,})"
    first, second = (a, b) if versus.verdict == "a faster" else (b, a)
    gain, low, high = faster_by(versus)
    sure = "" if low is None or high is None else f" ({_range(low, high)})"
    middle = _FASTER.get(versus.metric, f"better in {subject} than")
    win = probability(_p_win(versus))
    sign = "" if win[0] in "<>" else "= "
    return f"{first} is {percent(gain)} {middle} {second}{sure}, P {sign}{win}"


def title_of(metric: str) -> str:
    """Return the name of a metric in a sentence."""
    return DEFINITIONS[metric].title if metric in DEFINITIONS else clean(metric)


def _span(interval: Interval) -> str:
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _range(low: float, high: float) -> str:
    if abs(low - high) < 0.005:
        return percent(low)
    return f"{low * 100:.0f} to {high * 100:.0f} %"


def faster_by(versus: Versus) -> tuple[float, float | None, float | None]:
    """Return by what share the faster target is faster, and the interval of that share.

    A ratio below 1 and one above 1 are read alike: the verdict says who is faster, so the factor
    between the two is all that is needed.
    """
    ratio, interval = versus.comparison.ratio, versus.comparison.interval
    turned = ratio < 1.0
    rate = versus.metric.endswith("_tps")

    def share(of: float) -> float:
        factor = 1.0 / of if turned else of  # how many times as fast
        return factor - 1.0 if rate else 1.0 - 1.0 / factor

    if interval is None:
        return share(ratio), None, None
    ends = sorted((share(interval.low), share(interval.high)))
    return share(ratio), ends[0], ends[1]


def _p_win(versus: Versus) -> float:
    """Return the chance that one request to the faster target beats one to the other."""
    p_low = versus.comparison.p_less
    # Whoever has the lower median also has the better chance of the lower sample, or nearly so;
    # which of the two the verdict calls faster tells whether low is good.
    a_is_low, a_wins = versus.comparison.ratio < 1.0, versus.verdict == "a faster"
    low_is_good = a_is_low == a_wins
    p_a = p_low if low_is_good else 1.0 - p_low
    return p_a if a_wins else 1.0 - p_a


def failing_sentence(block: Block) -> str:
    """Say the headline's quantiles with failures, where they differ; else empty."""
    told = []
    for row in block.rows:
        found = []
        for q in (0.5, 0.95, 0.99):
            plain = milliseconds(reached(row.cell.estimate(block.metric, q)))
            hard = milliseconds(reached(row.cell.estimate(block.metric, q, failures=True)))
            if hard not in {DOT, plain}:
                found.append(f"{quantile_name(q, block.metric)} {hard}")
        if found:
            told.append(f"{row.name} {', '.join(found)}")
    if not told:
        return ""
    return f"with failures, which never arrive: {'; '.join(told)}"


def cell_remark(cell: CellSummary) -> str:
    """Say what to know before trusting a cell; empty where there is nothing."""
    parts = []
    doubts = [doubt(metric, found) for metric, found in cell.doubts()]
    if doubts:
        more = f" and {len(doubts) - _DOUBTS} more" if len(doubts) > _DOUBTS else ""
        parts.append(f"doubtful: {', '.join(doubts[:_DOUBTS])}{more} ({REMEDY})")
    if cell.steady is False:
        parts.append(f"not steady: {clean(cell.steady_note) or 'no reason was recorded'}")
    if cell.offered_share is not None and cell.offered_share < 0.98:
        parts.append(f"only {percent(cell.offered_share)} of the load asked for was offered")
    if cell.waves is not None and cell.waves < smallest_n(0.5):
        parts.append(
            f"the requests came in {cell.waves} waves, those of a wave share one speed, and a "
            f"median needs {smallest_n(0.5)} waves: ask for more requests, let the workers "
            "stagger, or vary the length of the answers"
        )
    cancelled = cell.outcomes.get(Outcome.CANCELLED, 0)
    if cancelled:
        parts.append(f"the client cancelled {cancelled:,} of {cell.requests:,} requests, as asked")
    parts += _other_counts(cell)
    estimated = cell.tokens_source.get("estimate", 0)
    if estimated:
        parts.append(f"tokens of {estimated:,} answers are estimates")
    return "; ".join(parts)


def _other_counts(cell: CellSummary) -> list[str]:
    """The n of the figures of a row that stand on other requests than its headline."""
    first, titles = sample_count(cell, headline(cell)), dict[int, list[str]]()
    for metric in ("speed_tps", "stall_ms", "e2e_ms"):
        n = sample_count(cell, metric)
        if n != first and cell.value(metric, 0.5) is not None:
            titles.setdefault(n, []).append(title_of(metric))
    return [f"n = {n:,} for {' and '.join(named)}" for n, named in titles.items()]


def run_remarks(run: Run) -> list[str]:
    """Say what to know before trusting the run."""
    short = names(run)
    remarks = []
    if run.finished is None:
        remarks.append("This run was interrupted; it shows what was measured until then.")
    remarks += [
        f"The ranking at {clean(board.load)} by {title_of(board.metric)} is void: "
        "a target compared with itself differs."
        for board in run.boards
        if board.void
    ]
    for cell in run.cells:
        remark = cell_remark(cell)
        if remark:
            name = short.get(cell.target, clean(cell.target))
            remarks.append(f"{name} at {clean(cell.load)}: {remark}.")
    return remarks + [clean(note) for note in run.notes]


def answered(run: Run) -> list[tuple[str, list[str]]]:
    """Return each question once, with its answers."""
    short = names(run)
    found: dict[str, list[str]] = {}
    for answer in run.answers:
        name = "" if answer.target is None else short.get(answer.target, answer.target)
        text = f"{name}: {answer.text}" if name else answer.text
        found.setdefault(answer.question, []).append(clean(text))
    return list(found.items())


def engine_sentences(run: Run) -> list[str]:
    """Say for each cell what the engine and the GPU said of themselves while it was measured."""
    short = names(run)
    told = []
    for cell in run.cells:
        parts = [*_engine_parts(cell), *_gpu_parts(cell)]
        if parts and cell.target in short:
            told.append(f"{short[cell.target]} at {clean(cell.load)}: {', '.join(parts)}.")
    return told


def _engine_parts(cell: CellSummary) -> list[str]:
    seen = cell.engine
    if seen is None:
        return []
    parts = [f"{clean(seen.engine)} has {number(seen.running)} running"]
    if seen.waiting is not None:
        most = f" (at most {number(seen.waiting_most)})" if seen.waiting_most else ""
        parts.append(f"{number(seen.waiting)} waiting{most}")
    if seen.cache_most is not None:
        parts.append(f"KV cache used up to {percent(seen.cache_most)}")
    return parts


def _gpu_parts(cell: CellSummary) -> list[str]:
    seen = cell.gpu
    if seen is None:
        return []
    parts = [] if seen.use is None else [f"GPU busy {percent(seen.use)} of the time"]
    if seen.watts is not None:
        parts.append(f"{number(seen.watts)} W")
    if seen.tokens_per_joule is not None:
        parts.append(f"{number(seen.tokens_per_joule)} tokens per joule")
    return parts


def health_sentence(health: Health | None) -> str:
    """Say how the client itself fared during the run."""
    if health is None:
        return "Client health was not recorded."
    parts = [f"{clean(health.stamp_source)} stamps"]
    if health.bound_p99_ms is not None:
        parts.append(
            f"exact to {number(health.bound_p50_ms)} ms (p99 {number(health.bound_p99_ms)} ms)"
        )
    parts.append(f"clock steps {health.clock_steps}")
    if health.cpu_share is not None:
        parts.append(f"CPU {percent(health.cpu_share)}, {health.cores} cores")
    if health.peak_rss_mb is not None:
        parts.append(f"{number(health.peak_rss_mb)} MB")
    return f"Client: {', '.join(parts)}"


def twin_sentences(run: Run) -> list[str]:
    """Say how each A/A pair came out over all loads and metrics: it should tie."""
    twins = {t.name: t.twin_of for t in run.targets if t.twin_of is not None}
    short = names(run)
    sentences = []
    for twin, target in twins.items():
        pairs = [versus for versus in run.versus if {versus.a, versus.b} == {twin, target}]
        differ = [
            f"{title_of(v.metric)} at {v.load}"
            for v in pairs
            if v.verdict in {"a faster", "b faster"}
        ]
        found = f"differs in {', '.join(differ)}" if differ else "no difference found"
        name = short.get(target, target)
        sentences.append(clean(f"{name} against itself (A/A, {len(pairs)} comparisons): {found}"))
    return sentences
