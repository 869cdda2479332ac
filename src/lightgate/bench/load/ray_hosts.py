"""Load processes on the hosts of a Ray cluster.

One actor stands on every node. It starts load processes there and carries their pipes: what the
parent sends down, and what a process sends up. The processes are those of one machine, so a request
is made and clocked in the same way everywhere; Ray is no part of what is clocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import platform
import sys
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from lightgate import __version__
from lightgate.bench.load.hosts import HostPlace
from lightgate.bench.load.processes import start_here
from lightgate.errors import LightgateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import ModuleType

MOST_BYTES: Final = 1 << 20  # of one answer of an actor
WAITING_BYTES: Final = 1 << 20  # that may wait on our side before `drain` waits
JOIN_S: Final = 60.0  # for the actors to start
REGION: Final = "ray.io/region"  # Ray's own label for it: ray start --labels ray.io/region=NAME


class HostGone(LightgateError):  # noqa: N818 - names the event
    """A host does not answer any more, or its actor could not start."""


class HostFacts(msgspec.Struct, frozen=True):
    """The version of Lightgate, and the machine, that an actor found on its node."""

    version: str
    python: str
    node: str


class HostActor:
    """The load processes of one node; its methods are called by the parent, through Ray."""

    def __init__(self) -> None:
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._numbers = itertools.count()

    async def facts(self) -> tuple[str, str, str]:
        """Return the fields of `HostFacts`."""
        return __version__, platform.python_version(), platform.node()

    async def start(self) -> tuple[int, int]:
        """Start a load process; its number here, and its process id."""
        number, process = next(self._numbers), await start_here()
        self._processes[number] = process
        return number, process.pid

    async def push(self, number: int, data: bytes) -> None:
        """Write to a process; the end of its input where there is no data."""
        stdin = self._processes[number].stdin
        if stdin is None or stdin.is_closing():
            return
        if not data:
            stdin.close()
            return
        stdin.write(data)
        with contextlib.suppress(ConnectionError):
            await stdin.drain()

    async def pull(self, number: int) -> bytes:
        """Wait for the next bytes of a process; none at their end."""
        stdout = self._processes[number].stdout
        return b"" if stdout is None else await stdout.read(MOST_BYTES)

    async def wait(self, number: int) -> int:
        """Wait for the end of a process."""
        return await self._processes[number].wait()

    async def kill(self, number: int) -> None:
        """End a process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._processes[number].kill()


