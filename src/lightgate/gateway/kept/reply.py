"""A response on its way to the client, looked at for its id and, where it is translated, kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.neutral.numbers import number
from lightgate.gateway.kept.store import KeptResponse
from lightgate.gateway.kept.talk import check_input, input_of, previous_of, wants_kept
from lightgate.gateway.request.around import ReplyAround

if TYPE_CHECKING:
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.kept.store import ResponseStore
    from lightgate.gateway.request.around import ClientReply

NATIVE: Final = "openai-responses"
_SOUND: Final = re.compile(r"[A-Za-z0-9_.:=-]{1,200}")
_LAST: Final = ("response.completed", "response.incomplete")
_ENDED: Final = frozenset(("completed", "incomplete"))
_SAID: Final = b'"previous_response_id":null,"store":false'  # of every translated response
_FIRST_BYTES: Final = 64 * 1024  # in which a provider's stream names its response
_MOST_BYTES: Final = 4 * 1024 * 1024  # of a response that is looked through in one turn of the loop
_HEAD: Final = re.compile(
    rb'\s*\{\s*"id"\s*:\s*"([\w.:=-]{1,200})"\s*,[^{}\[\]]{0,200}?"status"\s*:\s*"(\w+)"'
)


class _Response(msgspec.Struct):
    id: str | None = None
    status: str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    response: msgspec.Raw = msgspec.Raw(b"null")


_response: Final = msgspec.json.Decoder(_Response | None, float_hook=number)
_event: Final = msgspec.json.Decoder(_Event, float_hook=number)


class ResponseReply(ReplyAround):
    """Notes which target made a response; a translated one is kept with its turn.

    A stream is looked at in its first events and its last: the tokens between pass by.
    """

    def __init__(self, reply: ClientReply, exchange: Exchange, store: ResponseStore) -> None:
        super().__init__(reply)
        self._exchange = exchange
        self._store = store
        self._asked = exchange.request.fields
        check_input(self._asked)
        # The conversation may be put together in the request's fields; this is what was asked.
        self._previous = previous_of(exchange.request.fields)
        self._wanted = wants_kept(exchange.request.fields)
        self._known = False
        self._seen = b""
        self.send = self._look

    @property
    def _native(self) -> bool:
        winner = self._exchange.winner
        return winner is not None and winner.prepared.dialect.name == NATIVE

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        """Send the head; the first events name the response."""
        if status == 200 and first:
            first = self._looked(first)
        self.inner.start(status, headers, length=length, first=first)

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the stream; the last event of a translated one holds the whole response."""
        if last:
            last = self._looked(last)
        if not self._native and self._exchange.refusal is None:
            self._keep_last(last or self._seen)
        self.inner.finish(trailer, last=last)

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a response in one piece."""
        if status == 200:
            body = self._told(body)
            self._keep(body)
        self.inner.whole(status, headers, body)

    def _look(self, data: bytes) -> bool:
        """Send a piece, looked at while the response has no name yet."""
        return self.inner.send(data if self._known else self._looked(data))

    def _looked(self, data: bytes) -> bytes:
        data = self._told(data)
        if self._known:
            return data
        self._seen += data
        if self._native:
            for event in _events(self._seen):
                response = _decoded(event.response)
                if response is not None and response.id is not None:
                    self._note(response.id, None)
                    break
            else:
                if len(self._seen) < _FIRST_BYTES:
                    return data
            self._seen = b""
        if self._exchange.winner is not None:
            self._known = True
            self.send = self.inner.send
        return data

    def _told(self, data: bytes) -> bytes:
        """What a translated response says of itself, put right: it is kept, and goes on."""
        if self._native or not self._wanted:
            return data
        # It stands behind a response's output and before little else.
        ends = (
            (data,)
            if len(data) <= 2 * _FIRST_BYTES
            else (data[:_FIRST_BYTES], data[-_FIRST_BYTES:])
        )
        if not any(_SAID in end for end in ends):
            return data
        previous = msgspec.json.encode(self._previous)
        kept = b"true" if self._store.terms.keep else b"false"
        said = b'"previous_response_id":%b,"store":%b' % (previous, kept)
        told = [end.replace(_SAID, said) for end in ends]
        return told[0] if len(told) == 1 else data[_FIRST_BYTES:-_FIRST_BYTES].join(told)

    def _keep_last(self, data: bytes) -> None:
        for event in _events(data):
            if event.type in _LAST:
                self._keep(bytes(event.response))

    def _keep(self, body: bytes) -> None:
        response = _decoded(msgspec.Raw(body)) if len(body) <= _MOST_BYTES else _glimpse(body)
        if response is None or response.id is None:
            return
        if self._native:
            self._note(response.id, None)
        elif response.status in _ENDED and self._store.terms.keep:
            self._note(response.id, body)

    def _note(self, id_: str, body: bytes | None) -> None:
        exchange = self._exchange
        winner = exchange.winner
        if winner is None or not self._wanted or _SOUND.fullmatch(id_) is None:
            return
        key = exchange.caller.key
        self._store.put(
            KeptResponse(
                owner="" if key is None else key.id,
                id=id_,
                target=winner.step.target,
                previous=self._previous,
                made_ns=exchange.wall_ns,
                input=None if body is None else input_of(self._asked),
                response=body,
            )
        )


def _events(data: bytes) -> list[_Event]:
    """The events in whole pieces of a stream that hold a response; others are passed over."""
    found = []
    for line in data.split(b"\n"):
        if line.startswith(b"data: ") and b'"response"' in line:
            try:
                found.append(_event.decode(line[6:]))
            except (ValueError, RecursionError):
                continue
    return found


def _glimpse(body: bytes) -> _Response | None:
    """The id and the state of a large response, by its first fields, as every provider has them."""
    found = _HEAD.match(body)
    return None if found is None else _Response(found[1].decode(), found[2].decode())


def _decoded(raw: msgspec.Raw) -> _Response | None:
    try:
        found: _Response | None = _response.decode(raw)
    except (ValueError, RecursionError):
        return None
    return found
