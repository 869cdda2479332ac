"""Equal requests share one call: same bytes whenever one joins, whoever leaves, however slow."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.gateway.cache import follower, single_flight
from lightgate.gateway.cache.follower import Made, Part, Participant, follower_lines
from lightgate.gateway.cache.single_flight import SharedAnswer, SingleFlight

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.gateway.cache.follower import SharedReader
    from lightgate.wire.door.reply import Reply

HEAD = b"content-type: text/event-stream\r\nx-request-id: leader\r\nx-lightgate-target: lab/m\r\n"
MADE = Made("lab/m", 3, 5, 7, 1_000)


class FakeReply:
    """A client's reply that is read as fast as the test wants."""

    def __init__(self) -> None:
        self.body = b""
        self.status: int | None = None
        self.headers = b""
        self.started = self.finished = self.aborted = self.crowded = False
        self.keep_alive = True
        self._room = asyncio.Event()

    def start(self, status: int, headers: bytes, *, first: bytes = b"") -> None:
        assert not self.started
        self.started, self.status, self.headers = True, status, headers
        self.body += first

    def send(self, data: bytes) -> None:
        assert self.started
        assert not self.finished
        self.body += data

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        assert self.started
        assert not self.finished
        self.body += last
        self.finished = True

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        assert not self.started
        self.started = self.finished = True
        self.status, self.headers, self.body = status, headers, body

    def abort(self) -> None:
        self.started = self.finished = self.aborted = True

    async def drain(self) -> None:
        if self.crowded:
            await self._room.wait()

    def catch_up(self) -> None:
        self.crowded = False
        self._room.set()


class FakeFlight:
    """What a shared answer looks at, and a exchange that does as it is told."""

    def __init__(self) -> None:
        self.winner: object | None = None
        self.refusal: object | None = None
        self.shared: SharedAnswer | None = None
        self.cancelled = False
        self._steps: asyncio.Queue[Callable[[SharedAnswer], object] | None] = asyncio.Queue()

    async def __call__(self, shared: SharedAnswer) -> None:
        self.shared = shared
        shared.watch(self)
        try:
            while (step := await self._steps.get()) is not None:
                step(shared)
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def do(self, step: Callable[[SharedAnswer], object] | None) -> None:
        self._steps.put_nowait(step)

    def say(self, data: bytes) -> None:
        def step(shared: SharedAnswer) -> None:
            self.winner = self
            if shared.started:
                shared.send(data)
            else:
                shared.start(200, HEAD, first=data)

        self.do(step)

    def end(self, last: bytes = b"") -> None:
        self.do(lambda shared: shared.finish(last=last))
        self.do(None)

    def refuse(self, status: int) -> None:
        def step(shared: SharedAnswer) -> None:
            self.refusal = self
            shared.whole(status, b"x-request-id: leader\r\n", b"refused %d" % status)

        self.do(step)
        self.do(None)

    def fall(self, last: bytes) -> None:
        """End with an error event."""

        def step(shared: SharedAnswer) -> None:
            self.refusal = self
            shared.finish(last=last)

        self.do(step)
        self.do(None)


class Ride:
    """One client in a task of its own."""

    def __init__(
        self, group: SingleFlight, key: bytes = b"k", reply: FakeReply | None = None
    ) -> None:
        self.reply = reply or FakeReply()
        self.exchange = FakeFlight()
        self.task = asyncio.ensure_future(group.share(key, self._participant()))

    def _participant(self) -> Participant:
        def dress(lines: bytes, part: Part) -> bytes:
            return lines if part == "lead" else follower_lines(lines, b"mine", b"id")

        return Participant(
            cast("Reply", self.reply), self.exchange, dress, lambda status: b"broken %d" % status
        )

    @property
    def led(self) -> bool:
        return self.exchange.shared is not None

    @property
    def reader(self) -> SharedReader:
        return self.task.result()[1]

    def leave(self) -> None:
        self.task.cancel()


async def turn(times: int = 8) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def group() -> SingleFlight:
    ticks = itertools.count(0, 1_000_000)
    return SingleFlight(asyncio.get_running_loop(), lambda: next(ticks))


