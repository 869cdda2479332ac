"""A defect of our own at the end of an exchange: its client is told, no money stays reserved."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import model
from lightgate.gateway.exchange import settle
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Start

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "streamed": ("lab/plain", {"stream": True}),
    "whole": ("lab/plain", {"stream": False}),
    "translated": ("anthropic/plain", {"stream": True}),
    "raced": ("race", {"stream": True}),
    "assembled": ("race", {"stream": False}),
}


def fails(*_: object, **__: object) -> Any:
    raise StopIteration


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("place", "name"), [(settle, "_exchange"), (settle, "_teach"), (Exchange, "over")]
)
async def test_it_ends_the_exchange_with_an_error(
    start: Start, monkeypatch: pytest.MonkeyPatch, way: str, place: Any, name: str
) -> None:
    text = model("race", ["lab/plain", "lab/think"], "race = 2")
    text += '[prices."anthropic/plain"]\ninput = 1\noutput = 1\n'
    rig = await start(text, terms={"me": KeyTerms(name="me", budget_usd=Decimal(5))})
    asked, fields = WAYS[way]
    fields = {**fields, "headers": {"authorization": f"Bearer {rig.keys['me']}"}}
    with monkeypatch.context() as patched:
        patched.setattr(place, name, fails)
        answer = await rig.chat(asked, max_tokens=5, **fields)
    assert answer.status == 500 or b"error" in answer.body or answer.end != "complete"
    [key] = rig.state.served.snapshot.keys
    assert rig.state.spend is not None
    await rig.until(lambda: rig.state.exchanges == set())
    standing = rig.state.spend.standing(key.id)
    assert standing is not None
    assert standing.held_nano == 0
    assert standing.spent_nano > 0
    after = await rig.chat(asked, max_tokens=5, **fields)
    assert after.status == 200
