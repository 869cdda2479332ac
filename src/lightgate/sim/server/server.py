"""The simulated providers on their ports."""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.sim.answer.pacer import SimPacer
from lightgate.sim.answer.player import Content, ScriptPlayer
from lightgate.sim.answer.request import FAMILY_OF, SOUND, BadSimRequest, SimRequest, read_request
from lightgate.sim.answer.script import CUT, FINISH, USAGE, WHOLE
from lightgate.sim.batch.endpoints import SimCall
from lightgate.sim.batch.registry import batch_api
from lightgate.sim.dialects.limits import limit_headers
from lightgate.sim.dialects.registry import error_body, error_event, renderer_of
from lightgate.sim.faults import FaultCall, parse_fault
from lightgate.sim.log import PAGE, SimLog, SimLogEntry
from lightgate.sim.provider import SimProvider
from lightgate.sim.server.routes import (
    SimEndpoint,
    SimPath,
    find_endpoint,
    find_key,
    model_document,
    models_document,
    read_path,
    world_document,
)
from lightgate.sim.server.stored import RESPONSES, StoredResponses
from lightgate.sim.server.trouble_ports import TroublePorts
from lightgate.sim.weather import Dice
from lightgate.wire.door.door import Door, DoorLimits, Inbound, Reply
from lightgate.wire.link.stamper import best_source

if TYPE_CHECKING:
    from lightgate.clock.marks import StampSource
    from lightgate.clock.source import Clock
    from lightgate.sim.answer.answer import Renderer
    from lightgate.sim.answer.plan import AnswerPlan, PlannedRequest
    from lightgate.sim.batch.endpoints import SimBatchApi
    from lightgate.sim.world import World

_JSON: Final = (b"content-type", b"application/json")
# Faults hold connections silent for minutes, so a client may keep an idle one for an hour.
_LIMITS: Final = DoorLimits(idle_s=3600.0, body_bytes=256 * 1024 * 1024)
_MOST_CONNECTIONS: Final = 65_536  # remembered at most; the oldest are forgotten first


class UsedConnections:
    """A bounded memory of the connections that have carried a request."""

    def __init__(self, most: int = _MOST_CONNECTIONS) -> None:
        self._most = most
        self._accepted_ns: OrderedDict[str, int] = OrderedDict()  # by peer

    def before(self, peer: str, accepted_ns: int) -> bool:
        """Whether this connection is known already; from now on it is."""
        known = self._accepted_ns.get(peer) == accepted_ns
        self._accepted_ns[peer] = accepted_ns
        self._accepted_ns.move_to_end(peer)
        if len(self._accepted_ns) > self._most:
            self._accepted_ns.popitem(last=False)
        return known


