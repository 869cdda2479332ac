"""The file of kept responses: several workers, lost turns, a damaged file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.kept.store import (
    FILE,
    PRUNE_NS,
    ROW_BYTES,
    SAY_NS,
    KeptResponse,
    ResponseStore,
)
from lightgate.gateway.served.snapshot import KeptTerms

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600_000_000_000


def turn(id_: str, previous: str | None = None, owner: str = "k") -> KeptResponse:
    return KeptResponse(
        owner=owner, id=id_, target="a/b", previous=previous, made_ns=1, input=b"[]", response=b"{}"
    )  # fmt: skip


async def test_another_worker_finds_what_this_one_keeps(tmp_path: Path) -> None:
    mine, other = (ResponseStore(tmp_path, KeptTerms()) for _ in range(2))
    assert await other.find("k", "resp_1") is None
    looking = asyncio.create_task(other.find("k", "resp_1"))  # before it is there
    await asyncio.sleep(0)
    mine.put(turn("resp_1"))
    found = await looking
    assert found is not None
    assert found.id == "resp_1"
    assert await other.find("someone", "resp_1") is None
    mine.close()
    other.close()


async def test_a_conversation_without_one_of_its_turns_is_none(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path, KeptTerms())
    for id_, previous in (("a", None), ("b", "a"), ("c", "b")):
        store.put(turn(id_, previous))
    assert [kept.id for kept in await store.chain("k", "c")] == ["a", "b", "c"]
    await store.delete("k", "b")
    assert await store.chain("k", "c") == []
    store.close()


async def test_a_turn_of_another_owner_is_not_part_of_a_conversation(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path, KeptTerms())
    store.put(turn("theirs", owner="other"))
    store.put(turn("mine", "theirs"))
    assert await store.chain("k", "mine") == []
    store.close()


async def test_turns_in_a_circle_end(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path, KeptTerms())
    store.put(turn("a", "b"))
    store.put(turn("b", "a"))
    assert await store.chain("k", "b") == []
    store.close()


async def test_a_damaged_file_keeps_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    store = ResponseStore(tmp_path, KeptTerms())
    store.put(turn("a"))
    assert await store.find("k", "a") is None
    assert await store.chain("k", "a") == []
    store.close()


class Later:
    """A wall clock that can be put forward."""

    def __init__(self) -> None:
        self.s = 0

    def now_ns(self) -> int:
        return self.wall_ns()

    def wall_ns(self) -> int:
        return (1_000_000 + self.s) * 10**9


async def test_a_conversation_that_goes_on_is_kept(tmp_path: Path) -> None:
    """From its first turn on, as long as its newest; one that is left alone is not."""
    clock = Later()
    store = ResponseStore(tmp_path, KeptTerms(ttl_ns=3600 * 10**9), clock)
    store.put(turn("a"))
    store.put(turn("left"))
    for place, id_ in enumerate("bcd"):
        clock.s += 2000
        before = "abc"[place]
        assert [kept.id for kept in await store.chain("k", before)] == list("abc"[: place + 1])
        store.put(turn(id_, before))
    assert await store.find("k", "left") is None
    assert len(await store.chain("k", "d")) == 4
    clock.s += 3601
    assert await store.chain("k", "d") == []
    store.close()


async def test_a_look_at_a_response_keeps_it_no_longer(tmp_path: Path) -> None:
    clock = Later()
    store = ResponseStore(tmp_path, KeptTerms(ttl_ns=HOUR), clock)
    store.put(turn("a"))
    clock.s += 2000
    assert await store.find("k", "a") is not None
    clock.s += 1601
    assert await store.find("k", "a") is None
    store.close()


@pytest.mark.parametrize("sizes", [(3, 5 << 19), (5 << 19, 3), (3 << 20, 1 << 20), (0, 0)])
async def test_large_contents_are_kept_in_slices(tmp_path: Path, sizes: tuple[int, int]) -> None:
    """Contents of several slices come back whole, whichever of them is large."""
    asked, answered = (bytes(n % 251 for n in range(size)) for size in sizes)
    store = ResponseStore(tmp_path, KeptTerms())
    kept = KeptResponse(
        owner="k", id="resp_1", target="a/m", made_ns=1, input=memoryview(asked), response=answered
    )
    assert store.put(kept)
    found = await store.find("k", "resp_1")
    assert found == msgspec.structs.replace(kept, input=asked)
    assert found.size == ROW_BYTES + sum(sizes)
    store.close()


async def test_a_clock_that_leaps_ahead_deletes_nothing(tmp_path: Path) -> None:
    """What is too old by the clock is not found; when the clock is set right, it is there again."""
    clock = ManualClock(0, 10**18)
    terms = KeptTerms(ttl_ns=HOUR)
    store = ResponseStore(tmp_path, terms, clock)

    async def found() -> bool:
        return await store.find("k", "resp_1") is not None

    def prune(id_: str) -> None:
        clock.advance(PRUNE_NS)
        store.put(turn(id_))

    store.put(turn("resp_1"))
    clock.step_wall(40 * 24 * HOUR)
    prune("resp_2")
    assert not await found()
    clock.step_wall(-40 * 24 * HOUR)
    assert await found()
    clock.advance(HOUR)  # by its own life it is too old now
    prune("resp_3")
    assert not await found()
    clock.step_wall(-2 * HOUR)
    assert not await found()  # it was deleted
    store.close()


async def test_a_full_disk_is_told_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0, 10**18)
    store = ResponseStore(tmp_path, KeptTerms(), clock)
    (tmp_path / FILE).mkdir()  # so that nothing can be written
    for number in range(3):
        store._written(turn(f"resp_{number}"))
    clock.advance(SAY_NS)
    store._written(turn("resp_3"))
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" responses")[0] for line in said] == ["1", "3"]
    store.close()


async def test_what_is_too_large_or_too_much_at_once_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = turn("a").size
    store = ResponseStore(tmp_path, KeptTerms(max_bytes=4 * size))
    assert store.put(turn("a"))
    longer = msgspec.structs.replace(turn("a"), response=b"{ }")
    assert not store.put(longer)  # a byte more than a quarter
    assert await store.find("k", "a") is not None  # it is written now
    monkeypatch.setattr("lightgate.gateway.kept.store.MOST_WAITING_BYTES", size - 1)
    assert not store.put(turn("b"))
    monkeypatch.setattr("lightgate.gateway.kept.store.MOST_WAITING_BYTES", size)
    assert store.put(turn("b"))
    assert await store.find("k", "b") is not None
    store.close()


async def test_only_the_last_ids_are_known_without_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.gateway.kept.store.MOST_RECENT", 2)
    store = ResponseStore(tmp_path, KeptTerms())
    for id_ in "abc":
        store.put(turn(id_))
    assert list(store._recent) == [("k", "b"), ("k", "c")]
    store.close()
