"""Kept and shared answers through the whole gateway: who gets what, and what it costs."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.aside.jobs import ShareAsk
from lightgate.gateway.cache.disk import DiskCache
from lightgate.gateway.cache.memory import MemoryCache
from lightgate.gateway.http.shared import share_ask, shared_name
from lightgate.gateway.request.passed import of_answer
from lightgate.ledger.store.keys import KeyTerms
from lightgate.ledger.store.store import Ledger
from lightgate.route.prompt.cache_key import Beside
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from sim.conftest import Answer

KEPT = """
[models.kept]
targets = ["lab/plain"]
policy = "ordered"
hedge = "off"
cache = {{ mode = "exact", ttl = "1h", store = "memory" }}
"""


def calls(rig: Rig) -> int:
    """Attempts that were made, by the journal."""
    return sum(len(note.attempts) for note in rig.settled())


@pytest.mark.parametrize("stream", [True, False])
async def test_the_second_one_is_a_hit(start: Start, stream: bool) -> None:
    rig = await start(KEPT)
    first = await rig.chat("kept", temperature=0, stream=stream)
    second = await rig.chat("kept", temperature=0.0, stream=stream)
    assert first.headers["x-lightgate-cache"] == "miss"
    assert second.headers["x-lightgate-cache"] == "hit"
    assert second.headers["x-lightgate-target"] == "lab/plain"
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert second.headers["content-type"] == first.headers["content-type"]
    assert second.body == first.body
    assert calls(rig) == 1
    notes = [note.exchange for note in rig.settled()]
    assert [note.cache for note in notes] == ["miss", "hit"]
    assert [note.outcome for note in notes] == ["ok", "ok"]
    assert (notes[1].cost_nano, notes[1].tokens_out, notes[1].winner) == (0, 12, "lab/plain")
    assert notes[1].record(0).overhead_ms is None


@pytest.mark.parametrize(
    "change", [{"temperature": 1}, {"seed": 2}, {"max_tokens": 11}, {"stream": False}]
)
async def test_another_request_is_another_call(start: Start, change: dict[str, Any]) -> None:
    rig = await start(KEPT)
    await rig.chat("kept", temperature=0)
    await rig.chat("kept", **({"temperature": 0} | change))
    assert calls(rig) == 2


async def test_a_client_may_opt_in_or_out(start: Start) -> None:
    rig = await start(KEPT)
    on, off = {"x-lightgate-cache": "on"}, {"x-lightgate-cache": "off"}
    said = [
        (await rig.chat("kept", headers=h)).headers["x-lightgate-cache"] for h in (on, on, off, {})
    ]
    assert said == ["miss", "hit", "off", "off"]
    said = [
        (await rig.chat("lab/plain", headers=on)).headers["x-lightgate-cache"] for _ in range(2)
    ]
    assert said == ["off", "off"]  # this model has no cache


async def test_two_tenants_never_share(start: Start) -> None:
    rig = await start(KEPT, terms={"a": KeyTerms(name="a"), "b": KeyTerms(name="b")})
    said = []
    for name in ("a", "b", "a", "b"):
        answer = await rig.chat(
            "kept", temperature=0, headers={"authorization": f"Bearer {rig.keys[name]}"}
        )
        said.append(answer.headers["x-lightgate-cache"])
    assert said == ["miss", "miss", "hit", "hit"]


@pytest.mark.parametrize(
    "fault", ["truncated:5", "reset:5", "stream-error:5", "status:503", "empty"]
)
async def test_what_failed_is_not_kept(start: Start, fault: str) -> None:
    rig = await start(KEPT.replace("lab/plain", f"lab/plain!{fault}"))
    for _ in range(2):
        answer = await rig.chat("kept", temperature=0)
        assert answer.headers["x-lightgate-cache"] == "miss"
    assert len(rig.state.cache.memory) == 0


async def test_hits_count_against_the_rate(start: Start) -> None:
    rig = await start(KEPT, terms={"a": KeyTerms(name="a", rpm=2)})
    headers = {"authorization": f"Bearer {rig.keys['a']}"}
    said = [(await rig.chat("kept", temperature=0, headers=headers)).status for _ in range(3)]
    assert said == [200, 200, 429]


async def test_a_thousand_at_once_make_one_call(start: Start) -> None:
    rig = await start(KEPT)
    body = {"model": "kept", "messages": SAY, "max_tokens": 12, "stream": True, "temperature": 0}
    lines = [await rig.line() for _ in range(1000)]
    for line in lines:
        line.send("POST", "/v1/chat/completions", json.dumps(body).encode(), {})
    answers = await asyncio.gather(*(line.answer() for line in lines))
    for line in lines:
        await line.close()
    assert calls(rig) == 1
    assert {answer.body for answer in answers} == {answers[0].body}
    words = [answer.headers["x-lightgate-cache"] for answer in answers]
    assert words.count("miss") == 1
    assert words.count("join") + words.count("hit") == 999
    await rig.until(lambda: len(rig.settled()) == 1000)
    notes = [note.exchange for note in rig.settled()]
    assert [note.winner for note in notes] == ["lab/plain"] * 1000
    assert sum(note.cost_nano or 0 for note in notes) == max(note.cost_nano or 0 for note in notes)


async def test_the_last_one_to_leave_closes_the_call(start: Start) -> None:
    rig = await start(KEPT.replace("lab/plain", "lab/plain!stall:3"))
    body = json.dumps({"model": "kept", "messages": SAY, "stream": True, "temperature": 0}).encode()
    lines = [await rig.line() for _ in range(2)]
    for line in lines:
        line.send("POST", "/v1/chat/completions", body, {})
    under_way = rig.state.cache.single_flight._open
    await rig.until(lambda: [len(shared._readers) for shared in under_way.values()] == [2])
    await rig.until(lambda: rig.upstream == 1)
    await lines[1].close()
    await rig.until(lambda: len(rig.settled()) == 1)  # the follower's
    assert rig.upstream == 1
    await lines[0].close()
    await rig.until(lambda: rig.upstream == 0)
    await rig.until(lambda: len(rig.settled()) == 2)
    assert len(rig.state.cache.memory) == 0


async def test_an_answer_outlives_the_worker(start: Start) -> None:
    rig = await start(KEPT.replace(', store = "memory"', ""))
    first = await _with_disk(rig)
    second = await _with_disk(rig)
    assert (first.headers["x-lightgate-cache"], second.headers["x-lightgate-cache"]) == (
        "miss",
        "hit",
    )
    assert second.body == first.body
    assert calls(rig) == 1


class WatchedDisk(DiskCache):
    """A store that says when it has seen what is there."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.looked = threading.Event()

    def _look_around(self, ledger: Ledger) -> None:
        super()._look_around(ledger)
        self.looked.set()


