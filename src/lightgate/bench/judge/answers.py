"""The questions that people bring to a speed report, answered from its numbers.

Each answer names its load and is left out where the run has nothing to answer it with.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final

from lightgate.bench.judge.profiles import TURNS
from lightgate.bench.statistics.summary import lightest_first
from lightgate.clock.timing import words
from lightgate.ledger.runs.run import RunAnswer
from lightgate.provider.identity import identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightgate.ledger.runs.run import CellSummary, TargetFacts

# Silent reading of English non-fiction by adults, the mean of 190 studies: Brysbaert, "How many
# words do we read per minute?", Journal of Memory and Language, 2019.
READ_WORDS_PER_S: Final = 238 / 60
LONGER: Final = "What does a longer prompt cost?"
AT_ONCE: Final = "One after the other, or at once?"
AGENT: Final = "How long does an agent wait?"
READING: Final = "Is it faster than people read?"
SAME_MODEL: Final = "The same model elsewhere?"
DRIVERS: Final = "What goes with speed here?"


def answers(targets: Sequence[TargetFacts], cells: Sequence[CellSummary]) -> tuple[RunAnswer, ...]:
    """RunAnswer what can be answered, target by target and then over all."""
    shown = [target for target in targets if target.twin_of is None]
    found: list[RunAnswer] = []
    for target in shown:
        own = lightest_first([cell for cell in cells if cell.target == target.name])
        if own:
            found += [
                RunAnswer(question=question, target=target.name, text=text)
                for question, text in _of_target(own)
            ]
    heaviest = _heaviest(shown, cells)
    found += [RunAnswer(question=SAME_MODEL, text=text) for text in _hosts(shown, heaviest)]
    found += [RunAnswer(question=DRIVERS, text=text) for text in _groups(shown, heaviest)]
    order = (LONGER, AT_ONCE, AGENT, READING, SAME_MODEL, DRIVERS)
    return tuple(sorted(found, key=lambda answer: order.index(answer.question)))


def _of_target(own: Sequence[CellSummary]) -> Iterator[tuple[str, str]]:
    light, heavy = own[0], own[-1]
    for cell in own:
        if cell.slope is not None:
            yield LONGER, _slope(cell)
    if heavy.parallel_gain is not None and heavy is not light:
        yield AT_ONCE, _at_once(heavy, heavy.parallel_gain)
    ttft, e2e = light.value("ttft_ms", 0.5), light.value("e2e_ms", 0.5)
    if ttft is not None and e2e is not None:
        yield (
            AGENT,
            (
                f"At {light.load} a task of {TURNS} turns waits {_seconds(TURNS * ttft)} for first "
                f"tokens, dead time in which nothing moves, of {_seconds(TURNS * e2e)} in all."
            ),
        )
    speed = heavy.value("speed_tps", 0.5)
    if speed is not None:
        pace = words(speed)
        yield (
            READING,
            (
                f"At {heavy.load} {speed:,.0f} tok/s are about {pace:,.0f} words a second, "
                f"{pace / READ_WORDS_PER_S:,.1f} times the pace of silent reading "
                f"({READ_WORDS_PER_S * 60:.0f} words a minute)."
            ),
        )


def _slope(cell: CellSummary) -> str:
    found = cell.slope
    if found is None:
        return ""
    low, high = found.interval.low, found.interval.high
    seen = f"{found.shortest:,} to {found.longest:,} tokens, n = {found.n:,}"
    if low <= 0.0 <= high:
        return (
            f"At {cell.load} nothing that is sure: {low:,.1f} to {high:,.1f} ms for each 1,000 "
            f"tokens more; {seen}."
        )
    return (
        f"At {cell.load} each 1,000 tokens more of prompt delay the first token by "
        f"{found.ms_per_1k:,.1f} ms ({low:,.1f} to {high:,.1f}); {seen}."
    )


def _at_once(heavy: CellSummary, gain: float) -> str:
    kept = ""
    if heavy.retain is not None:
        kept = f"; each answer then comes at {heavy.retain:.0%} of its speed alone"
    return (
        f"At {heavy.load} the same work is done {gain:,.1f} times as fast as one request after the"
        f" other{kept}."
    )


def _heaviest(
    targets: Sequence[TargetFacts], cells: Sequence[CellSummary]
) -> dict[str, CellSummary]:
    """The cell of each target at the heaviest load that all of them have."""
    names = {target.name for target in targets}
    shared = [
        load
        for load in dict.fromkeys(cell.load for cell in lightest_first(cells))
        if names <= {cell.target for cell in cells if cell.load == load}
    ]
    if not shared:
        return {}
    return {cell.target: cell for cell in cells if cell.load == shared[-1]}


def _hosts(targets: Sequence[TargetFacts], cells: dict[str, CellSummary]) -> Iterator[str]:
    """One model at several hosts, the fastest first; only where the run has other models too."""
    by_model: dict[str, list[TargetFacts]] = defaultdict(list)
    for target in targets:
        by_model[identity(target.model)].append(target)
    if len(by_model) < 2:
        return  # the leaderboard is that table
    for model, hosts in by_model.items():
        known = [
            (speed, host.provider, cells[host.name])
            for host in hosts
            if host.name in cells and (speed := cells[host.name].value("speed_tps", 0.5))
        ]
        if len(known) > 1:
            listed = ", ".join(
                f"{provider} {speed:,.0f} tok/s" for speed, provider, _ in sorted(known)[::-1]
            )
            yield f"{model} at {known[0][2].load}: {listed}."


def _groups(targets: Sequence[TargetFacts], cells: dict[str, CellSummary]) -> Iterator[str]:
    """Median speed of the groups that each driver makes, where it makes at least two."""
    for driver in dict.fromkeys(name for target in targets for name in target.drivers):
        groups: dict[str, list[float]] = defaultdict(list)
        for target in targets:
            cell = cells.get(target.name)
            speed = None if cell is None else cell.value("speed_tps", 0.5)
            if speed is not None and driver in target.drivers:
                groups[target.drivers[driver]].append(speed)
        if len(groups) < 2 or all(len(speeds) == 1 for speeds in groups.values()):
            continue
        listed = ", ".join(
            f"{value} {median(speeds):,.0f} tok/s ({_many(len(speeds))})"
            for value, speeds in sorted(groups.items(), key=lambda group: -median(group[1]))
        )
        yield f"By {driver}: {listed}. This is what goes together here, not what causes what."


def _many(count: int) -> str:
    return "1 target" if count == 1 else f"{count} targets"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000.0:,.1f} s"
