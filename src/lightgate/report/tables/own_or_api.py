"""A machine of one's own against every API of the run: one table, the soonest break-even first."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.ledger.runs.break_even import times
from lightgate.report.tables.arrange import names
from lightgate.report.tables.figures import DOT, clean, dollars, number, percent
from lightgate.report.tables.layout import TextColumn

if TYPE_CHECKING:
    from decimal import Decimal

    from lightgate.ledger.runs.run import BreakEven, Run

HEADS: Final = ("own machine", "API", "own $/1k", "API $/1k", "cheaper from", "requests a month")
_FOLDED: Final = 3  # rows that say the same thing, before one says it for all
OWN_MEANS: Final = (
    "Own $/1k is dollars per 1,000 requests of this workload on a machine that never waits for "
    "work, at the load where it is cheapest; used half of the time it costs twice that. Cheaper "
    "from: the share of its capacity from which it costs less than the API."
)


class OwnRow(NamedTuple):
    """One machine against one API, as it is shown."""

    own: str
    api: str
    own_per_1k: str
    api_per_1k: str
    cheaper_from: str
    requests: str


def own_rows(run: Run) -> list[OwnRow]:
    """Return the table's rows: every API whose cost is known."""
    short = names(run)
    return [_row(row, short) for row in run.break_even if not _is_unknown(row)]


def folded_rows(run: Run) -> list[OwnRow]:
    """Return the rows for a terminal: APIs that a machine never undercuts are one row of it."""
    short, rows = names(run), [row for row in run.break_even if not _is_unknown(row)]
    shown: list[OwnRow] = []
    for _, of_one in itertools.groupby(rows, key=lambda row: (row.hosted, row.load)):
        one = list(of_one)
        never = [row for row in one if _times(row) is not None]
        if len(never) < _FOLDED:
            never = []
        shown += [_row(row, short) for row in one if row not in never]
        shown += [_folded(never, of=len(one), short=short)] if never else []
    return shown


def own_columns(rows: list[OwnRow]) -> list[list[TextColumn]]:
    """Return the table for a terminal, in groups that stay together."""
    own, api, *costs, share, requests = (
        TextColumn(title, cells, right=at in {2, 3}, prose=at in {0, 4})
        for at, (title, cells) in enumerate(zip(HEADS, zip(*rows, strict=True), strict=True))
    )
    return [[own, api], costs, [share], [requests]]


def own_notes(run: Run) -> list[str]:
    """Say how to read the table, who is not in it, and where the models differ."""
    if not run.break_even:
        return []
    short = names(run)
    notes = [OWN_MEANS] if own_rows(run) else []
    unknown = [short.get(row.api, clean(row.api)) for row in run.break_even if _is_unknown(row)]
    if unknown:
        listed = ", ".join(dict.fromkeys(unknown))
        notes.append(f"Not in the table, since their cost is unknown: {listed}.")
    pairs = [" and ".join(map(clean, row.models)) for row in run.break_even if row.models]
    if pairs:
        listed = "; ".join(dict.fromkeys(pairs))
        notes.append(f"* = another model; its answers may be better or worse: {listed}.")
    return notes


def _is_unknown(row: BreakEven) -> bool:
    return row.utilisation is None and row.api_per_1k is None and row.tokens_per_month is None


def _times(row: BreakEven) -> Decimal | None:
    """How often the API's price a machine costs that is busy all day; None where it costs less."""
    if row.utilisation is not None or not row.api_per_1k or row.hosted_per_1k is None:
        return None
    return row.hosted_per_1k / row.api_per_1k


def _folded(rows: list[BreakEven], *, of: int, short: dict[str, str]) -> OwnRow:
    """Show a machine against all of these APIs, from the one that it comes nearest to."""
    dearest_first = sorted(rows, key=lambda row: row.api_per_1k or 0, reverse=True)
    nearest, farthest = (dearest_first[at] for at in (0, -1))
    low, high = (times(float(_times(row) or 0)) for row in (nearest, farthest))
    mark = " *" if any(row.models for row in rows) else ""
    return _row(nearest, short)._replace(
        api=f"{f'all {of}' if len(rows) == of else f'{len(rows)} others'}{mark}",
        api_per_1k=f"{dollars(farthest.api_per_1k)} to {dollars(nearest.api_per_1k)}",
        cheaper_from=f"never at this load: busy all day, it still costs {low} to {high} times as"
        " much",
    )


def _row(row: BreakEven, short: dict[str, str]) -> OwnRow:
    own, api = (short.get(name, clean(name)) for name in (row.hosted, row.api))
    never = clean(row.note) or DOT
    return OwnRow(
        own=f"{own} at {clean(row.load)}",
        api=f"{api} *" if row.models else api,
        own_per_1k=dollars(row.hosted_per_1k),
        api_per_1k=dollars(row.api_per_1k),
        cheaper_from=never if row.utilisation is None else f"{percent(row.utilisation)} of its use",
        requests=_count(row.requests_per_month),
    )


def _count(amount: Decimal | None) -> str:
    if amount is None:
        return DOT
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if amount >= size:
            return f"{number(float(amount / size))} {name}"
    return f"{float(amount):,.0f}"
