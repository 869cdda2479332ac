from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.spend.counters import SpendCounters, restore
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.ledger.store.schema import key_rollups, reservations
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord

DAY_S, FINE_S = 86_400, 300
NOON_S = 1_699_963_200  # 2023-11-14, UTC
MIDNIGHT_S = NOON_S - 43_200
NANO = 1_000_000_000


def spent_before(ledger: Ledger, key: KeyRecord, day_s: int, dollars: str) -> None:
    """A day's spend, in the sums that the ledger keeps."""
    with ledger.writing() as connection:
        for width_s, bucket_s in ((DAY_S, day_s), (FINE_S, day_s + 3600)):
            connection.execute(
                key_rollups.insert().values(
                    width_s=width_s, bucket_s=bucket_s, key_id=key.id, model_asked="m",
                    exchanges=1, ok=1, cached=0, tokens_in=1, tokens_out=1,
                    cost_usd=Decimal(dollars), loser_cost_usd=Decimal(0),
                )
            )  # fmt: skip


def test_each_budget_gets_the_spend_of_its_period(tmp_path: Path) -> None:
    clock = ManualClock(wall_ns=NOON_S * NANO)
    keys = {
        period: new_key(
            KeyTerms(name=period, budget_usd=Decimal(100), budget_period=period), clock=clock
        )[1]
        for period in ("total", "month", "day")
    }
    free = new_key(KeyTerms(name="free"), clock=clock)[1]
    with (
        Ledger.open(tmp_path / "ledger.sqlite") as ledger,
        SpendCounters.open(tmp_path / "spend", 3, keys.values(), clock=clock) as spend,
    ):
        for key in (*keys.values(), free):
            spent_before(ledger, key, MIDNIGHT_S - 40 * DAY_S, "4")
            spent_before(ledger, key, MIDNIGHT_S - 2 * DAY_S, "2")
            spent_before(ledger, key, MIDNIGHT_S, "1.5")
            assert spend.admit(key, clock.wall_ns(), 1, 7) is None
        restore(spend, ledger, (*keys.values(), free), clock.wall_ns())
        found = {period: spend.standing(key.id) for period, key in keys.items()}
        assert {p: s.spent_nano / NANO if s else None for p, s in found.items()} == {
            "total": 7.5, "month": 3.5, "day": 1.5,
        }  # fmt: skip
        assert [s.held_nano for s in found.values() if s is not None] == [0, 0, 0]
        assert spend.standing(free.id) is None


def test_what_is_reserved_in_the_ledger_counts(tmp_path: Path) -> None:
    clock = ManualClock(wall_ns=NOON_S * NANO)
    key = new_key(KeyTerms(name="k", budget_usd=Decimal(1)), clock=clock)[1]
    with (
        Ledger.open(tmp_path / "ledger.sqlite") as ledger,
        SpendCounters.open(tmp_path / "spend", 0, clock=clock) as spend,
    ):
        with ledger.writing() as connection:
            connection.execute(
                reservations.insert().values(
                    exchange_id="e", life="l", worker=0, key_id=key.id, wall_ns=clock.wall_ns(),
                    nano_usd=600_000_000, targets="groq/a", request_id="r", model_asked="m",
                    dialect="openai-chat",
                )
            )  # fmt: skip
        restore(spend, ledger, [key], clock.wall_ns())
        assert spend.admit(key, clock.wall_ns(), 0, 500_000_000) is not None
        assert spend.admit(key, clock.wall_ns(), 0, 400_000_000) is None


