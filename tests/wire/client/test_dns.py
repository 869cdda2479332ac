from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import NameUnknown
from lightgate.wire.client import dns
from lightgate.wire.client.dns import RETRY_NS, TTL_NS, Resolver, SocketAddress, system_lookup

if TYPE_CHECKING:
    from wire.conftest import Play, Rig, Wire

V4, V6 = int(socket.AF_INET), int(socket.AF_INET6)


def four(n: int) -> SocketAddress:
    return SocketAddress(V4, (f"192.0.2.{n}", 80))


def six(n: int) -> SocketAddress:
    return SocketAddress(V6, (f"2001:db8::{n}", 80))


class Book:
    """A look-up that answers what it is told to."""

    def __init__(self, answer: list[SocketAddress] | Exception) -> None:
        self.answer = answer
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[SocketAddress]:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_an_answer_is_kept_for_its_time() -> None:
    clock, book = ManualClock(), Book([four(1)])
    resolver = Resolver(book, clock)
    assert await resolver.resolve("a.test", 80) == ([four(1)], True)
    clock.advance(TTL_NS - 1)
    assert await resolver.resolve("a.test", 80) == ([four(1)], False)
    assert book.asked == 1
    clock.advance(1)
    book.answer = [four(2)]
    assert await resolver.resolve("a.test", 80) == ([four(2)], True)
    assert book.asked == 2


@pytest.mark.parametrize("fault", [socket.gaierror(-3, "Try again"), OSError(), []])
async def test_the_last_good_answer_outlives_a_resolver_that_fails(
    fault: Exception | list[SocketAddress],
) -> None:
    clock, book = ManualClock(), Book([four(1)])
    resolver = Resolver(book, clock)
    await resolver.resolve("a.test", 80)
    clock.advance(100 * TTL_NS)
    book.answer = fault
    assert await resolver.resolve("a.test", 80) == ([four(1)], True)
    assert await resolver.resolve("a.test", 80) == ([four(1)], False)  # left alone for a while
    clock.advance(RETRY_NS)
    book.answer = [four(2)]
    assert await resolver.resolve("a.test", 80) == ([four(2)], True)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "temporary failure"),
        (UnicodeError("label too long"), "no such host"),
        ([], "it has no address"),
    ],
)
async def test_a_name_without_an_answer(fault: Exception | list[SocketAddress], says: str) -> None:
    book = Book(fault)
    resolver = Resolver(book, ManualClock())
    for _ in range(2):  # a failure is not remembered
        with pytest.raises(NameUnknown, match=r"a\.test") as caught:
            await resolver.resolve("a.test", 80)
        assert says in caught.value.message
    assert book.asked == 2


async def test_a_slow_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "TIMEOUT_S", 0.01)

    async def never(host: str, port: int) -> list[SocketAddress]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(NameUnknown, match="no answer in time"):
        await Resolver(never).resolve("a.test", 80)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_defect_of_the_look_up_surfaces() -> None:
    with pytest.raises(ZeroDivisionError):
        await Resolver(Book(ZeroDivisionError())).resolve("a.test", 80)


@pytest.mark.parametrize(
    ("found", "tried"),
    [
        ([six(1), six(2), four(1), four(2)], [six(1), four(1), six(2), four(2)]),
        ([four(1), six(1), six(2), six(3)], [four(1), six(1), six(2), six(3)]),
        ([four(1), four(1), four(2)], [four(1), four(2)]),
    ],
)
async def test_the_families_take_turns(
    found: list[SocketAddress], tried: list[SocketAddress]
) -> None:
    assert (await Resolver(Book(found)).resolve("a.test", 80))[0] == tried


@pytest.mark.parametrize(("host", "family"), [("192.0.2.1", V4), ("2001:db8::1", V6)])
async def test_an_address_is_not_looked_up(host: str, family: int) -> None:
    book = Book([])
    assert await Resolver(book).resolve(host, 443) == ([SocketAddress(family, (host, 443))], False)
    assert book.asked == 0


async def test_a_name_is_asked_for_once_at_a_time() -> None:
    book = Book([four(1)])
    resolver = Resolver(book, ManualClock())
    answers = await asyncio.gather(*(resolver.resolve("a.test", 80) for _ in range(50)))
    assert answers == [([four(1)], True)] * 50
    assert book.asked == 1
    book.answer = OSError()
    failures = await asyncio.gather(
        *(resolver.resolve("b.test", 80) for _ in range(9)), return_exceptions=True
    )
    assert all(isinstance(failure, NameUnknown) for failure in failures)
    assert book.asked == 2


async def test_the_question_outlives_the_one_who_asked_first_but_not_the_last() -> None:
    go = asyncio.Event()

    async def lookup(host: str, port: int) -> list[SocketAddress]:
        await go.wait()
        return [four(1)]

    resolver = Resolver(lookup)
    first, second = (asyncio.ensure_future(resolver.resolve("a.test", 80)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    go.set()
    assert await second == ([four(1)], True)
    go.clear()
    third = asyncio.ensure_future(resolver.resolve("b.test", 80))
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.wait([third])
    fourth = asyncio.ensure_future(resolver.resolve("b.test", 80))
    await asyncio.sleep(0)
    go.set()
    assert await fourth == ([four(1)], True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert resolver._asking == {}


async def test_the_systems_resolver() -> None:
    found = await system_lookup("localhost", 80)
    assert {address.sockaddr[0] for address in found} <= {"127.0.0.1", "::1"}
    assert all(address.sockaddr[1] == 80 for address in found)


async def ok(wire: Wire) -> None:
    await wire.answer(b"HTTP/1.1 204 No Content\r\n\r\n")


def test_the_next_address_is_tried(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(ok, host="a.test")
        # The first refuses; the second needs IPv6, which the machine may not have; the third is up.
        refused = SocketAddress(V4, ("127.0.0.2", server.port))
        other = SocketAddress(V6, ("::1", server.port))
        good = SocketAddress(V4, ("127.0.0.1", server.port))
        client = rig.client(resolver=Resolver(Book([refused, good, other])))
        kept = await rig.ask(client, server.origin)
        assert kept.status == 204
        assert kept.marks.dns_ns is not None
        assert kept.marks.tcp_ns is not None

    play(scene)


def test_no_address_answers(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(ok, host="a.test")
        nobody = [SocketAddress(V4, (f"127.0.0.{n}", 1)) for n in (2, 3, 4)]
        client = rig.client(resolver=Resolver(Book(nobody)))
        error = await rig.fails(client, server.origin)
        assert "refused the connection" in error.message
        assert len(server.wires) == 0

    play(scene)


def test_two_addresses_at_once_leave_one_socket(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.wire.client.dial.STAGGER_S", 0)

    async def scene(rig: Rig) -> None:
        server = rig.serve(ok, host="a.test")
        both = [
            SocketAddress(V4, ("127.0.0.1", server.port)),
            SocketAddress(V4, ("127.0.0.1", server.port)),
        ]
        # Different to the resolver, the same to the kernel.
        both[1] = SocketAddress(V4, ("localhost", server.port))
        client = rig.client(resolver=Resolver(Book(both)))
        before = rig.sockets()
        kept = await rig.ask(client, server.origin)
        assert kept.status == 204
        await rig.turns(10)
        assert rig.sockets() - before - len(server.wires) == client.open_connections == 1

    play(scene)


def test_a_machine_without_descriptors_says_so(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(ok)
        client = rig.client()

        def full(*_: object) -> socket.socket:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("lightgate.wire.client.dial.socket.socket", full)
            error = await rig.fails(client, server.origin)
        assert "may open no more files" in error.message

    play(scene)
