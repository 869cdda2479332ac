"""The endpoints of the data plane: a fixed table of paths, and everything else is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.request import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.dialect.registry import Dialect

Verb = Literal[
    "call",
    "models",
    "model",
    "request",
    "usage",
    "response",
    "response_items",
    "response_cancel",
    "files",
    "file",
    "file_content",
    "batches",
    "batch",
    "batch_cancel",
    "message_batches",
    "message_batch",
    "message_batch_cancel",
    "message_batch_results",
    "live",
    "ready",
    "root",
]


class Endpoint(msgspec.Struct, frozen=True):
    """What a path means; `model` and `stream` are set where the path itself says them (Gemini).

    `tokens`: the answer is generated token by token, as the dialect says. `free`: no provider
    charges for it. `array`: the stream is to be one JSON array, as Gemini has it.
    `sound` is as in the dialect: "speech" or "form".
    """

    verb: Verb
    dialect: str = "openai-chat"
    kind: Kind = "chat"
    model: str | None = None
    stream: bool | None = None
    id: str | None = None
    tokens: bool = True
    free: bool = False
    array: bool = False
    sound: str = ""


def _call(one: Dialect, model: str | None = None, stream: bool | None = None) -> Endpoint:
    stream = True if one.sound == "speech" else stream
    return Endpoint(
        "call",
        one.name,
        one.kind,
        model,
        stream,
        tokens=one.tokens,
        free=one.free,
        sound=one.sound,
    )


# Each dialect with a path of its own: /v1/chat/completions, /v1/messages and so on.
_CALLS: Final = {f"/v1{one.path}".encode(): _call(one) for one in DIALECTS.values() if one.path}
# And those whose path ends in a verb of Google's, behind the model.
_VERBS: Final = {one.verb.encode(): one for one in DIALECTS.values() if one.verb}
_READS: Final = {
    b"/": Endpoint("root"),
    b"/v1/models": Endpoint("models"),
    b"/v1beta/models": Endpoint("models", "gemini"),
    b"/v1/usage": Endpoint("usage"),
    b"/health": Endpoint("ready"),
    b"/health/live": Endpoint("live"),
    b"/health/ready": Endpoint("ready"),
}
_GEMINI: Final = re.compile(
    rb"/v1(?:beta)?/models/([A-Za-z0-9_.:/%%@-]{1,256}):(streamGenerateContent|%b)"
    % b"|".join(_VERBS)
)
_GEMINI_VERB: Final = re.compile(rb"/v1/models/[^?]*:[A-Za-z]+(?:\?|$)")
_MODEL: Final = re.compile(  # and no verb of Google's behind it
    rb"/v1(beta)?/models/(?!.*:[a-z]+[A-Z][A-Za-z]*$)([A-Za-z0-9_.:/%@-]{1,256})"
)
_RESPONSE: Final = re.compile(rb"/v1/responses/([A-Za-z0-9_.:=-]{1,200})(/input_items|/cancel|)")
_RESPONSE_VERBS: Final[dict[bytes, tuple[Verb, tuple[bytes, ...]]]] = {
    b"": ("response", (b"GET", b"HEAD", b"DELETE")),
    b"/input_items": ("response_items", (b"GET", b"HEAD")),
    b"/cancel": ("response_cancel", (b"POST",)),
}
_MESSAGES: Final = "anthropic-messages"
# Files and batches that clients leave here: paths, and what may be done with one of them.
_STORES: Final = {
    b"/v1/files": Endpoint("files"),
    b"/v1/batches": Endpoint("batches"),
    b"/v1/messages/batches": Endpoint("message_batches", _MESSAGES),
}
_STORED: Final = re.compile(
    rb"/v1/(files|batches|messages/batches)/([A-Za-z0-9_-]{1,100})(/content|/cancel|/results|)"
)
_STORED_VERBS: Final[dict[bytes, tuple[Verb, tuple[bytes, ...]]]] = {
    b"files": ("file", (b"GET", b"HEAD", b"DELETE")),
    b"files/content": ("file_content", (b"GET", b"HEAD")),
    b"batches": ("batch", (b"GET", b"HEAD")),
    b"batches/cancel": ("batch_cancel", (b"POST",)),
    b"messages/batches": ("message_batch", (b"GET", b"HEAD", b"DELETE")),
    b"messages/batches/cancel": ("message_batch_cancel", (b"POST",)),
    b"messages/batches/results": ("message_batch_results", (b"GET", b"HEAD")),
}
STORED: Final = frozenset(
    [one.verb for one in _STORES.values()] + [verb for verb, _ in _STORED_VERBS.values()]
)
_REQUEST: Final = re.compile(rb"/v1/requests/([A-Za-z0-9_.:-]{1,128})")


# The first part of a path under /v1: many base URLs are given without that.
_PLAIN: Final = re.compile(
    rb"/(?:chat/|completions|responses|embeddings|messages|models|audio/|usage|files|batches)"
)


class Found(NamedTuple):
    """An endpoint and the methods that it answers to."""

    endpoint: Endpoint
    methods: tuple[bytes, ...]


def find(target: bytes) -> Found | None:
    """The endpoint of a request target; of the query only Gemini's `alt=sse` is read."""
    path, _, query = target.partition(b"?")
    if len(path) > len(b"//") and path.endswith(b"/"):
        path = path[:-1]  # some clients end their base URL or their paths so
    call = _CALLS.get(path)
    if call is not None:
        return Found(call, (b"POST",))
    read = _READS.get(path)
    if read is not None:
        return Found(read, (b"GET", b"HEAD"))
    store = _STORES.get(path)
    if store is not None:
        return Found(store, (b"GET", b"HEAD", b"POST"))
    for form, found in _FORMS:
        match = form.fullmatch(path)
        if match is not None:
            return found(match, query)
    if not target.startswith(b"/v1") and _PLAIN.match(path):
        return find(b"/v1" + target)  # the client's base URL lacks it
    return None