@pytest.mark.parametrize("elsewhere", [False, True])
def test_every_budget_is_raised_to_what_ledger_and_journals_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """Of two periods; keys that the ledger, the journals, both or neither know."""
    day = 86_400 * 1_000_000_000
    noon = 19_675 * day + day // 2
    keys = [
        new_key(KeyTerms(name="n", budget_usd=Decimal(9), budget_period=period))[1]
        for period in ("day", "total")
        for _ in range(4)
    ]
    free = new_key(KeyTerms(name="free", rpm=5))[1]
    asked: list[Any] = []

    def spent(ledger: Any, start: Any) -> dict[str, Decimal]:
        asked.append(start)
        return {keys[n].id: Decimal("0.000000007") for n in (0, 1, 4, 5)}

    def waiting(since_ns: int) -> dict[str, int]:
        asked.append(since_ns)
        return {keys[n].id: 20 for n in (1, 2, 5, 6)}

    monkeypatch.setattr("lightgate.ledger.store.queries.spend_per_key", spent)
    told: dict[str, int] = {}
    ledger: Any = None
    with SpendCounters.open(tmp_path / "spend", 0, clock=ManualClock(wall_ns=noon)) as counters:
        raise_to = (lambda key, nano: told.update({key.id: nano})) if elsewhere else None
        restore(counters, ledger, [*keys, free], noon, raise_to, waiting)
        assert asked == [None, 0, datetime.fromtimestamp(19_675 * 86_400, UTC), 19_675 * day]
        known = [7, 27, 20, 0] * 2
        if elsewhere:
            assert [told.get(key.id, 0) for key in keys] == known
            assert len(told) == 6
        else:
            assert [counters.own_part(key).spent_nano for key in keys] == known
        assert not counters.counts(free.id)


@pytest.mark.parametrize("period", ["total", "day", "month"])
def test_budgets_of_one_period_alone_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period: Any
) -> None:
    clock = ManualClock(wall_ns=NOON_S * NANO)
    terms = KeyTerms(name="k", budget_usd=Decimal(1), budget_period=period)
    key, ledger = new_key(terms, clock=clock)[1], object()
    module = "lightgate.ledger.store.queries.spend_per_key"
    monkeypatch.setattr(module, lambda *_: {key.id: Decimal("0.000000007")})
    with SpendCounters.open(tmp_path / "spend", 0, clock=clock) as spend:
        spend.mark_lost()
        restore(spend, ledger, [key], clock.wall_ns())  # type: ignore[arg-type]
        assert spend.own_part(key).spent_nano == 7
        assert spend.admit(key, clock.wall_ns(), 0, 1) is None  # nothing is missing any more


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_earlier_lives_had_reserved_is_dropped_or_counts_as_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """The ledger of one machine knows it; where others spend too, it is counted here."""
    clock = ManualClock(wall_ns=NOON_S * NANO)
    key = new_key(KeyTerms(name="k", budget_usd=Decimal(1), tpm=100), clock=clock)[1]
    ledger: Any = object()
    monkeypatch.setattr("lightgate.ledger.store.queries.spend_per_key", lambda *_: {})
    for worker in (1, 2):
        dead = SpendCounters.open(tmp_path / "spend", worker, [key], clock=clock)
        assert dead.admit(key, clock.wall_ns(), 3 * worker, 5 * worker) is None
        dead._file.close()  # as a killed process leaves it
    with SpendCounters.open(tmp_path / "spend", 0, clock=clock) as spend:
        restore(spend, ledger, [key], clock.wall_ns(), (lambda *_: None) if elsewhere else None)
        standing = spend.standing(key.id)
        assert standing is not None
        assert (standing.held_nano, standing.held_tokens) == (0, 0)
        assert (standing.spent_nano, standing.tokens) == ((15, 9) if elsewhere else (0, 0))


def test_what_is_restored_of_one_worker_takes_nothing_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(wall_ns=NOON_S * NANO)
    key = new_key(KeyTerms(name="k", budget_usd=Decimal(1), tpm=100), clock=clock)[1]
    ledger: Any = object()
    monkeypatch.setattr("lightgate.ledger.store.queries.spend_per_key", lambda *_: {})
    dead = SpendCounters.open(tmp_path / "spend", 1, [key], clock=clock)
    assert dead.admit(key, clock.wall_ns(), 6, 5) is None
    dead._file.close()  # as a killed process leaves it
    with SpendCounters.open(tmp_path / "spend", 2, [key], clock=clock) as spend:
        assert spend.admit(key, clock.wall_ns(), 9, 7) is None  # of an earlier life of its own
        restore(spend, ledger, [key], clock.wall_ns(), lambda *_: None)
        standing = spend.standing(key.id)
        assert standing is not None
        assert (standing.spent_nano, standing.tokens) == (12, 15)
