"""One target, as the gateway sends to it: requests in its words, its key, its prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from lightgate.dialect.anthropic.raw_predict import raw_path
from lightgate.dialect.registry import DIALECTS, counterpart, dialect_for
from lightgate.errors import UsageError
from lightgate.gateway.request.body import Written
from lightgate.gateway.request.writer import BodyWriter
from lightgate.gateway.served.price import MOST_ANSWERED
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.generations import generation_of
from lightgate.provider.prepare import Prepared, head_block
from lightgate.provider.secret import without_secrets
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from lightgate.dialect.registry import Dialect
    from lightgate.dialect.request import Untold
    from lightgate.gateway.request.body import ClientRequest, Pieces
    from lightgate.gateway.request.endpoint import Endpoint
    from lightgate.gateway.served.price import TokenPrices
    from lightgate.provider.cloud.signer import Signer
    from lightgate.provider.target import Target
    from lightgate.route.plan.hedge import TargetPrice
    from lightgate.wire.origin import Origin

_JSON: Final = (("content-type", "application/json"),)
_JSON_LINE: Final = b"content-type: application/json\r\n"


class ServedTarget:
    """A target with everything made ready that does not change from request to request."""

    __slots__ = (
        "_instance",
        "_native",
        "_quirks",
        "_root",
        "_secrets",
        "_signer",
        "_ways",
        "abort_stops_billing",
        "longest_answer",
        "name_bytes",
        "origin",
        "passes",
        "prices",
        "target",
        "writer",
    )

    def __init__(
        self,
        target: Target,
        prices: TokenPrices,
        *,
        abort_stops_billing: bool,
        instance: str = "",
        context_window: int | None = None,
    ) -> None:
        self.target = target
        self.name_bytes = target.name.encode("ascii", "replace")  # for a header: printable
        self.prices = prices
        self.abort_stops_billing = abort_stops_billing
        self.passes = frozenset(name.encode() for name in target.provider.passes)
        self._instance = instance
        self.origin, root = split_url(target.base_url)
        self._root = root.rstrip("/")
        provider = target.provider
        self._native = {
            one.name
            for one in DIALECTS.values()
            if one.family == provider.dialect and provider.has_endpoint(one.kind)
        }
        self._ways: dict[tuple[str, str, bool], tuple[Dialect, bytes]] = {}
        self._secrets, self._signer = target.secrets, target.signer
        self._quirks = provider.quirks
        generation = generation_of(provider.dialect, target.model)
        self.writer = BodyWriter(target.model, provider.title, provider.quirks, generation)
        # In tokens, where a request names no limit; no model answers at greater length than it
        # takes, and none that is known at greater length than MOST_ANSWERED.
        window = min(context_window or MOST_ANSWERED, MOST_ANSWERED)
        self.longest_answer = generation.max_tokens or window

    @property
    def price(self) -> TargetPrice | None:
        """For the router; None where nobody knows it."""
        return self.prices.price(abort_stops=self.abort_stops_billing)

    def speaks(self, dialect: str) -> bool:
        """Whether a client's bytes can be passed on as they are."""
        return dialect in self._native

    def carries_out(self, tool: str, dialect: str) -> bool:
        """Whether the target is told of a tool that its provider calls itself."""
        return dialect in self._native or tool in self.target.provider.quirks.hosted

    def answer_dialect(self, endpoint: Endpoint) -> Dialect:
        """The dialect in which this target will answer."""
        asked = DIALECTS[endpoint.dialect]
        if endpoint.dialect in self._native:
            return asked
        if asked.facts is not None:
            found = counterpart(self.target.provider.dialect, endpoint.kind)
            if found is not None and found.name in self._native:
                return found
        if asked.facts is not None or asked.read is None:
            name = self.target.provider.name
            raise UsageError(
                f"{self.target.name} has no endpoint for {endpoint.dialect}.",
                hint=f"Ask another target, or name {endpoint.kind!r} among the kinds of"
                f" [providers.{name}] if it has one.",
            )
        provider = self.target.provider
        return dialect_for(provider.dialect, provider.answers_at("chat"))

    def prepare(
        self,
        request: ClientRequest,
        cap: int | None,
        extra: bytes,
        *,
        assembled: bool = False,
        untranslatable: Untold = "drop",
    ) -> Prepared:
        """The request's bytes for this target; UsageError names what it cannot be told.

        `assembled`: as a stream, though the client wants a whole answer. `untranslatable` is what
        becomes of a field that another dialect has no words for and the answer does not hang on.
        """
        endpoint = request.endpoint
        streamed = request.streamed or assembled
        way = self._ways.get((endpoint.dialect, endpoint.kind, streamed))
        if way is None:
            way = self._way(endpoint, streamed)
        dialect, head = way
        if request.form is not None:
            pieces = request.form.addressed(self.target.model)
            written = Written(b"", pieces=pieces)
            extra = request.form.content_type + extra
        elif request.written is not None:
            found = request.written[self.target.name, streamed]
            if isinstance(found, UsageError):
                raise found
            written = found
        elif endpoint.dialect == dialect.name:
            written = self.writer.same(request, dialect, cap, streamed, untranslatable)
        else:
            written = self.writer.translated(request, dialect, cap, streamed, untranslatable)
        body, pieces, secrets, signer = written.body, written.pieces, self._secrets, self._signer
        if signer is not None:
            form = request.form
            line = _JSON_LINE if form is None else form.content_type
            extra += self._signed(signer, head, line, pieces or (body,), written.digest)
            secrets = self.target.secrets
        size = sum(map(len, pieces)) if pieces else len(body)
        return Prepared(
            self.origin,
            b"%b%d\r\n%b\r\n%b" % (head, size, extra, body),
            dialect,
            self._quirks,
            streamed,
            secrets,
            written.dropped,
            written.forms,
            pieces,
        )

    def _signed(
        self, signer: Signer, head: bytes, line: bytes, pieces: Pieces, digest: str
    ) -> bytes:
        """The lines of the headers that let this one request in."""
        path = head.partition(b" ")[2].partition(b" ")[0].decode("latin-1")
        kind = ("content-type", line.partition(b":")[2].strip().decode("latin-1"))
        headers = (kind, *self.target.headers())
        ask = Ask("POST", self.origin.authority, path, headers, pieces, digest)
        lines = [f"{name}: {value}\r\n" for name, value in signer.sign(ask)]
        return "".join(lines).encode("latin-1")

    def bare(self, method: bytes, path: str) -> tuple[Origin, bytes]:
        """A request without a body, about something that the provider keeps."""
        path, headers = self.target.bare(method.decode(), path)
        head = head_block(self.origin, path, (("accept", "application/json"), *headers))
        return self.origin, b"%b%b0\r\n\r\n" % (method, head.removeprefix(b"POST"))

    def without_key(self, text: str) -> str:
        """What the provider says, without the key that it may repeat."""
        return without_secrets(text, self.target.secrets)

    def _way(self, endpoint: Endpoint, streamed: bool) -> tuple[Dialect, bytes]:
        """Make the dialect and the header block of one endpoint ready, once."""
        dialect = self.answer_dialect(endpoint)
        accept = "text/event-stream" if streamed else "application/json"
        headers = (*_JSON, ("accept", accept), *self.target.headers())
        if dialect.sound:
            kept = () if dialect.sound == "form" else _JSON  # a form's type names its boundary
            headers = (*kept, ("accept", "*/*"), *self.target.headers())
        if self._instance:
            headers = (*headers, ("x-lightgate-hop", self._instance))
        path = self.target.path(self._root + self._path(dialect, streamed))
        head = head_block(self.origin, path, headers)
        way = self._ways[endpoint.dialect, endpoint.kind, streamed] = dialect, head
        return way

    def _path(self, dialect: Dialect, streamed: bool) -> str:
        if self.target.provider.quirks.raw_predict:
            return raw_path(self.target.model, streamed=streamed)
        if dialect.path:
            return dialect.path
        model = quote(self.target.model.removeprefix("models/"), safe="")
        return f"/models/{model}:{'streamGenerateContent?alt=sse' if streamed else dialect.verb}"
