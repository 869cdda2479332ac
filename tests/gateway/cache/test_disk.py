"""The cache's second tier, round by round: no thread runs, and every clock is the test's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import LightgateError
from lightgate.gateway.cache import disk as module
from lightgate.gateway.cache.disk import DiskCache
from lightgate.gateway.cache.memory import KeptAnswer, Owner
from lightgate.ledger.store.answers import ROW_BYTES, AnswerRow, find_answer, put_answers
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
WALL = 1_700_000_000 * S
OWNER = Owner("key-1", "m")


def answer(at_s: int = 0, size: int = 10) -> KeptAnswer:
    return KeptAnswer(
        False, b"x" * size, (size,), (5,), "p/m", 3, 5, 70, S, WALL + at_s * S, b"seed"
    )


def row(key: bytes, kept_s: int, until_s: int) -> AnswerRow:
    data = msgspec.msgpack.encode(answer(kept_s))
    return AnswerRow(key, "k", "m", "p/m", WALL + kept_s * S, WALL + until_s * S, 100, data)


class Tier:
    """A cache on disk whose rounds the test plays, and its ledger."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(now_ns=1000 * S, wall_ns=WALL)
        self.ledger = Ledger.open("sqlite", folder)
        self.opened = 0
        self.problem: Exception | None = None
        self.disk = DiskCache(self._open, clock=self.clock, patience_s=60)

    def _open(self) -> Ledger:
        self.opened += 1
        if self.problem is not None:
            raise self.problem
        return self.ledger

    async def asked(self, key: bytes) -> tuple[KeptAnswer, int] | None:
        """What a request gets, with one round of the thread."""
        asking = asyncio.ensure_future(self.disk.find(key))
        await asyncio.sleep(0)
        reads = list(self.disk._reads)
        self.disk._reads.clear()
        self.disk._round(reads)
        return await asking


@pytest.fixture
async def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)


async def test_an_answer_is_written_as_a_row_of_its_owner(tier: Tier) -> None:
    tier.disk.put(b"k", OWNER, answer(), 100 * S)
    assert tier.disk._waiting_bytes == answer().size
    tier.disk._round([])
    assert (tier.disk._waiting_bytes, len(tier.disk._puts), tier.opened) == (0, 0, 1)
    found = find_answer(tier.ledger, b"k", WALL)
    data = msgspec.msgpack.encode(answer())
    assert found == AnswerRow(
        b"k", "key-1", "m", "p/m", WALL, WALL + 100 * S, len(data) + ROW_BYTES, data
    )
    assert await tier.asked(b"k") == (answer(), 100 * S)
    assert tier.opened == 1
    tier.clock.advance(100 * S - 1)
    assert await tier.asked(b"k") == (answer(), 1)
    tier.clock.advance(1)
    assert await tier.disk.find(b"k") is None  # without a round: it is known to be over


async def test_answers_of_other_workers_become_known_once_a_second(tier: Tier) -> None:
    put_answers(tier.ledger, [row(b"a", 0, 500), row(b"over", -5, 0)])
    tier.disk._round([])
    assert tier.disk._known == {b"a": WALL + 500 * S}
    put_answers(tier.ledger, [row(b"b", 1, 400), row(b"late", -9, 300), row(b"old", -11, 300)])
    tier.clock.advance(S - 1)
    tier.disk._round([])
    assert set(tier.disk._known) == {b"a"}
    tier.clock.advance(1)
    tier.disk._round([])
    # ten seconds before the newest that was seen are looked at again
    assert set(tier.disk._known) == {b"a", b"b", b"late"}
    assert tier.disk._seen_ns == WALL + S