def run(case: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await case()

    asyncio.run(main())


PIECES = st.lists(st.binary(min_size=1, max_size=9).map(lambda b: b"data: " + b), max_size=6)


@given(pieces=PIECES, last=st.sampled_from([b"", b"data: [DONE]\n\n"]), data=st.data())
def test_whenever_one_joins_the_bytes_are_the_same(
    pieces: list[bytes], last: bytes, data: st.DataObject
) -> None:
    pieces = [b"data: first", *pieces]
    when = data.draw(st.lists(st.integers(0, len(pieces)), min_size=1, max_size=5))
    slow = data.draw(st.sets(st.integers(0, len(when))))
    steps = [data.draw(st.integers(1, 3)) for _ in pieces]

    async def case() -> None:
        both = group()
        rides = [Ride(both)]
        await turn()
        leader = rides[0]
        for at, piece in enumerate([*pieces, None]):
            for _ in range(when.count(at)):
                ride = Ride(both)
                ride.reply.crowded = len(rides) in slow
                rides.append(ride)
            if piece is not None:
                leader.exchange.say(piece)
                await turn(steps[at])
        leader.exchange.end(last)
        await turn()
        for ride in rides:
            ride.reply.catch_up()
        await turn()
        assert [ride.led for ride in rides] == [True] + [False] * len(when)
        for ride in rides:
            assert ride.reply.body == b"".join(pieces) + last
            assert ride.reply.finished
            assert not ride.reply.aborted
            assert ride.task.done()
        assert len(both) == 0

    run(case)


async def test_a_thousand_make_one_call() -> None:
    both = group()
    rides = [Ride(both) for _ in range(1000)]
    await turn()
    assert sum(ride.led for ride in rides) == 1
    rides[0].exchange.say(b"data: a")
    await turn()
    assert all(ride.reply.body == b"data: a" for ride in rides)  # live, not at the end
    rides[0].exchange.end(b"data: b")
    await turn()
    assert {ride.reply.body for ride in rides} == {b"data: adata: b"}
    assert [ride.reader.part for ride in rides] == ["lead"] + ["join"] * 999


async def test_other_keys_do_not_meet() -> None:
    both = group()
    one, two = Ride(both, b"tenant-1"), Ride(both, b"tenant-2")
    await turn()
    assert one.led
    assert two.led
    one.exchange.say(b"data: secret")
    await turn()
    assert two.reply.body == b""
    one.exchange.end()
    two.exchange.say(b"data: own")
    two.exchange.end()
    await turn()
    assert two.reply.body == b"data: own"


async def test_headers_are_each_clients_own() -> None:
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    one.exchange.say(b"data: a")
    one.exchange.end()
    await turn()
    assert one.reply.headers == HEAD
    assert two.reply.headers == (
        b"content-type: text/event-stream\r\nx-lightgate-target: lab/m\r\n"
        b"x-request-id: mine\r\nx-lightgate-id: id\r\nx-lightgate-attempts: 0\r\n"
        b"x-lightgate-cache: join\r\n"
    )
    assert follower_lines(b"request-id: theirs\r\n", b"mine", b"id").startswith(
        b"request-id: mine\r\nx-request-id: mine\r\n"
    )


async def test_a_whole_answer_is_shared_too() -> None:
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()

    def whole(shared: SharedAnswer) -> None:
        one.exchange.winner = one
        shared.whole(200, b"content-type: application/json\r\n", b"{}")

    one.exchange.do(whole)
    await turn()
    late = Ride(both)  # the answer is here, the call is not settled yet
    await turn()
    one.exchange.do(None)
    await turn()
    for ride in (one, two, late):
        assert (ride.reply.status, ride.reply.body) == (200, b"{}")
    assert not late.led


# Leaving


@pytest.mark.parametrize("spoken", [False, True])
async def test_the_leader_may_leave(spoken: bool) -> None:
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    if spoken:
        one.exchange.say(b"data: a")
        await turn()
    one.leave()
    await turn()
    assert not one.exchange.cancelled
    three = Ride(both)
    one.exchange.say(b"data: b")
    one.exchange.end()
    await turn()
    want = b"data: adata: b" if spoken else b"data: b"
    assert (two.reply.body, three.reply.body) == (want, want)
    assert not two.led
    assert not three.led


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_last_one_to_leave_ends_the_call(order: tuple[int, int]) -> None:
    both = group()
    rides = [Ride(both), Ride(both)]
    await turn()
    rides[0].exchange.say(b"data: a")
    await turn()
    rides[order[0]].leave()
    await turn()
    assert [ride.exchange.cancelled for ride in rides] == [False, False]
    rides[order[1]].leave()
    await turn()
    assert [ride.exchange.cancelled for ride in rides] == [True, False]
    assert len(both) == 0
    again = Ride(both)
    await turn()
    assert again.led
    again.leave()
    await turn()


async def test_a_complete_answer_is_settled_though_everybody_left() -> None:
    both = group()
    one = Ride(both)
    await turn()
    one.reply.crowded = True
    one.exchange.say(b"data: a")
    one.exchange.do(lambda shared: shared.finish())
    await turn()
    one.leave()
    await turn()
    assert not one.exchange.cancelled
    assert one.exchange.shared is not None
    assert one.exchange.shared.kept(MADE, 1000) is not None
    one.exchange.do(None)
    await turn()
    assert len(both) == 0


async def test_flights_outlive_their_clients_and_are_waited_for() -> None:
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    one.exchange.say(b"data: a")
    one.exchange.do(lambda shared: shared.finish())
    await turn()
    settled: list[object] = []
    shared = two.task.result()[0]
    shared.when_settled(lambda: settled.append(shared.made))
    assert not await both.settled(0)
    assert settled == []
    one.exchange.do(lambda shared: setattr(shared, "made", MADE))
    one.exchange.do(None)
    assert await both.settled(60)
    assert settled == [MADE]
    shared.when_settled(lambda: settled.append("at once"))
    assert settled == [MADE, "at once"]


# Failing


@pytest.mark.parametrize(("status", "again"), [(503, True), (500, True), (408, True), (429, False),
                                               (400, False), (402, False)])  # fmt: skip
async def test_a_leader_without_an_answer(status: int, again: bool) -> None:
    both = group()
    rides = [Ride(both) for _ in range(4)]
    await turn()
    rides[0].exchange.refuse(status)
    await turn()
    assert rides[0].reply.status == status
    retries = [ride for ride in rides[1:] if ride.led]
    assert len(retries) == (1 if again else 0)
    if again:
        retries[0].exchange.say(b"data: a")
        retries[0].exchange.end()
        await turn()
        assert [ride.reply.body for ride in rides[1:]] == [b"data: a"] * 3
    else:
        assert [ride.reply.status for ride in rides] == [status] * 4
    assert len(both) == 0


async def test_a_second_failure_is_everybodys() -> None:
    both = group()
    rides = [Ride(both) for _ in range(5)]
    await turn()
    rides[0].exchange.refuse(503)
    await turn()
    [heir] = [ride for ride in rides[1:] if ride.led]
    heir.exchange.refuse(502)
    await turn()
    assert [ride.reply.status for ride in rides] == [503, 502, 502, 502, 502]
    assert sum(ride.led for ride in rides) == 2


async def test_a_failure_after_a_sign_of_life() -> None:
    both = group()
    rides = [Ride(both) for _ in range(3)]
    await turn()
    rides[0].exchange.do(lambda shared: shared.start(200, HEAD, first=b": keep-alive\n"))
    await turn()
    late = Ride(both)
    await turn()
    assert not late.reply.started
    rides[0].exchange.fall(b"data: error")
    await turn()
    assert rides[0].reply.body == b": keep-alive\ndata: error"
    [heir] = [ride for ride in (*rides[1:], late) if ride.led]
    heir.exchange.refuse(503)
    await turn()
    assert rides[1].reply.body == b": keep-alive\nbroken 503"  # its stream had begun
    assert (late.reply.status, late.reply.body) == (503, b"refused 503")


async def test_a_break_after_the_first_token_is_told_to_everybody() -> None:
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    one.exchange.say(b"data: a")
    one.exchange.fall(b"data: error")
    await turn(2)
    newcomer = Ride(both)
    await turn()
    assert one.reply.body == two.reply.body == b"data: adata: error"
    assert newcomer.led  # nobody joins what broke
    assert one.exchange.shared is not None
    assert one.exchange.shared.kept(MADE, 1000) is None
    newcomer.leave()
    await turn()


@pytest.mark.parametrize("spoken", [False, True])
async def test_a_defect_is_the_leaders(spoken: bool) -> None:
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    if spoken:
        one.exchange.say(b"data: a")

    def defect(shared: SharedAnswer) -> None:
        raise ZeroDivisionError

    one.exchange.do(defect)
    await turn()
    with pytest.raises(ZeroDivisionError):
        await one.task
    if spoken:
        assert two.reply.aborted
    else:
        assert two.led
        two.exchange.say(b"data: b")
        two.exchange.end()
        await turn()
        assert two.reply.body == b"data: b"


# Slowness


async def test_a_slow_reader_slows_nobody_and_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight, "BEHIND_BYTES", 20)
    both = group()
    one, slow = Ride(both), Ride(both)
    await turn()
    slow.reply.crowded = True
    for _ in range(4):
        one.exchange.say(b"data: 456789")
    await turn()
    assert one.reply.body == b"data: 456789" * 4
    assert slow.reply.aborted
    assert slow.reader.cut
    assert slow.reply.body == b"data: 456789"
    one.exchange.end()
    await turn()
    assert one.reply.finished


