"""Sends the lines of a job through `provider.call`: straight to a target, or through a gateway."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.batch.share import LineAnswer
from lightgate.clock.marks import Marks
from lightgate.clock.source import SYSTEM
from lightgate.clock.tokens import Usage
from lightgate.dialect.errors import Fault
from lightgate.dialect.neutral.terms import reason_of
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.translate import error_body, read_request, translator
from lightgate.errors import AttemptError, HttpRefused, StreamError, UsageError
from lightgate.ledger.journal.notes import AttemptNote, NoteFacts
from lightgate.provider.call import Call
from lightgate.provider.prepare import prepare, prepare_own
from lightgate.route.admission.headers import read_rates
from lightgate.route.health.failure import named_status, what

if TYPE_CHECKING:
    from lightgate.batch.lines import BatchLine
    from lightgate.batch.share import Price
    from lightgate.clock.source import Clock
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.provider.target import Target
    from lightgate.route.admission.admission import End
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.roundtrip import Deadlines

NS: Final = 1_000_000_000
MTOK: Final = 1_000_000
NANO: Final = Decimal(1_000_000_000)
_USELESS: Final = frozenset(("credentials", "payment", "model_missing"))
_COST_FIELD: Final = b"x-lightgate-cost-usd"


def price_of(target: Target, at: datetime) -> Price:
    """Return the price of tokens at a target, in nano-dollars; as far as it is per token."""

    def dollars(tokens_in: int, tokens_out: int) -> Decimal | None:
        return target.cost(Usage(tokens_in=tokens_in, tokens_out=tokens_out), at).cost_usd

    each_in, each_out = dollars(MTOK, 0), dollars(0, MTOK)
    if each_in is None or each_out is None:
        return lambda _in, _out: None
    nano_in, nano_out = float(each_in * NANO / MTOK), float(each_out * NANO / MTOK)
    return lambda tokens_in, tokens_out: round(nano_in * tokens_in + nano_out * tokens_out)


class DirectSender:
    """Sends lines to one target, in its dialect; the ledger gets a note of each attempt."""

    books = True  # whether attempts are noted here; a gateway notes its own

    def __init__(
        self, target: Target, client: Client, deadlines: Deadlines, *, clock: Clock = SYSTEM
    ) -> None:
        self.target = target
        self._client = client
        self._deadlines = deadlines
        self._clock = clock
        provider = target.provider
        self._native = {
            one.name
            for one in DIALECTS.values()
            if one.family == provider.dialect and provider.has_endpoint(one.kind)
        }

    async def __call__(self, line: BatchLine, exchange_id: str, seq: int) -> LineAnswer:
        """Send attempt `seq` of an exchange; only a cancellation is raised."""
        try:
            prepared = self._prepared(line)
        except UsageError as error:
            fault = Fault(error.label, f"{error.message} {error.hint}".strip(), 400)
            body = error_body(line.dialect, fault)
            return LineAnswer(
                end="wrong", status=400, body=body, kind=error.label, message=error.message
            )
        marks, wall_ns = Marks(plan=self._clock.now_ns()), self._clock.wall_ns()
        call = Call(prepared, marks)
        called = await call.run(self._client, self._deadlines)
        answer = self._answer(line, call, called, exchange_id)
        answer.rates = read_rates(call.limits, wall_ns / NS)
        self._count(answer, call, called)
        if self.books:
            answer.note = self._note(answer, called, marks, exchange_id, seq, wall_ns)
        return answer

    def _prepared(self, line: BatchLine) -> Prepared:
        if line.dialect in self._native:
            return prepare_own(self.target, DIALECTS[line.dialect], line.body)
        request = read_request(
            line.dialect,
            line.body,
            model=self.target.model,
            stream=False,
            untranslatable="drop",
        )
        return prepare(self.target, request)

    def _answer(self, line: BatchLine, call: Call, called: Called, made: str) -> LineAnswer:
        error, request_id = called.error, called.provider_request_id or ""
        if error is None:
            try:
                body = self._said(line, call, made)
            except AttemptError as misread:
                error = misread
            else:
                return LineAnswer(end="ok", status=200, body=body, request_id=request_id)
        return _failed(line, called, error, request_id)

    def _said(self, line: BatchLine, call: Call, made: str) -> bytes:
        """Return the answer in the line's dialect."""
        spoken = call.prepared.dialect.name
        if spoken == line.dialect:
            return call.body
        model = line.model or self.target.model
        created = self._clock.wall_ns() // NS
        return translator(spoken, line.dialect, model=model, id=made, created=created).whole(
            call.body
        )

    def _count(self, answer: LineAnswer, call: Call, called: Called) -> None:
        tokens = called.tokens
        answer.tokens_in, answer.tokens_out = tokens.tokens_in, tokens.out
        if answer.end != "ok":
            return
        usage = Usage(
            tokens_in=tokens.tokens_in,
            tokens_out=tokens.out if call.prepared.dialect.tokens else tokens.out or 0,
            tokens_reasoning=tokens.reasoning,
            tokens_cached=tokens.cached,
            tokens_cache_write=tokens.cache_write,
            tokens_cache_write_1h=tokens.cache_write_1h,
            tier=tokens.tier,
        )
        cost = self.target.cost(usage, datetime.fromtimestamp(self._clock.wall_ns() / NS, UTC))
        if cost.cost_usd is not None:
            answer.cost_nano = round(cost.cost_usd * NANO)

    def _note(
        self,
        answer: LineAnswer,
        called: Called,
        marks: Marks,
        exchange_id: str,
        seq: int,
        wall_ns: int,
    ) -> AttemptNote | None:
        target = self.target
        priced = answer.cost_nano is not None
        source = "override" if target.rates is not None else "list"
        facts = NoteFacts(
            f"{exchange_id}.{seq}",
            exchange_id,
            target.name,
            target.provider.name,
            target.model,
            target.provider.dialect,
            seq,
            "only",
            None,
            wall_ns,
            answer.cost_nano,
            source if priced else None,
            None,
            "batch",
        )
        return AttemptNote.of(facts, marks, called)


