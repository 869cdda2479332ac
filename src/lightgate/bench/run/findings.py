"""From everything that was measured to the record of the run."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lightgate.bench.judge.answers import answers
from lightgate.bench.judge.breakeven import break_even, other_models
from lightgate.bench.judge.profiles import picks
from lightgate.bench.judge.verdict import Signs, diagnose
from lightgate.bench.statistics.summary import CellFacts, relate, summarise
from lightgate.bench.statistics.versus import Field, contest
from lightgate.bench.workload.workload import WORDLESS
from lightgate.clock.attempt import AttemptRecord
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import RegionCells
from lightgate.ledger.runs.samples import inside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.clock.load import Slo
    from lightgate.ledger.runs.run import CellSummary, CellVerdict, Run, TargetFacts


class LoadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One load of a run; `dropped` are planned requests that were never sent, by target."""

    label: str
    concurrency: int | None = None
    rate: float | None = None
    dropped: dict[str, int] = {}
    client_cpu: float | None = None  # share of its core that the client took
    machine_cpu: float | None = None  # share of all cores of its machine that anybody took

    @property
    def is_open(self) -> bool:
        """Whether requests have planned instants."""
        return self.concurrency is None


class Measured(msgspec.Struct, kw_only=True):
    """Everything that a run has measured so far."""

    attempts: list[AttemptRecord] = []
    recordings: dict[str, Recording] = {}

    def at(self, target: str, load: str) -> list[AttemptRecord]:
        """The attempts of one cell, warm-up among them."""
        return [
            attempt
            for attempt in self.attempts
            if attempt.target == target and self.recordings[attempt.id].load == load
        ]


def conclude(
    run: Run, measured: Measured, loads: Sequence[LoadFacts], *, slo: Slo | None, seed: int
) -> Run:
    """Fill in the cells, the comparisons, the verdicts and the picks."""
    found_cells = cells(run.targets, measured, loads, slo)
    counted = _counted(found_cells, measured)
    found = contest(
        [_field(measured, load, counted) for load in loads if len(run.targets) > 1],
        measured.recordings,
        run.targets,
        rng=np.random.default_rng(seed),
    )
    twins = [target.name for target in run.targets if target.twin_of is not None]
    worded = run.workload.get("kind") not in WORDLESS  # the demands of uses are on text
    return msgspec.structs.replace(
        run,
        cells=found_cells,
        boards=found.boards,
        versus=found.versus,
        verdicts=tuple(_verdicts(run, measured, (found_cells, counted), twins)),
        picks=picks(found_cells, twins) if worded else (),
        break_even=break_even(run.targets, found_cells),
        answers=answers(run.targets, found_cells) if worded else (),
        regions=regions(run.targets, measured, loads, slo, counted),
        notes=tuple(dict.fromkeys(filter(None, (*run.notes, other_models(run.targets))))),
    )


def cells(
    targets: Sequence[TargetFacts],
    measured: Measured,
    loads: Sequence[LoadFacts],
    slo: Slo | None,
    *,
    counted: frozenset[str] | None = None,
) -> tuple[CellSummary, ...]:
    """Summarise every target at every load that it was measured at.

    `counted` are the attempts that count where this is known already: of a part of all.
    """
    found = []
    for load in loads:
        for target in targets:
            attempts = measured.at(target.name, load.label)
            if not attempts:
                continue
            facts = CellFacts(
                target=target,
                load=load.label,
                concurrency=load.concurrency,
                rate=load.rate,
                dropped=load.dropped.get(target.name, 0),
                slo=slo,
                client_cpu=load.client_cpu,
                machine_cpu=load.machine_cpu,
                counted=counted,
            )
            found.append(summarise(attempts, measured.recordings, facts))
    return relate(found)


def regions(
    targets: Sequence[TargetFacts],
    measured: Measured,
    loads: Sequence[LoadFacts],
    slo: Slo | None,
    counted: frozenset[str],
) -> tuple[RegionCells, ...]:
    """Summarise the attempts of each region by themselves; nothing where there is only one.

    Every sample of every host is here, so the cells of all regions together are made of samples
    too, never of figures of figures. What counts in the whole cell counts in its regions.
    """
    names = {measured.recordings[attempt.id].region for attempt in measured.attempts}
    found = []
    for name in sorted(names) if len(names - {""}) > 1 else ():
        own = [one for one in measured.attempts if measured.recordings[one.id].region == name]
        part = Measured(attempts=own, recordings=measured.recordings)
        if name:  # what this machine asked to warm up is of no region
            bare = [msgspec.structs.replace(load, dropped={}) for load in loads]
            found.append(
                RegionCells(region=name, cells=cells(targets, part, bare, slo, counted=counted))
            )
    return tuple(found)


def _counted(cells: Sequence[CellSummary], measured: Measured) -> frozenset[str]:
    """Collect the ids of all attempts that the cells are made of, as `Samples` counts them."""
    found: set[str] = set()
    for cell in cells:
        own = measured.at(cell.target, cell.load)
        kept = [attempt for attempt in own if not measured.recordings[attempt.id].warmup]
        if cell.windows_ns:
            kept = inside(kept, cell.windows_ns, planned=cell.concurrency is None)
        found.update(attempt.id for attempt in kept)
    return frozenset(found)


def _field(measured: Measured, load: LoadFacts, counted: frozenset[str]) -> Field:
    """Everything that was measured at a load; what is not counted has its place all the same."""
    kept = [
        attempt
        for attempt in measured.attempts
        if (recording := measured.recordings[attempt.id]).load == load.label
        and not recording.warmup
    ]
    cut = frozenset(attempt.id for attempt in kept) - counted
    return Field(load.label, kept, load.is_open, cut)


def _verdicts(
    run: Run,
    measured: Measured,
    found: tuple[Sequence[CellSummary], frozenset[str]],
    twins: Sequence[str],
) -> list[CellVerdict]:
    cells, counted = found
    by_target: Mapping[str, list[CellSummary]] = defaultdict(list)
    for cell in cells:
        by_target[cell.target].append(cell)
    cpu = run.health.cpu_share if run.health is not None else None
    verdicts = []
    for target, own in by_target.items():
        if target in twins:
            continue
        every = {cell.load: measured.at(target, cell.load) for cell in own}
        if not any(attempt.ttft_ms for each in every.values() for attempt in each):
            continue  # whole answers: how they degrade is not known by their first token
        seen = {load: [a for a in each if a.id in counted] for load, each in every.items()}
        rest = [a for each in every.values() for a in each if a.id not in counted]
        verdict = diagnose(own, Signs.of(seen, warmup=rest, cpu_share=cpu))
        if verdict is not None:
            verdicts.append(verdict)
    return verdicts
