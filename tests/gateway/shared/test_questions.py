"""What a worker tells and asks a shared store, and what it makes of every answer.

The store is played: it writes down each question and gives the answer that the test has for it.
"""

from __future__ import annotations

import asyncio
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.shared import counters as module
from lightgate.gateway.shared.counters import KNOWN, SharedCounters, write_known
from lightgate.gateway.shared.scripts import EPOCH, KEY, MEMBERS, SPEND
from lightgate.gateway.shared.store import SharedStore, StoreAway
from lightgate.gateway.spend.counter_file import CounterFileFailed
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.store.keys import KeyTerms, new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lightgate.gateway.spend.denial import Denied
    from lightgate.ledger.store.keys import KeyRecord

S = 1_000_000_000
CENT = 10_000_000
MILL = CENT // 10
LOTS = (50 * CENT, 50, 5000)


def plenty(item: dict[str, Any]) -> list[Any]:
    """All is granted, and there is a lot left."""
    asks = item["asks"]
    return [[0] * len(asks), [0] * len(asks), LOTS, LOTS, LOTS, (0, 0, 0, 0, 0)]


class PlayedLane:
    """In the place of a connection: questions come in, and answers that the test wants go out."""

    def __init__(self) -> None:
        self.questions: list[tuple[list[str], dict[str, Any]]] = []
        self.answer: Any = plenty
        self.settling = False
        self.members = 2
        self.fails: Exception | None = None
        self.raw: bytes | None = None
        self.meanwhile: Callable[[], object] = lambda: None

    async def script(self, text: str, keys: list[str], payload: bytes) -> bytes:
        assert text == SPEND
        member, machine, life, seq, lease, silence, settle, told, parts = msgspec.msgpack.decode(
            payload
        )
        names = (
            "period", "budget", "rpm", "tpm", "spent", "ledger", "held", "requests", "tokens",
            "held_tokens", "minute_requests", "minute_tokens", "asks", "may_take", "keeps",
        )  # fmt: skip
        items = [dict(zip(names, item, strict=True)) for item in told]
        head = {
            "member": member, "machine": machine, "life": life, "seq": seq,
            "times": (lease, silence, settle), "parts": parts, "items": items,
        }  # fmt: skip
        self.questions.append((keys, head))
        await asyncio.sleep(0)
        self.meanwhile()
        if self.fails is not None:
            raise self.fails
        answers = [self.answer(item) for item in items]
        return self.raw or msgspec.msgpack.encode((self.settling, self.members, answers))

    def drop(self) -> None:
        """Close the connection."""

    @property
    def last(self) -> dict[str, Any]:
        """The last key of the last question."""
        item: dict[str, Any] = self.questions[-1][1]["items"][-1]
        return item


