"""Predicted first tokens as they are read again, each beside what came."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import MS, T0, Called, attempt_note, marks, settled
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store import predictions as kept
from lightgate.ledger.store.predictions import KeptPrediction, predictions
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
BAND = {"predicted_ttft_ns": 100 * MS, "predicted_low_ns": 80 * MS, "predicted_high_ns": 150 * MS}


def silent(end_ms: int) -> Marks:
    """An attempt that was given up before a token came."""
    made = Marks(5_000 * MS)
    made.send, made.end = 5_001 * MS, (5_000 + end_ms) * MS
    return made


def read(ledger: Ledger, since: int = 0, until: int = 100) -> list[KeptPrediction]:
    """Those of the seconds from `since` to before `until`."""
    start, stop = (datetime.fromtimestamp(T0 // S + at, UTC) for at in (since, until))
    return predictions(ledger, start, stop)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("predictions")
    failed = Called(outcome=Outcome.RESET)
    with Ledger.open("sqlite", folder) as ledger:
        journal = Journal(folder / "journal", 0)

        def note(at: int, *attempts: Any, **exchange: Any) -> None:
            told = {**BAND, "wall_ns": T0 + at * S, **exchange}
            journal.write(settled(f"x{at}", *attempts, **told))

        def tried(at: int, *rest: Any, **about: Any) -> Any:
            return attempt_note(f"x{at}", *rest, wall_ns=T0 + at * S, **about)

        note(1, tried(1), in_flight=3, plan="lab/s1 other/s2")
        note(2, tried(2, silent(700), failed))
        note(3, tried(3, silent(400), Called(outcome=Outcome.CANCELLED)))
        note(4, tried(4, silent(300), Called(outcome=Outcome.CUT)))
        note(5, tried(5, marks(), Called(streamed=False)))
        note(6, tried(6), plan="other/s2 lab/s1")
        note(7, tried(7, seq=1))
        for at, name in enumerate(BAND, 8):
            note(at, tried(at), **{name: None})
        note(20, tried(20))
        Shipper(ledger, folder / "journal").drain()
        journal.close()
        yield ledger


def test_first_attempts_at_the_predicted_target_are_read_newest_first(ledger: Ledger) -> None:
    came = KeptPrediction("lab/s1", 100 * MS, 80 * MS, 150 * MS, None, 101 * MS, 131 * MS, False)
    closed = (None, 300 * MS, False), (None, 400 * MS, False), (None, 700 * MS, True)
    found = read(ledger)
    assert found[0] == came
    assert [(one.actual_ns, one.waited_ns, one.failed) for one in found[1:4]] == list(closed)
    assert (found[4].in_flight, found[4].actual_ns) == (3, 101 * MS)
    assert len(found) == 5  # none that was whole, skipped, second, or lacks a part of its band


def test_a_time_ends_before_its_last_second(ledger: Ledger) -> None:
    assert len(read(ledger, 20, 21)) == 1
    assert len(read(ledger, 21, 90)) == 0
    assert len(read(ledger, 2, 20)) == 3


def test_only_the_newest_are_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 3)
    found = [one.waited_ns for one in read(ledger)]  # one of the three was skipped
    assert found == [131 * MS, 300 * MS]
