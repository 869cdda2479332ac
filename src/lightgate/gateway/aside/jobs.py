"""Jobs on large bodies that are done in the process beside a worker. Pure functions.

Each takes bodies and arguments, and returns a value and the bodies that it made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.dialect.neutral.estimate import estimate_tokens
from lightgate.dialect.neutral.numbers import any_json
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.translate import translator
from lightgate.errors import AttemptError, TooLarge, UsageError
from lightgate.gateway.request.body import (
    BYTES_PER_TOKEN,
    ClientRequest,
    LargeFacts,
    Written,
    read_request_body,
)
from lightgate.gateway.request.hosted import billed_parts, offered_tools
from lightgate.gateway.request.shorten import Shortening, shorten
from lightgate.gateway.request.weight import TooManyValues, check_values
from lightgate.route.cascade.complexity import score
from lightgate.route.cascade.features import features_of
from lightgate.route.prompt.cache_key import cache_key, cacheable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.dialect.request import CallForm, Untold
    from lightgate.dialect.scanner import ScanFacts
    from lightgate.gateway.request.body import Fields
    from lightgate.gateway.request.endpoint import Endpoint
    from lightgate.gateway.request.writer import BodyWriter
    from lightgate.route.prompt.cache_key import Beside, Mode

_SMALL: Final = 4096  # bytes of a value that is sent as it is
# A field of a body: its name, and its value or the place of it.
Place = tuple[str, bytes | tuple[int, int]]
ReadAside = tuple[ClientRequest, list[Place]]  # without its body, and its fields by their places


class ReadWants(NamedTuple):
    """What is to be found out about a body; `values` is the limit on its objects and lists."""

    values: int
    billed: bool = False
    complexity: bool = False


class WriteOrder(NamedTuple):
    """A body that is to be written for a target."""

    target: str
    writer: BodyWriter
    dialect: str
    cap: int | None
    streamed: bool
    untranslatable: Untold


class ShareAsk(NamedTuple):
    """What the key of an answer depends on, beside the fields of its request."""

    tenant: str
    dialect: str
    model: str
    mode: Mode
    beside: Beside


def read(body: bytes, endpoint: Endpoint, wants: ReadWants) -> tuple[ReadAside, list[bytes]]:
    """Read a request: its facts, and where its fields are."""
    check_values(body, wants.values)
    request = read_request_body(endpoint, body)
    counts = endpoint.kind == "count"
    request.found = LargeFacts(
        billed=billed_parts(request) if wants.billed else None,
        tools=dict(offered_tools(request)),
        complexity=score(features_of(endpoint.dialect, request.fields))
        if wants.complexity
        else None,
        refers=request.refers,
        count=estimate_tokens(any_json.decode(body)) if counts else None,
    )
    return _facts(request), []


def _facts(request: ClientRequest) -> ReadAside:
    """A request without its body, and its fields by their places."""
    return msgspec.structs.replace(request, body=b"", fields={}), _places(request)


def _places(request: ClientRequest) -> list[Place]:
    places: list[Place] = []
    at = 0
    for name, value in request.fields.items():
        raw = bytes(value)
        # A value of the same bytes elsewhere does as well.
        start = -1 if len(raw) <= _SMALL else request.body.find(raw, at)
        if start < 0:
            places.append((name, raw))
        else:
            at = start + len(raw)
            places.append((name, (start, at)))
    return places


def with_fields(request: ClientRequest, body: bytes, places: Sequence[Place]) -> ClientRequest:
    """Put a request together again, in the process that has its body."""
    view = memoryview(body)
    fields: Fields = {}
    for name, place in places:
        fields[name] = msgspec.Raw(place if isinstance(place, bytes) else view[place[0] : place[1]])
    request.fields, request.body = fields, body
    request.tokens_in = len(body) // BYTES_PER_TOKEN + 1
    return request


def name_of(fields: Fields, ask: ShareAsk) -> bytes | None:
    """The key of a request's answer; None where the answer is not for others."""
    if not cacheable(ask.dialect, fields, ask.mode):
        return None
    return cache_key(ask.tenant, ask.dialect, ask.model, fields, ask.beside)


def share(body: bytes, endpoint: Endpoint, ask: ShareAsk) -> tuple[bytes | None, list[bytes]]:
    """Find the key of a request's answer."""
    return name_of(read_request_body(endpoint, body).fields, ask), []


def shortened(
    body: bytes, endpoint: Endpoint, wants: ReadWants, way: Shortening
) -> tuple[ReadAside, list[bytes]]:
    """Trim a prompt and ask for a short answer."""
    request = read_request_body(endpoint, body)
    shorten(way, request)
    trimmed, body = request.trimmed, request.body
    (request, places), _ = read(body, endpoint, wants)
    request.trimmed = trimmed
    return (request, places), [body]


class AnswerOrder(NamedTuple):
    """A whole answer of a provider that is to be read and, for another dialect, translated.

    `asked` are the fields of the client's request, where the form of the answer hangs on them.
    """

    dialect: str
    client: str
    model: str
    id: str
    created: int
    include_usage: bool
    asked: dict[str, bytes] | None
    forms: Mapping[str, CallForm]
    values: int


def answer(
    body: bytes, order: AnswerOrder
) -> tuple[tuple[ScanFacts, AttemptError | None], list[bytes]]:
    """Read a whole answer; what the clock needs to know, and the answer in the client's dialect."""
    scanner = DIALECTS[order.dialect].scanner()
    scanner.whole(body)
    if order.client == order.dialect or scanner.error is not None:
        return (scanner.facts(), None), [b""]
    try:
        check_values(body, order.values)
        told = translator(
            order.dialect,
            order.client,
            model=order.model,
            id=order.id,
            created=order.created,
            include_usage=order.include_usage,
        )
        if order.asked is not None:
            told.hear({name: msgspec.Raw(value) for name, value in order.asked.items()})
        if order.forms:
            told.know(order.forms)
        return (scanner.facts(), None), [told.whole(body)]
    except AttemptError as error:
        return (scanner.facts(), error), [b""]
    except TooManyValues as error:
        return (scanner.facts(), TooLarge(error.message)), [b""]


def write(
    body: bytes, endpoint: Endpoint, orders: Sequence[WriteOrder]
) -> tuple[list[Written | UsageError], list[bytes]]:
    """Write the bodies for several targets; an error in the place of one that cannot be told."""
    request = read_request_body(endpoint, body)
    told: list[Written | UsageError] = []
    bodies = []
    for order in orders:
        try:
            made = order.writer.write(
                request, order.dialect, order.cap, order.streamed, order.untranslatable
            )
        except UsageError as error:
            told.append(error)
            bodies.append(b"")
        else:
            told.append(msgspec.structs.replace(made, body=b""))
            bodies.append(made.body)
    return told, bodies
