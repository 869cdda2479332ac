"""Responses that have an id: asked for again, deleted, and gone on from.

One that its target keeps is asked of that target; any other is kept here. Both belong to the key
whose request made them, and do not exist for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from lightgate.dialect.errors import fault
from lightgate.errors import AttemptError, UsageError
from lightgate.gateway.admit.admit import admit_free
from lightgate.gateway.exchange.caller import owner_of
from lightgate.gateway.http.large import change
from lightgate.gateway.kept.reply import NATIVE, ResponseReply
from lightgate.gateway.kept.store import ResponseStore
from lightgate.gateway.kept.talk import (
    find_named,
    list_items,
    name_items,
    put_together,
    responses_named,
    tell_all,
    unknown_previous,
    with_items,
)
from lightgate.gateway.request.body import BYTES_PER_TOKEN
from lightgate.gateway.request.refusal import Refusal, Refusing, of_error
from lightgate.gateway.request.weight import LIGHT_BYTES
from lightgate.route.form.size import size_of
from lightgate.wire.client.fetch import fetch_whole
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lightgate.gateway.cache.single_flight import SharedAnswer
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.kept.store import KeptResponse
    from lightgate.gateway.request.body import Fields
    from lightgate.gateway.request.endpoint import Endpoint
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

_JSON: Final = b"content-type: application/json\r\n"
_ANSWER_BYTES: Final = 64 * 1024 * 1024
_DEADLINES: Final = Deadlines(3.0, None, 30.0, 60.0)
# What a client may ask of a provider's list of items, or of a response.
_ASKED: Final = frozenset(("include", "include[]", "limit", "order", "after", "before"))
_encode: Final = msgspec.json.Encoder().encode


class Responses:
    """The responses of one worker's clients."""

    def __init__(self, state: State, data: Path) -> None:
        self._state = state
        self._data = data
        self._store: ResponseStore | None = None

    @property
    def store(self) -> ResponseStore:
        """The file of kept responses, opened at the first need, under the terms in force."""
        terms = self._state.served.terms.responses
        if self._store is None:
            self._store = ResponseStore(self._data, terms)
        self._store.terms = terms
        return self._store

    def close(self) -> None:
        """Write what waits."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def around(self, exchange: Exchange, reply: Reply | SharedAnswer) -> ResponseReply:
        """The reply to a request for a response, which notes what becomes of it."""
        return ResponseReply(reply, exchange, self.store)

    # Going on

    async def go_on(self, exchange: Exchange, previous: str) -> None:
        """Make a follow-up ready: for the target that has the conversation, or with all of it."""
        key = exchange.caller.key
        chain = await self.store.chain(_owner(key), previous)
        if chain and chain[-1].native:
            _stay(exchange, chain[-1])
        elif chain:
            await self._tell_all(exchange, chain)
        elif key is not None or not _native_targets(exchange):
            # Without keys there is nobody to keep apart: a provider may know what we do not.
            raise unknown_previous(previous)

    async def fill_in(self, exchange: Exchange) -> None:
        """Put the items into a request that it only names, as the Vercel AI SDK does."""
        request, owner = exchange.request, _owner(exchange.caller.key)
        if request.found is None:
            names = responses_named(request.fields)
        else:
            turn = owner_of(exchange.caller, exchange.inbound)
            names, _ = await self._state.aside.do(
                turn, find_named, (request.body,), request.endpoint
            )
        kept = []
        for id_ in sorted(names):
            found = await self.store.find(owner, id_)
            if found is not None and not found.native:
                kept.append(found)
        if not kept:
            return
        if _is_large(exchange, kept):
            await change(self._state, exchange, name_items, kept)
            self._check_size(exchange)
        else:
            self._say(exchange, with_items(request.fields, kept))

    async def _tell_all(self, exchange: Exchange, chain: list[KeptResponse]) -> None:
        """Put the whole conversation into the request."""
        if _is_large(exchange, chain):
            await change(self._state, exchange, tell_all, chain)
            self._check_size(exchange)
        else:
            self._say(exchange, put_together(chain, exchange.request.fields))

    def _say(self, exchange: Exchange, fields: Fields) -> None:
        """Let the request say these fields."""
        request = exchange.request
        request.fields = fields
        request.body = _encode(request.fields)
        self._check_size(exchange)
        request.tokens_in = len(request.body) // BYTES_PER_TOKEN + 1
        exchange.size = size_of(request.tokens_in)

    def _check_size(self, exchange: Exchange) -> None:
        """Refuse a conversation that has grown beyond the limit on bodies."""
        most = self._state.served.terms.max_body_bytes
        if len(exchange.request.body) > most:
            said = (
                f"The conversation has grown beyond {most} bytes ([gateway] max_body_bytes)."
                " Begin a new one."
            )
            raise Refusing(Refusal(status=413, message=said, code="conversation_too_long"))

    # Asking again

    async def answer(
        self, inbound: Inbound, reply: Reply, endpoint: Endpoint, key: KeyRecord | None
    ) -> None:
        """Answer a request about one response."""
        state, id_ = self._state, endpoint.id or ""
        await admit_free(state, key)
        asked = dict(parse_qsl(inbound.target.partition(b"?")[2].decode("latin-1")))
        if asked.get("stream") == "true":
            said = "A response that has been made is not streamed again: ask without `stream`."
            raise Refusing(of_error(UsageError(said), param="stream"))
        owner = _owner(key)
        kept = await self.store.find(owner, id_)
        if kept is None:
            raise Refusing(_unknown(id_))
        if kept.native:
            await self._ask_target(inbound, reply, endpoint, kept)
        elif endpoint.verb == "response_cancel":
            said = "Only a response in the background can be cancelled; this one is complete."
            raise Refusing(of_error(UsageError(said)))
        elif endpoint.verb == "response_items":
            chain = await self.store.chain(owner, id_)
            if sum([one.size for one in chain]) <= LIGHT_BYTES:
                _, page = list_items(chain, asked)
            else:
                turn = owner or inbound.peer.rpartition(":")[0]
                _, page = await state.aside.do(turn, list_items, (), chain, asked)
            reply.whole(200, _JSON, page[0])
        elif inbound.method == b"DELETE":
            await self.store.delete(owner, id_)
            reply.whole(200, _JSON, _encode({"id": id_, "object": "response", "deleted": True}))
        else:
            reply.whole(200, _JSON, kept.response or b"{}")

    async def _ask_target(
        self, inbound: Inbound, reply: Reply, endpoint: Endpoint, kept: KeptResponse
    ) -> None:
        """Ask the target that keeps the response."""
        state = self._state
        try:
            state.served.alias(kept.target)
            target = state.served.targets[kept.target]
        except (UsageError, KeyError):
            raise Refusing(_unknown(kept.id)) from None
        tail = {"response_items": "/input_items", "response_cancel": "/cancel"}
        path = f"/responses/{quote(kept.id, safe='')}{tail.get(endpoint.verb, '')}"
        query = parse_qsl(inbound.target.partition(b"?")[2].decode("latin-1"))
        told = urlencode([(name, value) for name, value in query if name in _ASKED])
        method = b"GET" if inbound.method == b"HEAD" else inbound.method
        origin, payload = target.bare(method, f"{path}?{told}" if told else path)
        try:
            found = await fetch_whole(state.client, origin, payload, _ANSWER_BYTES, _DEADLINES)
        except AttemptError as error:
            raise Refusing(of_error(error)) from None
        if found.status >= 400:
            said = target.without_key(fault(found.status, found.body).message)
            status = found.status if found.status in {400, 404, 409, 429} else 502
            message = f"{kept.target} answered {found.status}: {said}"
            raise Refusing(Refusal(status=status, message=message, code="http_error"))
        if inbound.method == b"DELETE":
            await self.store.delete(kept.owner, kept.id)
        named = b"x-lightgate-target: %b\r\n" % target.name_bytes
        reply.whole(200, _JSON + named, found.body)


def _owner(key: KeyRecord | None) -> str:
    return "" if key is None else key.id


def _is_large(exchange: Exchange, kept: Sequence[KeptResponse]) -> bool:
    """Whether a request and what is to be put into it are too much for one turn of the loop."""
    size = len(exchange.request.body) + sum([one.size for one in kept])
    return exchange.request.found is not None or size > LIGHT_BYTES


def _native_targets(exchange: Exchange, provider: str | None = None) -> list[str]:
    """The targets of the asked model that have the endpoint; of one provider, if it is named."""
    return [
        name
        for name in exchange.alias.targets
        if (provider is None or name.partition("/")[0] == provider)
        and exchange.served.targets[name].speaks(NATIVE)
    ]


def _stay(exchange: Exchange, kept: KeptResponse) -> None:
    """Let only targets of the provider answer that keeps the conversation, its maker first."""
    able = _native_targets(exchange, kept.target.partition("/")[0])
    if not able:
        said = (
            f"The previous response is kept by {kept.target}, and the model"
            f" {exchange.request.model!r} has no target there."
        )
        hint = "Ask for a model that does, or send the whole conversation in `input`."
        raise Refusing(of_error(UsageError(said, hint=hint), param="previous_response_id"))
    able.sort(key=lambda name: name != kept.target)
    exchange.alias = msgspec.structs.replace(
        exchange.alias,
        targets=tuple(able),
        policy="ordered",
        weights=(),
        tiers=(),
        verify=(),
        race=1,
        hedge="off",
    )


def _unknown(id_: str) -> Refusal:
    message = (
        f"Response with id {id_!r} not found. It may be another key's, older than"
        " [gateway.responses] ttl, or made with store = false."
    )
    return Refusal(status=404, message=message, code="response_not_found")
