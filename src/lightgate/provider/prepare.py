"""From a target and neutral facts to the bytes of one HTTP request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate import __version__
from lightgate.dialect.anthropic.raw_predict import raw_body, raw_path
from lightgate.dialect.mend import mender
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.registry import Dialect, dialect_for
from lightgate.dialect.request import Built, CallForm
from lightgate.errors import UsageError
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.generations import generation_of
from lightgate.provider.secret import Secret, without_secrets
from lightgate.wire.origin import Origin, split_url

if TYPE_CHECKING:
    from lightgate.dialect.request import Request
    from lightgate.provider.target import Target

Pairs = tuple[tuple[str, str], ...]
NO_FORMS: Final[Mapping[str, CallForm]] = MappingProxyType({})
_WHOLE: Final = (("content-type", "application/json"), ("accept", "application/json"))
_STREAMING: Final = ("stream", "stream_options")
_BREAK: Final = re.compile(r"[\r\n\0]")  # would end a header


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A request that is ready to be written; its bytes hold the key, so it has no readable form.

    `dropped` are the JSON paths of those fields of the client's request that the target is not
    told, in the client's own words. `forms` are the tools whose calls the client knows otherwise.
    `rest` are the pieces of a large body, which follow the payload and are never put together.
    """

    origin: Origin
    payload: bytes
    dialect: Dialect
    quirks: Quirks
    streamed: bool
    secrets: tuple[Secret, ...] = ()
    dropped: tuple[str, ...] = ()
    forms: Mapping[str, CallForm] = NO_FORMS
    rest: tuple[bytes | memoryview, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the whole request."""
        return len(self.payload) + sum(map(len, self.rest))

    def without_key(self, text: str) -> str:
        """What a provider says may repeat the key that it refuses, whole or cut at the end."""
        return without_secrets(text, self.secrets)

    def __repr__(self) -> str:
        return f"Prepared({self.origin}, {self.size} bytes)"


def prepare(target: Target, request: Request, extra_headers: Pairs = ()) -> Prepared:
    """Build the request in the target's dialect; the host comes from the target alone."""
    provider = target.provider
    kind = request.kind if request.kind in provider.kinds else provider.answers_at(request.kind)
    dialect = dialect_for(provider.dialect, kind)
    if provider.dialect != "openai":  # whose compatible servers take what they know
        generation = generation_of(provider.dialect, target.model)
        request = msgspec.structs.replace(request, generation=generation)
    built = dialect.build(request, provider.quirks)
    streamed = (request.stream and dialect.tokens) or dialect.sound == "speech"
    return _written(target, dialect, built, extra_headers, streamed=streamed)


def prepare_own(target: Target, dialect: Dialect, body: bytes) -> Prepared:
    """Write a request in the words that it came in, for a target that speaks them.

    Only the model, the wish for a stream and what a quirk demands are ours: the answer comes whole.
    """
    fields: dict[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["model"] = msgspec.Raw(msgspec.json.encode(target.model))
    for name in _STREAMING:
        fields.pop(name, None)
    mends = mender(target.provider.quirks, dialect.name)
    if mends is not None:
        mends.mend(fields, Omissions(refuses=False, dialect=target.provider.title))
    built = Built(path=dialect.path, headers=_WHOLE, body=msgspec.json.encode(fields))
    return _written(target, dialect, built, (), streamed=False)


def _written(
    target: Target, dialect: Dialect, built: Built, extra_headers: Pairs, *, streamed: bool
) -> Prepared:
    provider = target.provider
    origin, root = split_url(target.base_url)
    path, body = built.path, built.body
    if provider.quirks.raw_predict:
        path = raw_path(target.model, streamed=streamed)
        body = raw_body(body, provider.quirks.raw_predict)
    path = root.rstrip("/") + path
    if provider.query or provider.auth.startswith("query:"):
        path = target.path(path)
    headers = (*built.headers, *target.headers(), *extra_headers)
    if target.signer is not None:
        headers += target.signer.sign(Ask("POST", origin.authority, path, headers, (body,)))
    head = head_block(origin, path, headers)
    return Prepared(
        origin,
        b"%b%d\r\n\r\n%b" % (head, len(body), body),
        dialect,
        provider.quirks,
        streamed,
        target.secrets,
    )


def head_block(origin: Origin, path: str, headers: Pairs) -> bytes:
    """The head of every request to one endpoint of a target, up to the number of its length."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {origin.authority}",
        f"user-agent: lightgate/{__version__}",
        "accept-encoding: identity",
    ]
    for name, value in headers:
        if _BREAK.search(name + value):
            raise UsageError(f"The value of the header {name!r} has a line break in it.")
        lines.append(f"{name}: {value}")
    lines.append("content-length: ")
    try:
        return "\r\n".join(lines).encode("latin-1")
    except UnicodeEncodeError:
        raise UsageError(
            "A header or the model's name has characters that HTTP cannot carry.",
            hint="Check the key and the model name for stray characters.",
        ) from None
