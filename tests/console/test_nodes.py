"""Keys that one node makes or revokes, as another node with the same ledger hears of them."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lightgate.clock.source import ManualClock
from lightgate.console import nodes, serve
from lightgate.gateway.process.worker import LOOK_S
from lightgate.gateway.served.snapshot import Snapshot, put_snapshot, read_snapshot
from lightgate.ledger.failed import LedgerAway, LedgerBusy
from lightgate.ledger.store.keys import KeyTerms, add_key, new_key, revoke_key
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from lightgate.ledger.store.keys import KeyRecord


async def seen(data: Path, holds: Callable[[tuple[KeyRecord, ...]], bool]) -> None:
    """Wait until the keys of a node's snapshot are as they should be."""
    async with asyncio.timeout(60):
        while not holds(read_snapshot(data).keys):
            await asyncio.sleep(0.01)


async def test_a_key_of_one_node_is_known_and_revoked_at_another(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nodes.KEYS_S + LOOK_S < 2  # a look at the ledger, and one of the workers
    monkeypatch.setattr(nodes, "KEYS_S", 0.01)
    loop, real, away = asyncio.get_running_loop(), nodes._keys_of, False
    looks: asyncio.Queue[None] = asyncio.Queue()

    def look(ledger: Ledger) -> tuple[KeyRecord, ...]:
        loop.call_soon_threadsafe(looks.put_nowait, None)
        if away:
            raise LedgerAway("The server is away.")
        return real(ledger)

    async def two_looks() -> None:
        """Wait for a look that began after this, and its end."""
        while not looks.empty():
            looks.get_nowait()
        for _ in range(3):
            await asyncio.wait_for(looks.get(), 60)

    monkeypatch.setattr(nodes, "_keys_of", look)
    first, second = (new_key(KeyTerms(name=name))[1] for name in ("first", "second"))
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=(first,)))
    with Ledger.open(postgres_url) as here, Ledger.open(postgres_url) as there:
        following = asyncio.create_task(nodes.follow_keys(there, tmp_path))
        await two_looks()
        assert read_snapshot(tmp_path).made_ns == 1  # a ledger without a key changes nothing
        with here.writing() as connection:
            add_key(connection, first)
            add_key(connection, second)
        await seen(tmp_path, lambda keys: {key.id for key in keys} == {first.id, second.id})
        away = True
        with here.writing() as connection:
            revoke_key(connection, "second", wall_ns=1_790_000_000_000_000_000)
        await two_looks()
        assert not any(key.revoked for key in read_snapshot(tmp_path).keys)  # nobody could tell
        away = False
        await seen(tmp_path, lambda keys: any(key.revoked for key in keys))
        following.cancel()
    revoked = {key.id for key in read_snapshot(tmp_path).keys if key.revoked}
    assert revoked == {second.id}


async def test_keys_that_cannot_be_read_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock on the table of keys stops nothing else, so that no other line of the log says it."""
    monkeypatch.setattr(nodes, "KEYS_S", 0.0)
    key = new_key(KeyTerms(name="first"))[1]
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=()))
    tries, loop, again, clock = 0, asyncio.get_running_loop(), asyncio.Event(), ManualClock()

    def look(_ledger: object) -> tuple[KeyRecord, ...]:
        nonlocal tries
        tries += 1
        if tries <= 4:
            clock.advance(nodes.UNSEEN_NS // 2)
            raise LedgerBusy(f"Somebody holds the table ({tries}).")
        if tries > 5:  # what the look before has found was taken in
            loop.call_soon_threadsafe(again.set)
        return (key,)

    monkeypatch.setattr(nodes, "_keys_of", look)
    server = cast("Any", SimpleNamespace(postgres=object()))
    following = asyncio.create_task(nodes.follow_keys(server, tmp_path, clock))
    await asyncio.wait_for(again.wait(), 60)
    following.cancel()
    assert [record.message for record in caplog.records] == [
        "Keys that other nodes make or revoke are not seen: Somebody holds the table (2).",
        "Keys that other nodes make or revoke are seen again.",
    ]
    assert [known.id for known in read_snapshot(tmp_path).keys] == [key.id]


async def test_prices_that_cannot_be_noted_are_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hourly, tries, noted = {"lab": Decimal(2)}, [], asyncio.Event()

    def note(_ledger: object, prices: dict[str, Decimal], _now_s: int) -> None:
        tries.append(prices)
        if len(tries) <= 3:
            raise LedgerAway("The server is away." if len(tries) < 3 else "It is full.")
        loop.call_soon_threadsafe(noted.set)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(serve, "note_hourly_prices", note)
    monkeypatch.setattr(serve, "LOOK_S", 0.0)
    names = SimpleNamespace(look=lambda: None, hourly=hourly)
    console = SimpleNamespace(
        workers=SimpleNamespace(look=lambda: None), totals=SimpleNamespace(names=names), ledger=None
    )
    looking = asyncio.ensure_future(serve._look(cast("Any", console), cast("Any", _LEADS)))
    await asyncio.wait_for(noted.wait(), 20)
    looking.cancel()
    assert [record.message for record in caplog.records] == [
        "Prices by the hour are noted later: The server is away.",
        "Prices by the hour are noted later: It is full.",
    ]


async def test_a_background_task_that_fails_is_begun_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ended for good and silently: gauges, prices by the hour and keys stayed as they were."""
    fails, pauses = [OSError("No file can be opened"), ValueError("A defect")], list[float]()

    async def work() -> None:
        if fails:
            raise fails.pop(0)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    await serve.kept_up("Looking", work, pause)
    assert pauses == [serve.LOOK_S] * 2
    assert caplog.messages == ["Looking failed; it is tried again"] * 2
    hangs = asyncio.ensure_future(serve.kept_up("Looking", asyncio.Event().wait))  # type: ignore[arg-type] # it never comes back
    await asyncio.sleep(0)
    hangs.cancel()
    await asyncio.wait({hangs})
    assert hangs.cancelled()


_LEADS = SimpleNamespace(last=True)
