"""Two machines with real workers and both stores: limits, what is learned, a kill, the books."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gateway.workers import Workers
from lightgate.gateway.process.gauges import read_gauges
from lightgate.gateway.process.sharing import FOLDER
from lightgate.gateway.served.snapshot import put_snapshot, read_snapshot
from lightgate.gateway.shared.live import FORM_S, IDLE_BEAT_S
from lightgate.gateway.shared.store import SHARED_ENV
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store import schema
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.ledger.store.store import Ledger
from sim.conftest import Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord
    from redis_server import RedisServer
    from sim.conftest import Answer

BEHIND = 503  # a worker that is late with its work takes no more
SHARE = 429  # one that cannot ask the store has used its share of a budget
SLOW, QUICK = "lab/plain!silence:0.2", "lab/plain"
MODELS = f"""
[models.kept]
targets = ["{QUICK}"]
cache = {{{{ mode = "exact", store = "shared" }}}}
[models.both]
targets = ["{SLOW}", "{QUICK}"]
policy = "voice"
hedge = "off"
[priors."{SLOW}"]
ttft = "1ms"
speed = 100
[priors."{QUICK}"]
ttft = "50ms"
speed = 100
"""
# Twelve tokens of answer at 2 dollars for a million and a prompt of some tokens: 30 fit.
BUDGET = KeyTerms(name="budget", budget_usd=Decimal("0.001"))


class Nodes:
    """Machines with one worker each; what a key may do is the same on all of them."""

    def __init__(self, machines: list[Workers], keys: dict[str, tuple[str, KeyRecord]]) -> None:
        self.machines = machines
        self.secrets = {name: secret for name, (secret, _) in keys.items()}
        self.ids = {name: record.id for name, (_, record) in keys.items()}
        self.book: list[tuple[str, Answer]] = []  # every request's key, and its answer

    async def ask(self, node: int, key: str, model: str = QUICK, **fields: Any) -> Answer:
        machine = self.machines[node]
        line = Line(*await asyncio.open_connection("127.0.0.1", machine.port))
        say = [{"role": "user", "content": "one two three"}]
        body = {"model": model, "messages": say, "max_tokens": 12} | fields
        headers = {"authorization": f"Bearer {self.secrets[key]}"}
        answer = await line.ask("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        await line.close()
        self.book.append((key, answer))
        return answer

    async def ready(self, node: int) -> dict[str, str]:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.machines[node].port))
        answer = await line.ask("GET", "/health/ready", b"", {})
        await line.close()
        assert answer.status == 200
        told: dict[str, str] = answer.json
        return told

    async def late(self, node: int) -> bool:
        """Whether a busy machine made a request wait for the store in vain; told in a second."""
        await asyncio.sleep(1.5)
        gauges = [each for _, each in read_gauges(self.machines[node].data)]
        return any(each.store is not None and each.store.timeouts for each in gauges)

    async def until(self, node: int, state: str) -> None:
        async with asyncio.timeout(30):
            while (await self.ready(node))["shared"] != state:
                await asyncio.sleep(0.02)


@pytest.fixture
async def nodes(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Nodes]:
    monkeypatch.setenv(SHARED_ENV, redis.url)
    terms = (BUDGET, KeyTerms(name="plain"), KeyTerms(name="other"))
    made = {each.name: new_key(each) for each in terms}
    machines: list[Workers] = []
    for name in ("a", "b"):
        opened = await Workers.open(tmp_path / name, MODELS)
        machines.append(opened)
        keys = tuple(record for _, record in made.values())
        told = msgspec.structs.replace(read_snapshot(opened.data), keys=keys)
        put_snapshot(opened.data, told)
    await asyncio.gather(*(machine.start() for machine in machines))
    found = Nodes(machines, made)
    for node in range(2):
        await found.until(node, "joined")
    yield found
    for machine in machines:
        await machine.close()


async def test_two_machines_with_both_stores(
    nodes: Nodes, redis: RedisServer, postgres_url: str
) -> None:
    """One pair of machines for all of it: starting them takes longer than the questions."""
    await _learned(nodes)
    await _answers(nodes, redis)
    await _budget_and_kill(nodes, redis)
    await _books(nodes, postgres_url)


async def _learned(nodes: Nodes) -> None:
    """What one machine has found out about a target, the other goes by within two seconds."""
    first = await nodes.ask(0, "plain", "both", stream=True)
    assert first.headers["x-lightgate-target"] == SLOW
    await nodes.ask(0, "plain", "both", stream=True)
    own_file = nodes.machines[1].data / FOLDER / "0.json"
    async with asyncio.timeout(30):  # nobody has asked the other one, so it has heard of it
        while not own_file.exists() or SLOW not in own_file.read_text():
            await asyncio.sleep(0.02)
    told = await nodes.ask(1, "plain", "both", stream=True)
    assert told.headers["x-lightgate-target"] == QUICK
    assert FORM_S + IDLE_BEAT_S < 2


async def _answers(nodes: Nodes, redis: RedisServer) -> None:
    """An answer of one machine is another's too, for the same key only."""
    asked = {"temperature": 0}
    assert (await nodes.ask(0, "plain", "kept", **asked)).headers["x-lightgate-cache"] == "miss"
    async with asyncio.timeout(20):
        while b":0" in redis.command("EXISTS", "{lightgate}:answers"):
            await asyncio.sleep(0.01)
    hit = await nodes.ask(1, "plain", "kept", **asked)
    assert hit.headers["x-lightgate-cache"] == "hit" or await nodes.late(1)
    assert (await nodes.ask(1, "other", "kept", **asked)).headers["x-lightgate-cache"] == "miss"


