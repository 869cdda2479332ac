"""The bill of second attempts: what they bought, beside what the truth says that they bought."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from ledger.notes import MS, T0, Called, attempt_note, exchange_note
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.ledger.store.rollup import Rollup
from lightgate.ledger.store.schema import attempt_notes, exchange_notes
from lightgate.ledger.store.store import Ledger
from lightgate.report.money.bill import Lives, bill, bill_cells, remaining_s

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote

S = 1_000_000_000
DELAY = 0.8
DAY = (datetime.fromtimestamp(T0 / S, UTC), datetime.fromtimestamp(T0 / S + 86_400, UTC))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


def attempt(made: str, at: int, began_s: float, first_s: float | None, **about: Any) -> AttemptNote:
    """An attempt that speaks at `first_s` of the request's time, or is closed at `until_s`."""
    until_s = about.pop("until_s", 0.0)
    stamps = Marks(0)
    stamps.send = int(began_s * S)
    if first_s is not None:
        stamps.burst(int(first_s * S), int(first_s * S), 1, 4)
        stamps.burst(int(first_s * S) + 100 * MS, int(first_s * S) + 100 * MS, 1, 4)
    stamps.end = int((until_s if first_s is None else first_s + 0.1) * S)
    outcome = Outcome.CANCELLED if first_s is None else Outcome.OK
    ended = Called(outcome=outcome, tokens=Tokens(out=2, streamed=2, tokens_in=10))
    note = attempt_note(made, stamps, ended, id=f"{made}.{at}", seq=at, **about)
    return msgspec.structs.replace(note, facts=note.facts)


def hedged(number: int, own_s: float, other_s: float) -> tuple[ExchangeNote, list[AttemptNote]]:
    """One request: the first target takes `own_s`, a second one is asked after DELAY."""
    made, wall = f"x-{number}", T0 + number * S
    key = f"k-{number % 2}"
    if own_s <= DELAY:
        tries = [attempt(made, 0, 0.0, own_s, wall_ns=wall, target="far/m", provider="far")]
        return exchange_note(made, wall_ns=wall, key_id=key), tries
    second_s = DELAY + other_s
    wins = second_s < own_s
    end = min(own_s, second_s)
    first = attempt(
        made, 0, 0.0, None if wins else own_s, until_s=end, wall_ns=wall, role="primary",
        won=not wins, target="far/m", provider="far", cost_nano=1000,
    )  # fmt: skip
    second = attempt(
        made, 1, DELAY, second_s if wins else None, until_s=end, wall_ns=wall, role="hedge",
        won=wins, target="near/m", provider="near", cost_nano=3000,
    )  # fmt: skip
    return exchange_note(made, wall_ns=wall, key_id=key), [first, second]


def keep(ledger: Ledger, made: list[tuple[ExchangeNote, list[AttemptNote]]]) -> None:
    rollup = Rollup()
    for exchange, tries in made:
        rollup.add(exchange, tries)
    with ledger.writing() as connection:
        ledger.insert(connection, exchange_notes, [e.row(len(tries)) for e, tries in made])
        ledger.insert(connection, attempt_notes, [a.row() for _, tries in made for a in tries])
        rollup.write(ledger, connection)


def test_seconds_bought_are_those_of_the_truth(ledger: Ledger) -> None:
    rng = np.random.default_rng(3)
    own = np.exp(rng.normal(-1.0, 1.0, 3000))
    other = np.exp(rng.normal(-0.5, 0.8, 3000))
    keep(
        ledger,
        [hedged(n, float(a), float(b)) for n, (a, b) in enumerate(zip(own, other, strict=True))],
    )
    rows = bill(ledger, *DAY)
    wins = (own > DELAY) & (DELAY + other < own)
    true = float((own - DELAY - other)[wins].sum())
    (row,) = [one for one in rows if one.by == "target"]
    assert (row.name, row.fired, row.won) == ("far/m", int((own > DELAY).sum()), int(wins.sum()))
    assert row.interval is not None
    assert row.interval.low <= row.seconds <= row.interval.high
    assert row.interval.low <= true <= 1.2 * row.interval.high
    assert row.seconds == pytest.approx(true, rel=0.35)  # a tail that was never seen to its end
    losers = int(wins.sum()) * 1000 + (row.fired - int(wins.sum())) * 3000
    assert row.paid_usd == Decimal(losers).scaleb(-9)
    assert row.usd_per_s == pytest.approx(losers / 1e9 / row.seconds)
    keyed = [one for one in rows if one.by == "key"]
    assert {one.name for one in keyed} == {"k-0", "k-1"}
    assert sum(one.fired for one in keyed) == row.fired
    assert bill_cells(row)[1] == f"{row.fired:,}"


def test_seconds_bought_are_not_biased_much() -> None:
    """Twenty ledgers: on average the estimate is near the truth, and rather below it."""
    ratios = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        own = np.exp(rng.normal(-1.0, 1.0, 2000))
        spoke = DELAY + np.exp(rng.normal(-0.5, 0.8, 2000))
        wins = (own > DELAY) & (spoke < own)
        lives = Lives(np.where(wins, spoke, own), ~wins)
        ratios.append(remaining_s(lives, spoke[wins]).sum() / (own - spoke)[wins].sum())
    assert 0.8 < np.mean(ratios) < 1.1


def test_what_is_left_of_a_time(ledger: Ledger) -> None:
    lives = Lives(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True] * 4))
    left = remaining_s(lives, np.array([0.0, 1.0, 2.5, 4.0, 9.0]))
    assert left.tolist() == pytest.approx([2.5, 2.0, 1.0, 0.0, 0.0])
    closed = Lives(np.array([1.0, 2.0, 5.0]), np.array([False, True, True]))
    assert remaining_s(closed, np.array([1.0])).tolist() == pytest.approx([2.5])
    assert bill(ledger, *DAY) == []