class SimServer:
    """Simulated providers; the same seed gives the same answers."""

    def __init__(
        self,
        world: World,
        *,
        seed: int = 1,
        stamp: StampSource | None = None,
        own_ports: bool = False,
        trouble: bool = False,
        batch_clock: Clock = SYSTEM,
    ) -> None:
        self.world = world
        self.seed = seed
        self.log = SimLog()
        self.ports: dict[str, int] = {}  # of single providers, with `own_ports`
        self.trouble_ports: dict[str, int] = {}  # of the faults that are ports, with `trouble`
        self._stamp: StampSource = stamp or best_source()
        self._own_ports = own_ports
        self._trouble = TroublePorts() if trouble else None
        self._providers: dict[str, SimProvider] = {}
        self._stored: dict[str, StoredResponses] = {}
        self._batches: dict[str, SimBatchApi] = {}
        self._batch_clock = batch_clock  # of jobs alone: a test may let a day pass
        self._doors: list[Door] = []
        self._pacer: SimPacer | None = None
        self._used = UsedConnections()
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
        self._providers = {
            name: SimProvider(name, self.world, seed=self.seed, born_ns=born_ns)
            for name in self.world.providers
        }
        self._stored = {name: StoredResponses() for name in self.world.providers}
        for name, provider in self._providers.items():
            api = batch_api(provider, seed=self.seed, clock=self._batch_clock)
            if api is not None:
                self._batches[name] = api
        try:
            bound = await self._open(host, port, None)
            if self._own_ports:
                for name in self._providers:
                    self.ports[name] = await self._open(host, 0, name)
            if self._trouble is not None:
                self.trouble_ports = await self._trouble.open(host)
        except OSError:
            await self.close()
            raise
        return bound

    async def close(self) -> None:
        """Stop at once; running answers are cut."""
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
        path = read_path(inbound.target, self._providers, own)
        if path.provider is None:
            self._answer_own(inbound, reply, path)
            return
        provider = self._providers[path.provider]
        request_id = _request_id(inbound) or self._ids.new()
        headers = (_JSON, (b"x-request-id", request_id.encode()))
        try:
            _check_key(provider.spec.key, find_key(inbound.headers, path.query) or "")
            if self._answer_batch(inbound, reply, path, own, headers):
                return
            stored = self._stored[path.provider]
            if (
                path.path.startswith(RESPONSES)
                and find_endpoint(provider.spec.dialect, path) is None
            ):
                reply.whole(200, headers, stored.answer(inbound.method, path.path))
                return
            if inbound.method == b"GET":
                reply.whole(200, headers, _page(provider, path))
                return
            endpoint = _endpoint(inbound, provider, path)
            reused = self._used.before(inbound.peer, inbound.accepted_ns)
            request, fault = _read(inbound, provider, endpoint)
            request = stored.go_on(request)
        except BadSimRequest as error:
            body = error_body(
                provider.spec.dialect, error.status, str(error), request_id, error.details
            )
            reply.whole(error.status, headers, body)
            return
        planned = provider.plan(request, inbound.received_ns, fault)
        entry = _entry(inbound, request, planned, provider.name, request_id)
        if planned.plan.stale and reused:
            planned.plan.script.replace((0, CUT))
            entry.outcome = "reset"
        renderer = renderer_of(request, planned, array=endpoint.array)
        if request.kind == "responses" and planned.plan.error is None:
            stored.put(request, renderer.whole())
        await self._play(_player(entry, planned.plan, request, renderer, reply), entry, planned)

    def _answer_batch(
        self,
        inbound: Inbound,
        reply: Reply,
        path: SimPath,
        own: str | None,
        headers: tuple[tuple[bytes, bytes], ...],
    ) -> bool:
        """Answer a request about files or batch jobs; False where it is about something else."""
        api = self._batches.get(path.provider or "")
        if api is None:
            return False
        host = (inbound.header(b"host") or b"127.0.0.1").decode("latin-1")
        root = f"http://{host}" if own is not None else f"http://{host}/{path.provider}"
        call = SimCall(inbound.method, path.path, path.query, inbound.headers, inbound.body, root)
        found = api.answer(call)
        if found is None:
            return False
        if found.lost:
            reply.abort()
        else:
            reply.whole(found.status, (*found.headers, *headers[1:]), found.body)
        return True

    def _answer_own(self, inbound: Inbound, reply: Reply, path: SimPath) -> None:
        """Answer with one of the simulator's own pages."""
        route = (inbound.method, path.path)
        if route == (b"GET", "health/live"):
            reply.whole(200, (_JSON,), b'{"status":"live"}')
        elif route == (b"GET", "sim/world"):
            facts = world_document(self.world, self.seed, self.ports, self.trouble_ports)
            reply.whole(200, (_JSON,), facts)
        elif route == (b"GET", "sim/log"):
            since, limit = _number(path, "since", 0), _number(path, "limit", PAGE)
            kind, body = self.log.encoded(since, limit, path.query.get("format", "json"))
            reply.whole(200, ((b"content-type", kind),), body)
        elif route == (b"DELETE", "sim/log"):
            self.log.clear()
            reply.whole(200, (_JSON,), b'{"cleared":true}')
        else:
            names = ", ".join(f"/{name}" for name in self._providers)
            message = f"Nothing is served here; the providers are at {names}."
            error = {"error": {"message": message, "type": "invalid_request_error"}}
            reply.whole(404, (_JSON,), encode(error))

    async def _play(
        self, player: ScriptPlayer, entry: SimLogEntry, planned: PlannedRequest
    ) -> None:
        """Write the answer, then log the request; the door cancels when the client has left."""
        if self._pacer is None:
            return
        ticket = self._pacer.add(player.due_ns, player)
        try:
            await player.over
        except asyncio.CancelledError:
            entry.gone = True
            raise
        finally:
            ticket.drop()
            entry.ended_ns = SYSTEM.now_ns()
            sent = sum(entry.script.tokens[: len(entry.actual_ns)])
            if not _told_usage(entry):
                entry.usage = None
            runs_on = entry.gone and planned.plan.ignores_cancel
            each = planned.counts.total if runs_on else sent
            entry.tokens_billed = each * planned.answers
            self._providers[entry.provider].over(planned, entry.ended_ns, gone=entry.gone)
            self.log.add(entry)


def _check_key(wanted: str | None, given: str) -> None:
    if wanted is not None and not hmac.compare_digest(wanted.encode(), given.encode()):
        raise BadSimRequest("The key is missing or wrong.", 401)


