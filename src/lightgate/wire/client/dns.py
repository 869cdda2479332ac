"""Name look-ups, kept for a minute; the last good answer is used while the resolver fails."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final, NamedTuple, Protocol

from lightgate.clock.source import SYSTEM, Clock
from lightgate.errors import NameUnknown

TTL_NS: Final = 60 * 1_000_000_000
RETRY_NS: Final = 5 * 1_000_000_000  # a resolver that failed is left alone for this long
TIMEOUT_S: Final = 2.0


class SocketAddress(NamedTuple):
    """One socket address."""

    family: int
    sockaddr: tuple[str, int]


class Lookup(Protocol):
    """A look-up of a host's addresses; tests put their own in place of the system's."""

    async def __call__(self, host: str, port: int) -> list[SocketAddress]:
        """All addresses of a host, or an OSError."""
        ...


async def system_lookup(host: str, port: int) -> list[SocketAddress]:
    """Ask the system's resolver, in a thread of the loop."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [SocketAddress(int(family), (str(sa[0]), int(sa[1]))) for family, _, _, _, sa in found]


class _Question:
    """A look-up under way and the number of its waiters."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[list[SocketAddress]]) -> None:
        self.task = task
        self.waiting = 0


class Resolver:
    """Looks names up once a minute, each name once at a time."""

    def __init__(self, lookup: Lookup = system_lookup, clock: Clock = SYSTEM) -> None:
        self._lookup = lookup
        self._clock = clock
        self._known: dict[
            tuple[str, int], tuple[int, list[SocketAddress]]
        ] = {}  # good until, answer
        self._asking: dict[tuple[str, int], _Question] = {}

    async def resolve(self, host: str, port: int) -> tuple[list[SocketAddress], bool]:
        """The addresses, families alternating, and whether the resolver had to be asked."""
        try:
            literal = ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
            return [SocketAddress(int(family), (host, port))], False
        known = self._known.get((host, port))
        if known is not None and self._clock.now_ns() < known[0]:
            return known[1], False
        return await self._ask(host, port), True

    async def _ask(self, host: str, port: int) -> list[SocketAddress]:
        """Ask the resolver, or join a look-up under way; the last waiter that leaves cancels it."""
        question = self._asking.get((host, port))
        if question is None:
            question = _Question(asyncio.ensure_future(self._answer(host, port)))
            self._asking[host, port] = question
        question.waiting += 1
        try:
            return await asyncio.shield(question.task)
        finally:
            question.waiting -= 1
            if not question.waiting:
                question.task.cancel()
            if self._asking.get((host, port)) is question and (
                not question.waiting or question.task.done()
            ):
                del self._asking[host, port]

    async def _answer(self, host: str, port: int) -> list[SocketAddress]:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = _alternate(await self._lookup(host, port))
            why = "it has no address"
        except TimeoutError:
            found, why = [], "no answer in time"
        except (OSError, UnicodeError) as error:
            found, why = [], _reason(error)
        if found:
            self._known[host, port] = (self._clock.now_ns() + TTL_NS, found)
            return found
        known = self._known.get((host, port))
        if known is None:
            raise NameUnknown(
                f"The name {host} could not be resolved ({why}).",
                hint="Check the spelling of the host and this machine's DNS.",
            )
        self._known[host, port] = (self._clock.now_ns() + RETRY_NS, known[1])
        return known[1]


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror) and error.errno != socket.EAI_NONAME:
        return (error.strerror or "the resolver failed").lower()
    return "no such host"


def _alternate(found: list[SocketAddress]) -> list[SocketAddress]:
    """Keep the resolver's order, but let the two families take turns."""
    first = [a for a in found if a.family == found[0].family] if found else []
    other = [a for a in found if a.family != found[0].family] if found else []
    mixed: list[SocketAddress] = []
    for i in range(max(len(first), len(other))):
        mixed += first[i : i + 1] + other[i : i + 1]
    return list(dict.fromkeys(mixed))
