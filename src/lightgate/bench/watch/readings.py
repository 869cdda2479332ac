"""Readings of an engine's own metrics and of the GPU, and what they come to in a cell.

Engines say what runs and what waits (`provider.engine`); nvidia-smi says what the GPU draws and how
busy it is.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.ledger.runs.run import EngineFacts, GpuFacts
from lightgate.provider.engine import read_engine_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.runs.run import CellSummary, Run

SMI_FIELDS: Final = ("power.draw", "utilization.gpu")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at an engine or at the GPUs of this machine, at an instant of the run's clock."""

    t_ns: int
    target: str | None = None  # whose engine it is; None: the GPUs
    engine: str | None = None
    running: float | None = None
    waiting: float | None = None
    cache: float | None = None
    watts: float | None = None  # of all GPUs together
    gpu: float | None = None  # share of the time that they were busy, their mean


def read_engine(page: bytes, target: str, t_ns: int) -> Reading | None:
    """Read the page of a target's engine; None where no known gauge is there."""
    found = read_engine_page(page)
    if found is None:
        return None
    return Reading(
        t_ns=t_ns,
        target=target,
        engine=found.engine,
        running=found.running,
        waiting=found.waiting,
        cache=found.cache,
    )


def read_smi(text: str, t_ns: int) -> Reading | None:
    """Read the lines of nvidia-smi, one a GPU; None where it says nothing that is a number."""
    rows = [[_number(cell) for cell in line.split(",")] for line in text.splitlines()]
    known = [row for row in rows if len(row) == len(SMI_FIELDS)]
    watts = [row[0] for row in known if row[0] is not None]
    busy = [row[1] for row in known if row[1] is not None]
    if not watts and not busy:
        return None
    return Reading(
        t_ns=t_ns,
        watts=sum(watts) if watts else None,
        gpu=fmean(busy) / 100.0 if busy else None,
    )


def with_readings(run: Run, readings: Sequence[Reading]) -> Run:
    """Put into every cell what was read in its windows."""
    cells = tuple(_with_readings(cell, readings) for cell in run.cells)
    return msgspec.structs.replace(run, cells=cells)


def _with_readings(cell: CellSummary, readings: Sequence[Reading]) -> CellSummary:
    inside = [
        reading
        for reading in readings
        if any(start <= reading.t_ns < stop for start, stop in cell.windows_ns or ())
    ]
    return msgspec.structs.replace(
        cell,
        engine=_engine([reading for reading in inside if reading.target == cell.target]),
        gpu=_gpu([reading for reading in inside if reading.target is None], cell.throughput_tps),
    )


def _engine(readings: Sequence[Reading]) -> EngineFacts | None:
    if not readings:
        return None
    waiting = _known(reading.waiting for reading in readings)
    caches = _known(reading.cache for reading in readings)
    return EngineFacts(
        engine=readings[0].engine or "",
        n=len(readings),
        running=fmean(_known(reading.running for reading in readings)),
        waiting=fmean(waiting) if waiting else None,
        waiting_most=max(waiting, default=None),
        cache_most=max(caches, default=None),
    )


def _gpu(readings: Sequence[Reading], throughput_tps: float | None) -> GpuFacts | None:
    if not readings:
        return None
    watts, busy = _known(r.watts for r in readings), _known(r.gpu for r in readings)
    mean = fmean(watts) if watts else None
    return GpuFacts(
        n=len(readings),
        watts=mean,
        use=fmean(busy) if busy else None,
        tokens_per_joule=throughput_tps / mean if throughput_tps is not None and mean else None,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number >= 0 else None  # also without NaN