async def _with_disk(rig: Rig) -> Answer:
    """Ask a worker that has nothing in memory and closes its store in order."""
    # The store's thread lives in real time, of which a hundredth is left of this patience.
    disk = WatchedDisk(lambda: Ledger.open("sqlite", rig.data), patience_s=6000)
    disk.start()
    rig.state.cache.memory = MemoryCache(second_tier=disk)
    assert await asyncio.to_thread(disk.looked.wait, 60)
    answer = await rig.chat("kept", temperature=0)
    await rig.until(
        lambda: answer.headers["x-lightgate-cache"] == "hit" or rig.state.cache.memory.stored > 0
    )
    disk.close()
    return answer


@pytest.mark.parametrize(
    ("mode", "asked", "hurried", "wanted"),
    [
        ("off", None, False, None),
        ("off", "on", False, None),
        ("exact", "off", False, None),
        ("any", None, True, None),
        ("exact", None, False, "exact"),
        ("any", None, False, "any"),
        ("exact", "on", False, "any"),
    ],
)
@pytest.mark.parametrize("key", [None, "k-1"])
def test_whether_an_answer_is_shared(
    mode: str, asked: str | None, hurried: bool, wanted: Any, key: str | None
) -> None:
    overrides = SimpleNamespace(cache=asked, hurried=hurried, policy="fastest")
    held = None if key is None else SimpleNamespace(id=key)
    caller = SimpleNamespace(overrides=overrides, passed=(), key=held)
    endpoint = SimpleNamespace(dialect="openai-chat")
    request = SimpleNamespace(streamed=True, endpoint=endpoint, model="m", found=None)
    alias = SimpleNamespace(cache=SimpleNamespace(mode=mode), targets=("a/m",))
    exchange: Any = SimpleNamespace(caller=caller, request=request, alias=alias, cap=7)
    found = share_ask(exchange)
    if wanted is None:
        assert found is None
        assert shared_name(exchange) is None
        return
    beside = Beside(streamed=True, targets=("a/m",), cap=7, extra=of_answer(()), policy="fastest")
    assert found == ShareAsk(key or "", "openai-chat", "m", wanted, beside)
