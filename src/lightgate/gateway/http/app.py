"""The data plane's handler: finds the endpoint of a request, admits it, begins its exchange."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.errors import LightgateError
from lightgate.gateway.admit.admit import admit, admit_shared, open_exchange, shared_limits
from lightgate.gateway.admit.auth import authorize, is_console, read_caller
from lightgate.gateway.admit.overrides import SOUND_ID
from lightgate.gateway.batches.desk import BatchDesk
from lightgate.gateway.exchange.caller import NEVER, Caller
from lightgate.gateway.exchange.cascade import begin
from lightgate.gateway.http.array import ArrayReply
from lightgate.gateway.http.cors import answer_preflight, let_in
from lightgate.gateway.http.count import answer_count
from lightgate.gateway.http.large import look_into, read_large
from lightgate.gateway.http.ledger_reads import LedgerReads
from lightgate.gateway.http.models import ModelPages
from lightgate.gateway.http.requests import look_up
from lightgate.gateway.http.responses import Responses
from lightgate.gateway.http.root import answer_root
from lightgate.gateway.http.shared import Shared, shared_name
from lightgate.gateway.http.usage import usage_body
from lightgate.gateway.kept.talk import previous_of
from lightgate.gateway.request.endpoint import STORED, Endpoint, dialect_of, find
from lightgate.gateway.request.refusal import Refusal, Refusing, of_error
from lightgate.gateway.request.weight import LIGHT_BYTES, is_heavy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.around import ClientReply
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

_JSON: Final = ((b"content-type", b"application/json"),)
_OPEN: Final = frozenset(("live", "ready", "root"))  # endpoints that need no key
_SOUND: Final = frozenset(("speech", "transcription", "translation"))
_BY_ITEMS: Final = frozenset(("responses", "count"))  # requests that may go on from a response
_APART: Final = _BY_ITEMS | _SOUND
_TWICE: Final = re.compile(rb"(?:/v1(?:beta)?)+(/v1(?:beta)?)/")
_LIVE: Final = b'{"status":"live","service":"lightgate"}'  # `doctor` knows a gateway by it
_READY: Final = b'{"status":"ready"}'
_DRAINING: Final = b'{"status":"draining"}'
_DISK_FULL: Final = b'{"status":"disk full"}'
_LOST: Final = b'{"status":"journal deleted"}'


class Gateway:
    """Handles the requests of one worker; `unready` names the workers that do not serve.

    `console` is the console's address, which `/` tells this machine.
    """

    def __init__(
        self,
        state: State,
        data: Path,
        unready: Callable[[], list[str]] = list,
        *,
        console: str = "",
    ) -> None:
        self._state = state
        self._ledger_reads = LedgerReads(data)
        self._unready = unready
        self._console = console
        self._responses = Responses(state, data)
        self._models = ModelPages(state)
        self._batches = BatchDesk(state, data)
        self.sink_of = self._batches.sink_of

    def gate(self, inbound: Inbound, reply: Reply) -> str | None:
        """Refuse a request by its head alone: a body without a key is never read.

        Returns the id of the key, whose limits the body counts for.
        """
        state = self._state
        try:
            if self._state.served.origins and let_in(self._state.served, inbound, reply):
                answer_preflight(inbound, reply)
                return None
            caller, key = self._kept_caller(inbound), None
            endpoint = self._endpoint(inbound) if caller is None else caller.endpoint
            if endpoint.verb == "call":
                key = (caller or read_caller(state, inbound, endpoint)).key
                if state.load.picky:
                    state.load.check(len(state.exchanges), key)
            elif endpoint.verb not in _OPEN:
                key = authorize(state, inbound, state.wall_ns())
                if inbound.notes.sink is not None:
                    self._batches.begin(inbound.notes.sink, key)
        except Refusing as refusing:
            self._refuse(refusing.refusal, inbound, reply)
            return None
        return None if key is None else key.id

    def _kept_caller(self, inbound: Inbound) -> Caller | None:
        """The caller of a head that repeats itself; it holds as long as snapshot and key do."""
        caller, state = inbound.notes.read, self._state
        if type(caller) is not Caller or caller.served is not state.served:
            return None
        expired = caller.until_ns != NEVER and state.wall_ns() >= caller.until_ns
        return None if expired else caller

    def handle(self, inbound: Inbound, reply: Reply) -> None:
        """Answer one request, now or later."""
        try:
            state = self._state
            if state.served.origins and let_in(state.served, inbound, reply):
                answer_preflight(inbound, reply)
                return
            caller = self._kept_caller(inbound)
            if caller is None:
                endpoint = self._endpoint(inbound)
                if endpoint.verb != "call":
                    self._read(inbound, reply, endpoint)
                    return
                caller = read_caller(state, inbound, endpoint)
            if state.load.picky:
                state.load.check(len(state.exchanges), caller.key)
            body, endpoint = inbound.body, caller.endpoint
            if len(body) > LIGHT_BYTES and endpoint.sound != "form" and is_heavy(body):
                self._tasks(inbound, reply, self._handle_large(inbound, reply, caller))
                return
            exchange = open_exchange(state, inbound, reply, caller)
            apart = endpoint.kind in _APART or endpoint.array or state.shared_spend is not None
            if apart or exchange.alias.cache.mode != "off":
                self._begin(exchange, reply)
                return
            admit(state, exchange)
            begin(exchange)
        except Refusing as refusing:
            self._refuse(refusing.refusal, inbound, reply)
        except LightgateError as error:
            if reply.started:
                raise
            self._refuse(of_error(error), inbound, reply)

    async def _handle_large(self, inbound: Inbound, reply: Reply, caller: Caller) -> None:
        """Answer a request whose body is too much for one turn of the loop."""
        state = self._state
        request = await read_large(state, inbound, caller)
        exchange = open_exchange(state, inbound, reply, caller, request)
        await look_into(state, exchange)
        self._begin(exchange, reply)

    def _begin(self, exchange: Exchange, reply: Reply) -> None:
        """Begin an exchange whose request or answer has to do with others."""
        state = self._state
        kind = exchange.request.endpoint.kind
        if kind in _BY_ITEMS:
            previous = previous_of(exchange.request.fields)
            if previous is not None or exchange.request.refers:
                self._tasks(exchange.inbound, reply, self._go_on(exchange, reply, previous))
                return
        if kind == "count":
            self._tasks(exchange.inbound, reply, answer_count(state, exchange, reply))
            return
        client: ClientReply = ArrayReply(reply) if exchange.request.endpoint.array else reply
        exchange.reply = client
        if exchange.request.endpoint.sound:
            _plainly(exchange)
        elif exchange.alias.cache.mode != "off":
            name = shared_name(exchange)
            if name is not None:
                shared = Shared(state, exchange, client)
                if kind == "responses":
                    shared.around = self._responses.around
                self._tasks(exchange.inbound, reply, shared.run(name))
                return
        if kind == "responses":
            exchange.reply = self._responses.around(exchange, reply)
        self._admit_later(exchange, reply)

    def _admit_later(self, exchange: Exchange, reply: Reply) -> None:
        """Admit an exchange now, or once other machines have been asked, and begin it."""
        if shared_limits(self._state, exchange.caller.key) is None:
            admit(self._state, exchange)
            begin(exchange)
        else:
            self._tasks(exchange.inbound, reply, self._admit(exchange))

    async def _admit(self, exchange: Exchange) -> None:
        await admit_shared(self._state, exchange)
        begin(exchange)

    async def _go_on(self, exchange: Exchange, reply: Reply, previous: str | None) -> None:
        """Begin an exchange that goes on from a response, or names items of earlier ones."""
        asked = exchange.request.endpoint.kind
        if exchange.request.refers:
            await self._responses.fill_in(exchange)
        if asked == "responses":
            exchange.reply = self._responses.around(exchange, reply)
        if previous is not None:
            await self._responses.go_on(exchange, previous)
        if asked == "count":
            await answer_count(self._state, exchange, reply)
        else:
            await self._admit(exchange)

    def close(self) -> None:
        """Write what waits to be written."""
        self._responses.close()
        self._batches.close()

    def _tasks(self, inbound: Inbound, reply: Reply, work: Coroutine[None, None, None]) -> None:
        """Carry out what has to wait for something, as a task that ends with its client."""

        async def run() -> None:
            try:
                await work
            except asyncio.CancelledError:
                if not reply.finished:
                    reply.abort()
                raise
            except Refusing as refusing:
                self._refuse(refusing.refusal, inbound, reply)
            except LightgateError as error:
                if reply.started:
                    reply.fail(error)
                else:
                    self._refuse(of_error(error), inbound, reply)
            except Exception as error:  # noqa: BLE001 - the outer wall of a request
                reply.fail(error)

        task = self._state.loop.create_task(run())
        task.add_done_callback(lambda _: work.close())  # where the client left before it began
        self._state.keep(task)
        reply.on_lost = task.cancel

    def _read(self, inbound: Inbound, reply: Reply, path: Endpoint) -> None:
        state = self._state
        if path.verb == "live":
            reply.whole(200, _JSON, _LIVE)
        elif path.verb == "ready":
            self._ready(reply)
        elif path.verb == "request" and is_console(state, inbound):
            self._tasks(inbound, reply, self._look_up(reply, path.id or "", None, of_all=True))
        elif path.verb == "root":
            answer_root(inbound, reply, self._console)
        else:
            key = authorize(state, inbound, state.wall_ns())
            if path.verb == "models":
                self._tasks(inbound, reply, self._list_models(inbound, reply, key))
            elif path.verb == "model":
                reply.whole(200, _JSON, self._models.one(key, _shape(inbound), path.model or ""))
            elif path.verb == "usage":
                self._tasks(inbound, reply, self._tell_usage(inbound, reply, key))
            elif path.verb in STORED:
                self._tasks(inbound, reply, self._batches.answer(inbound, reply, path, key))
            elif path.id is not None and path.verb != "request":
                self._tasks(inbound, reply, self._responses.answer(inbound, reply, path, key))
            else:
                self._tasks(inbound, reply, self._look_up(reply, path.id or "", key))

    def _ready(self, reply: Reply) -> None:
        """Say whether every worker of this gateway listens, and which of them do not.

        A worker whose disk gives no more room still serves from what it has in reserve.
        """
        missing = [] if self._state.draining else self._unready()
        if self._state.draining:
            reply.whole(503, _JSON, _DRAINING)
        elif missing:
            unready = {"status": "not ready", "not_ready": missing}
            reply.whole(503, _JSON, msgspec.json.encode(unready))
        elif self._state.journal.lost:
            reply.whole(503, _JSON, _LOST)
        elif self._state.journal.tight():
            reply.whole(503, _JSON, _DISK_FULL)
        elif self._state.store is not None:  # which nobody needs to be served
            told = {"status": "ready", "shared": self._state.store.state}
            reply.whole(200, _JSON, msgspec.json.encode(told))
        else:
            reply.whole(200, _JSON, _READY)

    async def _tell_usage(self, inbound: Inbound, reply: Reply, key: KeyRecord | None) -> None:
        body = await usage_body(self._state, self._ledger_reads, key, inbound.target)
        reply.whole(200, _JSON, body)

    async def _look_up(
        self, reply: Reply, id_: str, key: KeyRecord | None, *, of_all: bool = False
    ) -> None:
        told = await look_up(self._state, self._ledger_reads, id_, key, of_all=of_all)
        reply.whole(200, _JSON, told)

    async def _list_models(self, inbound: Inbound, reply: Reply, key: KeyRecord | None) -> None:
        reply.whole(200, _JSON, await self._models.all(key, _shape(inbound)))

    def _endpoint(self, inbound: Inbound) -> Endpoint:
        found = find(inbound.target)
        if found is None:
            path = inbound.target.partition(b"?")[0]
            raise Refusing(Refusal(status=404, message=_no_path(path), code="unknown_path"))
        if inbound.method not in found.methods:
            allowed = b", ".join(found.methods)
            said = f"This path answers to {allowed.decode()}."
            raise Refusing(Refusal(status=405, message=said, code="method", allow=allowed))
        return found.endpoint

    def _refuse(self, refusal: Refusal, inbound: Inbound, reply: Reply) -> None:
        """Count a request that gets no attempt, and say why."""
        self._state.refused[refusal.code] += 1
        refusal.send(reply, _tongue(inbound), self._named(inbound))

    def _named(self, inbound: Inbound) -> bytes:
        given = inbound.header(b"x-request-id")
        if given is None or not SOUND_ID.fullmatch(given):
            given = self._state.ids.new().encode()
        return b"x-request-id: %b\r\n" % given


def _plainly(exchange: Exchange) -> None:
    """Take a cascade and its checks off the plan: an answer of sound cannot be read."""
    alias = exchange.alias
    if alias.tiers or alias.verify:
        policy = "ordered" if alias.policy == "cascade" else alias.policy
        exchange.alias = msgspec.structs.replace(alias, tiers=(), verify=(), policy=policy)


def _no_path(path: bytes) -> str:
    """The sentence about a path that does not exist: what is wrong with it, as far as it shows."""
    shown = path[:80].decode("ascii", "replace")
    twice = _TWICE.match(path)
    if twice is not None:
        version = twice[1].decode()
        return (
            f"There is no {shown} here: the client adds {version} to its base URL, which ends in"
            f" {version} already. Take {version} off the base URL."
        )
    if path.startswith((b"/v1/", b"/v1beta/")):
        return f"There is no {shown} here. docs/reference/http.md lists the endpoints."
    return (
        f"There is no {shown} here. Use a base URL that ends in /v1, such as"
        " POST /v1/chat/completions."
    )


def _shape(inbound: Inbound) -> str:
    """The dialect of a list of models: all three have one, two of them at the same address."""
    if inbound.header(b"anthropic-version") is not None:
        return "anthropic-messages"
    google = inbound.header(b"x-goog-api-key") is not None
    return "gemini" if google else dialect_of(inbound.target)


def _tongue(inbound: Inbound) -> str:
    """The dialect that an error is said in."""
    found = find(inbound.target)
    if found is None:
        return dialect_of(inbound.target)
    return _shape(inbound) if found.endpoint.verb in {"model", "models"} else found.endpoint.dialect
