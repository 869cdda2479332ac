"""The connection of one worker to the store that machines share, and when it is not asked.

A worker waits for the store for PATIENCE_S at most. After a request has waited in vain, no request
waits for REST_S, whatever the store does: a frozen server costs one time-out a minute. In the
background the store is asked again every RETRY_S, and is used as soon as it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from lightgate.errors import LightgateError
from lightgate.gateway.shared.pace import StorePace
from lightgate.gateway.shared.scripts import (
    ANSWER_SIZES,
    ANSWERS,
    EPOCH,
    FORMS,
    MEMBERS,
    PROBE,
    TRY,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from valkey.asyncio.connection import AbstractConnection

SHARED_ENV: Final = "LIGHTGATE_SHARED_URL"  # a URL may hold a password: never an argument
PATIENCE_S: Final = 0.1
CONNECT_S: Final = 1.0  # for a connection, TLS and password; no request waits for it
REST_S: Final = 60.0  # after a time-out, for which no request waits for the store
RETRY_S: Final = 1.0
CHECK_S: Final = 60.0  # between two looks at the server's settings
OLDEST: Final = (6, 2)  # the first version with all that the scripts use, and still cared for
NODE_FILE: Final = "node"
_NS: Final = 1_000_000_000
_TURNS: Final = 4  # of the loop, in which a reply is read that is there already
_log = logging.getLogger(__name__)

StoreState = Literal["starting", "joined", "away"]


class StoreAway(LightgateError):  # noqa: N818 - names the event
    """The store did not do what it was asked, and why; requests go on without it.

    `refused`: the server answers, and would not do this.
    """

    label = "shared"
    refused = False


class StoreGauge(msgspec.Struct, frozen=True):
    """The store as the gauges of a worker tell it."""

    state: StoreState
    problem: str = ""
    members: int = 1
    timeouts: int = 0


class NodeId:
    """The name of this machine among others: a random one, kept in its data folder."""

    def __init__(self, data: Path) -> None:
        self._path = data / NODE_FILE

    def read(self) -> str:
        """The name, made where there is none; a folder that takes no file gives a passing one."""
        with contextlib.suppress(OSError):
            found = self._path.read_text("ascii", "replace").strip()
            if found.isalnum():
                return found[:32]
        made = os.urandom(8).hex()
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(made)
            return made
        with contextlib.suppress(OSError):  # another worker was first
            return self._path.read_text("ascii", "replace").strip()[:32] or made
        return made


class SharedStore:
    """The store as one worker knows it: joined, or away with a sentence that says why.

    `member` names this worker among all workers of all machines. `waits` counts requests that
    waited in vain.
    """

    def __init__(self, url: str, machine: str, worker: int, now_ns: Callable[[], int]) -> None:
        self.url = url
        self.machine = machine
        self.member = f"{machine}:{worker}"
        self.now_ns = now_ns
        self.patience_s = PATIENCE_S
        self.state: StoreState = "starting"
        self.problem = ""
        self.members = 1  # workers of all machines, when last told
        self.memory_bytes = 0  # that the server may use, when last looked at; 0: all there is
        self.timeouts = 0
        self._rest_ns = 0  # until then no request waits
        self._lost_ns = 0  # when it was lost, unless it is joined
        self._pace = StorePace()
        self._lanes: list[StoreLane] = []

    @classmethod
    def of_process(
        cls, environ: Mapping[str, str], data: Path, worker: int, now_ns: Callable[[], int]
    ) -> SharedStore | None:
        """The store of a worker of `lightgate up`; None: machines share nothing."""
        url = environ.get(SHARED_ENV, "")
        return cls(url, NodeId(data).read(), worker, now_ns) if url else None

    @property
    def asked(self) -> bool:
        """Whether a request may wait for the store now."""
        return self.state == "joined" and not self._pace.slow and self.now_ns() >= self._rest_ns

    @property
    def away_ns(self) -> int:
        """For how long the store has been away; 0 while it is joined."""
        return 0 if self.state == "joined" else self.now_ns() - self._lost_ns

    def lane(self) -> StoreLane:
        """Another connection, which is opened when the store is joined."""
        lane = StoreLane(self)
        self._lanes.append(lane)
        return lane

    def late(self) -> None:
        """Take in that a request has waited for the store in vain."""
        self.timeouts += 1
        self._rest_ns = self.now_ns() + int(REST_S * _NS)

    def answered(self, took_s: float) -> None:
        """Take in how long a question about keys took: one that is slow is not waited for."""
        if not self._pace.took(took_s, self.patience_s):
            return
        if self._pace.slow:
            _log.warning("The shared state answers slowly: %s takes %.0f ms. Requests go on with"
                         " this machine's share.", shown(self.url), took_s * 1000)  # fmt: skip
        else:
            _log.warning("The shared state answers in time again: %s", shown(self.url))

    def lost(self, why: str) -> None:
        """Do without the store until it answers again."""
        if self.state != "away" or why != self.problem:
            _log.warning("The shared state is away: %s Requests go on with this machine's share.",
                         why)  # fmt: skip
        if self.state == "joined":
            self._lost_ns = self.now_ns()
        self.state, self.problem = "away", why
        for lane in self._lanes:
            lane.drop()

    async def join(self) -> bool:
        """Connect and look at the server; whether it can be used. No request waits for this."""
        try:
            for lane in self._lanes:
                await lane.open()
            if self._lanes:
                await self._lanes[0].check()
                await self._lanes[0].attempt()
        except StoreAway as error:
            self.lost(error.message)
            return False
        if self.state != "joined":
            _log.log(logging.INFO if self.state == "starting" else logging.WARNING,
                     "The shared state is joined: %s", shown(self.url))  # fmt: skip
        self.state, self.problem = "joined", ""
        return True

    def gauge(self) -> StoreGauge:
        """The store as the gauges of the worker tell it."""
        return StoreGauge(self.state, self.problem, self.members, self.timeouts)

    async def close(self) -> None:
        """Close every connection."""
        for lane in self._lanes:
            lane.drop()


class StoreLane:
    """One connection, on which one command after the other is sent."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._link: AbstractConnection | None = None
        self._known: set[str] = set()  # scripts that the server has

    async def open(self) -> None:
        """Connect where there is no connection."""
        if self._link is not None:
            return
        link = _connection(self._store.url)
        try:
            async with asyncio.timeout(CONNECT_S):
                await link.connect()  # type: ignore[no-untyped-call]
        except (OSError, TimeoutError, ValueError, _errors()) as error:
            _close(link)
            raise StoreAway(_sentence(error, self._store.url)) from None
        self._link, self._known = link, set()

    def drop(self) -> None:
        """Close the connection at once; what the server does with the last command is its own."""
        link, self._link = self._link, None
        if link is not None:
            _close(link)

    async def run(self, *command: Any, within_s: float | None = None) -> Any:
        """Send a command and return the reply; StoreAway says why there is none."""
        link = self._link
        if link is None:
            raise StoreAway(f"There is no connection to {shown(self._store.url)}.")
        try:
            return await _in_time(_asked(link, command), within_s or self._store.patience_s)
        except (OSError, TimeoutError, _errors()) as error:
            if type(error).__name__ == "NoScriptError":
                raise
            if self._link is not link:  # closed here, since the store was lost: no other reason
                raise StoreAway(self._store.problem) from error
            away = StoreAway(_sentence(error, self._store.url))
            away.refused = isinstance(error, _refusals())
            if not away.refused:
                self.drop()
            raise away from error
        except BaseException:
            self.drop()  # a reply that nobody reads would be taken for the next one
            raise

    async def script(
        self, text: str, keys: list[str], *arguments: Any, within_s: float | None = None
    ) -> Any:
        """Run a script, which is sent as a whole where the server does not know it yet."""
        name = sha1(text.encode(), usedforsecurity=False).hexdigest()
        if name in self._known:
            try:
                asked = ("EVALSHA", name, len(keys), *keys, *arguments)
                return await self.run(*asked, within_s=within_s)
            except _errors():  # the server has forgotten its scripts
                self._known.discard(name)
        asked = ("EVAL", text, len(keys), *keys, *arguments)
        reply = await self.run(*asked, within_s=within_s)
        self._known.add(name)
        return reply

    async def check(self) -> None:
        """Look at the server's version and settings; StoreAway names what cannot be used."""
        said = _facts(await self.run("INFO", within_s=CONNECT_S))
        version = said.get("valkey_version") or said.get("redis_version", "0")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        where = shown(self._store.url)
        if numbers < OLDEST:
            raise StoreAway(
                f"{where} is version {version}; Lightgate needs {OLDEST[0]}.{OLDEST[1]} or newer."
            )
        policy, memory = said.get("maxmemory_policy", "noeviction"), said.get("maxmemory", "0")
        self._store.memory_bytes = int(memory) if memory.isdigit() else 0
        if policy != "noeviction" and memory != "0":
            raise StoreAway(
                f"{where} may drop budgets when its memory is full (maxmemory-policy {policy}):"
                " set maxmemory-policy to noeviction."
            )

    async def attempt(self) -> None:
        """Have the server do what it will be asked for; StoreAway names what it does not do."""
        own = PROBE + self._store.member
        names = [f"{own}:1", f"{own}:2", MEMBERS, EPOCH, FORMS, ANSWERS, ANSWER_SIZES]
        for _ in ("as a whole", "by its name"):
            await self.script(TRY, names)


