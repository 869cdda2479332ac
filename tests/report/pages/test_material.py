from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.report.pages.material import ErrorText, error_texts, gather
from report.conftest import MODEL

if TYPE_CHECKING:
    from report.conftest import Sample


def test_every_attempt_finds_its_cell(sample: Sample) -> None:
    material = gather(sample.run, sample.attempts, sample.recordings)
    assert {len(attempts) for attempts in material.by_cell.values()} == {80}
    assert set(material.by_cell) == {(cell.target, cell.load) for cell in sample.run.cells}


def test_without_recordings_the_concurrency_tells(sample: Sample) -> None:
    bare = gather(sample.run, sample.attempts, {})
    assert bare.by_cell == gather(sample.run, sample.attempts, sample.recordings).by_cell


def test_warm_up_is_left_out(sample: Sample) -> None:
    first = sample.attempts[0]
    warm = msgspec.structs.replace(sample.recordings[first.id], warmup=True)
    material = gather(sample.run, sample.attempts, {**sample.recordings, first.id: warm})
    assert len(material.by_cell[first.target, "c=1"]) == 79


def test_an_attempt_that_belongs_nowhere_is_passed_over(sample: Sample) -> None:
    lost = msgspec.structs.replace(sample.attempts[0], id="lost", concurrency=None)
    assert gather(sample.run, [lost], {}).by_cell == {}


def test_errors_are_counted_most_frequent_first(sample: Sample) -> None:
    found = error_texts(gather(sample.run, sample.attempts, sample.recordings))
    times = [error.times for error in found]
    assert times == sorted(times, reverse=True)
    assert sum(times) == sum(attempt.outcome.is_failure for attempt in sample.attempts)
    target = f"replicate/{MODEL}"
    limited = [e for e in found if e.target == target and e.outcome == "rate_limited"]
    count = sum(a.target == target and a.outcome.value == "rate_limited" for a in sample.attempts)
    assert limited == [ErrorText(target, "rate_limited", 429, "Too many requests.", count)]