async def test_a_reader_is_behind_by_what_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight, "BEHIND_BYTES", 20)
    both = group()
    one, slow = Ride(both), Ride(both)
    await turn()
    for _ in range(3):
        one.exchange.say(b"data: 456789")
    await turn()
    assert slow.reply.body == b"data: 456789" * 3
    slow.reply.crowded = True
    for _ in range(2):  # the first of them it still takes
        one.exchange.say(b"data: 456789")
    await turn()
    assert slow.reply.body == b"data: 456789" * 4  # it is 12 bytes behind, and may be 20
    assert not slow.reply.aborted
    slow.reply.catch_up()
    one.exchange.end()
    await turn()
    assert slow.reply.body == one.reply.body == b"data: 456789" * 5


async def test_when_all_are_slow_the_provider_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight, "BEHIND_BYTES", 20)
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    one.reply.crowded = two.reply.crowded = True
    for _ in range(4):
        one.exchange.say(b"data: 456789")
    await turn()
    shared = one.exchange.shared
    assert shared is not None
    assert shared.crowded
    assert not one.reply.aborted
    waiting = asyncio.ensure_future(shared.drain())
    await turn()
    assert not waiting.done()
    two.reply.catch_up()
    await turn()
    assert waiting.done()
    assert two.reply.body == b"data: 456789" * 4
    one.reply.catch_up()
    one.exchange.end()
    await turn()
    assert one.reply.body == two.reply.body