class GatewaySender(DirectSender):
    """Sends lines to a running gateway, as they are; the gateway itself writes the ledger.

    `target.model` is what lines without a model ask for, or all lines where `rename` is set.
    """

    books = False

    def __init__(
        self, target: Target, client: Client, deadlines: Deadlines, *, rename: bool = False
    ) -> None:
        super().__init__(target, client, deadlines)
        self._rename = rename

    def _prepared(self, line: BatchLine) -> Prepared:
        target = self.target
        if not self._rename and line.model:
            target = msgspec.structs.replace(target, model=line.model)
        return prepare_own(target, DIALECTS[line.dialect], line.body)

    def _answer(self, line: BatchLine, call: Call, called: Called, made: str) -> LineAnswer:
        answer = super()._answer(line, call, called, made)
        if answer.kind == "model_missing" and not self._rename:
            # It is the line that names the model: others may name one that there is.
            answer.end, answer.useless, answer.again = "wrong", False, False
        return answer

    def _count(self, answer: LineAnswer, call: Call, called: Called) -> None:
        answer.tokens_in, answer.tokens_out = called.tokens.tokens_in, called.tokens.out
        for name, value in call.headers:
            if name == _COST_FIELD:
                try:
                    answer.cost_nano = round(Decimal(value.decode("latin-1")) * NANO)
                except InvalidOperation:
                    return


def _failed(line: BatchLine, called: Called, error: AttemptError, request_id: str) -> LineAnswer:
    """Say what an attempt's failure means for the line and for the target."""
    status = called.status
    if isinstance(error, StreamError):
        status = named_status(error.word, error.code, error.words.kind)
    failure = what(called.outcome, status, error)
    code = error.code if isinstance(error, HttpRefused | StreamError) else None
    fault = Fault(error.label, error.message, code, error.words)
    kind, end = failure.kind, "failed"
    if status == 429 and reason_of(fault) == "quota":
        kind = "payment"
    elif failure.kind == "rate_limited":
        end = "refused"
    elif failure.counts == "none" and not failure.free:
        end = "wrong"
    useless = kind in _USELESS
    hard = failure.counts == "hard" and not useless
    found: End = end  # type: ignore[assignment] # one of the three words above
    return LineAnswer(
        end=found,
        status=code or 0,
        body=error_body(line.dialect, fault) if code else b"null",
        kind=kind,
        message=error.message,
        again=hard or failure.again or end == "refused",
        useless=useless,
        free=failure.free,
        wait_s=error.retry_after_s if isinstance(error, HttpRefused) else None,
        request_id=request_id,
    )
