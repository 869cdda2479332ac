"""The data plane's one handler: finds the endpoint, lets the request in, flies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.errors import LightgateError
from lightgate.gateway.admit.admit import admit, authorize, receive
from lightgate.gateway.admit.caller import greet, greeting_of
from lightgate.gateway.admit.overrides import SOUND_ID
from lightgate.gateway.admit.shorten import slim
from lightgate.gateway.exchange.cascade_ahead import new_flight
from lightgate.gateway.http.models import model_body, models_body
from lightgate.gateway.http.requests import look_up
from lightgate.gateway.http.shared import Shared, shared_name
from lightgate.gateway.request.body import read_wanted
from lightgate.gateway.request.endpoint import Path, dialect_of, find
from lightgate.gateway.request.refusal import Refusal, Refusing, of_error
from lightgate.gateway.served.served import ModelUnknown

if TYPE_CHECKING:
    from pathlib import Path as File

    from lightgate.gateway.admit.caller import Greeting
    from lightgate.gateway.process.state import State
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

_JSON: Final = ((b"content-type", b"application/json"),)
_LIVE: Final = b'{"status":"live"}'
_READY: Final = b'{"status":"ready"}'
_DRAINING: Final = b'{"status":"draining"}'


class Gateway:
    """Handles requests; what it knows is in its state."""

    def __init__(self, state: State, data: File) -> None:
        self._state = state
        self._data = data

    def gate(self, inbound: Inbound, reply: Reply) -> None:
        """Refuse a request by its head alone: nobody without a key has a body read here."""
        try:
            path = self._path(inbound)
            if path.verb == "call":
                greet(self._state, inbound, path)
        except Refusing as refusing:
            refusing.refusal.send(reply, _tongue(inbound), self._named(inbound))

    async def handle(self, inbound: Inbound, reply: Reply) -> None:
        """Answer one request."""
        try:
            greeting = greeting_of(inbound, self._state)
            if greeting is None:
                path = self._path(inbound)
                if path.verb != "call":
                    await self._read(inbound, reply, path)
                    return
                greeting = greet(self._state, inbound, path)
            await self._call(inbound, reply, greeting)
        except Refusing as refusing:
            refusing.refusal.send(reply, _tongue(inbound), self._named(inbound))
        except LightgateError as error:
            if reply.started:
                raise
            of_error(error).send(reply, _tongue(inbound), self._named(inbound))

    async def _call(self, inbound: Inbound, reply: Reply, greeting: Greeting) -> None:
        state = self._state
        wanted = read_wanted(greeting.path, inbound.body)
        guest = receive(state, greeting, wanted)
        if guest.alias.trim or guest.alias.concise:
            slim(guest.alias, wanted)
        name = shared_name(guest, wanted)
        if name is not None:
            await Shared(state, inbound, reply, guest, wanted).run(name)
        else:
            entry = admit(state, guest, wanted)
            await new_flight(state, inbound, reply, entry, wanted).run()

    async def _read(self, inbound: Inbound, reply: Reply, path: Path) -> None:
        state = self._state
        if path.verb == "live":
            reply.whole(200, _JSON, _LIVE)
        elif path.verb == "ready":
            reply.whole(
                503 if state.draining else 200, _JSON, _DRAINING if state.draining else _READY
            )
        else:
            key = authorize(state, inbound, state.wall_ns())
            if path.verb == "models":
                reply.whole(200, _JSON, models_body(state.served, key, _shape(inbound)))
            elif path.verb == "model":
                reply.whole(200, _JSON, self._model(inbound, path.model or "", key))
            else:
                body = await look_up(state, self._data, path.id or "", key)
                reply.whole(200, _JSON, body)

    def _model(self, inbound: Inbound, name: str, key: KeyRecord | None) -> bytes:
        body = model_body(self._state.served, key, _shape(inbound), name)
        if body is None:
            said = f"There is no model {name!r} here. GET /v1/models lists them."
            raise Refusing(Refusal(status=404, message=said, code=ModelUnknown.label))
        return body

    def _path(self, inbound: Inbound) -> Path:
        found = find(inbound.target)
        if found is None:
            shown = inbound.target.partition(b"?")[0][:80].decode("ascii", "replace")
            raise Refusing(
                Refusal(
                    status=404,
                    message=f"There is no {shown} here. Use a base URL that ends in /v1, such as"
                    " POST /v1/chat/completions.",
                    code="unknown_path",
                )
            )
        if inbound.method not in found.methods:
            allowed = b", ".join(found.methods)
            said = f"This path answers to {allowed.decode()}."
            raise Refusing(Refusal(status=405, message=said, code="method", allow=allowed))
        return found.path

    def _named(self, inbound: Inbound) -> bytes:
        given = inbound.header(b"x-request-id")
        if given is None or not SOUND_ID.fullmatch(given):
            given = self._state.ids.new().encode()
        return b"x-request-id: %b\r\n" % given


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
    return _shape(inbound) if found.path.verb in {"model", "models"} else found.path.dialect