def _page(provider: SimProvider, path: SimPath) -> bytes:
    """The body of a GET: a provider's models, or its health, which load tools ask engines for."""
    if path.path == "health":
        return b'{"status":"ok"}'
    head, _, name = path.path.partition("/models")
    name = name.lstrip("/")
    body = None
    if head in {"v1", "v1beta"}:
        spec = provider.spec
        body = model_document(spec, name) if name else models_document(spec)
    if body is None:
        raise BadSimRequest(f"Nothing is served at /{path.path}.", 404)
    return body


def _endpoint(inbound: Inbound, provider: SimProvider, path: SimPath) -> SimEndpoint:
    endpoint = find_endpoint(provider.spec.dialect, path)
    if endpoint is None or inbound.method != b"POST":
        method = inbound.method.decode()
        raise BadSimRequest(f"Nothing is served at {method} /{path.path}.", 404)
    return endpoint


def _read(
    inbound: Inbound, provider: SimProvider, endpoint: SimEndpoint
) -> tuple[SimRequest, FaultCall | None]:
    """Read the request and the fault that its header or its model's suffix asks for."""
    request = read_request(endpoint.kind, inbound.body, endpoint.model, stream=endpoint.stream)
    written = inbound.header(b"x-sim-fault")
    text = request.fault if written is None else written.decode("latin-1")
    fault = parse_fault(text) if text else None
    if text and fault is None:
        raise BadSimRequest(f"There is no fault `{text[:80]}`, or it does not take that argument.")
    if request.model_name not in provider.spec.models:
        raise BadSimRequest(f"The model `{request.model_name}` does not exist.", 404)
    stray = request.results.stray
    if stray is not None and provider.spec.models[request.model_name].turns:
        raise BadSimRequest(f"The result of a tool answers no call before it: `{stray}`.")
    return request, fault


def _entry(
    inbound: Inbound, request: SimRequest, planned: PlannedRequest, provider: str, request_id: str
) -> SimLogEntry:
    return SimLogEntry(
        request_id=request_id,
        provider=provider,
        model=request.model,
        seq=planned.number,
        kind=request.kind,
        accepted_ns=inbound.accepted_ns,
        received_ns=inbound.received_ns,
        start_ns=planned.start_ns,
        bytes_in=len(inbound.body),
        load=planned.load,
        streamed=request.stream,
        outcome=planned.outcome,
        fault=planned.fault,
        weather=planned.weather,
        counts=planned.counts,
        tokens_in=request.tokens_in,
        tokens_cached=planned.cached,
        script=planned.plan.script,
    )


def _player(
    entry: SimLogEntry, plan: AnswerPlan, request: SimRequest, renderer: Renderer, reply: Reply
) -> ScriptPlayer:
    """Make the player of an answer; its status and usage go into the log entry."""
    family = FAMILY_OF[request.kind]
    content_type = b"application/json"
    if plan.error is not None:
        entry.status = plan.error.shown_status or plan.error.status
        body = error_body(family, plan.error.status, plan.error.message, entry.request_id)
    else:
        body = b"" if plan.script.streamed else renderer.whole()
        entry.usage = renderer.usage(streamed=request.stream)
        if request.stream or request.kind in SOUND:
            content_type = renderer.content_type
    identity = entry.request_id.encode()
    headers = [(b"content-type", plan.content_type or content_type), (b"x-request-id", identity)]
    if family == "anthropic":
        headers.append((b"request-id", identity))
    if request.stream:
        headers.append((b"cache-control", b"no-cache"))
    headers.extend(limit_headers(family, plan.limits, plan.wall_s))
    if plan.error is not None:
        headers.extend(plan.error.headers)
    error = error_event(family, request.kind, "Overloaded.", entry.request_id)
    return ScriptPlayer(entry, plan, renderer, reply, Content(headers, body, error))


def _told_usage(entry: SimLogEntry) -> bool:
    """Whether the write that carries the final usage went out."""
    carrier = (USAGE,) if USAGE in entry.script.kind else (FINISH, WHOLE)
    return any(kind in carrier for kind in entry.script.kind[: len(entry.actual_ns)])


def _request_id(inbound: Inbound) -> str | None:
    """The client's own id, if a header can carry it again."""
    value = inbound.header(b"x-request-id")
    if value is None or not 0 < len(value) <= 128:
        return None
    text = value.decode("latin-1")
    return text if text.isascii() and text.isprintable() else None


def _number(path: SimPath, name: str, default: int) -> int:
    text = path.query.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 16 else default
