"""What cascades came to, from a ledger with known answers."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import T0, Called, attempt_note, exchange_note
from lightgate.cli.main import main
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.ledger.store.schema import attempt_notes, exchange_notes
from lightgate.ledger.store.store import Ledger
from lightgate.price.rates import Rates
from lightgate.report.money.cascades import HEADS, cascade_cells, cascades

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import AttemptNote

S = 1_000_000_000
DAY = (datetime.fromtimestamp(T0 // S, UTC), datetime.fromtimestamp(T0 // S + 86_400, UTC))
PRICES = {
    "lab/small": Rates(input=Decimal("0.1"), output=Decimal("0.4")),
    "lab/large": Rates(input=Decimal(1), output=Decimal(4)),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


class Book:
    """Requests of a day, kept one by one."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._made = 0

    def add(self, *tries: tuple[str, int], took_ms: int = 1000, **about: Any) -> None:
        """A request: its attempts in their order, target and nano-dollars, the last one won."""
        self._made += 1
        made, wall = f"x-{self._made}", T0 + self._made * S
        called = Called(tokens=Tokens(out=100, streamed=100, tokens_in=1000))
        attempts = [
            self._attempt(made, at, one, at == len(tries) - 1, called, wall)
            for at, one in enumerate(tries)
        ]
        exchange = exchange_note(made, **{
            "wall_ns": wall, "policy": "cascade", "model_asked": "any", "winner": tries[-1][0],
            "tokens_in": 1000, "tokens_out": 100, "received_ns": 5 * S,
            "last_out_ns": 5 * S + took_ms * 1_000_000, **about,
        })  # fmt: skip
        with self._ledger.writing() as connection:
            self._ledger.insert(connection, exchange_notes, [exchange.row(len(attempts))])
            self._ledger.insert(connection, attempt_notes, [one.row() for one in attempts])

    @staticmethod
    def _attempt(
        made: str, at: int, one: tuple[str, int], won: bool, called: Called, wall: int
    ) -> AttemptNote:
        about = {"id": f"{made}.{at}", "seq": at, "target": one[0], "cost_nano": one[1]}
        return attempt_note(made, None, called, won=won, wall_ns=wall, **about)


def test_who_answered_what_was_asked_again_and_the_money(ledger: Ledger) -> None:
    book = Book(ledger)
    for _ in range(6):
        book.add(("lab/small", 140_000), took_ms=500)
    book.add(("lab/small", 140_000), ("lab/large", 1_400_000), took_ms=3000)
    book.add(("lab/large", 1_400_000), took_ms=2000)
    rows = cascades(ledger, *DAY, PRICES.get)
    assert [(row.target, row.n, row.escalated) for row in rows] == [
        ("lab/small", 6, 0), ("lab/large", 2, 1), (None, 8, 1),
    ]  # fmt: skip
    small, large, both = rows
    assert (small.share, small.e2e_p50_ms, both.e2e_p95_ms) == (0.75, 500.0, 3000.0)
    assert large.paid_usd == Decimal("0.00294")  # the rejected answer is in it
    assert both.paid_usd == Decimal("0.00378")
    assert (both.dearest, both.dearest_usd) == ("lab/large", Decimal("0.0112"))  # 8 x 0.0014
    cells = cascade_cells(both)
    assert len(cells) == 2 + len(HEADS)
    assert cells[:5] == ["any", "all", "8", "100 %", "1"]
    assert cells[-1] == "66 %"


def test_an_answer_of_a_cache_and_other_policies_do_not_count(ledger: Ledger) -> None:
    book = Book(ledger)
    book.add(("lab/small", 1), cache="hit")
    book.add(("lab/small", 1), policy="fastest")
    book.add(("lab/small", 1), outcome=Outcome.TIMEOUT.value)
    assert cascades(ledger, *DAY, PRICES.get) == []


def test_a_target_without_a_price_may_be_the_dearest(ledger: Ledger) -> None:
    book = Book(ledger)
    book.add(("lab/small", 140_000))
    book.add(("lab/own", 0))
    rows = cascades(ledger, *DAY, PRICES.get)
    assert {(row.dearest, row.dearest_usd) for row in rows} == {(None, None)}
    assert cascade_cells(rows[-1])[-2:] == ["·", "·"]


def test_models_stand_apart_and_the_period_counts(ledger: Ledger) -> None:
    book = Book(ledger)
    book.add(("lab/small", 140_000), model_asked="b")
    book.add(("lab/small", 140_000), model_asked="a")
    book.add(("lab/small", 140_000), wall_ns=T0 - S)
    book.add(("lab/small", 140_000), received_ns=None)
    rows = cascades(ledger, *DAY, PRICES.get)
    assert [(row.model, row.target) for row in rows[:2]] == [("a", "lab/small"), ("a", None)]
    assert {row.n for row in rows} == {1}
    assert {row.model for row in rows} == {"a", "b", "any"}
    assert [row.e2e_p50_ms for row in rows if row.model == "any"] == [None, None]


def test_the_command_prints_the_table(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Book(ledger).add(("lab/small", 140_000), ("lab/large", 1_400_000), took_ms=3000)
    assert main(["report", "--cascades", "--data", str(tmp_path), "--last", "9999d"]) == 0
    told = capsys.readouterr().out
    assert "lab/large" in told
    assert "after a failed check" in " ".join(told.split())
    assert "not in the ledger" in " ".join(told.split())
