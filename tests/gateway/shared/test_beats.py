"""When a worker tells a shared store what, and what it makes of the answers.

The store is played: it keeps what it is told and answers what the test has for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.shared.live import (
    BEAT_S,
    FORM_S,
    IDLE_BEAT_S,
    TELL_S,
    FormMessage,
    LiveSharing,
    LiveState,
)
from lightgate.gateway.shared.scripts import BEAT, EPOCH, FORM, FORMS, LEAVE, LIVE, MEMBERS
from lightgate.gateway.shared.store import CHECK_S, RETRY_S, StoreAway
from lightgate.route.form.forms import Forms

S, MS = 1_000_000_000, 1_000_000
_live = msgspec.msgpack.Decoder(LiveState).decode
_form = msgspec.msgpack.Decoder(FormMessage).decode


class PlayedStore:
    """A store and the one connection to it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.now_ns = clock.now_ns
        self.machine, self.member, self.members = "m", "m:3", 1
        self.state = "joined"
        self.joins = True
        self.why: list[str] = []
        self.asked: list[tuple[str, list[str], tuple[Any, ...], Any]] = []
        self.rows: list[Any] = []
        self.answer: tuple[str, int, bytes, str] = ("t1", 2, b"e", "f1")
        self.fails: StoreAway | None = None
        self.checks = 0

    def lane(self) -> PlayedStore:
        return self

    async def join(self) -> bool:
        if self.joins:
            self.state = "joined"
        return self.joins

    async def check(self) -> None:
        self.checks += 1

    async def script(
        self, text: str, keys: list[str], *told: Any, within_s: float | None = None
    ) -> Any:
        if self.fails is not None:
            raise self.fails
        self.asked.append((text, keys, told, within_s))
        when, members, epoch, formed = self.answer
        return when, members, self.rows, epoch, formed

    async def close(self) -> None:
        self.why.append("closed")

    def lost(self, why: str) -> None:
        self.state = "away"
        self.why.append(why)


class Told:
    """Counters and breakers that keep what they are told."""

    def __init__(self) -> None:
        self.tells: list[str] = []
        self.rests: list[tuple[Any, ...]] = []

    async def tell(self) -> None:
        self.tells.append("some")

    def tell_all(self) -> None:
        self.tells.append("all")

    def resting(self, now_ns: int) -> dict[str, tuple[int, int]]:
        return {"lab/z": (now_ns, 7)}

    def told(self, *said: Any) -> None:
        self.rests.append(said)


class Beats:
    """One worker's side, with everything around it played."""

    def __init__(self) -> None:
        self.clock = ManualClock(1000 * S)
        self.store, self.told, self.forms = PlayedStore(self.clock), Told(), Forms({})
        self.forms.form("lab/a")
        self.naps: list[float] = []
        store, told = self.store, self.told
        self.live = LiveSharing(store, told, self.forms, told, self._nap)  # type: ignore[arg-type]

    async def _nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.Event().wait()

    @property
    def last(self) -> tuple[Any, ...]:
        """What the last beat told."""
        text, keys, told, within_s = self.store.asked[-1]
        assert (text, keys, within_s) == (BEAT, [MEMBERS, EPOCH, FORMS], 1.0)
        return told


@pytest.fixture
def beats() -> Beats:
    return Beats()


async def test_a_beat_says_who_speaks_and_since_when_it_wants_to_hear(beats: Beats) -> None:
    beats.forms.started("lab/a", beats.clock.now_ns())
    await beats.live.beat()
    member, machine, live, form, since, *times, formed, most = beats.last
    assert (member, machine, since, formed, most) == ("m:3", "m", "0", "0", 32)
    assert times == [times[0], 3_000, 10_000, 32, LIVE, FORM]
    said = _live(live)
    assert said == LiveState(1000 * S, {"lab/a": 1}, {"lab/z": (1000 * S, 7)})
    assert _form(form).now_ns == 1000 * S
    assert beats.store.members == 2
    await beats.live.beat()
    assert (beats.last[4], beats.last[11]) == ("t1", "f1")


async def test_form_is_told_once_a_second(beats: Beats) -> None:
    await beats.live.beat()
    beats.clock.advance(int(FORM_S * S) - 1)
    await beats.live.beat()
    assert beats.last[3] == b""
    beats.clock.advance(1)
    await beats.live.beat()
    assert _form(beats.last[3]).now_ns == 1001 * S
    await beats.live.beat()
    assert beats.last[3] == b""


