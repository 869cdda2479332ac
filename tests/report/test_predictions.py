"""Calibration: what counts as a prediction that came true, and what is left out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lightgate.ledger.store.predictions import KeptPrediction
from lightgate.report.tables.predictions import calibration

if TYPE_CHECKING:
    from lightgate.report.tables.predictions import PredictionRow

MS = 1_000_000


def made(actual_ms: float | None, **changes: Any) -> KeptPrediction:
    known: dict[str, Any] = {
        "target": "lab/a",
        "predicted_ns": 200 * MS,
        "low_ns": 100 * MS,
        "high_ns": 400 * MS,
        "in_flight": 0,
        "actual_ns": None if actual_ms is None else int(actual_ms * MS),
        "waited_ns": None,
        "failed": False,
    }
    return KeptPrediction(**known | changes)


def only(*found: KeptPrediction) -> PredictionRow:
    [row] = calibration(found)
    return row


def test_ratios_and_the_band() -> None:
    row = only(*[made(took) for took in (50, 100, 180, 220, 240, 400, 401, 300, 250, 210)])

    assert row.n == 10
    assert row.ratio_p50 == pytest.approx(1.1)
    assert (row.within, row.below, row.above) == (0.8, 0.1, 0.1)


def test_a_failure_is_counted_and_not_mixed_in() -> None:
    row = only(made(200), made(None, failed=True, waited_ns=30_000 * MS))

    assert (row.n, row.failed, row.ratio_p50, row.within) == (1, 1, 1.0, 1.0)


def test_a_closed_attempt_counts_once_it_had_waited_too_long() -> None:
    row = only(made(200), made(None, waited_ns=900 * MS), made(None, waited_ns=300 * MS))

    assert (row.n, row.closed, row.above) == (2, 1, 0.5)
    assert row.ratio_p90 == pytest.approx(4.5)


def test_targets_and_loads_have_rows_of_their_own() -> None:
    found = [made(200, in_flight=load) for load in (0, 0, 2, 5, 40)]
    rows = calibration([*found, made(200, target="lab/b")])

    assert [(row.target, row.load, row.n) for row in rows] == [
        ("lab/a", "all", 5),
        ("lab/a", "0", 2),
        ("lab/a", "1-3", 1),
        ("lab/a", "4-15", 1),
        ("lab/a", "16+", 1),
        ("lab/b", "all", 1),
    ]


def test_nothing_is_nothing() -> None:
    assert calibration([]) == []
    row = only(made(None, failed=True))
    assert (row.n, row.ratio_p50, row.within) == (0, None, None)
