"""T24, T25: a provider that games the clock does not win, and made-up names leave no trace."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import TYPE_CHECKING, cast

import msgspec

from gateway.security.conftest import END, ENV, chat_body, chat_stream, chunk, whole
from lightgate.clock.marks import Marks
from lightgate.gateway.admit.admit import admit, open_exchange
from lightgate.gateway.admit.auth import read_caller
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.served.served import _MOST_LOOSE, Served
from lightgate.route.health.breaker import MOST
from lightgate.route.health.failure import SERVER
from lightgate.wire.door.inbound import Inbound
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Start
    from gateway.security.conftest import Behind, Heard, Upstream
    from lightgate.wire.door.reply import Reply

TWO = """
[models.two]
targets = ["raw/gamer", "raw/honest"]
policy = "ordered"
hedge = "off"
race = 2
"""


async def test_a_fast_role_chunk_does_not_win_a_race(behind: Behind, upstream: Upstream) -> None:
    early = asyncio.Event()

    async def by_model(heard: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        if heard.json["model"] == "gamer":
            for piece in (chunk(None), chunk(""), b": hi\n\n", chunk("", usage={"a": 1})):
                yield piece
            early.set()
            await asyncio.sleep(60)
            yield chunk("late") + END
        else:
            await early.wait()
            yield chunk("honest") + END

    upstream.script = by_model
    rig = await behind(TWO)
    answer = await asyncio.wait_for(rig.chat("two"), 10)
    assert answer.headers["x-lightgate-target"] == "raw/honest"
    assert b"honest" in answer.body
    assert b"late" not in answer.body
    assert answer.body.count(b"data: ") == 3  # nothing of the loser is mixed in
    await rig.until(lambda: bool(rig.settled()))
    [settled] = rig.settled()
    loser = next(note for note in settled.attempts if not note.facts.won)
    assert loser.first is None
    await rig.until(lambda: upstream.open == 0)


async def test_ten_thousand_made_up_names_leave_no_trace(start: Start) -> None:
    rig = await start()
    state = rig.state
    found = find(b"/v1/chat/completions")
    assert found is not None
    inbound = Inbound(
        method=b"POST", target=b"/v1/chat/completions", headers=(), body=b"", peer="a:1",
        accepted_ns=0, first_byte_ns=0, received_ns=0,
    )  # fmt: skip
    tracemalloc.start()
    sizes = []
    for number in range(10_000):
        model = f"lab/made-up-{number:05d}"
        body = json.dumps({"model": model, "messages": SAY}).encode()
        asked = msgspec.structs.replace(inbound, body=body)
        caller = read_caller(state, asked, found.endpoint)
        exchange = open_exchange(state, asked, cast("Reply", None), caller)
        admit(state, exchange)
        target = exchange.plan.steps[0].target
        state.served.targets[target].prepare(exchange.request, None, b"")
        Marks(0)
        state.learned.breakers.failed(target, number, SERVER, None, number)
        if number in {5_000, 9_999}:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(state.served.loose) <= _MOST_LOOSE
    assert len(state.served.targets) <= _MOST_LOOSE + 50
    assert len(state.learned.breakers) <= MOST
    assert len(state.learned.breakers.troubled) <= MOST
    assert len(state.client._pools) == 0
    assert sizes[1] - sizes[0] < 4 << 20
    listed = await rig.ask("/v1/models")
    assert b"made-up" not in listed.body


async def test_many_names_over_the_wire_stay_bounded(behind: Behind, upstream: Upstream) -> None:
    upstream.script = whole(chat_body())
    rig = await behind()
    line = await rig.line()
    for number in range(300):
        body = {"model": f"raw/x{number}", "messages": SAY}
        answer = await line.ask("POST", "/v1/chat/completions", json.dumps(body).encode(), {})
        assert answer.status == 200
        line.reuse()
    await line.close()
    assert len(rig.state.client._pools) == 1
    assert len(rig.state.journal.recent) <= 2000
    assert rig.exchanges == set()


async def test_no_made_up_name_becomes_a_label(behind: Behind, upstream: Upstream) -> None:
    from lightgate.console.labels import LabelNames

    upstream.script = chat_stream()
    rig = await behind('[models.fast]\ntargets = ["raw/m"]\n')
    known = LabelNames(rig.data)
    known.use(rig.state.served.snapshot)
    names = [f"raw/made-up-{n}" for n in range(1000)] + ['raw/x"}\nevil 1', "nobody/m", "x" * 256]
    assert {known.target(name) for name in names} <= {
        known.target("raw/?"),
        known.target("nobody/m"),
    }
    assert {known.model(name) for name in names} == {known.model("nobody")}
    assert known.model("fast") == "fast"


async def test_a_reload_leaves_a_running_plan_its_targets(
    behind: Behind, upstream: Upstream
) -> None:
    rig = await behind(
        '[models.two]\ntargets = ["raw/first", "raw/second"]\npolicy = "ordered"\nhedge = "off"\n'
    )
    served = rig.state.served
    other = Served(msgspec.structs.replace(served.snapshot, aliases=()), ENV)

    async def by_model(heard: Heard) -> AsyncIterator[bytes]:
        if heard.json["model"] == "first":
            rig.state.move(other)
            yield b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"
        else:
            async for piece in chat_stream("second")(heard):
                yield piece

    upstream.script = by_model
    answer = await rig.chat("two")
    assert answer.status == 200, answer.body
    assert answer.headers["x-lightgate-target"] == "raw/second"