def dialect_of(target: bytes) -> str:
    """The dialect that an error about this path is said in."""
    if _PLAIN.match(target):
        target = b"/v1" + target
    if target.startswith(b"/v1beta/") or _GEMINI_VERB.match(target):
        return "gemini"
    return "anthropic-messages" if target.startswith(b"/v1/messages") else "openai-chat"


def _name(raw: bytes) -> str | None:
    """A model's name in a path; None for what is none."""
    model = unquote(raw.decode(), errors="replace")
    if not model.isprintable() or any(part in {"", ".", ".."} for part in model.split("/")):
        return None
    return model


def _model(match: re.Match[bytes], _query: bytes) -> Found | None:
    name = _name(match[2])
    if name is None:
        return None
    return Found(
        Endpoint("model", "gemini" if match[1] else "openai-chat", model=name), (b"GET", b"HEAD")
    )


def _gemini(match: re.Match[bytes], query: bytes) -> Found | None:
    model = _name(match[1])
    if model is None:
        return None
    stream = match[2] == b"streamGenerateContent"
    call = _call(_VERBS[b"generateContent" if stream else match[2]], model, stream)
    array = stream and b"alt=sse" not in query.split(b"&")
    return Found(msgspec.structs.replace(call, array=True) if array else call, (b"POST",))


def _response(match: re.Match[bytes], _query: bytes) -> Found:
    verb, methods = _RESPONSE_VERBS[match[2]]
    return Found(Endpoint(verb, "openai-responses", id=match[1].decode()), methods)


def _stored(match: re.Match[bytes], _query: bytes) -> Found | None:
    known = _STORED_VERBS.get(match[1] + match[3])
    if known is None:
        return None
    dialect = _MESSAGES if match[1].startswith(b"messages") else "openai-chat"
    return Found(Endpoint(known[0], dialect, id=match[2].decode()), known[1])


def _request(match: re.Match[bytes], _query: bytes) -> Found:
    return Found(Endpoint("request", id=match[1].decode()), (b"GET", b"HEAD"))


# Paths with something in them, and what each means; the first that fits.
_FORMS: Final[
    tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes], bytes], Found | None]], ...]
] = (
    (_GEMINI, _gemini),
    (_MODEL, _model),
    (_RESPONSE, _response),
    (_REQUEST, _request),
    (_STORED, _stored),
)
