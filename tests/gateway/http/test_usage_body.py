"""The usage of a key as its body says it: instants, budget, limits; with a state that is played."""

from __future__ import annotations

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.http import usage
from lightgate.gateway.http.usage import usage_body
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.spend.counters import KeyStanding
from lightgate.ledger.store.keys import KeyTerms, instant_ns, new_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lightgate.ledger.store.keys import KeyRecord

NOW = instant_ns("2026-11-16T05:30:20Z")
STANDING = KeyStanding(
    spent_nano=1_500_000_000, held_nano=250_000_000, requests=3, tokens=40, held_tokens=2
)


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="me", **terms))[1]


class Asked:
    """What the ledger was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: dict[str, Any]) -> None:
        self.owner = "?"
        self.since: datetime | None = None

        def found(ledger: object, owner: str, since: datetime | None) -> dict[str, Any]:
            self.owner, self.since = owner, since
            return rows

        monkeypatch.setattr(usage, "_from_ledger", found)


async def told(
    one: KeyRecord | None, target: bytes = b"/v1/usage", standing: KeyStanding | None = STANDING
) -> dict[str, Any]:
    spend = SimpleNamespace(standing=lambda id_: standing if one and id_ == one.id else None)
    state: Any = SimpleNamespace(wall_ns=lambda: NOW, spend=spend)

    async def read(ask: Callable[[Any], Any], otherwise: Any) -> Any:
        return ask(None)

    reads: Any = SimpleNamespace(read=read)
    body: dict[str, Any] = json.loads(await usage_body(state, reads, one, target))
    return body


def row(requests: int, cost: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "ok": 1,
        "cached": 2,
        "tokens_in": 3,
        "tokens_out": 4,
        "cost_usd": cost,
    }


async def test_the_sums_of_all_models(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, {"a": row(5, 0.5), "b": row(2, 0.25)})
    mine = key(rpm=9, tpm=100)
    found = await told(mine)
    sums = {"requests": 7, "ok": 2, "cached": 4, "tokens_in": 6, "tokens_out": 8, "cost_usd": 0.75}
    assert {name: found[name] for name in sums} == sums
    assert found["models"] == {"a": row(5, 0.5), "b": row(2, 0.25)}
    assert found["key"] == {"id": mine.id, "name": "me", "prefix": mine.prefix}
    assert (found["object"], asked.owner) == ("usage", mine.id)
    assert (found["since"], found["until"]) == ("2026-10-17T05:30:20Z", "2026-11-16T05:30:20Z")
    assert found["budget"] is None
    assert found["limits"] == {
        "rpm": 9,
        "requests_last_minute": 3,
        "tpm": 100,
        "tokens_last_minute": 42,
    }


@pytest.mark.parametrize(
    ("period", "since"),
    [("day", "2026-11-16T00:00:00Z"), ("month", "2026-11-01T00:00:00Z"), ("total", None)],
)
async def test_a_budget_is_told_for_its_period(
    monkeypatch: pytest.MonkeyPatch, period: Any, since: str | None
) -> None:
    Asked(monkeypatch, {})
    found = await told(key(budget_usd=Decimal(2), budget_period=period))
    assert found["since"] == since
    assert found["budget"] == {
        "usd": 2,
        "period": period,
        "spent_usd": 1.5,
        "reserved_usd": 0.25,
        "left_usd": 0.25,
    }
    over = await told(key(budget_usd=Decimal("1.6"), budget_period=period))
    assert over["budget"]["left_usd"] == 0


@pytest.mark.parametrize(
    ("query", "since"),
    [
        (b"?since=24h", "2026-11-15T05:30:20Z"),
        (b"?since=7d", "2026-11-09T05:30:20Z"),
        (b"?x=1&since=90s", "2026-11-16T05:28:50Z"),
        (b"?x=1", "2026-10-17T05:30:20Z"),
    ],
)
async def test_the_begin_of_the_time(
    monkeypatch: pytest.MonkeyPatch, query: bytes, since: str
) -> None:
    Asked(monkeypatch, {})
    found = await told(key(), b"/v1/usage" + query)
    assert found["since"] == since


@pytest.mark.parametrize("query", [b"?since=yesterday", b"?since=99999999999d"])
async def test_what_is_no_duration(monkeypatch: pytest.MonkeyPatch, query: bytes) -> None:
    Asked(monkeypatch, {})
    with pytest.raises(Refusing) as caught:
        await told(key(), b"/v1/usage" + query)
    refusal = caught.value.refusal
    assert (refusal.status, refusal.param) == (400, "since")
    assert refusal.message == "`since` is not a duration such as 24h or 7d."


async def test_without_a_key_or_its_counters_nothing_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch, {})
    nobody = await told(None)
    assert (nobody["key"], nobody["budget"], nobody["limits"], asked.owner) == (
        None,
        None,
        None,
        "",
    )
    unlimited = await told(key(budget_usd=Decimal(1)), standing=None)
    assert (unlimited["budget"], unlimited["limits"]) == (None, None)
    assert nobody["requests"] == 0
