"""Numbers as text: one spelling for every figure of a report, and its definition in one sentence.

A number that has too few samples is a dot; one that is undefined is a dot as well, and the tooltip
of the page says which of the two it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lightgate.clock.quantile import TOO_SMALL, smallest_n
from lightgate.clock.timing import SHOWN, Definition
from lightgate.ledger.runs.doubt import REMEDY, doubt, quantile_name
from lightgate.price.cost import money

if TYPE_CHECKING:
    from decimal import Decimal

    from lightgate.clock.quantile import Interval
    from lightgate.ledger.runs.run import CellSummary, Estimate

DOT: Final = "·"
DOUBTFUL: Final = "?"
GUESSED: Final = "~"  # made of tokens that are an estimate
LEGEND: Final = (
    f"{DOT} = no number: undefined, or too few samples "
    "(p50 needs 6, p90 36, p95 and slow 5 % 72, p99 368)"
)


DEFINITIONS: Final = {
    **SHOWN,
    "throughput": Definition(
        "throughput", "Tokens of all requests whose burst fell in the steady window, per second."
    ),
    "served": Definition("req/s", "Good answers that ended in the steady window, per second."),
    "read": Definition("tok in/s", "Tokens of the prompts of those answers, per second."),
    "inflight": Definition("in flight", "Time-weighted mean of requests in flight in the window."),
    "errors": Definition("errors", "Failed requests as a share of those that came to an end."),
    "goodput": Definition("goodput", "Share of the offered requests that met every SLO."),
    "passed": Definition(
        "passed", "Share of your own cases whose answers passed all checks, of those answered."
    ),
    "cost": Definition(
        "$/1k",
        "Dollars per 1,000 requests of this workload: prompts, answers and reasoning as billed, or"
        " the machine's hours shared by what they served at this load.",
    ),
    "grade": Definition(
        "grade",
        "Band of the median total speed: 1 from 100 tok/s, 2 from 70, 3 from 50, 4 from 30.",
    ),
    "rank": Definition("rank", "The ranks that a block bootstrap cannot exclude, 95 %."),
    "p_fastest": Definition(
        "P(fastest)", "Share of the block bootstrap's rounds in which it had the lowest median."
    ),
    "n": Definition(
        "n",
        "Requests that the times to the first token are made of; of how many after the warm-up and"
        " the ramp, where some failed or had no token.",
    ),
}


def reached(found: Estimate | None) -> float | None:
    """Return the value of a quantile, infinity where it is a failure; None where `n` is too small.

    Runs from before `infinite` was recorded say it by a missing value despite enough samples.
    """
    if found is None or found.value is not None:
        return None if found is None else found.value
    older = found.n_eff is None and found.n >= smallest_n(found.q)
    return math.inf if found.infinite or older else None


def number(amount: float | None) -> str:
    """Write a number with three or four significant digits, thousands grouped; a dot for None."""
    if amount is None or math.isnan(amount):
        return DOT
    if math.isinf(amount):
        return "∞"
    size = abs(amount)
    if size >= 100 or amount == 0:
        return f"{amount:,.0f}"
    return f"{amount:.1f}" if size >= 10 else f"{amount:.2f}"


def tick(amount: float) -> str:
    """Write a round number at an axis, without zeros at its end."""
    if amount >= 1000:
        return f"{amount:,.0f}"
    return f"{amount:.9f}".rstrip("0").rstrip(".") if 0 < amount < 0.001 else f"{amount:.4g}"


def milliseconds(amount: float | None) -> str:
    """Write a duration with its unit: ms up to ten seconds, seconds above."""
    if amount is None or not math.isfinite(amount):
        return number(amount)
    if amount < 10_000:
        return f"{number(amount)} ms"
    return f"{number(amount / 1000)} s"


def shown(found: Estimate | None) -> str:
    """Write the value of a quantile; one that is doubtful has a question mark."""
    if found is None:
        return DOT
    return f"{number(found.value)}{DOUBTFUL if found.doubtful else ''}"


def guessed(cell: CellSummary, text: str) -> str:
    """Mark a figure that is made of tokens which nobody counted: characters divided by four."""
    return f"{GUESSED}{text}" if cell.tokens_source.get("estimate") and text != DOT else text


def with_unit(metric: str, amount: float | None) -> str:
    """Write a figure with the unit of its metric."""
    if amount is None:
        return DOT
    return f"{number(amount)} tok/s" if metric.endswith("_tps") else milliseconds(amount)


def percent(share: float | None, *, digits: int = 0) -> str:
    """Write a share as per cent; above zero it never reads 0 %, below one never 100 %."""
    if share is None:
        return DOT
    text = f"{share * 100:.{digits}f}"
    step = 10.0**-digits
    if share > 0 and float(text) == 0:
        return f"<{step:g} %"
    if share < 1 and float(text) == 100:
        return f">{100 - step:g} %"
    return f"{text} %"


def probability(p: float | None) -> str:
    """Write a probability with two digits; never 0 or 1, which no number of samples can show."""
    if p is None:
        return DOT
    if p < 0.005:
        return "<0.01"
    return ">0.99" if p >= 0.995 else f"{p:.2f}"


def dollars(amount: Decimal | None) -> str:
    """Write dollars, with as many digits as a small amount needs; a dot for None."""
    return DOT if amount is None else money(amount)


def bounds(interval: Interval | None) -> str:
    """Write an interval as `[210, 225]`; empty where there is none."""
    return "" if interval is None else f"[{number(interval.low)}, {number(interval.high)}]"


def explain(found: Estimate | None, metric: str, failing: Estimate | None = None) -> str:
    """Write all about one quantile: value, interval, n, definition.

    `failing` is the same quantile with failures; it is told where it differs.
    """
    meaning = DEFINITIONS[metric]
    told = with_unit(metric, reached(failing))
    if failing is not None and told not in {DOT, with_unit(metric, reached(found))}:
        return f"{explain(found, metric)} With failures: {told}, n = {failing.n:,}."
    if found is None:
        return f"{meaning.title}: not measured here. {meaning.text}"
    name = f"{meaning.title} {quantile_name(found.q, metric)}"
    if found.value is None and found.infinite:
        return f"{name}: a failure, n = {found.n:,}. {meaning.text}"
    if found.value is None:
        need = f" (needs {smallest_n(found.q)})"
        return f"{name}: {TOO_SMALL}, {_n(found)}{need}. {meaning.text}"
    between = ""
    if found.interval is not None:
        low, high = found.interval.low, found.interval.high
        share = f"{found.interval.confidence * 100:g} %"
        between = f", {share} interval {with_unit(metric, low)} to {with_unit(metric, high)}"
    if found.doubtful:
        between += f", doubtful ({doubt(metric, found)}; {REMEDY})"
    return f"{name}: {with_unit(metric, found.value)}{between}, {_n(found)}. {meaning.text}"


def _n(found: Estimate) -> str:
    """Write how many requests there are, and how many independent ones they are worth."""
    worth = "" if found.n_eff is None or found.n_eff >= found.n else f", worth {found.n_eff:,}"
    return f"n = {found.n:,}{worth}"


def clean(text: str) -> str:
    """Make text from outside harmless for a terminal: no control character, no line break."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def shorten(text: str, most: int) -> str:
    """Cut a text with an ellipsis, so that at most `most` characters stay."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