class PlayedStore(SharedStore):
    """A store whose connection is played."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("redis://127.0.0.1:1", "m", 3, clock.now_ns)
        self.played = PlayedLane()
        self.state = "joined"

    def lane(self) -> Any:
        return self.played


class Desk:
    """The counters of one worker, with a clock and a store that are played."""

    def __init__(self, path: Path, *keys: KeyRecord) -> None:
        self.clock = ManualClock()
        self.store = PlayedStore(self.clock)
        self.lane = self.store.played
        self.counters = SharedCounters.share(path, 0, keys, self.store, self.clock)

    async def ask(self, key: KeyRecord, nano_usd: int = CENT, tokens: int = 10) -> Denied | None:
        return await self.counters.reserve(key, self.clock.wall_ns(), tokens, nano_usd)

    def told(self) -> list[str]:
        """The keys of the last question."""
        return [name.removeprefix(KEY) for name in self.lane.questions[-1][0][2:]]


def key(name: str = "k", **terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name=name, **terms))[1]


WHOLE = key(budget_usd=Decimal(1), rpm=100, tpm=10_000)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "counters", WHOLE)
    yield made
    made.counters.close()


async def test_a_question_says_who_asks_and_where_the_key_stands(desk: Desk) -> None:
    assert await desk.ask(WHOLE) is None
    names, first = desk.lane.questions[0]
    assert names == [MEMBERS, EPOCH, KEY + WHOLE.id]
    assert (first["member"], first["machine"], first["seq"]) == ("m:3", "m", 1)
    assert (first["times"], first["parts"]) == ((30_000, 2_000, 2_000), 16)
    assert 0 < first["life"] < 2**48
    item = first["items"][0]
    assert (item["budget"], item["rpm"], item["tpm"]) == (100 * CENT, 100, 10_000)
    assert item["asks"] == [[CENT, 10]]
    assert (item["spent"], item["held"], item["held_tokens"], item["ledger"]) == (0, 0, 0, 0)
    assert (item["keeps"], item["may_take"]) == (True, [0, 0, 0])
    assert await desk.ask(WHOLE, 2 * CENT, 5) is None
    second = desk.lane.questions[1][1]
    assert (second["seq"], second["life"]) == (2, first["life"])
    item = second["items"][0]
    assert (item["held"], item["held_tokens"], item["requests"], item["tokens"]) == (CENT, 10, 1, 0)
    assert (item["minute_requests"], item["minute_tokens"]) == (1, 0)
    desk.counters.settle(WHOLE.id, 3 * CENT, CENT, 15, 7)
    assert await desk.ask(WHOLE) is None
    item = desk.lane.last
    assert (item["spent"], item["held"], item["held_tokens"]) == (CENT, 0, 0)
    assert (item["requests"], item["tokens"], item["minute_tokens"]) == (2, 7, 7)
    desk.clock.advance(61 * S)
    assert await desk.ask(WHOLE) is None
    item = desk.lane.last
    assert (item["requests"], item["minute_requests"], item["minute_tokens"]) == (3, 0, 0)


async def test_a_key_without_a_limit_is_none_in_the_question(tmp_path: Path) -> None:
    free, poor = key("free"), key("poor", budget_usd=Decimal("0.5"))
    desk = Desk(tmp_path / "c", free, poor)
    assert await desk.ask(free) is None
    assert desk.lane.questions == []
    assert await desk.ask(poor) is None
    item = desk.lane.last
    assert (item["budget"], item["rpm"], item["tpm"]) == (50 * CENT, -1, -1)
    often = key("often", rpm=7)
    assert await desk.ask(often) is None
    item = desk.lane.last
    assert (item["budget"], item["rpm"], item["tpm"]) == (-1, 7, -1)
    desk.counters.close()


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (1, "rpm", "may make 100 requests in a minute; try again in 3 s"),
        (2, "tpm", "may use 10000 tokens in a minute and this request may take 10; try again in 3"),
        (3, "budget", "has $0.05 left of its budget of $1, and this request may cost $0.01"),
    ],
)
async def test_a_refusal_of_the_store_names_its_limit(
    desk: Desk, code: int, reason: str, said: str
) -> None:
    desk.lane.answer = lambda _item: [
        [code], [2500], (5 * CENT, 0, 0), (0, 0, 0), (0, 0, 0), (95 * CENT, 0, 0, 0, 0),
    ]  # fmt: skip
    denied = await desk.ask(WHOLE)
    assert denied is not None
    assert (denied.reason, said in denied.message) == (reason, True)
    assert denied.retry_after_s == (86_400.0 if code == 3 else 2.5)
    assert desk.counters.own_part(WHOLE).held_nano == 0


async def test_requests_that_come_meanwhile_are_asked_together_in_the_next_question(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 4)
    said = await asyncio.gather(*(desk.ask(WHOLE) for _ in range(9)))
    assert said == [None] * 9
    assert [len(q["items"][0]["asks"]) for _, q in desk.lane.questions] == [4, 4, 1]
    assert desk.counters.own_part(WHOLE).held_nano == 9 * CENT


async def test_each_request_has_its_own_answer(desk: Desk) -> None:
    desk.lane.answer = lambda item: [
        [0, 3, 0], [0, 0, 0], LOTS, LOTS, LOTS, (0, 0, 0, 0, 0),
    ] if len(item["asks"]) == 3 else plenty(item)  # fmt: skip
    said = await asyncio.gather(*(desk.ask(WHOLE, (n + 1) * CENT) for n in range(3)))
    assert [denied and denied.reason for denied in said] == [None, "budget", None]
    assert desk.counters.own_part(WHOLE).held_nano == 4 * CENT


async def test_what_is_granted_counts_once(desk: Desk) -> None:
    desk.lane.answer = lambda item: [
        [0] * len(item["asks"]), [0] * len(item["asks"]), (90 * CENT, 90, 900),
        (40 * CENT, 40, 400), (4 * CENT, 4, 40), (0, 0, 0, 0, 0),
    ]  # fmt: skip
    await desk.ask(WHOLE)
    await desk.ask(WHOLE)
    # The advance is told after the request was granted: nothing of it is used yet.
    assert desk.lane.last["may_take"] == [4 * CENT, 4, 40]
    desk.clock.advance(3 * S)  # the store has noticed a silence by now
    await desk.ask(WHOLE)
    assert desk.lane.last["may_take"] == [40 * CENT, 40, 400]
    desk.lane.members = 1
    await desk.ask(WHOLE)
    await desk.ask(WHOLE)
    assert desk.lane.last["may_take"] == [0, 0, 0]  # there is nobody who must leave anything
    assert desk.store.members == 1


async def test_what_was_taken_alone_and_what_is_refused_leave_the_advance_whole(desk: Desk) -> None:
    def some(item: dict[str, Any]) -> list[Any]:
        count = len(item["asks"])
        advance = (4 * CENT, 4, 40)
        return [[0, 3, 0][:count], [0] * count, LOTS, LOTS, advance, (0, 0, 0, 0, 0)]

    desk.lane.answer = some
    desk.store.lost("cut off")
    assert await desk.ask(WHOLE, 3 * MILL, 20) is None
    desk.store.state = "joined"
    said = await asyncio.gather(*(desk.ask(WHOLE, (n + 1) * CENT, 10 + n) for n in range(3)))
    assert [denied and denied.reason for denied in said] == [None, "budget", None]
    await desk.ask(WHOLE)
    assert desk.lane.last["may_take"] == [4 * CENT, 4, 40]
    assert desk.lane.last["requests"] == 3


async def test_the_only_worker_has_all_of_its_share_at_once(desk: Desk) -> None:
    desk.lane.members = 1
    desk.lane.answer = lambda item: [
        [0] * len(item["asks"]), [0] * len(item["asks"]), (90 * CENT, 90, 900),
        (5 * CENT, 5, 500), (0, 0, 0), (0, 0, 0, 0, 0),
    ]  # fmt: skip
    await desk.ask(WHOLE)
    desk.store.lost("cut off")
    said = [await desk.ask(WHOLE) for _ in range(8)]
    assert [denied and denied.reason for denied in said] == [None] * 5 + ["rpm"] * 3
    assert said[-1] is not None
    assert said[-1].retry_after_s == 60.0


async def test_a_store_that_is_away_is_not_asked_and_a_small_part_is_taken(desk: Desk) -> None:
    desk.store.lost("cut off")
    said = [await desk.ask(WHOLE, MILL, 1) for _ in range(5)]
    assert desk.lane.questions == []
    # Of 100 a minute half, and of that a sixteenth; more in a moment, not in a minute.
    assert [denied and denied.reason for denied in said] == [None] * 3 + ["share"] * 2
    assert said[-1] is not None
    assert said[-1].retry_after_s == 2.5
    desk.clock.advance(2_500_000_000)
    assert (await desk.ask(WHOLE, MILL, 1)) is not None
    desk.clock.advance(1)
    assert (await desk.ask(WHOLE, MILL, 1)) is None


async def test_a_minute_later_a_worker_on_its_own_may_take_as_much_again(desk: Desk) -> None:
    desk.store.lost("cut off")
    desk.clock.advance(3 * S)
    for _ in range(2):
        said = [await desk.ask(WHOLE, 0, 0) for _ in range(51)]
        assert [denied and denied.reason for denied in said] == [None] * 50 + ["rpm"]
        desk.clock.advance(61 * S)


async def test_what_the_store_grants_must_fit_this_machine_too(desk: Desk) -> None:
    desk.counters.load_spend(WHOLE.id, 100 * CENT - MILL)
    denied = await desk.ask(WHOLE)
    assert denied is not None
    assert denied.reason == "budget"
    assert await desk.ask(WHOLE, MILL) is None
    await desk.ask(WHOLE, 0)
    assert (desk.lane.last["requests"], desk.lane.last["held"]) == (1, MILL)


async def test_a_refusal_of_the_own_share_is_no_refusal_of_the_budget(tmp_path: Path) -> None:
    poor = key("poor", budget_usd=Decimal("0.64"))
    desk = Desk(tmp_path / "c", poor)
    desk.store.lost("cut off")
    assert await desk.ask(poor, CENT) is None
    denied = await desk.ask(poor, CENT)
    assert denied is not None
    assert (denied.reason, denied.retry_after_s) == ("share", 2.5)
    assert denied.message.endswith("this one's share is used up; try again in 3 s.")
    denied = await desk.ask(poor, 99 * CENT)
    assert denied is not None
    assert denied.reason == "budget"
    assert "$0.63 left of its budget of $0.64, and this request may cost $0.99" in denied.message
    desk.counters.close()


async def test_a_refusal_for_want_of_money_says_less_than_was_asked_for(desk: Desk) -> None:
    await desk.ask(WHOLE, 0)  # the store says that half a dollar is left
    desk.store.lost("cut off")
    assert await desk.ask(WHOLE, 30 * CENT) is None
    denied = await desk.ask(WHOLE, 40 * CENT)
    assert denied is not None
    assert denied.reason == "budget"
    said = "has $0.399999999 left of its budget of $1, and this request may cost $0.40."
    assert said in denied.message


async def test_tokens_that_leave_no_room_in_the_own_share(tmp_path: Path) -> None:
    wordy = key("wordy", tpm=3200)
    desk = Desk(tmp_path / "c", wordy)
    desk.store.lost("cut off")
    assert await desk.ask(wordy, tokens=60) is None
    denied = await desk.ask(wordy, tokens=60)
    assert denied is not None
    assert denied.reason == "share"
    denied = await desk.ask(wordy, tokens=3160)  # more than the limit itself has room for
    assert denied is not None
    assert denied.reason == "tpm"
    desk.counters.settle(wordy.id, 0, 0, 60, 30)
    assert await desk.ask(wordy, tokens=60) is None
    desk.counters.close()


async def test_a_store_that_came_too_late_is_not_waited_for_again(desk: Desk) -> None:
    away = StoreAway("It does not answer in time.")
    away.__cause__ = TimeoutError()
    desk.lane.fails = away
    said = await asyncio.gather(*(desk.ask(WHOLE, MILL) for _ in range(4)))
    assert [denied and denied.reason for denied in said] == [None] * 3 + ["share"]
    assert (desk.store.timeouts, desk.store.state) == (1, "away")
    assert desk.store.problem == "It does not answer in time."
    assert len(desk.lane.questions) == 1
    desk.store.state, desk.lane.fails = "joined", None
    desk.clock.advance(60 * S - 1)
    await desk.ask(WHOLE, MILL)
    assert len(desk.lane.questions) == 1
    desk.clock.advance(1)
    assert await desk.ask(WHOLE, MILL) is None
    assert len(desk.lane.questions) == 2


def waits(desk: Desk) -> bool:
    """Whether a request would wait for the store."""
    return desk.store.asked


async def test_a_store_that_is_slow_again_and_again_is_not_waited_for(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    lasts_ns = 50_000_001  # more than half of the patience
    desk.lane.meanwhile = lambda: desk.clock.advance(lasts_ns)
    for _ in range(7):
        await desk.ask(WHOLE, MILL)
    lasts_ns = 50_000_000
    await desk.ask(WHOLE, MILL)  # a quick one: only this process was busy
    lasts_ns = 62_000_000
    for _ in range(8):
        assert waits(desk)
        await desk.ask(WHOLE, MILL)
    assert (len(desk.lane.questions), desk.store.state) == (16, "joined")
    await desk.ask(WHOLE, MILL)
    assert len(desk.lane.questions) == 16
    for _ in range(3):
        await desk.counters.tell()  # it is told and heard still
    assert not waits(desk)
    lasts_ns = 1_000_000
    for _ in range(8):
        assert not waits(desk)
        await desk.counters.tell()
    assert waits(desk)
    assert desk.store.timeouts == 0
    assert [record.message for record in caplog.records] == [
        (
            "The shared state answers slowly: redis://127.0.0.1:1 takes 62 ms."
            " Requests go on with this machine's share."
        ),
        "The shared state answers in time again: redis://127.0.0.1:1",
    ]


async def test_a_store_that_refuses_costs_no_rest(desk: Desk) -> None:
    desk.lane.fails = StoreAway("It has no memory left.")
    assert await desk.ask(WHOLE) is None
    assert (desk.store.timeouts, desk.store.problem) == (0, "It has no memory left.")


async def test_requests_behind_a_broken_question_are_answered_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    desk.lane.fails = StoreAway("Gone.")
    said = await asyncio.wait_for(asyncio.gather(desk.ask(WHOLE, MILL), desk.ask(WHOLE, MILL)), 20)
    assert not any(said)
    assert len(desk.lane.questions) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense", msgspec.msgpack.encode((False, 2, [])), msgspec.msgpack.encode(7),
        msgspec.msgpack.encode((False, 2, [[[0], [0], [1], [1], [1], []]])),
    ],
)  # fmt: skip
async def test_an_answer_that_cannot_be_read_counts_as_none(desk: Desk, raw: bytes) -> None:
    desk.lane.raw = raw
    assert await asyncio.wait_for(desk.ask(WHOLE), 20) is None
    assert desk.store.problem == "The store gave an answer that cannot be read."
    assert desk.counters.own_part(WHOLE).held_nano == CENT


async def test_a_store_that_has_heard_a_later_question_says_nothing(desk: Desk) -> None:
    desk.lane.answer = lambda _item: []
    said = [await desk.ask(WHOLE, MILL) for _ in range(4)]
    assert [denied and denied.reason for denied in said] == [None] * 3 + ["share"]
    assert desk.store.state == "joined"


async def test_while_the_store_gathers_its_data_again_the_share_counts(desk: Desk) -> None:
    desk.lane.settling = True
    desk.lane.answer = lambda item: [
        [9] * len(item["asks"]), [0] * len(item["asks"]), LOTS, LOTS, LOTS,
        (70 * CENT, 0, 0, 0, 0),
    ]  # fmt: skip
    said = [await desk.ask(WHOLE, MILL) for _ in range(4)]
    assert [denied and denied.reason for denied in said] == [None] * 3 + ["share"]
    standing = desk.counters.standing(WHOLE.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (0, 3 * MILL)  # its sums are not whole yet


async def test_a_key_stands_where_all_machines_have_brought_it(desk: Desk) -> None:
    await desk.ask(WHOLE)
    own = desk.counters.standing(WHOLE.id)
    assert own is not None
    assert (own.spent_nano, own.held_nano, own.requests, own.tokens, own.held_tokens) == (
        0, CENT, 1, 0, 10,
    )  # fmt: skip
    desk.lane.answer = lambda _item: [
        [0], [0], (7 * CENT, 9, 9), LOTS, LOTS, (80 * CENT, 12 * CENT, 30, 400, 50),
    ]  # fmt: skip
    await desk.ask(WHOLE)
    found = desk.counters.standing(WHOLE.id)
    assert found is not None
    assert (found.spent_nano, found.held_nano) == (80 * CENT, 12 * CENT)
    assert (found.requests, found.tokens, found.held_tokens) == (30, 400, 50)
    assert desk.counters.left_nano(WHOLE) == 7 * CENT
    for _ in range(40):
        desk.lane.answer = plenty
        await desk.ask(WHOLE, CENT // 10, 10)
    found = desk.counters.standing(WHOLE.id)
    assert found is not None
    assert (found.held_nano, found.requests, found.held_tokens) == (6 * CENT, 42, 420)
    desk.store.lost("cut off")
    again = desk.counters.standing(WHOLE.id)
    assert again is not None
    assert again.spent_nano == 0
    assert desk.counters.standing("unknown") is None
    assert desk.counters.left_nano(key("other")) == 2**62


async def test_what_is_left_is_the_less_of_what_is_known_here_and_there(desk: Desk) -> None:
    assert desk.counters.left_nano(WHOLE) == 100 * CENT
    await desk.ask(WHOLE)  # the store says that half is left
    assert desk.counters.left_nano(WHOLE) == 50 * CENT
    desk.counters.settle(WHOLE.id, CENT, 60 * CENT, 10, 10)
    assert desk.counters.left_nano(WHOLE) == 40 * CENT


async def test_keys_in_use_are_told_about_and_the_others_given_back(desk: Desk) -> None:
    await desk.counters.tell()
    assert desk.lane.questions == []
    await desk.ask(WHOLE)
    desk.counters.settle(WHOLE.id, CENT, CENT, 10, 10)
    desk.clock.advance(90 * S)
    await desk.counters.tell()
    assert (desk.told(), desk.lane.last["keeps"], desk.lane.last["asks"]) == ([WHOLE.id], True, [])
    desk.clock.advance(1)
    await desk.counters.tell()
    assert (desk.lane.last["keeps"], desk.lane.last["may_take"]) == (False, [0, 0, 0])
    count = len(desk.lane.questions)
    await desk.counters.tell()
    assert len(desk.lane.questions) == count  # it was given back
    desk.counters.settle(WHOLE.id, 0, CENT, 0, 0)  # what is used later is told again
    await desk.counters.tell()
    assert (desk.lane.last["spent"], desk.lane.last["may_take"]) == (2 * CENT, [0, 0, 0])


@pytest.mark.parametrize("nano_usd", [1, CENT])
async def test_a_key_with_a_request_under_way_is_in_use(desk: Desk, nano_usd: int) -> None:
    await desk.ask(WHOLE, nano_usd)
    desk.clock.advance(200 * S)
    await desk.counters.tell()
    assert (desk.lane.last["keeps"], desk.lane.last["held"]) == (True, nano_usd)


async def test_a_request_for_a_key_that_is_being_given_back_keeps_it(desk: Desk) -> None:
    await desk.ask(WHOLE)
    desk.counters.settle(WHOLE.id, CENT, 0, 10, 0)
    desk.clock.advance(100 * S)
    telling = asyncio.ensure_future(desk.counters.tell())
    asked = asyncio.ensure_future(desk.ask(WHOLE))
    await telling
    assert await asked is None
    assert [q["items"][0]["keeps"] for _, q in desk.lane.questions][1:] in ([True], [False, True])


async def test_nothing_is_told_to_a_store_that_is_away_or_being_asked(desk: Desk) -> None:
    await desk.ask(WHOLE)
    desk.store.lost("cut off")
    await desk.counters.tell()
    assert len(desk.lane.questions) == 1
    desk.store.state = "joined"
    asked = asyncio.ensure_future(desk.ask(WHOLE))
    await asyncio.sleep(0)
    await desk.counters.tell()
    await asked
    assert len(desk.lane.questions) == 2


async def test_many_keys_are_told_about_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TOLD", 2)
    keys = [key(f"k{n}", budget_usd=Decimal(1)) for n in range(5)]
    desk = Desk(tmp_path / "c", *keys)
    for one in keys:
        await desk.ask(one)
    del desk.lane.questions[:]
    await desk.counters.tell()
    assert [len(q["items"]) for _, q in desk.lane.questions] == [2, 2, 1]
    assert {name for names, _ in desk.lane.questions for name in names[2:]} == {
        KEY + one.id for one in keys
    }
    desk.counters.close()


async def test_after_a_start_all_that_this_machine_has_spent_is_told(tmp_path: Path) -> None:
    spent, held, none = (key(name, budget_usd=Decimal(1)) for name in ("spent", "held", "none"))
    with SpendCounters.open(tmp_path / "c", 1, (spent, held, none)) as before:
        before.load_spend(spent.id, 3 * CENT)
    desk = Desk(tmp_path / "c", spent, held, none)
    assert desk.counters.admit(held, desk.clock.wall_ns(), 0, CENT) is None
    desk.counters.tell_all()
    await desk.counters.tell()
    assert set(desk.told()) == {spent.id, held.id}
    await desk.ask(none, 0)
    desk.clock.advance(100 * S)
    desk.counters.tell_all()
    await desk.counters.tell()
    assert set(desk.told()) == {spent.id, held.id, none.id}
    assert all(item["keeps"] for item in desk.lane.questions[-1][1]["items"])
    desk.counters.close()


async def test_a_ledgers_sum_counts_in_its_own_period(desk: Desk, tmp_path: Path) -> None:
    period = desk.counters.own_part(WHOLE).period
    write_known(tmp_path, {WHOLE.id: (period, 60 * CENT), "other": (period, 5)})
    assert sorted(os.listdir(tmp_path)) == ["counters", KNOWN]
    desk.counters.know_ledger(tmp_path)
    await desk.ask(WHOLE)
    assert desk.lane.last["ledger"] == 60 * CENT
    write_known(tmp_path, {WHOLE.id: (period + 4, 60 * CENT)})
    desk.counters.know_ledger(tmp_path)
    await desk.ask(WHOLE)
    assert desk.lane.last["ledger"] == 0
    for bad in ("", "{", "[]", f'{{"{WHOLE.id}": 7}}', f'{{"{WHOLE.id}": ["x", 7]}}'):
        (tmp_path / KNOWN).write_text(bad)
        desk.counters.know_ledger(tmp_path)
        assert await desk.ask(WHOLE) is None
        assert desk.lane.last["ledger"] == 0
    desk.counters.know_ledger(tmp_path / "nowhere")


async def test_a_client_that_leaves_takes_nothing(desk: Desk) -> None:
    asked = asyncio.ensure_future(desk.ask(WHOLE))
    await asyncio.sleep(0)
    desk.lane.meanwhile = asked.cancel
    with pytest.raises(asyncio.CancelledError):
        await asked
    desk.lane.meanwhile = lambda: None
    assert await desk.ask(WHOLE) is None
    assert desk.counters.own_part(WHOLE).held_nano == CENT
    assert desk.counters.own_part(WHOLE).held_tokens == 10


async def test_a_client_that_leaves_does_not_keep_the_answer_from_the_next(desk: Desk) -> None:
    asks = [asyncio.ensure_future(desk.ask(WHOLE)) for _ in range(3)]
    desk.lane.meanwhile = asks[1].cancel
    await asyncio.wait(asks, timeout=20)
    assert [ask.done() and (ask.cancelled() or ask.result()) for ask in asks] == [None, True, None]
    assert desk.counters.own_part(WHOLE).held_nano == 2 * CENT


async def leave_when_answered(desk: Desk, answer: Callable[[dict[str, Any]], list[Any]]) -> None:
    """Ask, and leave after the answer has come and before it was looked at."""
    waits: list[asyncio.Task[Any]] = []

    def answered(item: dict[str, Any]) -> list[Any]:
        asyncio.get_running_loop().call_soon(waits[0].cancel)
        return answer(item)

    desk.lane.answer = answered
    waits.append(asyncio.ensure_future(desk.ask(WHOLE)))
    await asyncio.wait(waits)
    assert waits[0].cancelled()


async def test_a_client_that_leaves_after_it_was_let_in_gives_all_back(desk: Desk) -> None:
    await leave_when_answered(desk, plenty)
    part = desk.counters.own_part(WHOLE)
    assert (part.held_nano, part.held_tokens, part.spent_nano) == (0, 0, 0)
    standing = desk.counters.standing(WHOLE.id)
    assert standing is not None
    assert (standing.tokens, standing.held_tokens) == (0, 0)


async def test_a_client_that_leaves_after_a_refusal_gives_nothing_back(desk: Desk) -> None:
    await desk.ask(WHOLE)
    nothing = (0, 0, 0)
    await leave_when_answered(
        desk, lambda _item: [[3], [0], nothing, nothing, nothing, (0, 0, 0, 0, 0)]
    )
    part = desk.counters.own_part(WHOLE)
    assert (part.held_nano, part.held_tokens) == (CENT, 10)


def fail(*_: object) -> None:
    """What happens where the file of counters is full."""
    raise CounterFileFailed("The counter file cannot grow.")


async def test_a_client_that_leaves_a_machine_that_cannot_count_has_just_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_item: dict[str, Any]) -> list[Any]:
        monkeypatch.setattr(SharedCounters, "own_part", fail)
        return []

    await leave_when_answered(desk, broken)


async def test_the_newest_record_of_a_key_has_its_limits(desk: Desk) -> None:
    changed = msgspec.structs.replace(WHOLE, rpm=7, budget_usd=Decimal(2))
    said = await asyncio.gather(desk.ask(WHOLE), desk.ask(changed, 3 * CENT), desk.ask(changed))
    assert not any(said)
    item = desk.lane.last
    assert item["asks"] == [[CENT, 10], [3 * CENT, 10], [CENT, 10]]
    assert (item["rpm"], item["budget"], item["tpm"]) == (7, 200 * CENT, 10_000)
    assert len(desk.lane.questions) == 1


async def test_a_machine_that_cannot_count_says_so_to_every_request(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedCounters, "own_part", fail)
    said = await asyncio.gather(desk.ask(WHOLE), desk.ask(WHOLE), return_exceptions=True)
    assert [type(one) for one in said] == [CounterFileFailed] * 2
    desk.store.lost("cut off")
    with pytest.raises(CounterFileFailed):
        await desk.ask(WHOLE)


async def test_a_machine_that_can_count_no_more_when_the_answer_comes_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_item: dict[str, Any]) -> list[Any]:
        monkeypatch.setattr(SharedCounters, "own_part", fail)
        return []

    desk.lane.answer = broken
    asks = (desk.ask(WHOLE), desk.ask(WHOLE))
    said = await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), 20)
    assert [type(one) for one in said] == [CounterFileFailed] * 2


async def test_a_machine_that_can_count_no_more_when_the_store_goes_away_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.lane.fails = StoreAway("Gone.")
    desk.lane.meanwhile = lambda: monkeypatch.setattr(SharedCounters, "own_part", fail)
    asks = [asyncio.ensure_future(desk.ask(WHOLE)) for _ in range(2)]
    await asyncio.wait(asks, timeout=20)
    assert [ask.done() and type(ask.exception()) for ask in asks] == [CounterFileFailed] * 2


async def test_a_defect_leaves_no_request_waiting(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    with monkeypatch.context() as patched:
        patched.setattr(SharedCounters, "_hear", broken)
        asks = [asyncio.ensure_future(desk.ask(WHOLE)) for _ in range(3)]
        desk.lane.meanwhile = asks[1].cancel
        await asyncio.wait(asks, timeout=20)
    said = [ask.cancelled() or str(ask.exception()) for ask in asks]
    assert said == ["a defect", True, "a defect"]
    sending = desk.counters._sending
    assert sending is not None
    assert str(sending.exception()) == "a defect"  # which the loop tells, too
    desk.lane.meanwhile = lambda: None
    del desk.lane.questions[:]
    assert await desk.ask(WHOLE) is None
    assert len(desk.lane.questions) == 1  # nothing of before is asked for again
