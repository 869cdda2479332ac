"""The simulated providers on their ports."""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.sim.answer.ask import FAMILY_OF, BadSimRequest, SimRequest, read_request
from lightgate.sim.answer.pacer import SimPacer
from lightgate.sim.answer.script import CUT, FINISH, USAGE, WHOLE
from lightgate.sim.answer.speech import body_of, usage_of, voice_of
from lightgate.sim.answer.stream import ScriptPlayer
from lightgate.sim.dialects.refusals import refusal, stream_error
from lightgate.sim.faults import FaultCall, parse_fault
from lightgate.sim.latency import Dice
from lightgate.sim.log import PAGE, SimLog, SimLogEntry
from lightgate.sim.provider import PlannedRequest, SimProvider
from lightgate.sim.server.connections import UsedConnections
from lightgate.sim.server.listing import model_document, models_document, world_document
from lightgate.sim.server.routes import SimEndpoint, SimPath, find_call, find_key, read_target
from lightgate.sim.server.trouble_ports import TroublePorts
from lightgate.wire.door.door import Door, DoorLimits, Inbound, Reply
from lightgate.wire.link.stamper import best_source

if TYPE_CHECKING:
    from lightgate.clock.marks import StampSource
    from lightgate.sim.dialects.answer import Renderer
    from lightgate.sim.world import Family, World

_JSON: Final = (b"content-type", b"application/json")
# Long silences are part of the game: a client may keep a connection idle for as long as it likes.
_LIMITS: Final = DoorLimits(idle_s=3600.0, body_bytes=256 * 1024 * 1024)


