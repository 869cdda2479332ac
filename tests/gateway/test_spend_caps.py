"""What second attempts cost, as the ledger has it: never more than their caps, at any instant."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import sqlalchemy as sa

from gateway.security.conftest import chat_body, whole
from gateway.workers import Workers
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.keys import KeyTerms
from lightgate.ledger.store.schema import attempts, exchanges
from lightgate.ledger.store.store import Ledger
from lightgate.route.plan.hedge import SHARE, SPEND
from sim.conftest import QUICK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream
    from sim.conftest import Answer

REQUESTS = 400
AT_ONCE = 20
# A first target that is always late, so that every request would be hedged; its twin bills a
# closed stream in full.
SLOW = "plain!silence:0.08"
MODELS = f"""
[providers.twin]
base_url = "http://127.0.0.1:{{port}}/lab/v1"
dialect = "openai"
api_key = "none"
abort_stops_billing = false
[models.stops]
targets = ["lab/{SLOW}", "lab/plain"]
policy = "ordered"
hedge = "20ms"
[models.billed]
targets = ["twin/{SLOW}", "twin/plain"]
policy = "ordered"
hedge = "20ms"
[models.failing]
targets = ["lab/plain!status:500", "lab/plain"]
policy = "ordered"
hedge = "20ms"
[models.race]
targets = ["twin/{SLOW}", "twin/plain", "lab/plain"]
policy = "ordered"
hedge = "off"
race = 2
[prices."lab/plain!status:500"]
input = 1
output = 2
[prices."lab/{SLOW}"]
input = 1
output = 2
[prices."twin/{SLOW}"]
input = 1
output = 2
[prices."twin/plain"]
input = 1
output = 2
"""


class Spent(NamedTuple):
    """One request in the ledger."""

    asked: str  # when it came in: RFC 3339, which sorts as it happened
    closed_ns: int
    worker: int
    won_usd: Decimal
    lost_usd: Decimal
    beside: tuple[str, ...]  # when hedges, or racers but the first, began


def ledger(data: Path, role: str) -> list[Spent]:
    """Ship the journals of a data folder and read them back."""
    with Ledger.open("sqlite", data) as kept:
        Shipper(kept, data / "journal").drain()
        with kept.reading() as connection:
            rows = connection.execute(sa.select(exchanges)).all()
            tried = connection.execute(sa.select(attempts).order_by(attempts.c.seq)).all()
    starts: dict[str, list[str]] = defaultdict(list)
    for attempt in tried:
        if attempt.role == role and attempt.seq > 0:
            starts[attempt.exchange_id].append(attempt.wall_time)
    return [
        Spent(
            row.wall_time,
            row.closed_ns,
            row.worker,
            row.cost_usd or Decimal(0),
            row.loser_cost_usd or Decimal(0),
            tuple(starts[row.id]),
        )
        for row in rows
    ]


def over_time(rows: list[Spent]) -> Iterator[tuple[Decimal, Decimal]]:
    """What had been paid for answers and for losers, whenever a request was over."""
    won = lost = Decimal(0)
    for row in sorted(rows, key=lambda row: row.closed_ns):
        won += row.won_usd
        lost += row.lost_usd
        yield won, lost


def assert_hedges_in_their_caps(rows: list[Spent]) -> None:
    """No grace at the start: a budget is empty before the first request has paid into it."""
    hedges = sorted(start for row in rows for start in row.beside)
    assert hedges
    came = sorted(row.asked for row in rows)
    for count, start in enumerate(hedges, 1):
        assert count <= SHARE * sum(asked <= start for asked in came) + 1e-9
    for won, lost in over_time(rows):
        assert lost <= Decimal(str(SPEND)) * won
    assert sum(row.lost_usd for row in rows) > 0


async def ask_many(chat: Callable[[], Awaitable[Answer]], count: int = REQUESTS) -> list[Answer]:
    """So many requests, some at a time."""
    left = iter(range(count))

    async def lane() -> list[Answer]:
        return [await chat() for _ in left]

    lanes = await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    answers = [answer for mine in lanes for answer in mine]
    assert {answer.status for answer in answers} == {200}
    return answers


LIAR = """
[providers.liar]
base_url = "http://127.0.0.1:{lie}/v1"
api_key = "none"
[prices."liar/m"]
input = 1
output = 2
"""


async def test_a_provider_that_bills_far_more_than_asked_for_overdraws_nothing(
    tmp_path: Path, upstream: Upstream
) -> None:
    """200 requests at once over two workers, with a key of 5 cents."""
    lie = {"prompt_tokens": 10**6, "completion_tokens": 10**6}
    upstream.script = whole(chat_body(usage=lie))
    budget = Decimal("0.05")
    models = LIAR.replace("{lie}", str(upstream.port))
    workers = await Workers.open(tmp_path, models, KeyTerms(name="key", budget_usd=budget))
    try:
        await workers.start(0)
        await workers.start(1)
        asking = (workers.chat("liar/m", stream=False, max_tokens=500) for _ in range(200))
        answers = await asyncio.gather(*asking)
        assert {answer.status for answer in answers} == {200, 402}
        notes = [note.exchange for note in workers.settled()]
        assert len(notes) == sum(answer.status == 200 for answer in answers)
        # On a busy machine one of the two may have reserved all that there was.
        assert {note.worker for note in notes} <= {0, 1}
        assert (
            Decimal("0.04") < Decimal(sum(note.cost_nano or 0 for note in notes)) / 10**9 <= budget
        )
    finally:
        await workers.close()


async def test_answers_without_a_limit_overdraw_a_budget_by_one_answer_at_most(
    tmp_path: Path, upstream: Upstream
) -> None:
    """100 requests at once that name no limit, at a model that answers at any length it likes.

    With 131,072 tokens at $200 a million an answer may cost $26: a dollar is left to one of them.
    """
    long = {"prompt_tokens": 10, "completion_tokens": 100_000}
    upstream.script = whole(chat_body("word " * 100_000, usage=long))
    budget = Decimal(1)
    models = LIAR.replace("{lie}", str(upstream.port)).replace("output = 2", "output = 200")
    workers = await Workers.open(tmp_path, models, KeyTerms(name="key", budget_usd=budget))
    try:
        await workers.start(0)
        await workers.start(1)
        asking = (workers.chat("liar/m", stream=False, max_tokens=None) for _ in range(100))
        answers = await asyncio.gather(*asking)
        assert {answer.status for answer in answers} == {200, 402}
        (note,) = [note.exchange for note in workers.settled()]
        assert note.cost_nano == 10 * 1_000 + 100_000 * 200_000  # booked as it was counted
        assert (await workers.chat("liar/m", stream=False, max_tokens=None)).status == 402
    finally:
        await workers.close()


async def test_answers_without_a_limit_run_at_once_while_the_budget_pays_for_them(
    tmp_path: Path, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    models = LIAR.replace("{lie}", str(upstream.port))
    # Each may cost 131,072 + 16 + 16 tokens at $2 a million, and its prompt.
    workers = await Workers.open(tmp_path, models, KeyTerms(name="key", budget_usd=Decimal(30)))
    try:
        await workers.start(0)
        asking = (workers.chat("liar/m", stream=False, max_tokens=None) for _ in range(100))
        assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
    finally:
        await workers.close()


def keyed(rig: Rig, model: str) -> Callable[[], Awaitable[Answer]]:
    headers = {"authorization": f"Bearer {rig.keys['key']}"}
    return lambda: rig.chat(model, headers=headers, max_tokens=60)


@pytest.mark.parametrize("model", ["stops", "billed"])
async def test_hedges_stay_in_their_caps_at_every_instant(start: Start, model: str) -> None:
    rig = await start(MODELS, terms={"key": KeyTerms(name="key", budget_usd=Decimal(1))})
    await ask_many(keyed(rig, model))
    await rig.until(lambda: len(rig.exchanges) == 0)
    rows = ledger(rig.data, "hedge")
    assert len(rows) == REQUESTS
    assert_hedges_in_their_caps(rows)
    key_id = rig.state.served.snapshot.keys[0].id
    paid, hedges, _ = rig.state.learned.budgets.spent(
        key_id
    )  # what the budget believes is what was paid
    assert round(paid) == sum(row.won_usd for row in rows) * 10**9
    assert round(hedges) == sum(row.lost_usd for row in rows) * 10**9


async def test_each_worker_keeps_the_caps_and_so_do_all_of_them(tmp_path: Path) -> None:
    """Every worker has a budget of its own, a share of what it serves itself: no sum is larger."""
    workers = await Workers.open(tmp_path, MODELS, KeyTerms(name="key", budget_usd=Decimal(1)))
    try:
        children = [await workers.start(index) for index in range(2)]
        await ask_many(lambda: workers.chat("stops", max_tokens=60))
        for child in children:
            child.terminate()
            await child.wait()
    finally:
        await workers.close()
    rows = ledger(tmp_path, "hedge")
    assert len(rows) == REQUESTS
    for worker in (0, 1):
        mine = [row for row in rows if row.worker == worker]
        assert len(mine) > REQUESTS // 10
        assert_hedges_in_their_caps(mine)
    assert_hedges_in_their_caps(rows)


async def test_what_follows_a_failure_is_no_hedge(start: Start) -> None:
    """A provider that fails at once sends every request elsewhere, and no share is counted."""
    rig = await start(MODELS, terms={"key": KeyTerms(name="key", budget_usd=Decimal(1))})
    await ask_many(keyed(rig, "failing"), 60)
    settled = rig.settled()
    roles = {attempt.facts.role for note in settled for attempt in note.attempts}
    assert roles <= {"only", "primary", "fallback"}
    assert "fallback" in roles


# Races


def short_answers() -> dict[str, Any]:
    """Answers end long before the limit on their length, which is what a closed loser is billed."""
    tree: dict[str, Any] = json.loads(json.dumps(QUICK))
    tree["providers"]["lab"]["models"]["plain"]["shape"]["tokens"] = 10
    return tree


@pytest.mark.parametrize("fanout", [2, 3])
async def test_a_race_of_k_costs_at_most_k_times_its_answers(start: Start, fanout: int) -> None:
    terms = KeyTerms(name="key", budget_usd=Decimal(1), may_race=True, max_fanout=fanout)
    rig = await start(MODELS, terms={"key": terms}, world=short_answers())
    headers = {"authorization": f"Bearer {rig.keys['key']}", "x-lightgate-race": str(fanout)}

    async def chat() -> Answer:
        return await rig.chat("race", headers=headers, max_tokens=200)

    await chat()  # nobody knows yet that answers are short: this race costs what it costs
    await ask_many(chat, 300)
    await rig.until(lambda: len(rig.exchanges) == 0)
    rows = ledger(rig.data, "racer")
    raced = [row for row in rows if row.beside]
    assert 5 < len(raced) < len(rows) / 2  # the cap was felt
    spent = list(over_time(rows))
    under_way = AT_ONCE * max(row.won_usd for row in rows)  # answers that a race counts on
    assert all(lost <= (fanout - 1) * (won + under_way) for won, lost in spent[50:])
    won, lost = spent[-1]
    assert (fanout - 1) / 2 < lost / won <= fanout - 1


async def test_where_losers_cost_little_every_request_races(start: Start) -> None:
    cheap = MODELS.replace("abort_stops_billing = false", "abort_stops_billing = true")
    rig = await start(
        cheap, terms={"key": KeyTerms(name="key", budget_usd=Decimal(1), may_race=True)}
    )
    await ask_many(keyed(rig, "race"), 100)
    await rig.until(lambda: len(rig.exchanges) == 0)
    rows = ledger(rig.data, "racer")
    assert all(row.beside for row in rows)
    for won, lost in over_time(rows):
        assert lost <= won


async def test_a_key_that_may_not_race_loses_nothing_to_races(start: Start) -> None:
    rig = await start(MODELS, terms={"key": KeyTerms(name="key", budget_usd=Decimal(1))})
    headers = {"authorization": f"Bearer {rig.keys['key']}", "x-lightgate-race": "2"}
    for model in ("race", "stops"):
        answer = await rig.chat(model, headers=headers)
        assert answer.status == 403
    assert rig.settled() == []
    await rig.chat("race", headers=headers | {"x-lightgate-race": "1"})
    [row] = ledger(rig.data, "racer")
    assert row.beside == ()
    assert row.lost_usd == 0
