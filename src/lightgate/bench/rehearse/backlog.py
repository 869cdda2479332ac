"""A backlog in virtual time: how long a batch job would take, and what it would cost, by each way.

The engine of `lightgate batch run` and its gates work on the lines; the targets are the simulated
providers of a scene, told nothing about each other.
"""

from __future__ import annotations

import itertools
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.batch.engine import BatchEngine, BatchOrder, Surroundings
from lightgate.batch.journal import Checkpoint
from lightgate.batch.lines import CHAT, BatchLine
from lightgate.batch.share import BatchLane
from lightgate.batch.simulated import SimulatedSender
from lightgate.batch.virtual import LoopClock, VirtualLoop, run_virtual
from lightgate.route.admission.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightgate.batch.share import By
    from lightgate.batch.summary import BatchSummary
    from lightgate.bench.rehearse.scene import Scene

CHARS_PER_TOKEN: Final = 4  # of the simulator's own counting
TRIED: Final = 20  # lines by which the quickest target is found


class BacklogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way to send all lines; `shares` are the answers of each target."""

    way: str
    seconds: float
    lines_per_s: float
    tokens_per_s: float
    refused: float
    failed: int
    cost_usd: Decimal | None
    shares: dict[str, float]


def play_backlog(made: Scene, count: int, seed: int = 1) -> list[BacklogRow]:
    """Send so many lines one at a time, by each target alone, and by all of them."""
    names = [offer.target for offer in made.offers]
    alone = {name: _play(made, [name], TRIED, seed, most=1.0).seconds for name in names}
    quickest = min(names, key=alone.__getitem__)
    one = _play(made, [quickest], count, seed, most=1.0)
    rows = [_row(f"{quickest}, one at a time", one)]
    rows += [_row(f"{name} alone", _play(made, [name], count, seed)) for name in names]
    if len(names) > 1:
        rows.append(_row("all, by time", _play(made, names, count, seed)))
        rows.append(_row("all, by cost", _play(made, names, count, seed, by="cost")))
    return rows


def _lines(made: Scene) -> Iterator[BatchLine]:
    traffic = made.traffic
    for number in itertools.count(1):
        text = f"{number} ".ljust(traffic.tokens_in * CHARS_PER_TOKEN, "x")
        asked = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": traffic.tokens_out,
        }
        yield BatchLine(number, f"line-{number}", CHAT, msgspec.json.encode(asked))


def _play(
    made: Scene,
    names: Sequence[str],
    count: int,
    seed: int,
    *,
    by: By = "time",
    most: float | None = None,
) -> BatchSummary:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    lanes = []
    for name in names:
        provider, _, model = name.partition("/")
        sender = SimulatedSender(made.world, provider, model, clock, seed)
        lanes.append(BatchLane(name, sender, sender.cost_nano, Admission(most=most)))

    async def work(folder: Path) -> BatchSummary:
        with Checkpoint(folder / "out", folder / "errors", wall_ns=clock.wall_ns()) as files:
            lines = itertools.islice(_lines(made), count)
            order = BatchOrder(by=by, sync_s=0.0)
            return await BatchEngine(lines, count, lanes, files, order, Surroundings(clock)).run()

    with tempfile.TemporaryDirectory() as folder:
        return run_virtual(loop, work(Path(folder)))


def _row(way: str, summary: BatchSummary) -> BacklogRow:
    priced = all(lane.cost_usd is not None for lane in summary.targets)
    return BacklogRow(
        way=way,
        seconds=summary.seconds,
        lines_per_s=summary.answered / summary.seconds,
        tokens_per_s=summary.tokens_per_s,
        refused=summary.refused / max(1, summary.requests),
        failed=summary.failed,
        cost_usd=summary.cost_usd if priced else None,
        shares={lane.target: lane.answered / max(1, summary.answered) for lane in summary.targets},
    )
