"""The run in the order in which people read it: loads from light to heavy, the fastest first."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from lightgate.clock.load import grade
from lightgate.clock.outcome import Outcome
from lightgate.report.tables.figures import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.clock.compare import BoardRow
    from lightgate.ledger.runs.run import Board, CellSummary, Run


class CellRow(NamedTuple):
    """One target in the block of a load."""

    cell: CellSummary
    name: str  # short, harmless
    standing: BoardRow | None
    tie: bool  # with the first row of the block


class Block(NamedTuple):
    """All targets under one load, by the median of the headline metric."""

    load: str
    metric: str  # ttft_ms, or ttft_plan_ms where requests came by schedule; e2e without a token
    rows: tuple[CellRow, ...]
    void: bool  # an A/A pair differs: the ranking says nothing

    @property
    def wordless(self) -> bool:
        """Whether there are answers and no tokens to count in them: embeddings, speech."""
        cells = [row.cell for row in self.rows]
        served = any(cell.requests_per_s is not None for cell in cells)
        return served and all(cell.throughput_tps is None for cell in cells)


def blocks(run: Run) -> list[Block]:
    """Return one block per load, from the lightest to the heaviest."""
    return [_block(run, load) for load in loads(run)]


def loads(run: Run) -> list[str]:
    """Return the loads of the run: closed ones by concurrency, then scheduled ones by rate."""
    found = {cell.load: cell for cell in run.cells}
    return sorted(found, key=lambda load: _weight(found[load]))


def targets(run: Run) -> list[str]:
    """Return the targets in the order of the run, without A/A twins; from the cells if need be."""
    twins = {target.name for target in run.targets if target.twin_of is not None}
    named = [target.name for target in run.targets] + [cell.target for cell in run.cells]
    return [name for name in dict.fromkeys(named) if name not in twins]


def names(run: Run) -> dict[str, str]:
    """Return a short name for each target: its provider alone where that tells them apart."""
    providers = {target.name: target.provider for target in run.targets}
    models = {target.model for target in run.targets}
    everyone = targets(run)
    short = {name: providers.get(name, name) for name in everyone}
    if len(models) > 1 or len(set(short.values())) < len(short):
        short = {name: name for name in everyone}
    return {name: clean(text) for name, text in short.items()}


def shortened(text: str, short: Mapping[str, str]) -> str:
    """Replace the names of targets in a sentence by their short ones."""
    if not short:
        return text
    longest = sorted(short, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest)), lambda found: short[found[0]], text)


def shared_model(run: Run) -> str | None:
    """Return the model, where every target serves the same one."""
    models = {target.model for target in run.targets}
    return clean(models.pop()) if len(models) == 1 else None


def cell_of(run: Run, target: str, load: str) -> CellSummary | None:
    """Find the cell of one target under one load."""
    return next((c for c in run.cells if c.target == target and c.load == load), None)


def headline(cell: CellSummary) -> str:
    """Return the headline metric: counted from the plan where requests came by schedule.

    It is the first token, or the whole time where answers come in one piece.
    """
    by_plan = cell.concurrency is None and cell.estimate("ttft_plan_ms", 0.5) is not None
    first, whole = ("ttft_plan_ms", "e2e_plan_ms") if by_plan else ("ttft_ms", "e2e_ms")
    found, instead = cell.estimate(first, 0.5), cell.estimate(whole, 0.5)
    in_one_piece = found is not None and not found.n and instead is not None and instead.n > 0
    return whole if in_one_piece else first


def sample_count(cell: CellSummary, metric: str) -> int:
    """How many requests the median of a metric is made of."""
    found = cell.estimate(metric, 0.5)
    return cell.requests if found is None else found.n


def counted(cell: CellSummary, metric: str) -> str:
    """The n of a figure; of how many that is, where some requests have no such number.

    And what it is worth, where the requests are not independent: "96 in 3 waves".
    """
    n = sample_count(cell, metric)
    text = f"{n:,}" if n == cell.requests else f"{n:,}/{cell.requests:,}"
    found = cell.estimate(metric, 0.5)
    if found is None or found.n_eff is None or found.n_eff >= n:
        return text
    if cell.waves:
        return f"{text} in {cell.waves:,} wave{'s' if cell.waves > 1 else ''}"
    return f"{text} worth {found.n_eff:,}"


def amount(cell: CellSummary) -> float | None:
    """Return the load for the axis of a curve: requests in flight, or requests per second."""
    return cell.rate if cell.concurrency is None else float(cell.concurrency)


def grade_of(cell: CellSummary) -> str | None:
    """Return the grade by the interval of the median total speed; None without an interval."""
    found = cell.estimate("speed_total_tps", 0.5)
    if found is None or found.interval is None:
        return None
    return str(grade(found.interval.low, found.interval.high))


def failures(cell: CellSummary) -> dict[str, int]:
    """Return the outcomes that are failures, most frequent first; unknown ones are failures."""
    harmless = {outcome.value for outcome in Outcome if not outcome.is_failure}
    bad = [(name, n) for name, n in cell.outcomes.items() if n and name not in harmless]
    return dict(sorted(bad, key=lambda pair: (-pair[1], pair[0])))


def error_share(cell: CellSummary) -> float | None:
    """Return failures over the requests that succeeded or failed; None where there were none."""
    bad = sum(failures(cell).values())
    judged = bad + cell.outcomes.get(Outcome.OK.value, 0)
    return bad / judged if judged else None


def board_of(run: Run, load: str, metric: str) -> Board | None:
    """Find the ranking at one load by one metric."""
    return next((b for b in run.boards if b.load == load and b.metric == metric), None)


def _block(run: Run, load: str) -> Block:
    short = names(run)
    cells = [cell for cell in run.cells if cell.load == load and cell.target in short]
    metric = headline(cells[0]) if cells else "ttft_ms"
    cells.sort(key=lambda cell: _first_by(cell, metric))
    board = board_of(run, load, metric)
    standings = {s.name: s for s in board.standings} if board and not board.void else {}
    tied = _tied(run, load, metric, cells[0].target) if cells else set()
    rows = tuple(
        CellRow(cell, short[cell.target], standings.get(cell.target), cell.target in tied)
        for cell in cells
    )
    return Block(load, metric, rows, void=board is not None and board.void)


def _first_by(cell: CellSummary, metric: str) -> tuple[float, str]:
    median = cell.value(metric, 0.5)
    return (math.inf if median is None else median, cell.target)


def _tied(run: Run, load: str, metric: str, leader: str) -> set[str]:
    """Return the targets that the comparison could not tell from the first one."""
    pairs = [
        {versus.a, versus.b}
        for versus in run.versus
        if versus.load == load and versus.metric == metric and versus.verdict == "tie"
    ]
    return {name for pair in pairs if leader in pair for name in pair - {leader}}


def _weight(cell: CellSummary) -> tuple[int, float, str]:
    heavy = amount(cell)
    return (cell.concurrency is None, math.inf if heavy is None else heavy, cell.load)


def shown_workload(run: Run) -> list[tuple[str, str]]:
    """Return what was sent, for a heading, without hashes and without facts of a single target."""
    return [
        (key, text)
        for key, text in run.workload.items()
        if " " not in key and not key.endswith("sha256")
    ]