async def test_a_newcomer_frees_a_waiting_provider() -> None:
    both = group()
    one = Ride(both)
    await turn()
    one.reply.crowded = True
    one.exchange.say(b"data: a")
    await turn()
    shared = one.exchange.shared
    assert shared is not None
    waiting = asyncio.ensure_future(shared.drain())
    await turn()
    assert not waiting.done()
    two = Ride(both)
    await turn()
    assert waiting.done()
    for ride in (one, two):
        ride.leave()
    await turn()


async def test_a_long_answer_is_forgotten_behind_its_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (follower, single_flight):
        monkeypatch.setattr(module, "LOG_BYTES", 100)
    both = group()
    one, two = Ride(both), Ride(both)
    await turn()
    for _ in range(30):
        one.exchange.say(b"data: 456789")
        await turn(2)
    shared = one.exchange.shared
    assert shared is not None
    assert sum(map(len, shared._pieces)) <= 12
    late = Ride(both)
    await turn()
    assert late.led  # there is no beginning to give any more
    one.exchange.end()
    await turn()
    assert one.reply.body == two.reply.body == b"data: 456789" * 30
    assert shared.kept(MADE, 10_000) is None
    late.leave()
    await turn()


async def test_one_broken_reply_is_no_concern_of_the_others() -> None:
    class Broken(FakeReply):
        def start(self, *args: Any, **more: Any) -> None:
            raise ValueError("no such header")

    both = group()
    one = Ride(both)
    bad = Ride(both, reply=Broken())
    await turn()
    one.exchange.say(b"data: a")
    one.exchange.end()
    await turn()
    assert one.reply.body == b"data: a"
    with pytest.raises(ValueError, match="no such header"):
        await bad.task


# Signs of life, and what is kept


@pytest.mark.parametrize("sign", [b": keep-alive\n", b"\n"])
async def test_signs_of_life_are_for_those_who_are_here(sign: bytes) -> None:
    both = group()
    one = Ride(both)
    await turn()
    one.exchange.say(b"data: a")
    one.exchange.do(lambda shared: shared.send(sign))
    await turn()
    two = Ride(both)
    one.exchange.end(b"data: b")
    await turn()
    assert one.reply.body == b"data: a" + sign + b"data: b"
    assert two.reply.body == b"data: adata: b"
    shared = one.exchange.shared
    assert shared is not None
    kept = shared.kept(MADE, 1000)
    assert kept is not None
    assert (kept.body, kept.cuts, kept.streamed) == (b"data: adata: b", (7, 14), True)
    assert len(kept.times_us) == 2
    assert 0 < kept.times_us[0] < kept.times_us[1]
    assert kept.took_ns >= kept.times_us[1] * 1000
    assert shared.kept(MADE, 13) is None


@pytest.mark.parametrize("how", ["unfinished", "refused"])
async def test_what_is_not_complete_is_not_kept(how: str) -> None:
    both = group()
    one = Ride(both)
    await turn()
    if how == "refused":
        one.exchange.refuse(400)
    else:
        one.exchange.say(b"data: a")
    await turn()
    shared = one.exchange.shared
    assert shared is not None
    assert shared.kept(MADE, 1000) is None
    one.leave()
    await turn()
