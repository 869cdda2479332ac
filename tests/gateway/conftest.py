"""A gateway in this process in front of simulated providers, and a client that is h11's."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import TYPE_CHECKING, Any, cast

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import LightgateError
from lightgate.gateway.aside.aside import Aside
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.gateway.exchange.state import State
from lightgate.gateway.http.app import Gateway
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.journal.journal import Journal, read_frames
from lightgate.ledger.journal.notes import Reserved, Settled
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse
from lightgate.wire.client.client import Client
from lightgate.wire.door.door import Door, DoorLimits
from sim.conftest import QUICK, SAY, Answer, Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from gateway.security.conftest import Upstream
    from lightgate.gateway.aside.aside import Job
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.ledger.store.keys import KeyRecord
    from own_time import OwnTime

    Start = Callable[..., Awaitable["Rig"]]

PROVIDERS = """
[providers.lab]
base_url = "http://127.0.0.1:{port}/lab/v1"
api_key = "none"
abort_stops_billing = true
[providers.anthropic]
base_url = "http://127.0.0.1:{port}/anthropic/v1"
api_key = "none"
[providers.gemini]
base_url = "http://127.0.0.1:{port}/gemini/v1beta"
dialect = "gemini"
api_key = "none"
[prices."lab/plain"]
input = 1
output = 2
"""


class AsideHere(Aside):
    """Does jobs in this process, with everything pickled: another one has a time of its own."""

    async def do(
        self, owner: str, job: Job, bodies: Sequence[bytes], *arguments: object
    ) -> tuple[Any, list[bytes]]:
        assert owner
        self.jobs += 1
        await asyncio.sleep(0)
        job, arguments = _moved((job, arguments))
        try:
            value, made = job(*bodies, *arguments)
        except LightgateError as error:
            raise _moved(error) from None
        return _moved(value), made


def _moved(value: Any) -> Any:
    """A value as another process gets it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


class Rig:
    """The gateway, the simulator behind it, and everything that they wrote down."""

    def __init__(self, sim: SimServer, state: State, door: Door, port: int, data: Path) -> None:
        self.sim = sim
        self.state = state
        self.door = door
        self.port = port
        self.data = data
        self.keys: dict[str, str] = {}  # name to the key itself
        self.gateway: Gateway

    @property
    def exchanges(self) -> set[Exchange]:
        """The exchanges under way."""
        return cast("set[Exchange]", self.state.exchanges)

    async def line(self) -> Line:
        return Line(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        """POST a body, or GET without one, on a fresh connection."""
        line = await self.line()
        raw = b"" if body is None else body if isinstance(body, bytes) else _json(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await line.ask("GET" if body is None else "POST", path, raw, named)
        await line.close()
        return answer

    async def chat(
        self, model: str = "lab/plain", *, headers: dict[str, str] | None = None, **fields: Any
    ) -> Answer:
        """A chat completion of twelve tokens, streamed unless said otherwise."""
        body = {"model": model, "messages": SAY, "max_tokens": 12, "stream": True} | fields
        return await self.ask("/v1/chat/completions", body, **(headers or {}))

    def notes(self) -> list[Any]:
        """Everything in the journal."""
        files = sorted((self.data / "journal").glob("*.lgj"))
        return [note for file in files for note, _ in read_frames(file)]

    def settled(self) -> list[Settled]:
        return [note for note in self.notes() if isinstance(note, Settled)]

    def reserved(self) -> list[Reserved]:
        return [note for note in self.notes() if isinstance(note, Reserved)]

    async def until(self, happened: Callable[[], bool], within_s: float = 20) -> None:
        """Let the loop turn until something has happened."""
        async with asyncio.timeout(within_s):
            while not happened():
                await asyncio.sleep(0)

    @property
    def upstream(self) -> int:
        """Upstream connections that are busy now."""
        return len(self.state.client._busy)


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.fixture
async def start(tmp_path: Path, own: OwnTime) -> AsyncIterator[Start]:
    """Starts a gateway with these `[models]` (and whatever else) in its configuration."""
    rigs: list[Rig] = []

    async def begin(
        models: str = "",
        *,
        terms: dict[str, KeyTerms] | None = None,
        trouble: bool = False,
        **more: Any,
    ) -> Rig:
        world = json.loads(json.dumps(more.get("world", QUICK)))
        # The kernel's stamps are of real time, and nothing else here is.
        sim = SimServer(parse(world, "quick"), seed=7, trouble=trouble, stamp="read")
        port = await sim.start()
        ports = {f"trouble_{name.replace('-', '_')}": p for name, p in sim.trouble_ports.items()}
        text = (PROVIDERS + models).format(port=port, **ports)
        made: dict[str, tuple[str, KeyRecord]] = {n: new_key(t) for n, t in (terms or {}).items()}
        data = tmp_path / f"data{len(rigs)}"
        keys = tuple(record for _, record in made.values())
        lists = more["lists"](port) if "lists" in more else None
        snapshot = make_snapshot(parse_config(text), keys, more.get("env", {}), lists=lists)
        put_snapshot(data, snapshot)
        served = Served(snapshot, more.get("env", {}))
        state = State(
            served,
            client=Client(watch_lag=False),
            journal=JournalWriter(Journal(data / "journal", 0)),
            spend=SpendCounters.open(data / "spend", 0, keys),
            worker=0,
        )
        state.aside = AsideHere(state.loop)
        gateway = Gateway(state, data)
        limits = more.get("limits") or DoorLimits()
        door = Door(gateway.handle, limits=limits, gate=gateway.gate)
        door.sink_bodies(gateway.sink_of)
        rig = Rig(sim, state, door, await door.listen("127.0.0.1", 0), data)
        rig.gateway = gateway
        rig.keys = {name: secret for name, (secret, _) in made.items()}
        rigs.append(rig)
        return rig

    yield begin
    for rig in rigs:
        await rig.door.close()
        rig.gateway.close()
        await rig.state.client.close()
        rig.state.journal.close()
        if rig.state.spend is not None:
            rig.state.spend.close()
        await rig.sim.close()


@pytest.fixture
async def rig(start: Start) -> Rig:
    return await start()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A provider in this process, which says what its script says."""
    from gateway.security.conftest import Upstream

    server = Upstream()
    await server.start()
    yield server
    await server.close()
