"""One target, as the gateway sends to it: requests in its words, its key, its prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from lightgate import __version__
from lightgate.dialect.registry import dialect_for
from lightgate.errors import UsageError
from lightgate.gateway.request.body import with_cap
from lightgate.provider.prepare import Prepared
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from lightgate.dialect.registry import Dialect
    from lightgate.gateway.request.body import Fields, Wanted
    from lightgate.gateway.spend.price import TokenPrices
    from lightgate.provider.target import Target
    from lightgate.route.plan.hedge import TargetPrice

_PATHS: Final = {
    "openai-chat": "/chat/completions",
    "openai-completions": "/completions",
    "openai-responses": "/responses",
    "openai-embeddings": "/embeddings",
    "anthropic-messages": "/messages",
}
_NATIVE: Final = {
    "openai": frozenset(("openai-chat", "openai-completions", "openai-embeddings")),
    "anthropic": frozenset(("anthropic-messages",)),
    "gemini": frozenset(("gemini",)),
}
# What a client may say to the provider beside its body; everything else stays here.
FORWARDED: Final = frozenset((b"anthropic-beta", b"openai-beta"))
_encode: Final = msgspec.json.Encoder().encode
_USAGE: Final = msgspec.Raw(b'{"include_usage":true}')
_TRUE: Final = msgspec.Raw(b"true")


class ServedTarget:
    """A target with everything made ready that does not change from request to request."""

    __slots__ = (
        "_heads",
        "_native",
        "_origin",
        "_root",
        "abort_stops_billing",
        "name_bytes",
        "prices",
        "target",
    )

    def __init__(self, target: Target, prices: TokenPrices, *, abort_stops_billing: bool) -> None:
        self.target = target
        self.name_bytes = target.name.encode("ascii", "replace")  # for a header: printable
        self.prices = prices
        self.abort_stops_billing = abort_stops_billing
        self._origin, root = split_url(target.base_url)
        self._root = root.rstrip("/")
        native = _NATIVE[target.provider.dialect]
        if "responses" in target.provider.kinds:
            native |= {"openai-responses"}
        self._native = native
        self._heads: dict[tuple[str, bool], bytes] = {}

    @property
    def price(self) -> TargetPrice | None:
        """For the router; None where nobody knows it."""
        return self.prices.price(abort_stops=self.abort_stops_billing)

    def speaks(self, dialect: str) -> bool:
        """Whether a client's bytes can be passed on as they are."""
        return dialect in self._native

    def answer_dialect(self, wanted: Wanted) -> Dialect:
        """The dialect in which this target will answer."""
        path = wanted.path
        if path.dialect in self._native:
            return dialect_for(self.target.provider.dialect, path.kind)
        if path.kind in {"completion", "embedding"}:
            raise UsageError(
                f"{self.target.name} has no endpoint for {path.dialect}.",
                hint="Ask an OpenAI-compatible target, or use /v1/chat/completions.",
            )
        return dialect_for(self.target.provider.dialect, "chat")

    def prepare(
        self, wanted: Wanted, cap: int | None, extra: bytes, *, gathered: bool = False
    ) -> Prepared:
        """The request's bytes for this target; UsageError names what it cannot be told.

        `gathered`: as a stream, though the client wants a whole answer.
        """
        streamed = wanted.streamed or gathered
        dialect = self.answer_dialect(wanted)
        if wanted.path.dialect == dialect.name:
            body = self._same(wanted, cap, streamed)
        else:
            body = self._translated(wanted, dialect, cap, streamed)
        head = self._heads.get((dialect.name, streamed))
        if head is None:
            head = self._heads[dialect.name, streamed] = self._head(dialect, streamed)
        return Prepared(
            self._origin,
            b"%b%d\r\n%b\r\n%b" % (head, len(body), extra, body),
            dialect,
            self.target.provider.quirks,
            streamed,
            self.target.api_key,
        )

    def _same(self, wanted: Wanted, cap: int | None, streamed: bool) -> bytes:
        """The client's own body; only the model, the cap and the wish for usage are ours."""
        fields: Fields = wanted.fields
        dialect = wanted.path.dialect
        quirks = self.target.provider.quirks
        if cap is not None:
            fields = with_cap(dialect, fields, cap, quirks.max_tokens_field)
        if dialect == "gemini":
            return _encode(fields)
        fields = dict(fields)
        fields["model"] = msgspec.Raw(_encode(self.target.model))
        if streamed and not wanted.streamed:
            fields["stream"] = _TRUE
        asks_usage = dialect in {"openai-chat", "openai-completions"} and quirks.stream_usage
        if streamed and asks_usage and not wanted.include_usage:
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
        return _encode(fields)

    def _translated(
        self, wanted: Wanted, dialect: Dialect, cap: int | None, streamed: bool
    ) -> bytes:
        from lightgate.dialect.translate import read_request

        request = read_request(
            wanted.path.dialect, wanted.body, model=self.target.model, stream=streamed
        )
        request = msgspec.structs.replace(
            request,
            model=self.target.model,
            kind="chat",
            max_tokens=cap if cap is not None else request.max_tokens,
        )
        return dialect.build(request, self.target.provider.quirks).body

    def _head(self, dialect: Dialect, streamed: bool) -> bytes:
        """Everything before the length; the host comes from the configuration alone."""
        accept = "text/event-stream" if streamed else "application/json"
        lines = [
            f"POST {self._root}{self._path(dialect, streamed)} HTTP/1.1",
            f"host: {self._origin.authority}",
            f"user-agent: lightgate/{__version__}",
            "accept-encoding: identity",
            "content-type: application/json",
            f"accept: {accept}",
            *(f"{name}: {value}" for name, value in self.target.headers()),
            "content-length: ",
        ]
        return "\r\n".join(lines).encode("latin-1")

    def _path(self, dialect: Dialect, streamed: bool) -> str:
        if dialect.name != "gemini":
            return _PATHS[dialect.name]
        model = quote(self.target.model.removeprefix("models/"), safe="")
        return (
            f"/models/{model}:{'streamGenerateContent?alt=sse' if streamed else 'generateContent'}"
        )


def _with_usage(raw: msgspec.Raw | None) -> msgspec.Raw:
    """Stream options that ask for usage; the client's other options stay."""
    if raw is None or bytes(raw) == b"null":
        return _USAGE
    options = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    options["include_usage"] = msgspec.Raw(b"true")
    return msgspec.Raw(_encode(options))
