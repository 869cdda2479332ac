"""The script that grants budgets, asked by itself at instants that the tests choose.

The server has no clock that could be set: where the script asks for the time it is given one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from lightgate.clock.source import SYSTEM
from lightgate.gateway.shared.scripts import EPOCH, KEY, MEMBERS, SPEND
from lightgate.gateway.shared.store import SharedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lightgate.gateway.shared.store import StoreLane
    from redis_server import RedisServer

SECOND = 1_700_000_000
NOW = SECOND * 1000 + 500  # milliseconds
LEASE, SILENCE, SETTLE, PARTS = 30_000, 2_000, 1_500, 10
GRANTED, RPM, TPM, BUDGET, SETTLING = 0, 1, 2, 3, 9


class Heard(NamedTuple):
    """What the script says about one key."""

    codes: list[int]
    waits: list[int]
    left: list[int]
    share: list[int]
    advance: list[int]
    totals: list[int]  # spent, held, requests, tokens, tokens held


class Told(msgspec.Struct):
    """What one member tells about one key, and what it needs."""

    period: int = 8
    budget: int = -1
    rpm: int = -1
    tpm: int = -1
    spent: int = 0
    ledger: int = 0
    held: int = 0
    requests: int = 0
    tokens: int = 0
    held_tokens: int = 0
    recent_requests: int = 0
    recent_tokens: int = 0
    needs: tuple[tuple[int, int], ...] = ()
    may: tuple[int, int, int] = (0, 0, 0)
    keeps: bool = True


class Script:
    """Asks the script in the name of any member, at any time."""

    def __init__(self, lane: StoreLane) -> None:
        self.lane = lane
        self._seq = 0

    async def all(
        self, *told: Told, at: int = NOW, member: str = "A:0", life: int = 1, seq: int = 0
    ) -> tuple[bool, int, list[Any]]:
        """Whether it is settling, how many members there are, and what it says of each key."""
        self._seq += 1
        items = [msgspec.structs.astuple(one) for one in told]
        batch = (
            member, member.partition(":")[0], life, seq or self._seq, LEASE, SILENCE, SETTLE, items,
            PARTS,
        )  # fmt: skip
        second, part_ms = divmod(at, 1000)
        # Half a millisecond more: only whole ones count.
        given = f"{{'{second}', '{part_ms * 1000 + 500}'}}"
        text = SPEND.replace("redis.call('TIME')", given)
        assert text != SPEND
        names = [MEMBERS, EPOCH, *(f"{KEY}{n}" for n in range(len(told)))]
        reply = await self.lane.script(text, names, msgspec.msgpack.encode(batch))
        settling, count, replies = msgspec.msgpack.decode(reply)
        return bool(settling), count, list(replies)

    async def one(self, told: Told, **how: Any) -> Heard:
        """What it says about one key."""
        _, _, (said,) = await self.all(told, **how)
        codes, waits, *rest = said
        return Heard(list(codes), list(waits), *rest)


@pytest.fixture
async def script(redis: RedisServer) -> AsyncIterator[Script]:
    store = SharedStore(redis.url, "A", 0, SYSTEM.now_ns)
    store.patience_s = 10.0  # the machine of the tests may be busy
    lane = store.lane()
    await lane.open()
    yield Script(lane)
    await store.close()


async def test_what_is_granted_is_held_and_what_is_left_is_shared(script: Script) -> None:
    said = await script.one(Told(budget=1000, rpm=100, tpm=500, needs=((300, 20),)))
    assert said == Heard(
        codes=[GRANTED], waits=[0], left=[700, 99, 480], share=[700, 99, 480],
        advance=[70, 9, 48], totals=[0, 300, 1, 0, 20],
    )  # fmt: skip
    # The others hear of it before the member itself has told that it holds it.
    said = await script.one(Told(budget=1000, spent=40), member="B:0")
    assert (said.totals, said.left[0]) == ([40, 300, 1, 0, 20], 1000 - 40 - 300 - 70)


async def test_limits_are_met_exactly_and_what_is_refused_takes_nothing(script: Script) -> None:
    said = await script.one(Told(budget=100, needs=((50, 0), (51, 0), (50, 0), (1, 0), (0, 0))))
    assert said.codes == [GRANTED, BUDGET, GRANTED, BUDGET, GRANTED]
    assert (said.left[0], said.totals) == (0, [0, 100, 3, 0, 0])
    said = await script.one(Told(tpm=10, needs=((0, 6), (0, 5), (0, 4), (0, 1))), member="B:0")
    assert said.codes == [GRANTED, TPM, GRANTED, TPM]
    assert said.totals[4] == 10


async def test_the_limit_that_is_met_first_is_named_and_no_limit_is_none(script: Script) -> None:
    needs = ((9, 9),)
    assert (await script.one(Told(budget=8, rpm=0, tpm=8, needs=needs))).codes == [RPM]
    assert (await script.one(Told(budget=8, tpm=8, needs=needs))).codes == [TPM]
    assert (await script.one(Told(budget=8, needs=needs))).codes == [BUDGET]
    assert (await script.one(Told(budget=0, rpm=5, tpm=0, needs=((0, 0),)))).codes == [GRANTED]
    assert (await script.one(Told(tpm=0, needs=((0, 1),)))).codes == [TPM]
    assert (await script.one(Told(budget=0, needs=((1, 0),)))).codes == [BUDGET]
    free = await script.one(Told(needs=((10**15, 10**9),)))
    assert free.codes == [GRANTED]
    assert (free.share, free.advance) == ([0, 0, 0], [0, 0, 0])


async def test_a_request_counts_for_the_sixty_seconds_that_follow_its_own(script: Script) -> None:
    ask = Told(rpm=1, needs=((0, 0),))
    assert (await script.one(ask)).codes == [GRANTED]
    told = Told(rpm=1, requests=1, needs=((0, 0),))
    for later_ms, wait_ms in ((0, 60_500), (1_000, 59_500), (60_000, 500), (60_499, 1)):
        said = await script.one(told, at=NOW + later_ms)
        assert (said.codes, said.waits, said.totals[2]) == ([RPM], [wait_ms], 1)
    said = await script.one(told, at=NOW + 60_500)
    assert (said.codes, said.totals[2]) == ([GRANTED], 1)
    # Each has left the minute once, and not again with every round of it.
    for later_ms in (121_500, 122_500, 183_500):
        assert (await script.one(Told(requests=2), at=NOW + later_ms)).totals[2] == 0


async def test_a_server_whose_clock_was_set_back_counts_on_in_the_second_that_it_knows(
    script: Script,
) -> None:
    assert (await script.one(Told(rpm=9, needs=((0, 0),)))).totals[2] == 1
    told = Told(rpm=9, requests=1, needs=((0, 0),))
    assert (await script.one(told, at=NOW - 5_000)).totals[2] == 2
    told = Told(rpm=9, requests=2)
    assert (await script.one(told, at=NOW + 60_499)).totals[2] == 2
    assert (await script.one(told, at=NOW + 60_500)).totals[2] == 0


async def test_a_wait_is_until_enough_has_left_the_minute(script: Script) -> None:
    for second in range(3):
        needs = ((0, 0),) * 2
        said = await script.one(
            Told(rpm=6, requests=2 * second, needs=needs), at=NOW + 1000 * second
        )
        assert said.codes == [GRANTED] * 2
    at = NOW + 10_000
    said = await script.one(Told(rpm=6, requests=6, needs=((0, 0),)), at=at)
    assert (said.codes, said.waits) == ([RPM], [50_500])
    said = await script.one(Told(rpm=4, requests=6, needs=((0, 0),)), at=at)
    assert said.waits == [51_500]  # a smaller limit: three have to leave
    said = await script.one(Told(rpm=2, requests=6, needs=((0, 0),)), at=at)
    assert said.waits == [52_500]
    said = await script.one(Told(rpm=0, requests=6, needs=((0, 0),)), at=at)
    assert said.waits == [60_000]  # however long


async def test_tokens_count_in_the_second_in_which_they_are_told(script: Script) -> None:
    told = Told(tpm=100, tokens=30)
    assert (await script.one(Told(tpm=100))).left[2] == 100
    assert (await script.one(told)).left[2] == 70
    assert (await script.one(told, at=NOW + 1000)).left[2] == 70  # the same number: nothing more
    more = Told(tpm=100, tokens=50, needs=((0, 60),))
    said = await script.one(more, at=NOW + 2000)
    assert (said.codes, said.totals[3], said.left[2]) == ([TPM], 50, 50)
    assert said.waits == [58_500]  # ten tokens too many: the first thirty have to leave
    said = await script.one(Told(tpm=100, tokens=50), at=NOW + 60_500)
    assert said.totals[3] == 20
    said = await script.one(Told(tpm=100, tokens=50), at=NOW + 1_000_000)
    assert said.totals[3] == 0


async def test_less_is_taken_back_only_within_its_second(script: Script) -> None:
    await script.one(Told(tokens=0))
    assert (await script.one(Told(tokens=30))).totals[3] == 30
    assert (await script.one(Told(tokens=25))).totals[3] == 25
    assert (await script.one(Told(tokens=10), at=NOW + 1000)).totals[3] == 25
    assert (await script.one(Told(tokens=12, requests=4), at=NOW + 1000)).totals[2:4] == [4, 27]
    assert (await script.one(Told(tokens=12, requests=1), at=NOW + 1000)).totals[2:4] == [1, 27]
    # The second in which the thirty came is over: with it goes what is left of them.
    assert (await script.one(Told(tokens=12, requests=1), at=NOW + 60_500)).totals[3] == 2


async def test_a_question_that_comes_late_or_twice_is_not_heard(script: Script) -> None:
    told = Told(budget=100, needs=((10, 0),))
    assert (await script.one(told, seq=5)).codes == [GRANTED]
    for seq in (5, 4):
        assert not (await script.all(told, seq=seq))[2][0]
    said = await script.one(Told(budget=100, held=10, requests=1), seq=6)
    assert said.totals[1:3] == [10, 1]
    # Another life begins anew, and says what it has counted of late.
    told = Told(budget=100, recent_requests=3, recent_tokens=7)
    said = await script.one(told, life=2, seq=1)
    assert said.totals == [0, 0, 4, 7, 0]


async def test_members_of_other_machines_hold_and_keep_their_advance(script: Script) -> None:
    first = await script.one(
        Told(budget=1000, rpm=100, tpm=500, held=10, requests=2, held_tokens=4, recent_requests=2)
    )
    assert (first.share, first.advance) == ([990, 98, 496], [99, 9, 49])
    told = Told(budget=1000, rpm=100, tpm=500, held=5, held_tokens=1)
    settling, count, _ = await script.all(told, member="B:0")
    assert (settling, count) == (False, 2)
    said = await script.one(told, member="B:0")
    assert said.totals == [0, 15, 2, 0, 5]
    assert said.left == [1000 - 15 - 99, 100 - 2 - 9, 500 - 5 - 49]
    assert said.share == [443, 44, 223]  # of what is left, for each of two
    assert said.advance == [44, 4, 22]


async def test_what_others_may_take_without_asking_is_granted_to_nobody(script: Script) -> None:
    await script.one(Told(budget=1000, rpm=100, tpm=500))  # advances of 100, 10 and 50
    said = await script.one(Told(budget=1000, needs=((901, 0), (900, 0))), member="B:0")
    assert said.codes == [BUDGET, GRANTED]
    said = await script.one(Told(tpm=500, needs=((0, 451), (0, 450))), member="C:0")
    assert said.codes == [TPM, GRANTED]
    said = await script.one(Told(rpm=15, keeps=False, needs=((0, 0),) * 4), member="D:0")
    assert said.codes == [GRANTED] * 3 + [RPM]  # two came before


@pytest.mark.parametrize(
    ("later_ms", "kept", "count", "tokens"),
    [(0, 99, 2, 4), (1_999, 99, 2, 4), (2_000, 990, 2, 4), (30_000, 990, 2, 4), (30_001, 0, 1, 0)],
)
async def test_the_share_of_a_silent_member_is_kept_until_it_counts_as_gone(
    script: Script, later_ms: int, kept: int, count: int, tokens: int
) -> None:
    await script.one(Told(budget=1000, held=10, held_tokens=4, tpm=500))
    told = Told(budget=1000, tpm=500)
    _, members, (said,) = await script.all(told, at=NOW + later_ms, member="B:0")
    assert members == count
    assert said[5] == [0, 10, 0, 0, tokens]  # what it held stays: it may have spent it
    assert said[2][0] == 1000 - 10 - kept


async def test_the_share_of_a_silent_member_is_kept_of_each_limit(script: Script) -> None:
    said = await script.one(Told(budget=1000, rpm=300, tpm=500))
    assert said.share == [1000, 300, 500]
    told = Told(budget=3000, rpm=3000, tpm=3000)
    said = await script.one(told, at=NOW + SILENCE, member="B:0")
    assert said.left == [2000, 2700, 2500]


async def test_a_member_that_is_forgotten_is_gone(script: Script) -> None:
    await script.one(Told(budget=1000))
    await script.lane.run("ZREM", MEMBERS, "A:0")
    said = await script.one(Told(budget=1000), member="B:0")
    assert (said.left[0], said.share[0]) == (1000, 1000)


async def test_two_silent_and_two_gone_members_are_told_apart(script: Script) -> None:
    for member, held in (("A:0", 1), ("A:1", 2), ("C:0", 4), ("C:1", 8)):
        late = 0 if member.startswith("A") else 20_000
        told = Told(budget=1000, held=held, held_tokens=held, keeps=False, may=(100, 0, 0))
        await script.one(told, member=member, at=NOW + late)
    said = await script.one(Told(budget=1000), member="B:0", at=NOW + 40_000)
    assert said.totals == [0, 15, 0, 0, 12]
    assert said.left[0] == 985  # a share that was given back is not kept


async def test_a_share_of_another_period_keeps_no_money_but_requests(script: Script) -> None:
    await script.one(Told(period=7, budget=1000, rpm=100, tpm=100))
    said = await script.one(Told(period=8, budget=1000, rpm=100, tpm=100), member="B:0")
    assert said.left == [1000, 90, 90]


async def test_who_keeps_nothing_gets_no_share_and_what_it_may_take_is_left(
    script: Script,
) -> None:
    told = Told(budget=1000, rpm=100, tpm=100, keeps=False, may=(30, 4, 5))
    said = await script.one(told)
    assert (said.share, said.advance) == ([0, 0, 0], [0, 0, 0])
    said = await script.one(Told(budget=1000, rpm=100, tpm=100), member="B:0")
    assert said.left == [970, 96, 95]
    # The larger one counts: what it says that it may take, or what it is told now.
    await script.one(Told(budget=1000, rpm=1000, tpm=1000, may=(30, 999, 5)))
    said = await script.one(Told(budget=1000, rpm=1000, tpm=1000), member="C:0")
    # B keeps a tenth of its half: 48, 4 and 4. Then A is told 952, 996 and 996, for each of two.
    assert said.left == [1000 - 48 - 47, 1000 - 4 - 999, 1000 - 4 - 49]
    assert said.share == [301, 0, 315]  # a third; of less than nothing there is none


async def test_what_a_machine_has_spent_counts_once_for_all_of_its_members(
    script: Script,
) -> None:
    await script.one(Told(budget=1000, spent=40, keeps=False))
    await script.one(Told(budget=1000, spent=40, keeps=False), member="A:1")
    said = await script.one(Told(budget=1000, spent=7, keeps=False), member="B:0")
    assert said.totals[0] == 47
    said = await script.one(Told(budget=1000, spent=30, keeps=False), member="A:1")
    assert said.totals[0] == 47  # a number that has come late does not make it less
    said = await script.one(Told(budget=1000, spent=50, keeps=False), member="A:0")
    assert said.totals[0] == 57
    said = await script.one(Told(budget=57, spent=50, needs=((1, 0), (0, 0))), member="A:0")
    assert said.codes == [BUDGET, GRANTED]


async def test_the_period_before_stays_known_for_machines_that_are_still_in_it(
    script: Script,
) -> None:
    async def spent(member: str, period: int, nano: int = 0) -> int:
        said = await script.one(Told(period=period, spent=nano, keeps=False), member=member)
        return said.totals[0]

    assert await spent("A:0", 8, 40) == 40
    assert await spent("A:0", 9, 5) == 5
    assert await spent("A:0", 9, 6) == 6
    assert await spent("B:0", 8) == 40
    assert await spent("B:0", 9) == 6
    assert await spent("A:1", 8, 39) == 40  # a member of the same machine that has not turned yet
    assert await spent("B:0", 9) == 6
    assert await spent("B:0", 8) == 40
    assert await spent("A:0", 10, 1) == 1
    assert await spent("B:0", 7) == 0


async def test_what_a_ledger_says_is_the_least_that_was_spent_in_its_period(
    script: Script,
) -> None:
    assert (await script.one(Told(ledger=60, spent=10))).totals[0] == 60
    assert (await script.one(Told(spent=10), member="B:0")).totals[0] == 60
    assert (await script.one(Told(ledger=50), member="B:0")).totals[0] == 60
    assert (await script.one(Told(spent=70), member="B:0")).totals[0] == 80  # ten of the first
    assert (await script.one(Told(period=9), member="B:0")).totals[0] == 0
    assert (await script.one(Told(period=9, ledger=3), member="B:0")).totals[0] == 3
    assert (await script.one(Told(period=9), member="C:0")).totals[0] == 3


async def test_a_period_without_a_word_of_the_ledger_leaves_that_of_another(
    script: Script,
) -> None:
    assert (await script.one(Told(ledger=1))).totals[0] == 1
    assert (await script.one(Told(period=9), member="B:0")).totals[0] == 0
    assert (await script.one(Told(), member="C:0")).totals[0] == 1


@pytest.mark.parametrize(("later_ms", "settling"), [(0, True), (1_499, True), (1_500, False)])
async def test_a_store_without_its_data_grants_nothing_for_a_while(
    script: Script, redis: RedisServer, later_ms: int, settling: bool
) -> None:
    redis.command("DEL", EPOCH)
    assert (await script.all())[0]  # which begins now
    told = Told(budget=1000, rpm=10, needs=((1, 0),))
    found, _, (said,) = await script.all(told, at=NOW + later_ms)
    assert found is settling
    if settling:
        assert list(said[0]) == [SETTLING]
        assert said[3:] == [[0, 0, 0], [0, 0, 0], [0, 0, 0, 0, 0]]
    else:
        assert list(said[0]) == [GRANTED]
        assert said[3][0] == 999


async def test_each_key_of_a_question_has_its_own_answer(script: Script) -> None:
    one, other = Told(budget=100, needs=((60, 0),)), Told(budget=50, needs=((60, 0),))
    _, _, (first, second) = await script.all(one, other)
    assert (list(first[0]), list(second[0])) == ([GRANTED], [BUDGET])
    assert (first[2][0], second[2][0]) == (40, 50)
    _, _, (first, second) = await script.all(Told(budget=100, held=60), Told(budget=50))
    assert (first[5][1], second[5][1]) == (60, 0)


async def test_what_is_known_of_a_key_ends_a_year_after_its_last_question(
    script: Script, redis: RedisServer
) -> None:
    await script.one(Told(budget=100))
    left_ms = int(redis.command("PTTL", f"{KEY}0")[1:])
    assert 0 <= 400 * 86_400_000 - left_ms < 60_000
