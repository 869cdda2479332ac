"""Lines in the words of a target: what a provider is told, and its answer as the line knows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.mend import mender
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.registry import DIALECTS, dialect_for
from lightgate.dialect.scanner import Scanner
from lightgate.dialect.translate import read_request, translator
from lightgate.errors import LightgateError, UsageError
from lightgate.provider.generations import generation_of

if TYPE_CHECKING:
    from decimal import Decimal

    from lightgate.batch.lines import BatchLine
    from lightgate.dialect.registry import Dialect
    from lightgate.provider.target import Target

NANO: Final = 1_000_000_000
_STREAMED: Final = ("stream", "stream_options")  # a job's answers are whole
_encode: Final = msgspec.json.Encoder().encode


class TargetLine(NamedTuple):
    """A line as a target's batch API is told it: the endpoint, and the body in its dialect."""

    endpoint: str
    body: bytes


class TargetAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer of a batch job in the line's own dialect, with what it took.

    `cost_nano` is in nano-dollars by the batch tier, None where no price is known.
    """

    body: bytes
    usage: Usage
    cost_nano: int | None = None
    cost_source: str | None = None
    price_as_of: str | None = None
    finish: str | None = None


class BatchWords:
    """Translates lines for one target's batch API, and answers back."""

    def __init__(self, target: Target) -> None:
        self.target = target
        offer = target.provider.batch
        self._kinds = offer.endpoints if offer is not None else ()

    def dialect_of(self, line: BatchLine) -> Dialect | None:
        """The dialect in which the API takes a line; None where it takes no such lines."""
        own, family = DIALECTS[line.dialect], self.target.provider.dialect
        if own.family == family and own.kind in self._kinds:
            return own
        kind = "chat" if own.kind == "responses" else own.kind
        if kind not in {"chat", "embedding"} or kind not in self._kinds:
            return None
        return dialect_for(family, kind)

    def write(self, line: BatchLine) -> TargetLine:
        """Write a line for the API; UsageError where it cannot be said there."""
        spoken = self.dialect_of(line)
        if spoken is None:
            title = self.target.provider.title
            raise UsageError(f"The batch API of {title} has no endpoint for {line.url}.")
        if spoken.name == line.dialect:
            return TargetLine(f"/v1{spoken.path}", self._same(line, spoken))
        model, provider = self.target.model, self.target.provider
        neutral = read_request(
            line.dialect, line.body, model=model, stream=False, untranslatable="drop"
        )
        neutral = msgspec.structs.replace(
            neutral,
            model=model,
            kind=spoken.kind,
            generation=generation_of(provider.dialect, model),
        )
        return TargetLine(f"/v1{spoken.path}", spoken.build(neutral, provider.quirks).body)

    def _same(self, line: BatchLine, spoken: Dialect) -> bytes:
        fields = msgspec.json.decode(line.body, type=dict[str, msgspec.Raw])
        for name in _STREAMED:
            fields.pop(name, None)
        if not spoken.verb:
            fields["model"] = msgspec.Raw(_encode(self.target.model))
        mends = mender(self.target.provider.quirks, spoken.name)
        if mends is not None:
            mends.mend(fields, Omissions(refuses=False, dialect=self.target.provider.title))
        return _encode(fields)

    def read(self, line: BatchLine, body: bytes, at_s: float) -> TargetAnswer:
        """Read an answer; AttemptError where it is none. `at_s` is the time of its price."""
        spoken = self.dialect_of(line)
        if spoken is None:
            raise UsageError(f"There is no answer to {line.url} here.")
        scanner = Scanner(spoken.reader)
        scanner.whole(body)
        told = body
        if spoken.name != line.dialect:
            made = translator(
                spoken.name,
                line.dialect,
                model=line.model or self.target.model,
                id=line.custom_id,
                created=int(at_s),
            )
            told = made.whole(body)
        usage = scanner.usage or Usage()
        cost = self.target.cost(usage, datetime.fromtimestamp(at_s, UTC), batch=True)
        return TargetAnswer(
            body=told,
            usage=usage,
            cost_nano=nano(cost.cost_usd),
            cost_source=cost.cost_source,
            price_as_of=cost.price_as_of,
            finish=scanner.finish,
        )

    def missing(self, line: BatchLine) -> str:
        """Why the API does not take a line, "" where it does."""
        if not self._kinds:
            return f"{self.target.provider.title} has no batch API that is known here"
        try:
            self.write(line)
        except LightgateError as error:
            return error.message.rstrip(".")
        return ""


def nano(dollars: Decimal | None) -> int | None:
    """Dollars as nano-dollars."""
    return None if dollars is None else round(dollars * NANO)
