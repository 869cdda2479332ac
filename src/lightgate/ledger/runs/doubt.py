"""What a figure of a run leaves open because the client itself read late, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.timing import SHOWN

if TYPE_CHECKING:
    from lightgate.ledger.runs.run import Estimate

REMEDY: Final = (
    "the client read late: an idle machine, fewer streams at once, or --processes make it sure"
)


def quantile_name(q: float, metric: str) -> str:
    """Name a quantile: `p95`, or `slow 5 %` for the low tail of a rate."""
    percent = f"{q * 100:g}"
    return f"slow {percent} %" if metric.endswith("_tps") and q < 0.5 else f"p{percent}"


def doubt(metric: str, found: Estimate) -> str:
    """Say where a doubtful quantile may lie: `TTFT p95 lies between 209 and 519 ms`."""
    unit = "tok/s" if metric.endswith("_tps") else "ms"
    name = f"{SHOWN[metric].title} {quantile_name(found.q, metric)}"
    low = _digits(found.low or 0.0)
    if found.high is None:
        return f"{name} is at least {low} {unit}"
    return f"{name} lies between {low} and {_digits(found.high)} {unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