class CarriedInput:
    """The input of a process that is carried to it; what is written together goes together."""

    def __init__(self, push: Callable[[bytes], Awaitable[None]]) -> None:
        self._push = push
        self._waiting = bytearray()
        self._closing = False
        self._changed = asyncio.Condition()
        self._task = asyncio.ensure_future(self._carry())

    def write(self, data: bytes) -> None:
        """Send bytes, in their order."""
        self._waiting += data
        self._wake()

    def close(self) -> None:
        """Send nothing more after what waits."""
        self._closing = True
        self._wake()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closing

    async def drain(self) -> None:
        """Wait until not too many bytes wait."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self._waiting) < WAITING_BYTES or self._task.done()
            )

    async def ended(self) -> None:
        """Wait until everything was carried, or cannot be any more."""
        await asyncio.wait({self._task})

    def _wake(self) -> None:
        async def wake() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._waker = asyncio.ensure_future(wake())

    async def _carry(self) -> None:
        try:
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._waiting or self._closing)
                    data, self._waiting = bytes(self._waiting), bytearray()
                    self._changed.notify_all()
                if data:
                    await self._push(data)
                elif self._closing:
                    await self._push(b"")
                    return
        except HostGone:  # its process counts as lost
            self._closing = True
        finally:
            async with self._changed:
                self._changed.notify_all()


class CarriedProcess:
    """A load process on another host, as the parent sees it; `call` asks its actor."""

    def __init__(self, call: Callable[..., Awaitable[Any]], number: int, pid: int) -> None:
        self._call = call
        self._number = number
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = CarriedInput(lambda data: call("push", number, data))
        self.stdout = asyncio.StreamReader()
        self._pulling = asyncio.ensure_future(self._pull())

    async def _pull(self) -> None:
        with contextlib.suppress(HostGone):  # that is the end of the pipe
            while data := await self._call("pull", self._number):
                self.stdout.feed_data(data)
        self.stdout.feed_eof()

    def kill(self) -> None:
        """End the process at once."""
        self._killing = asyncio.ensure_future(self._ended("kill"))

    async def wait(self) -> int | None:
        """Wait until the process has ended, or its host is gone."""
        await self.stdin.ended()
        self.returncode = await self._ended("wait")
        await asyncio.wait({self._pulling})
        return self.returncode

    async def _ended(self, method: str) -> int | None:
        try:
            found: int | None = await self._call(method, self._number)
        except HostGone:  # and its processes with it
            return None
        return found


class CarriedHost:
    """One node of a cluster, by the function that asks its actor."""

    def __init__(self, place: HostPlace, call: Callable[..., Awaitable[Any]]) -> None:
        self.place = place
        self._call = call

    async def facts(self) -> HostFacts:
        """Ask what is installed there."""
        return HostFacts(*(await self._call("facts")))

    async def start(self) -> CarriedProcess:
        """Start a load process there."""
        number, pid = await self._call("start")
        return CarriedProcess(self._call, number, pid)


class RayCluster:
    """A Ray cluster, with an actor on each of its nodes; a context manager."""

    def __init__(self, address: str) -> None:
        self._ray = _ray()
        try:
            self._ray.init(
                address=address, namespace="lightgate", log_to_driver=False, configure_logging=False
            )
        except (OSError, RuntimeError, ValueError, self._ray.exceptions.RayError) as reason:
            raise LightgateError(
                f"There is no Ray cluster at {address}: {_first_line(reason)}",
                hint="`ray start --head` starts one; --ray auto finds that of this machine.",
            ) from None
        self._actors: list[Any] = []
        self.hosts: tuple[CarriedHost, ...] = tuple(map(self._host, _alive(self._ray.nodes())))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._ray.shutdown()

    def _host(self, node: dict[str, Any]) -> CarriedHost:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        made = self._ray.remote(HostActor).options(
            num_cpus=0, scheduling_strategy=there, max_concurrency=1000
        )
        actor = made.remote()
        self._actors.append(actor)

        async def call(method: str, *arguments: Any) -> Any:
            try:
                return await getattr(actor, method).remote(*arguments)
            except self._ray.exceptions.RayError as reason:
                raise HostGone(_first_line(reason)) from None

        return CarriedHost(place_of(node), call)


def place_of(node: dict[str, Any]) -> HostPlace:
    """Name a node: by its host and the start of its id, since two nodes may share a host."""
    host = f"{node.get('NodeManagerHostname') or node['NodeManagerAddress']}-{node['NodeID'][:6]}"
    return HostPlace(host, (node.get("Labels") or {}).get(REGION) or host)


async def check_hosts(hosts: Sequence[CarriedHost]) -> None:
    """Wait for the actors; refuse a host with another version: it could clock otherwise."""
    try:
        async with asyncio.timeout(JOIN_S):
            found = await asyncio.gather(*(host.facts() for host in hosts))
    except (HostGone, TimeoutError) as reason:
        said = _first_line(reason) or f"no answer in {JOIN_S:g} s"
        raise LightgateError(
            f"A host of the Ray cluster cannot run load processes: {said}",
            hint="Every node needs the same Lightgate: pip install 'lightgate[ray]'.",
        ) from None
    for host, facts in zip(hosts, found, strict=True):
        if facts.version != __version__:
            raise LightgateError(
                f"{host.place.host} has Lightgate {facts.version}, this machine {__version__}.",
                hint="Install the same version on every node.",
            )


def _alive(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = sorted((node for node in nodes if node["Alive"]), key=lambda node: node["NodeID"])
    if not found:
        raise LightgateError("The Ray cluster has no living node.")
    return found


def _first_line(reason: BaseException) -> str:
    return next(iter(str(reason).strip().splitlines()), "")


def _ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise UsageError(
            f"--ray needs Ray, which is not installed for {sys.executable}.",
            hint="Install it: pip install 'lightgate[ray]'.",
        ) from None
    module: ModuleType = ray
    return module
