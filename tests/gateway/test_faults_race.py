"""Races and hedges under faults: one winner, losers closed, no more tries than the budget has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gateway.faulted import SHORT, Field, model

if TYPE_CHECKING:
    from gateway.conftest import Start


def spend_all(field: Field) -> None:
    """Leave nothing in the retry budget."""
    state = field.rig.state
    while state.learned.retries.may(state.now_ns()):
        pass


def save_up(field: Field) -> None:
    """Requests enough before this one that a hedge is within its share."""
    state = field.rig.state
    key_id = state.served.snapshot.keys[0].id
    for _ in range(20):
        state.learned.budgets.deposit(key_id)
    state.learned.budgets.paid(key_id, 1e9)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("more", ["", "race = 2", 'hedge = "400ms"'])
async def test_without_a_retry_budget_nobody_else_is_asked(
    start: Start, stream: bool, more: str
) -> None:
    bad = ["lab/plain!status:500", "lab/plain!status:502"]
    models = model("m", [*bad, "lab/plain"], more).replace('hedge = "off"\n', "", "hedge" in more)
    field = await Field.open(start, models)
    spend_all(field)
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == 502
    assert len(settled.attempts) == (2 if "race" in more else 1)
    assert settled.exchange.outcome == "http_error"


@pytest.mark.parametrize("more", ["", "race = 2"])
async def test_what_never_left_us_costs_no_budget(start: Start, more: str) -> None:
    """A refused connection is followed by the next target whatever the budget says."""
    gone = "".join(
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:{{trouble_refused}}/v1"\n'
        'dialect = "openai"\napi_key = "none"\n'
        for name in ("gone", "lost")
    )
    models = gone + model("m", ["gone/plain", "lost/plain", "lab/plain"], more)
    field = await Field.open(start, models, trouble=True)
    spend_all(field)
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert len(settled.attempts) == 3


async def test_every_racer_that_fails_is_followed_by_the_next(start: Start) -> None:
    targets = ["lab/plain!status:500", "lab/plain!hang", "lab/plain!reset:0", "lab/plain"]
    field = await Field.open(start, model("m", targets, "race = 2", ttft=SHORT))
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert settled.exchange.winner == "lab/plain"
    assert {note.facts.target for note in settled.attempts} == set(targets)


async def test_one_winner_however_close_it_is(start: Start) -> None:
    """Two that answer in the same turn of the loop: no client ever sees a bit of both."""
    field = await Field.open(start, model("m", ["lab/plain", "lab/mixed"], "race = 2"))
    answers = await asyncio.gather(*(field.rig.chat("m", headers=field.headers) for _ in range(40)))
    await field.at_peace()
    for answer in answers:
        assert answer.status == 200
        assert answer.events[-1] == ("", "[DONE]")
        assert len({chunk["id"] for chunk in answer.chunks}) == 1
    for settled in field.rig.settled():
        assert sum(bool(note.facts.won) for note in settled.attempts) == 1


async def test_an_early_role_does_not_win(start: Start) -> None:
    """T24: an empty chunk at once, the words much later."""
    targets = ["lab/plain!early-role:0.4", "lab/plain!silence:0.1"]
    field = await Field.open(start, model("m", targets, "race = 2"))
    answer, settled, _ = await field.fly("m")
    assert answer.headers["x-lightgate-target"] == targets[1]
    assert [note.outcome for note in settled.attempts] == ["cancelled", "ok"]


@pytest.mark.parametrize("fault", ["hang", "silence:0.5", "early-role:0.4"])
async def test_a_hedge_answers_for_one_that_is_late(start: Start, fault: str) -> None:
    targets = [f"lab/plain!{fault}", "lab/plain"]
    models = model("m", targets, 'hedge = "100ms"').replace('hedge = "off"\n', "", 1)
    field = await Field.open(start, models)
    save_up(field)
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert settled.exchange.winner == "lab/plain"
    assert [note.facts.role for note in settled.attempts] == ["primary", "hedge"]
    assert settled.attempts[0].outcome == "cancelled"
