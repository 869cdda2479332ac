"""A key's own usage: what it asked for, what that cost, what is left; never another's."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.locate import LedgerPlace
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start


def ship(rig: Rig) -> None:
    """Copy the journal into the ledger, as the control process does."""
    with LedgerPlace.of_process({}, rig.data).open() as ledger:
        Shipper(ledger, rig.data / "journal").ship()


async def test_a_key_sees_its_own_and_nobody_elses(start: Start) -> None:
    terms = {
        "me": KeyTerms(name="me", budget_usd=Decimal("0.01"), budget_period="month", rpm=100),
        "you": KeyTerms(name="you"),
    }
    rig = await start(terms=terms)
    for _ in range(2):
        await rig.chat(stream=False, headers={"x-api-key": rig.keys["me"]})
    await rig.chat(stream=False, headers={"x-api-key": rig.keys["you"]})
    ship(rig)
    mine = (await rig.ask("/v1/usage", x_api_key=rig.keys["me"])).json
    assert (mine["object"], mine["key"]["name"]) == ("usage", "me")
    assert (mine["requests"], mine["ok"], mine["tokens_out"]) == (2, 2, 24)
    assert set(mine["models"]) == {"lab/plain"}
    spent = 2 * (3 * 1 + 12 * 2) / 1e6
    assert mine["cost_usd"] == pytest.approx(spent)
    assert mine["budget"]["spent_usd"] == pytest.approx(spent)
    assert mine["budget"]["left_usd"] == pytest.approx(0.01 - spent)
    assert mine["limits"]["requests_last_minute"] == 2
    yours = (await rig.ask("/v1/usage", authorization=f"Bearer {rig.keys['you']}")).json
    assert (yours["requests"], yours["budget"], yours["key"]["name"]) == (1, None, "you")
    assert (await rig.ask("/v1/usage")).status == 401
    hidden = (rig.keys["me"], rig.keys["you"])
    for body in (mine, yours):
        assert not [secret for secret in hidden if secret in str(body)]


async def test_the_time_can_be_chosen(start: Start) -> None:
    rig = await start()
    assert (await rig.ask("/v1/usage")).json["requests"] == 0  # no ledger yet
    await rig.chat(stream=False)
    ship(rig)
    for since in ("1h", "7d"):
        told = (await rig.ask(f"/v1/usage?since={since}")).json
        assert (told["requests"], told["key"], told["limits"]) == (1, None, None)
    wrong = await rig.ask("/v1/usage?since=yesterday")
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "since")