async def _asked(link: AbstractConnection, command: tuple[Any, ...]) -> Any:
    await link.send_command(*command)
    return await link.read_response()


async def _in_time(work: Coroutine[Any, Any, Any], within_s: float) -> Any:
    """Wait for a reply; one that came while this loop was busy is not late."""
    reading = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.wait({reading}, timeout=within_s)
        for _ in range(_TURNS):
            if reading.done():
                return reading.result()
            await asyncio.sleep(0)
        raise TimeoutError
    finally:
        if not reading.done():
            reading.cancel()
            reading.add_done_callback(_forgotten)


def _forgotten(reading: asyncio.Task[Any]) -> None:
    """Look at the end of a reply that nobody waits for, or the loop would complain about it."""
    if not reading.cancelled():
        reading.exception()


def shown(url: str) -> str:
    """An address as it may be shown: without user, password and options."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "the shared store"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def _connection(url: str) -> AbstractConnection:
    try:
        from valkey.asyncio.connection import ConnectionPool
    except ImportError:
        raise StoreAway(
            "shared.url needs the package valkey: pip install 'lightgate[redis]'."
        ) from None
    try:
        pool = ConnectionPool.from_url(url, socket_connect_timeout=CONNECT_S)
        known = pool.connection_kwargs
        if urlsplit(url).scheme == "rediss":  # the library takes a certificate of any name
            known.setdefault("ssl_check_hostname", known.get("ssl_cert_reqs") != "none")
        link: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, _errors()):
        raise StoreAway(f"{shown(url)} is not an address of a Valkey or Redis server.") from None
    return link


def _errors() -> type[Exception]:
    from valkey.exceptions import ValkeyError

    found: type[Exception] = ValkeyError
    return found


def _refusals() -> type[Exception]:
    from valkey.exceptions import ResponseError

    found: type[Exception] = ResponseError
    return found


def _close(link: AbstractConnection) -> None:
    """Close a connection without waiting for the other side."""
    writer = link._writer  # noqa: SLF001 - disconnect() would wait for a server that is frozen
    link._reader = link._writer = None  # noqa: SLF001
    if writer is not None:
        writer.transport.abort()


_SENTENCES: Final = {
    "TimeoutError": "does not answer in time.",
    "AuthenticationError": "does not take the user or the password of shared.url.",
    "AuthenticationWrongNumberOfArgsError": "does not take the password of shared.url.",
    "NoPermissionError": "allows this user too little: the guide names the rights.",
    "OutOfMemoryError": "has no memory left.",
    "ReadOnlyError": "is a replica, which takes no writes: name the primary.",
    "BusyLoadingError": "is still loading its data.",
    "NoDatabase": "has no database of the number that shared.url names.",
    "WrongType": "has other data under names that begin with {lightgate}: use another database.",
    "MovedError": "is in a cluster that keeps names with {lightgate} at another server: name it.",
    "ClusterDownError": "is in a cluster that has no server for names with {lightgate}.",
    "Untrusted": "has a certificate that is not trusted, or of another name.",
}


# What servers say, and what it means. Where a command of a script fails, Redis 6.2 says it before
# the code, later ones instead.
_SAID: Final = {
    "The user executing the script": "NoPermissionError",
    "ACL failure in script": "NoPermissionError",
    "-OOM ": "OutOfMemoryError",
    "-READONLY ": "ReadOnlyError",
    "DB index is out of range": "NoDatabase",
    "WRONGTYPE ": "WrongType",
    "CLUSTERDOWN ": "ClusterDownError",
}


def _sentence(error: Exception, url: str) -> str:
    """One sentence about what went wrong; of a server's own words only the first is said."""
    where, kind, words = shown(url), type(error).__name__, str(error)
    if "authentication required" in words.lower():
        return f"{where} wants a password: put one into shared.url."
    if "CERTIFICATE_VERIFY_FAILED" in words:
        kind = "Untrusted"
    if kind == "ResponseError":
        kind = next((name for part, name in _SAID.items() if part in words), kind)
    if kind in _SENTENCES:
        return f"{where} {_SENTENCES[kind]}"
    if kind == "ResponseError":
        code = words.partition(" ")[0][:40]
        return f"{where} refused a command ({code if code.isupper() else 'error'})."
    return f"{where} cannot be reached."


def _facts(info: bytes | str | dict[str, Any]) -> dict[str, str]:
    if isinstance(info, dict):
        return {str(name): str(value) for name, value in info.items()}
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else info
    pairs = [line.partition(":") for line in text.splitlines() if ":" in line]
    return {name: value.strip() for name, _, value in pairs}
