"""The order of targets for a use, and the reason of each place in words.

The demands are those by which `lightgate bench` picks a target. What people wait for is ranked by
its p95: a median hides every twentieth wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.bench.judge.profiles import PRESETS
from lightgate.clock.quantile import smallest_n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.judge.profiles import Demand
    from lightgate.console.api.figures import Figure
    from lightgate.ledger.runs.run import Profile

_FIGURES: Final = {
    ("ttfa_ms", 0.95): "ttfa_p95",
    ("ttft_ms", 0.95): "ttft_p95",
    ("speed_tps", 0.05): "speed_p05",
    ("e2e_ms", 0.95): "e2e_p95",
}  # fmt: skip


_WORDS: Final = {
    "ttfa_ms": "the answer's first word",
    "ttft_ms": "the first token",
    "speed_tps": "the speed",
    "e2e_ms": "the whole answer",
}


class Use(NamedTuple):
    """A use of models: the figure that decides, and how it is called."""

    profile: Profile
    figure: str
    words: str
    unit: str
    larger: bool = False


USES: Final = {
    "voice": Use("voice", "ttfa_p95", "the answer's first word, p95", "ms"),
    "coding": Use("coding", "speed_p50", "the speed while decoding, p50", "tok/s", larger=True),
    "agent": Use("agent", "e2e_p95", "the whole answer, p95", "ms"),
    "batch": Use("batch", "cost_1k", "dollars per 1,000 requests", "$"),
}


class UsePlace(msgspec.Struct, frozen=True):
    """Where a target stands: its rank from 1, whether it meets the demands, and why."""

    rank: int | None
    fits: bool | None
    why: str


NOWHERE: Final = UsePlace(None, None, "")


def places(rows: Sequence[Any], use_name: str) -> list[UsePlace]:
    """The place of every row for a use; all are nowhere where no use is asked for."""
    use = USES.get(use_name)
    if use is None:
        return [NOWHERE] * len(rows)
    judged = [(_value(row, use), _problems(row, use), row) for row in rows]
    order = sorted(
        (at for at, (value, _, _) in enumerate(judged) if value is not None),
        key=lambda at: (bool(judged[at][1]), _key(judged[at][0], use), _cost(judged[at][2])),
    )
    ranks = {at: rank for rank, at in enumerate(order, 1)}
    return [
        UsePlace(ranks.get(at), None if value is None else not wrong, _why(value, wrong, use, row))
        for at, (value, wrong, row) in enumerate(judged)
    ]


def sentence(use_name: str) -> str:
    """What a use ranks by, in a sentence; empty where no use is asked for."""
    use = USES.get(use_name)
    if use is None:
        return ""
    demands = PRESETS[use.profile].demands
    wanted = "; ".join(_asked(demand) for demand in demands)
    best = "most" if use.larger else "least"
    first = f"Ranked for {use_name}: {use.words}, the {best} first; equal ones by cost."
    return f"{first} Those that meet what it needs come first: {wanted}." if wanted else first


def _value(row: Any, use: Use) -> float | None:
    found = getattr(row, use.figure)
    if use.figure == "cost_1k":
        return None if found is None else float(found)
    value: float | None = found.v
    return value


def _key(value: float | None, use: Use) -> float:
    return 0.0 if value is None else -value if use.larger else value


def _cost(row: Any) -> float:
    return float("inf") if row.cost_1k is None else float(row.cost_1k)


def _problems(row: Any, use: Use) -> list[str]:
    found = (_problem(row, demand) for demand in PRESETS[use.profile].demands)
    return [problem for problem in found if problem]


def _problem(row: Any, demand: Demand) -> str:
    figure: Figure = getattr(row, _FIGURES[demand.metric, demand.q])
    if figure.v is None:
        needed = smallest_n(demand.q)
        return f"{_name(demand)}: too few samples ({figure.n}, {needed} needed)"
    missed = figure.v < demand.limit if demand.is_rate else figure.v > demand.limit
    unit = "tok/s" if demand.is_rate else "ms"
    said = f"{_name(demand)}: {_plain(figure.v)} {unit}"
    return f"{said}, wanted {_bound(demand)}" if missed else ""


def _why(value: float | None, problems: list[str], use: Use, row: Any) -> str:
    if value is None:
        if use.figure == "cost_1k":
            return "the price is not known"
        figure: Figure = getattr(row, use.figure)
        needed = smallest_n(0.5 if use.larger else 0.95)
        return f"{use.words}: too few samples ({figure.n}, {needed} needed)"
    said = f"${value:,.3g}" if use.unit == "$" else f"{_plain(value)} {use.unit}"
    return "; ".join(problems) or f"{use.words}: {said}"


def _asked(demand: Demand) -> str:
    return f"{_name(demand)}, {_bound(demand)}"


def _name(demand: Demand) -> str:
    """The figure of a demand, in the words of the page."""
    slow = demand.is_rate and demand.q < 0.5
    return f"{_WORDS[demand.metric]}, {'slow 5 %' if slow else f'p{demand.q * 100:g}'}"


def _bound(demand: Demand) -> str:
    if demand.is_rate:
        return f"at least {_plain(demand.limit)} tok/s"
    return f"at most {_plain(demand.limit)} ms"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