async def test_keys_are_told_four_times_a_second(beats: Beats) -> None:
    beats.store.answer = ("t1", 2, b"", "f1")
    await beats.live.step()
    beats.clock.advance(int(TELL_S * S) - 1)
    await beats.live.step()
    assert beats.told.tells == ["some"]
    beats.clock.advance(1)
    await beats.live.step()
    await beats.live.step()
    assert beats.told.tells == ["some", "some"]


async def test_a_store_without_our_data_is_told_all(beats: Beats) -> None:
    await beats.live.beat()
    await beats.live.beat()
    assert beats.told.tells == ["all"]
    beats.store.answer = ("t2", 2, b"other", "f2")
    await beats.live.beat()
    assert beats.told.tells == ["all", "all"]


async def test_a_store_that_is_away_is_joined_first_and_told_from_the_beginning(
    beats: Beats,
) -> None:
    await beats.live.step()
    beats.store.fails = StoreAway("gone")
    await beats.live.step()
    assert (beats.store.state, beats.store.why) == ("away", ["gone"])
    beats.store.fails, beats.store.joins = None, False
    asked = len(beats.store.asked)
    await beats.live.step()
    assert len(beats.store.asked) == asked  # nothing is asked of one that is away
    beats.store.joins, beats.told.tells = True, []
    await beats.live.step()
    assert (beats.last[4], beats.last[11]) == ("0", "0")
    assert beats.last[3] != b""
    assert beats.told.tells == ["all", "some"]


async def test_the_connection_is_checked_now_and_then(beats: Beats) -> None:
    beats.live._checked_ns = beats.clock.now_ns()
    beats.clock.advance(int(CHECK_S * S))
    await beats.live.step()
    assert beats.store.checks == 0
    beats.clock.advance(1)
    await beats.live.step()
    await beats.live.step()
    assert beats.store.checks == 1


async def test_beats_are_rarer_while_nothing_is_in_flight_anywhere(beats: Beats) -> None:
    async def nap() -> float:
        running = asyncio.create_task(beats.live.run())
        beats.naps.clear()
        while not beats.naps:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        return beats.naps[0]

    assert await nap() == IDLE_BEAT_S
    beats.forms.started("lab/a", beats.clock.now_ns())
    assert await nap() == BEAT_S
    beats.forms.by_target["lab/a"].in_flight = 0
    other = msgspec.msgpack.encode(LiveState(5, {"lab/a": 2}, {}))
    beats.store.rows = [(b"n:1", 0, other, 0, b"")]
    assert await nap() == BEAT_S
    beats.store.fails = StoreAway("gone")
    assert await nap() == RETRY_S


async def test_what_others_told_is_moved_to_the_own_clock(
    beats: Beats, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[Any] = []
    adopted: list[Any] = []
    monkeypatch.setattr(Forms, "beside", lambda _, *said: beside.append(said))
    monkeypatch.setattr(
        "lightgate.gateway.shared.live.moved", lambda state, by_ns: (state.pairs, by_ns)
    )
    monkeypatch.setattr(Forms, "adopt", lambda _, *said: adopted.append(said))
    resting = {"lab/a": (30 * MS, 10 * MS), "lab/b": (9 * S, 9 * S)}
    live = msgspec.msgpack.encode(LiveState(5, {"lab/a": 2}, resting))
    form = msgspec.msgpack.encode(FormMessage(400, Forms({}).export()))
    now = beats.clock.now_ns()
    beats.store.rows = [
        (b"n:1", 20, live, 50, form),
        (b"m:4", 29, live, 0, b""),  # of this machine, whose counts are in its memory
        (b"n:2", 30, live, 0, b"\xc1"),
        (b"n:3", 0, b"\xc1", 0, b""),
    ]
    await beats.live.beat()
    flying = {"n:1": (now - 20 * MS, {"lab/a": 2}), "n:2": (now - 30 * MS, {"lab/a": 2})}
    assert beside == [(flying, now)]
    assert adopted == [(((), now - 50 * MS - 400), now)]
    # What is left of a rest, for targets that are known here; nothing once it is over.
    assert beats.told.rests == [("lab/a", now, 10 * MS, 0), ("lab/a", now, 1 * MS, 0)]


async def test_a_worker_that_ends_says_so_to_a_store_that_is_there(beats: Beats) -> None:
    await beats.live.leave()
    assert beats.told.tells == ["some"]
    assert beats.store.asked == [(LEAVE, [MEMBERS, FORMS], ("m:3", LIVE, FORM), None)]
    beats.store.fails = StoreAway("gone")
    await beats.live.leave()
    beats.store.state = "away"
    beats.told.tells.clear()
    await beats.live.leave()
    assert beats.told.tells == []
    assert beats.store.why == ["closed"] * 3