async def _budget_and_kill(nodes: Nodes, redis: RedisServer) -> None:
    """A budget is met exactly under a crowd at both, and a killed machine gives nothing back."""
    one = await nodes.ask(0, "budget")
    assert one.status == 200
    asks = [nodes.ask(n % 2, "budget") for n in range(160)]
    said = Counter(answer.status for answer in await asyncio.gather(*asks))
    assert 200 in said
    assert set(said) <= {200, 402, SHARE, BEHIND}
    assert 402 in said or await nodes.late(0) or await nodes.late(1)
    spent = [
        settled.exchange.cost_nano or 0
        for machine in nodes.machines
        for settled in machine.settled()
        if settled.exchange.key_id is not None
    ]
    assert sum(spent) <= 1_000_000
    killed = nodes.machines[0]
    os.kill(killed._children[0].pid, signal.SIGKILL)
    assert (await nodes.ask(1, "plain")).status == 200
    redis.command("CLIENT", "PAUSE", "400", "ALL")  # as good as frozen
    answers = await asyncio.gather(*(nodes.ask(1, "budget") for _ in range(10)))
    assert {answer.status for answer in answers} <= {200, 402, SHARE, BEHIND}
    assert all(a.json["error"]["code"] == "share" for a in answers if a.status == SHARE)
    assert (await nodes.ask(1, "plain")).status == 200
    await nodes.until(1, "joined")
    usage = await _usage(nodes, 1)
    assert usage["budget"]["spent_usd"] <= 0.001


async def _books(nodes: Nodes, url: str) -> None:
    """The ledger of both machines has every answer that a client got, once, and nothing else."""
    await asyncio.gather(*(nodes.ask(1, "plain", stream=n % 2 > 0) for n in range(60)))

    def ship(machine: Workers) -> None:
        with Ledger.open(url) as ledger:
            Shipper(ledger, machine.data / "journal").drain()

    await asyncio.gather(*(asyncio.to_thread(ship, machine) for machine in nodes.machines))
    with Ledger.open(url) as ledger, ledger.reading() as connection:
        rows = {row.id: row for row in connection.execute(schema.exchange_notes.select())}
        attempts = connection.execute(schema.attempt_notes.select()).all()
    answered = {}
    for key, answer in nodes.book:
        if answer.status == 200:
            streamed = answer.headers["content-type"].startswith("text/event-stream")
            usage = None if streamed else answer.json["usage"]
            answered[answer.headers["x-lightgate-id"]] = key, usage
    assert answered.keys() == rows.keys()
    assert len(answered) > 60
    for made, (key, usage) in answered.items():
        row = rows[made]
        assert (row.key_id, row.status, row.outcome) == (nodes.ids[key], 200, "ok")
        if usage is not None and row.cache != "hit":
            used = usage["prompt_tokens"], usage["completion_tokens"]
            assert (row.tokens_in, row.tokens_out) == used
            assert row.cost_nano == 1000 * used[0] + 2000 * used[1]
    paid = {row.id: row.cost_nano for row in rows.values() if row.attempts}
    assert {row.exchange_id: row.cost_nano for row in attempts} == paid


async def _usage(nodes: Nodes, node: int) -> Any:
    line = Line(*await asyncio.open_connection("127.0.0.1", nodes.machines[node].port))
    headers = {"authorization": f"Bearer {nodes.secrets['budget']}"}
    answer = await line.ask("GET", "/v1/usage", b"", headers)
    await line.close()
    return answer.json