class SimServer:
    """Simulated providers; deterministic by seed."""

    def __init__(
        self,
        world: World,
        *,
        seed: int = 1,
        stamp: StampSource | None = None,
        own_ports: bool = False,
        trouble: bool = False,
    ) -> None:
        self.world = world
        self.seed = seed
        self.log = SimLog()
        self.ports: dict[str, int] = {}  # of single providers, with `own_ports`
        self.trouble_ports: dict[str, int] = {}  # of the faults that are ports, with `trouble`
        self._stamp: StampSource = stamp or best_source()
        self._own_ports = own_ports
        self._trouble = TroublePorts() if trouble else None
        self._stations: dict[str, SimProvider] = {}
        self._doors: list[Door] = []
        self._pacer: SimPacer | None = None
        self._seen = UsedConnections()
        self._ids = Ids()

    @property
    def idle(self) -> bool:
        """Whether no write is planned."""
        return self._pacer is None or len(self._pacer) == 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; the port of all providers."""
        Dice(self.seed, "", 0)  # numpy takes milliseconds to throw its first dice
        born_ns = SYSTEM.now_ns()
        self._pacer = SimPacer()
        self._stations = {
            name: SimProvider(name, self.world, seed=self.seed, born_ns=born_ns)
            for name in self.world.providers
        }
        try:
            bound = await self._open(host, port, None)
            if self._own_ports:
                for name in self._stations:
                    self.ports[name] = await self._open(host, 0, name)
            if self._trouble is not None:
                self.trouble_ports = await self._trouble.open(host)
        except OSError:
            await self.close()
            raise
        return bound

    async def close(self) -> None:
        """Stop at once; what was under way is cut."""
        for door in self._doors:
            await door.close()
        self._doors.clear()
        if self._trouble is not None:
            await self._trouble.close()
        if self._pacer is not None:
            self._pacer.close()
            self._pacer = None

    async def _open(self, host: str, port: int, own: str | None) -> int:
        async def handle(inbound: Inbound, reply: Reply) -> None:
            await self._handle(inbound, reply, own)

        door = Door(handle, stamp=self._stamp, limits=_LIMITS)
        self._doors.append(door)
        return await door.listen(host, port)

    async def _handle(self, inbound: Inbound, reply: Reply, own: str | None) -> None:
        target = read_target(inbound.target, self._stations, own)
        if target.provider is None:
            self._answer_own(inbound, reply, target)
            return
        station = self._stations[target.provider]
        request_id = _request_id(inbound) or self._ids.new()
        wanted = station.maker.key
        given = find_key(inbound.headers, target.query) or ""
        if wanted is not None and not hmac.compare_digest(wanted.encode(), given.encode()):
            _refuse(reply, station, 401, "The key is missing or wrong.", request_id)
        elif inbound.method == b"GET":
            self._list(reply, station, target, request_id)
        else:
            call = find_call(station.maker.dialect, target)
            if call is None or inbound.method != b"POST":
                message = f"Nothing is served at {inbound.method.decode()} /{target.path}."
                _refuse(reply, station, 404, message, request_id)
            else:
                await self._serve(inbound, reply, station, call, request_id)

    def _answer_own(self, inbound: Inbound, reply: Reply, target: SimPath) -> None:
        """The simulator's own pages."""
        route = (inbound.method, target.path)
        if route == (b"GET", "health/live"):
            reply.whole(200, (_JSON,), b'{"status":"live"}')
        elif route == (b"GET", "sim/world"):
            facts = world_document(self.world, self.seed, self.ports, self.trouble_ports)
            reply.whole(200, (_JSON,), facts)
        elif route == (b"GET", "sim/log"):
            since, limit = _number(target, "since", 0), _number(target, "limit", PAGE)
            kind, body = self.log.encoded(since, limit, target.query.get("format", "json"))
            reply.whole(200, ((b"content-type", kind),), body)
        elif route == (b"DELETE", "sim/log"):
            self.log.clear()
            reply.whole(200, (_JSON,), b'{"cleared":true}')
        else:
            names = ", ".join(f"/{name}" for name in self._stations)
            message = f"Nothing is served here; the providers are at {names}."
            error = {"error": {"message": message, "type": "invalid_request_error"}}
            reply.whole(404, (_JSON,), encode(error))

    def _list(self, reply: Reply, station: SimProvider, target: SimPath, request_id: str) -> None:
        head, _, name = target.path.partition("/models")
        body = None
        if head in {"v1", "v1beta"}:
            name = name.lstrip("/")
            maker = station.maker
            body = model_document(maker, name) if name else models_document(maker)
        if body is None:
            message = f"Nothing is served at /{target.path}."
            _refuse(reply, station, 404, message, request_id)
            return
        reply.whole(200, (_JSON, (b"x-request-id", request_id.encode())), body)

    async def _serve(
        self,
        inbound: Inbound,
        reply: Reply,
        station: SimProvider,
        call: SimEndpoint,
        request_id: str,
    ) -> None:
        reused = self._seen.before(inbound.peer, inbound.accepted_ns)
        try:
            ask = read_request(call.kind, inbound.body, call.model, stream=call.stream)
            fault = _fault(inbound, ask)
        except BadSimRequest as error:
            _refuse(reply, station, 400, str(error), request_id)
            return
        if ask.model_name not in station.maker.models:
            message = f"The model `{ask.model_name}` does not exist."
            _refuse(reply, station, 404, message, request_id)
            return
        plan = station.plan(ask, inbound.received_ns, fault)
        entry = _entry(inbound, ask, plan, station, request_id)
        if plan.draft.stale and reused:
            plan.draft.script.truncate(0)
            plan.draft.script.add(0, CUT)
            entry.outcome = "reset"
        await self._play(entry, station, plan, ask, reply, array=call.array)

    async def _play(
        self,
        entry: SimLogEntry,
        station: SimProvider,
        plan: PlannedRequest,
        ask: SimRequest,
        reply: Reply,
        *,
        array: bool,
    ) -> None:
        draft = plan.draft
        voice = voice_of(ask, plan, array=array)
        family = FAMILY_OF[ask.kind]
        if draft.refusal is not None:
            wrong = draft.refusal
            entry.status = wrong.shown_status or wrong.status
            body = refusal(family, wrong.status, wrong.message, entry.request_id)
        else:
            body = body_of(ask, plan, voice) if not draft.script.streamed else b""
            entry.usage = usage_of(ask, voice)
        headers = _headers(entry, plan, voice, family)
        error = stream_error(family, ask.kind, "Overloaded.", entry.request_id)
        stream = ScriptPlayer(entry, draft, voice, reply, headers)
        pacer = self._pacer
        if pacer is None:
            return
        ticket = pacer.add(stream.begin(body, error), stream)
        try:
            await stream.over
        except asyncio.CancelledError:
            entry.gone = True
            raise
        finally:
            ticket.drop()
            entry.ended_ns = SYSTEM.now_ns()
            sent = sum(entry.script.tokens[: len(entry.actual_ns)])
            if not _told_usage(entry):
                entry.usage = None
            runs_on = entry.gone and draft.ignores_cancel
            entry.tokens_billed = plan.counts.total if runs_on else sent
            station.over(plan, entry.ended_ns, gone=entry.gone)
            self.log.add(entry)


