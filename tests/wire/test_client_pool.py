"""The pool: reuse, warming, the limit, replays on stale connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import AttemptError, Cancelled, DeadlineMissed, PeerReset
from lightgate.wire.client import client as client_module
from lightgate.wire.client.pool import CLOSES, KEPT_NS, SOON_NS
from lightgate.wire.client.roundtrip import Deadlines, Outbound, Roundtrip

if TYPE_CHECKING:
    from lightgate.wire.client.client import Client
    from lightgate.wire.origin import Origin
    from wire.conftest import Keeper, Play, Rig, Wire

STREAM = b"POST / HTTP/1.1\r\nhost: x\r\nx-wants: stream\r\ncontent-length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


async def always_ok(wire: Wire) -> None:
    while await wire.request():
        await wire.send(OK)


class Held:
    """A server script that answers each request only when told, in the order of their arrival."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.came: list[asyncio.Event] = []
        self.wires: list[Wire] = []

    async def script(self, wire: Wire) -> None:
        while await wire.request():
            go = asyncio.Event()
            self.wires.append(wire)
            self.came.append(go)
            await go.wait()
            await wire.send(OK)

    async def holds(self, count: int) -> None:
        await self._rig.until(lambda: len(self.came) == count)


def test_the_newest_idle_connection_is_reused_first(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        held = Held(rig)
        client, server = rig.client(), rig.serve(held.script)
        tasks: list[asyncio.Task[Keeper]] = []
        for n in range(3):
            tasks.append(asyncio.ensure_future(rig.ask(client, server.origin)))
            await held.holds(n + 1)
        last = held.wires[1]
        for n in (2, 0, 1):
            held.came[n].set()
            await tasks[n]
        for n in range(3, 6):
            task = asyncio.ensure_future(rig.ask(client, server.origin))
            await held.holds(n + 1)
            assert held.wires[n] is last
            held.came[n].set()
            await task
        assert client.open_connections == len(server.wires) == 3

    play(scene)


def test_warm_connections_are_used_without_connecting(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        assert await client.warm(server.origin, 3) == 3
        assert await client.warm(server.origin, 2) == 3
        assert client.open_connections == 3
        kept = await rig.ask(client, server.origin)
        assert kept.marks.tcp_ns is None
        await rig.turns()
        assert len(server.wires) == 3

    play(scene)


def test_warming_never_raises_and_respects_the_limit(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(limit=2), rig.serve(always_ok)
        assert await client.warm(server.origin, 5) == 2
        closed = server.origin._replace(port=1)
        assert await client.warm(closed, 2) == 0
        assert client.open_connections == 2

    play(scene)


def test_old_idle_connections_are_closed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        await client.warm(server.origin, 3)
        monkeypatch.setattr(client_module, "KEEP_IDLE_NS", 0)
        kept = await rig.ask(client, server.origin)
        assert kept.marks.tcp_ns is not None  # none of the three was young enough
        monkeypatch.undo()
        assert client.open_connections == 1

    play(scene)


def test_a_busy_client_prunes_the_oldest(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        await client.warm(server.origin, 3)
        pool = client._pools[server.origin]
        pool.idle[0].idle_since -= 2 * client_module.KEEP_IDLE_NS
        pool.idle[1].idle_since -= 2 * client_module.KEEP_IDLE_NS
        await rig.ask(client, server.origin)
        assert client.open_connections == len(pool.idle) == 1

    play(scene)


def test_bytes_on_an_idle_connection_end_it(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        await rig.ask(client, server.origin)
        assert client.open_connections == 1
        await server.wires[0].send(OK)
        await rig.until(lambda: client.open_connections == 0)
        assert (await rig.ask(client, server.origin)).body == b"hello"
        assert len(server.wires) == 2

    play(scene)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_idle_connection_that_the_server_closes_is_forgotten(play: Play, how: str) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(once_ok)
        await rig.ask(client, server.origin)
        hang_up(server.wires[0], how)
        await rig.until(lambda: client.open_connections == 0)

    play(scene)


async def once_ok(wire: Wire) -> None:
    await wire.answer(OK)
    await asyncio.Event().wait()


def hang_up(wire: Wire, how: str) -> None:
    if how == "reset":
        wire.reset()
    else:
        wire.sock.close()


class Stale:
    """The first connection closes when its second request (or the first, if warm) comes."""

    def __init__(self, how: str, good: int, says: bytes = b"") -> None:
        self._how, self._good, self._says = how, good, says
        self.connections = 0

    async def script(self, wire: Wire) -> None:
        self.connections += 1
        for _ in range(self._good):
            await wire.answer(OK)
        await wire.request()
        await wire.send(self._says)
        hang_up(wire, self._how)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_stale_connection_is_replayed_once_on_a_fresh_one(play: Play, how: str) -> None:
    async def scene(rig: Rig) -> None:
        stale = Stale(how, good=1)
        client, server = rig.client(), rig.serve(stale.script)
        first = await rig.ask(client, server.origin)
        assert not first.marks.resent
        kept = await rig.ask(client, server.origin)
        assert kept.body == b"hello"
        assert kept.marks.resent
        assert kept.marks.tcp_ns is not None
        assert kept.log == ["sent", "sent", "head", "body", "end"]
        assert len(server.requests) == 3
        assert client.open_connections == 1

    play(scene)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_connection_closed_in_the_kernel_only_is_not_taken(
    play: Play, how: str, *, warm: bool
) -> None:
    """The server's FIN or RST is there, and our loop has not told of it when we send."""

    async def scene(rig: Rig) -> None:
        async def script(wire: Wire) -> None:
            # Its socket is closed from outside: no script may be waiting for it in the loop.
            await (asyncio.Event().wait() if warm and len(server.wires) == 1 else once_ok(wire))

        client, server = rig.client(), rig.serve(script)
        if warm:
            await client.warm(server.origin, 1)
            await rig.until(lambda: len(server.wires) == 1)
            await rig.turns()
        else:
            await rig.ask(client, server.origin)
        hang_up(server.wires[0], how)
        kept = await rig.ask(client, server.origin)
        assert kept.body == b"hello"
        assert kept.log == ["sent", "head", "body", "end"]
        assert not kept.marks.resent
        assert len(server.requests) == (1 if warm else 2)

    play(scene)


class Closing:
    """A server that closes after each answer without saying so, as llama.cpp does after streams.

    `turns` is how long after the answer, in turns of the loop; `keeps` those it does not close.
    """

    def __init__(self, answer: bytes, turns: int = 0) -> None:
        self._answer, self._turns = answer, turns
        self.keeps = False
        self.connections = 0

    async def script(self, wire: Wire) -> None:
        self.connections += 1
        while True:
            await wire.answer(self._answer)
            if not self.keeps:
                break
        for _ in range(self._turns):
            await asyncio.sleep(0)
        wire.sock.close()


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [OK, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("turns", [0, 3])
def test_an_origin_that_closes_is_learned(play: Play, answer: bytes, turns: int) -> None:
    async def scene(rig: Rig) -> None:
        closing = Closing(answer, turns)
        client, server = rig.client(), rig.serve(closing.script)
        asked = [await rig.ask(client, server.origin) for _ in range(12)]
        assert [keeper.body for keeper in asked] == [b"hello"] * 12
        assert not any(keeper.marks.resent for keeper in asked[1 + CLOSES :])
        assert all(keeper.log[-4:] == ["sent", "head", "body", "end"] for keeper in asked)
        assert closing.connections == 12
        await rig.until(lambda: client.open_connections == 0)

    play(scene)


def test_an_origin_that_keeps_again_is_trusted_again(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        closing = Closing(CHUNKED)
        client, server = rig.client(), rig.serve(closing.script)
        for _ in range(4):
            await rig.ask(client, server.origin)
        closing.keeps = True
        pool = client._pools[server.origin]
        await rig.until(lambda: pool.watched is None)
        for _ in range(3):
            await rig.ask(client, server.origin)  # the first is watched, the others closed by us
        assert (pool.shut[True] >= CLOSES, len(pool.idle), client.open_connections) == (True, 0, 1)
        watched = pool.watched
        assert watched is not None
        watched.idle_since -= KEPT_NS
        await rig.ask(client, server.origin)
        assert (pool.shut, len(pool.idle)) == ([0, 0], 2)
        assert watched in pool.idle
        before = closing.connections
        for _ in range(3):
            await rig.ask(client, server.origin)
        assert closing.connections == before

    play(scene)


def test_answers_of_another_framing_are_kept(play: Play) -> None:
    """llama.cpp closes after a stream, and keeps the connection after a whole answer."""

    async def scene(rig: Rig) -> None:
        async def script(wire: Wire) -> None:
            while True:
                asked = await wire.request()
                await wire.send(CHUNKED if b"stream" in asked else OK)
                if b"stream" in asked:
                    wire.sock.close()
                    return

        client, server = rig.client(), rig.serve(script)
        for _ in range(3):
            await rig.ask(client, server.origin, payload=STREAM)
        await rig.until(lambda: client.open_connections == 0)
        for _ in range(3):
            await rig.ask(client, server.origin)
        assert len(server.wires) == 4
        pool = client._pools[server.origin]
        assert (pool.shut[False], len(pool.idle)) == (0, 1)

    play(scene)


def test_a_watched_connection_gives_way_at_the_limit(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        closing = Closing(CHUNKED)
        client, server = rig.client(limit=1), rig.serve(closing.script)
        for _ in range(4):
            await rig.ask(client, server.origin)
        closing.keeps = True
        for _ in range(3):
            assert (await rig.ask(client, server.origin)).body == b"hello"
            assert client.open_connections == 1
        await client.close()

    play(scene)


def test_an_end_long_after_an_answer_teaches_nothing(play: Play) -> None:
    """A server that closes idle connections after its own time keeps them until then."""

    async def scene(rig: Rig) -> None:
        idle_for_long = asyncio.Event()

        async def script(wire: Wire) -> None:
            await wire.answer(OK)
            await idle_for_long.wait()
            wire.sock.close()

        client, server = rig.client(), rig.serve(script)
        for _ in range(3):
            idle_for_long.clear()
            await rig.ask(client, server.origin)
            client._pools[server.origin].idle[0].idle_since -= SOON_NS
            idle_for_long.set()
            await rig.until(lambda: client.open_connections == 0)
        assert client._pools[server.origin].shut == [0, 0]

    play(scene)


def test_never_replayed_twice(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        first = Stale("close", good=1)
        then = Stale("close", good=0)

        async def script(wire: Wire) -> None:
            await (then if first.connections else first).script(wire)

        client, server = rig.client(), rig.serve(script)
        await rig.ask(client, server.origin)
        keeper = rig.keeper()
        error = await rig.fails(client, server.origin, keeper=keeper)
        assert isinstance(error, PeerReset)
        assert keeper.marks.resent
        assert len(server.wires) == 2

    play(scene)


def test_a_byte_of_an_answer_forbids_the_replay(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        stale = Stale("close", good=1, says=b"H")
        client, server = rig.client(), rig.serve(stale.script)
        await rig.ask(client, server.origin)
        keeper = rig.keeper()
        error = await rig.fails(client, server.origin, keeper=keeper)
        assert isinstance(error, PeerReset)
        assert not error.early
        assert not keeper.marks.resent
        assert len(server.wires) == 1

    play(scene)


def test_a_replay_at_the_limit_closes_an_idle_connection(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(limit=2), rig.serve(always_ok)
        await client.warm(server.origin, 2)
        keeper, patient = rig.keeper(), Deadlines(total_s=None)
        request = Outbound(server.origin, b"", keeper, keeper.marks, patient, lambda _: None)
        fresh = await client._found(Roundtrip(client, request), fresh=True)
        assert not fresh.pooled
        assert client.open_connections == 2
        client._release(fresh)
        assert client.open_connections == 2

    play(scene)


async def queued(
    client: Client, rig: Rig, origin: Origin, count: int, keepers: list[Keeper] | None = None
) -> list[asyncio.Task[Keeper]]:
    """Calls that wait in the queue, in a known order; `keepers` gets what takes their answers."""
    keepers = [] if keepers is None else keepers
    waiting = client._pools[origin].waiting
    tasks: list[asyncio.Task[Keeper]] = []
    while len(tasks) < count:
        keepers.append(rig.keeper())
        tasks.append(asyncio.ensure_future(rig.ask(client, origin, keeper=keepers[-1])))
        await rig.until(lambda: len(waiting) == len(tasks))
    return tasks


def test_the_limit_is_kept_and_those_who_wait_are_served_in_order(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        held = Held(rig)
        client, server = rig.client(limit=2), rig.serve(held.script)
        first = [asyncio.ensure_future(rig.ask(client, server.origin)) for _ in range(2)]
        await held.holds(2)
        tasks = await queued(client, rig, server.origin, 4)
        ended: list[asyncio.Task[Keeper]] = []
        for task in tasks:
            task.add_done_callback(ended.append)
        for n in range(6):
            await held.holds(min(6, n + 2))
            assert client.open_connections == 2
            held.came[n].set()
        done = await asyncio.gather(*first, *tasks)
        assert ended == tasks
        assert [kept.marks.pool_wait_ns is not None for kept in done] == [False] * 2 + [True] * 4
        assert all(kept.marks.tcp_ns is None for kept in done[2:])
        assert len(server.wires) == 2

    play(scene)


def test_a_newcomer_does_not_pass_those_who_wait(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        held = Held(rig)
        client, server = rig.client(limit=1), rig.serve(held.script)

        async def twice() -> str:
            await rig.ask(client, server.origin)
            # In the same step: the connection is idle, and the one who waits has not run yet.
            await rig.ask(client, server.origin)
            return "newcomer"

        async def waits() -> str:
            await rig.ask(client, server.origin)
            return "waiting"

        newcomer = asyncio.ensure_future(twice())
        await held.holds(1)
        waiting = asyncio.ensure_future(waits())
        await rig.until(lambda: len(client._pools[server.origin].waiting) == 1)
        order: list[str] = []
        for task in (newcomer, waiting):
            task.add_done_callback(lambda task: order.append(task.result()))
        for n in range(3):
            await held.holds(n + 1)
            held.came[n].set()
        await asyncio.gather(newcomer, waiting)
        assert order == ["waiting", "newcomer"]

    play(scene)


def test_a_connection_is_counted_out_once(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        await client.warm(server.origin, 2)
        connection = client._pools[server.origin].idle[0]
        for _ in range(2):
            client._drop(connection)
        assert client.open_connections == 1

    play(scene)


def test_room_from_a_broken_connection_goes_to_the_queue(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(limit=1), rig.serve(script)
        first = asyncio.ensure_future(rig.ask(client, server.origin))
        await rig.until(lambda: bool(server.requests))
        (waiting,) = await queued(client, rig, server.origin, 1)
        server.wires[0].reset()
        with pytest.raises(PeerReset):
            await first
        await rig.until(lambda: len(server.requests) == 2)
        await server.wires[1].send(OK)
        assert (await waiting).body == b"hello"
        assert client.open_connections == 1

    async def script(wire: Wire) -> None:
        await wire.request()
        await asyncio.Event().wait()

    play(scene)


def test_a_failed_connect_gives_its_room_back(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(limit=1), rig.serve(always_ok)
        closed = server.origin._replace(port=1)
        for _ in range(3):
            await rig.fails(client, closed)
        calls = [asyncio.ensure_future(rig.ask(client, closed)) for _ in range(3)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, AttemptError) for end in ends)
        assert client.open_connections == 0

    play(scene)


def test_cancelled_in_the_queue(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        held = Held(rig)
        client, server = rig.client(limit=1), rig.serve(held.script)
        first = asyncio.ensure_future(rig.ask(client, server.origin))
        await held.holds(1)
        keepers: list[Keeper] = []
        tasks = await queued(client, rig, server.origin, 3, keepers)
        tasks[0].cancel()
        await rig.turns()
        assert len(client._pools[server.origin].waiting) == 2
        held.came[0].set()
        # The second is cancelled after room was promised to it, and before it has run.
        await rig.until(lambda: client._pools[server.origin].promised == 1)
        assert keepers[1].trip is not None
        keepers[1].trip.cancel()
        await held.holds(2)
        held.came[1].set()
        assert (await tasks[2]).body == b"hello"
        with pytest.raises(Cancelled):
            await tasks[1]
        assert [task.cancelled() for task in tasks] == [True, False, False]
        assert client._pools[server.origin].promised == 0
        await first
        assert client.open_connections == 1

    play(scene)


def test_the_total_deadline_counts_in_the_queue(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        held = Held(rig)
        client, server = rig.client(limit=1), rig.serve(held.script)
        first = asyncio.ensure_future(rig.ask(client, server.origin))
        await held.holds(1)
        keeper = rig.keeper()
        with pytest.raises(DeadlineMissed) as caught:
            await rig.ask(client, server.origin, Deadlines(total_s=0.02), keeper)
        assert caught.value.phase == "total"
        assert keeper.log == []
        assert keeper.marks.pool_wait_ns is not None
        assert not client._pools[server.origin].waiting
        held.came[0].set()
        await first

    play(scene)


def test_closing_the_client_ends_everything(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        held = Held(rig)
        client, server = rig.client(limit=2), rig.serve(held.script)
        calls = [asyncio.ensure_future(rig.ask(client, server.origin)) for _ in range(5)]
        await held.holds(2)
        await client.close()
        await client.close()
        for call in calls:
            with pytest.raises(Cancelled):
                await call
        assert client.open_connections == 0
        assert await client.warm(server.origin, 1) == 0
        with pytest.raises(Cancelled):
            await rig.ask(client, server.origin)

    play(scene)