async def test_what_is_over_is_pruned_once_a_minute(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.clock.source.CONFIRM_NS", 0)
    tier.disk._round([])
    tier.disk._known = {b"over": WALL + 60 * S, b"soon": WALL + 61 * S, b"late": WALL + 99 * S}
    put_answers(tier.ledger, [row(b"over", 0, 60), row(b"soon", 0, 61)])
    tier.clock.advance(60 * S - 1)
    tier.disk._round([])
    assert len(tier.disk._known) == 3
    tier.clock.advance(1)
    tier.disk._round([])
    assert set(tier.disk._known) == {b"soon", b"late"}
    assert find_answer(tier.ledger, b"over", 0) is None
    assert find_answer(tier.ledger, b"soon", 0) is not None
    monkeypatch.setattr(module, "MOST_KNOWN", 1)
    tier.clock.advance(60 * S)
    tier.disk._known = {b"x": WALL + 200 * S, b"y": WALL + 300 * S, b"z": WALL + 250 * S}
    tier.disk._round([])
    assert set(tier.disk._known) == {b"y"}  # those that hold longest


async def test_a_clock_that_leaps_ahead_deletes_no_answer(tier: Tier) -> None:
    put_answers(tier.ledger, [row(b"a", 0, 60), row(b"b", 0, 10_000)])
    tier.clock.step_wall(40 * 86_400 * S)
    for _ in range(70):  # more than an hour, a minute at a time
        tier.clock.advance(60 * S)
        tier.disk._round([])
    assert tier.disk._known == {}  # none of them is used
    tier.clock.step_wall(-40 * 86_400 * S)
    # By its own time the process has seen one of them grow old, and the other not.
    assert find_answer(tier.ledger, b"a", 0) is None
    assert find_answer(tier.ledger, b"b", 0) is not None


async def test_a_row_that_is_gone_or_of_another_version_is_forgotten(tier: Tier) -> None:
    tier.disk._known = {b"gone": WALL + 10 * S, b"odd": WALL + 10 * S}
    odd = AnswerRow(b"odd", "k", "m", "p/m", WALL - 60 * S, WALL + 10 * S, 9, b"\xc1")
    put_answers(tier.ledger, [odd])
    tier.disk._poll_ns = 2000 * S
    assert await tier.asked(b"gone") is None
    assert await tier.asked(b"odd") is None
    assert tier.disk._known == {}
    assert tier.disk._rest_ns == 0


@pytest.mark.parametrize("problem", [LightgateError("It is locked."), ValueError("a defect")])
async def test_after_a_failure_the_table_rests(
    tier: Tier, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tier.problem = problem
    tier.disk._known = {b"k": WALL + 100 * S}
    tier.disk.put(b"k", OWNER, answer(), 100 * S)
    assert await tier.asked(b"k") is None
    reason = "It is locked." if isinstance(problem, LightgateError) else "see above"
    assert caplog.messages[-1] == f"the cache's table is not used for 5 s: {reason}"
    assert len(tier.disk._puts) == 1
    tier.problem = None
    tier.clock.advance(5 * S - 1)
    assert await tier.asked(b"k") is None
    assert (tier.opened, len(tier.disk._puts)) == (1, 1)
    tier.clock.advance(1)
    tier.disk._round([])
    assert (tier.opened, len(tier.disk._puts)) == (2, 0)


async def test_a_read_that_is_late_mutes_the_table(tier: Tier) -> None:
    tier.disk._patience_s = 0.0
    tier.disk._known = {b"k": WALL + 100 * S}
    assert await tier.disk.find(b"k") is None
    assert tier.disk._mute_ns == 1005 * S
    tier.disk._reads.clear()
    assert await tier.disk.find(b"k") is None
    assert not tier.disk._reads
    tier.clock.advance(5 * S)
    assert await tier.disk.find(b"k") is None
    assert len(tier.disk._reads) == 1


async def test_a_ledger_that_was_replaced_is_opened_anew(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.disk._round([])
    monkeypatch.setattr(Ledger, "moved", lambda _: True)
    closed: list[int] = []
    monkeypatch.setattr(Ledger, "close", lambda _: closed.append(1))
    tier.clock.advance(S)
    tier.disk._round([])
    assert (tier.opened, closed) == (2, [1])


async def test_answers_that_wait_are_bounded_to_the_byte(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_BYTES", 2 * answer().size)
    for key in (b"a", b"b"):
        tier.disk.put(key, OWNER, answer(), S)
    assert tier.disk.dropped == 0
    tier.disk.put(b"c", OWNER, answer(), S)
    assert (tier.disk.dropped, len(tier.disk._puts)) == (1, 2)
    tier.disk._round([])
    tier.disk.put(b"c", OWNER, answer(), S)
    assert tier.disk.dropped == 1


async def test_the_end_of_the_thread(tier: Tier) -> None:
    tier.disk.put(b"k", OWNER, answer(), 100 * S)
    assert not tier.disk.flushed(0)
    tier.disk.close()  # it never began
    tier.disk.start()
    tier.disk._thread.join(60)
    assert not tier.disk._thread.is_alive()
    assert not tier.disk._puts


async def test_the_thread_is_woken_by_each_answer_and_by_each_question(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a question would wait until the next look for other workers' answers."""
    woken: list[str] = []
    monkeypatch.setattr(tier.disk._change, "notify_all", lambda: woken.append("now"))
    tier.disk.put(b"k", OWNER, answer(), 100 * S)
    assert len(woken) == 1
    tier.disk._round([])
    woken.clear()
    assert await tier.asked(b"k") == (answer(), 100 * S)
    assert woken == ["now"]