def _entry(
    inbound: Inbound, ask: SimRequest, plan: PlannedRequest, station: SimProvider, request_id: str
) -> SimLogEntry:
    entry = SimLogEntry(request_id, station.name, ask.model, plan.number)
    entry.kind = ask.kind
    entry.accepted_ns = inbound.accepted_ns
    entry.received_ns = inbound.received_ns
    entry.start_ns = plan.start_ns
    entry.bytes_in = len(inbound.body)
    entry.load = plan.load
    entry.streamed = ask.stream
    entry.outcome = plan.outcome
    entry.fault = plan.fault
    entry.weather = plan.weather
    entry.counts = plan.counts
    entry.tokens_in = ask.tokens_in
    entry.tokens_cached = plan.cached
    entry.script = plan.draft.script
    return entry


def _told_usage(entry: SimLogEntry) -> bool:
    """Whether the write that carries the final usage went out."""
    carrier = (USAGE,) if USAGE in entry.script.kind else (FINISH, WHOLE)
    return any(kind in carrier for kind in entry.script.kind[: len(entry.actual_ns)])


def _headers(
    entry: SimLogEntry, plan: PlannedRequest, voice: Renderer | None, family: Family
) -> list[tuple[bytes, bytes]]:
    draft = plan.draft
    kind = b"application/json"
    if voice is not None and draft.refusal is None and entry.streamed:
        kind = voice.content_type
    identity = entry.request_id.encode()
    headers = [(b"content-type", draft.content_type or kind), (b"x-request-id", identity)]
    if family == "anthropic":
        headers.append((b"request-id", identity))
    if entry.streamed:
        headers.append((b"cache-control", b"no-cache"))
    if draft.refusal is not None:
        headers.extend(draft.refusal.headers)
    return headers


def _refuse(reply: Reply, station: SimProvider, status: int, message: str, request_id: str) -> None:
    body = refusal(station.maker.dialect, status, message, request_id)
    reply.whole(status, (_JSON, (b"x-request-id", request_id.encode())), body)


def _fault(inbound: Inbound, ask: SimRequest) -> FaultCall | None:
    written = inbound.header(b"x-sim-fault")
    text = ask.fault if written is None else written.decode("latin-1")
    if not text:
        return None
    fault = parse_fault(text)
    if fault is None:
        raise BadSimRequest(f"There is no fault `{text[:80]}`, or it does not take that argument.")
    return fault


def _request_id(inbound: Inbound) -> str | None:
    """The client's own id, if it is fit to stand in a header again."""
    value = inbound.header(b"x-request-id")
    if value is None or not 0 < len(value) <= 128:
        return None
    text = value.decode("latin-1")
    return text if text.isascii() and text.isprintable() else None


def _number(target: SimPath, name: str, default: int) -> int:
    text = target.query.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 16 else default
