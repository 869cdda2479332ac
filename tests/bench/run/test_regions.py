"""Cells by region are made of samples, and those of all regions are the cell of the run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.run.findings import LoadFacts, Measured, conclude
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.quantile import quantile
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import Run, TargetFacts
from lightgate.report.tables.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.conftest import Shape
    from lightgate.bench.load.drive import Finished

TARGET = TargetFacts(name="t", provider="p", model="m", base_url="http://x/v1", dialect="openai")
LOAD = LoadFacts(label="c=4", concurrency=4)


@pytest.fixture
def two(measured: Callable[[Shape], Finished], shape: type[Shape]) -> Measured:
    """Sixty requests from the east, forty from the west, whose first tokens are later."""
    dice = random.Random(1)  # noqa: S311 - a sample, not a secret
    found = Measured(attempts=[], recordings={})
    for number in range(100):
        region = "east" if number < 60 else "west"
        first = dice.uniform(100, 200) + (50 if region == "west" else 0)
        done = measured(shape(send_ms=number * 10, bursts_ms=(first, first + 10, first + 20)))
        facts = AttemptFacts(
            id=f"a-{number}", exchange_id="e", source="bench", target="t", provider="p", model="m",
            dialect="openai-chat", outcome=done.called.outcome, wall_ns=done.wall_ns,
        )  # fmt: skip
        found.attempts.append(AttemptRecord.of(facts, done.marks, done.called.tokens))
        found.recordings[facts.id] = Recording.of(
            facts.id, done.marks, load=LOAD.label, block=0, region=region
        )
    return found


def concluded(found: Measured) -> Run:
    run = Run(id="r", started="2026-11-16T00:00:00Z", targets=(TARGET,))
    return conclude(run, found, [LOAD], slo=None, seed=1)


def test_regions_add_up_and_their_figures_are_of_their_own_samples(two: Measured) -> None:
    run = concluded(two)
    (whole,) = run.cells
    assert [part.region for part in run.regions] == ["east", "west"]
    last = len(two.attempts) - whole.requests  # what the steady window of all left out
    for part in run.regions:
        (cell,) = part.cells
        own = [one for one in two.attempts if two.recordings[one.id].region == part.region]
        last -= len(own) - cell.requests
        values = [one.ttft_ms or 0 for one in own]
        assert min(values) <= (cell.value("ttft_ms", 0.5) or 0) <= max(values)
    assert last == 0
    assert sum(part.cells[0].requests for part in run.regions) == whole.requests
    told = plain(run, with_curves=False)
    assert "By region" in told
    assert "east: " in told


def test_a_region_has_the_median_of_its_samples(two: Measured) -> None:
    run = concluded(two)
    (whole,), east = run.cells, run.regions[0]
    begin, end = whole.windows_ns[0] if whole.windows_ns else (0, 1 << 62)
    own = [
        one.ttft_ms or 0
        for one in two.attempts
        if two.recordings[one.id].region == "east" and begin <= (one.t_send_ns or 0) <= end
    ]
    assert len(own) == east.cells[0].requests
    assert east.cells[0].value("ttft_ms", 0.5) == quantile(own, 0.5)


def test_one_region_is_no_dimension(two: Measured) -> None:
    own = [one for one in two.attempts if two.recordings[one.id].region == "east"]
    assert concluded(Measured(attempts=own, recordings=two.recordings)).regions == ()
