"""The end of an exchange: its last bytes, and what is journaled, billed and remembered of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lightgate.clock.outcome import Outcome
from lightgate.gateway.exchange.attempt import Held
from lightgate.gateway.exchange.told import story_of
from lightgate.gateway.request.passed import traceparent_of
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Settled
from lightgate.route.form.size import SIZES
from lightgate.route.plan.finish import ExpectedAnswer, Rival, waits_ns
from lightgate.route.plan.policy import USUAL_TOKENS

if TYPE_CHECKING:
    from lightgate.gateway.exchange.attempt import Attempt, ExchangeFacts
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.around import ClientReply


_CANCELLED: Final = Outcome.CANCELLED.value


def settle(state: State, exchange: ExchangeFacts) -> Settled:
    """Write the exchange and its attempts, give the reservation back, count what was spent.

    A defect in what is written or learned keeps no reservation.
    """
    attempts = exchange.attempts
    try:
        if len(attempts) == 1:
            notes: tuple[AttemptNote, ...] = (_attempt(exchange, attempts[0], 0),)
        else:
            notes = tuple([_attempt(exchange, attempt, at) for at, attempt in enumerate(attempts)])
        settled = Settled(_exchange(state, exchange), notes)
        state.journal.settle(settled, exchange.plan)
        if state.peaks is not None and exchange.caller.batch:
            state.peaks.ended(exchange.id)
        _teach(state, exchange)
    finally:
        key = exchange.caller.key
        if key is not None and state.spend is not None and state.spend.counts(key.id):
            spent = tokens = 0
            for attempt in attempts:
                spent += attempt.bill.nano_usd or 0
                tokens += _tokens(exchange, attempt)
            state.spend.settle(key.id, exchange.reserved, spent, exchange.reserved_tokens, tokens)
    return settled


class MadeAnswer(Protocol):
    """An answer that was made for another request, as far as it is written down."""

    @property
    def target(self) -> str:
        """The target that made it."""
        ...

    @property
    def tokens_in(self) -> int | None:
        """The tokens of its request."""
        ...

    @property
    def tokens_out(self) -> int | None:
        """Its own tokens."""
        ...


def settle_free(
    state: State,
    exchange: ExchangeFacts,
    made: MadeAnswer | None,
    first_out_ns: int | None,
    status: int = 200,
) -> None:
    """Write an exchange down that no target was asked for: no attempts, no cost."""
    inbound, request, caller = exchange.inbound, exchange.request, exchange.caller
    done = exchange.reply.finished and first_out_ns is not None
    now = state.now_ns()
    fine = done and status == 200
    note = ExchangeNote(
        exchange.id,
        exchange.request_id.decode("ascii"),
        None if caller.key is None else caller.key.id,
        request.model,
        exchange.alias.policy,
        "",
        None if made is None else made.target,
        exchange.cache,
        status if done else 499,
        (Outcome.OK if fine else Outcome.HTTP_ERROR if done else Outcome.CANCELLED).value,
        None,
        request.endpoint.dialect,
        request.streamed,
        exchange.wall_ns,
        inbound.accepted_ns,
        inbound.first_byte_ns,
        inbound.received_ns,
        now if first_out_ns is None else first_out_ns,
        None,
        None,
        first_out_ns,
        None,
        now if done else None,
        now,
        None if made is None else made.tokens_in,
        None if made is None else made.tokens_out,
        0,
        None,
        None,
        caller.tags,
        state.worker,
        traceparent_of(caller.passed) if caller.passed else None,
    )
    state.journal.settle(Settled(note, ()))


def _teach(state: State, exchange: ExchangeFacts) -> None:
    """Tell the hedge budgets and the expected lengths what the whole exchange says."""
    winner, alias, plan, learned = exchange.winner, exchange.alias, exchange.plan, state.learned
    key = exchange.caller.key
    key_id = "" if key is None else key.id
    lost = won = 0
    for attempt in exchange.attempts:
        if attempt is winner or attempt.rejected:  # a tier's answer is paid for, whoever asks again
            won += attempt.bill.nano_usd or 0
        else:
            lost += attempt.bill.nano_usd or 0
    learned.spent_nano += won + lost
    if plan is not alias.in_order:  # a plan that a budget had no part in
        premium = 0.0
        if winner is not None and winner.step.role in {"hedge", "racer"}:
            by_step = winner.step.stands_by
            premium = won * (plan.premium if by_step is None else by_step.premium)
        learned.observer.settled(key_id, plan, exchange.beside, won, lost, premium)
    if alias.slo is not None:
        _judge(state, exchange)
    called = None if winner is None else winner.called
    if winner is not None and called is not None and called.error is None:
        target, tokens, end_ns = winner.step.target, called.tokens.out or 0, winner.marks.end
        if tokens:
            learned.lengths.saw(alias.name, key_id, exchange.size % SIZES, tokens)
        if not called.streamed and len(plan.steps) > 1 and end_ns is not None:
            learned.whole_times.saw(target, end_ns - winner.began_ns, tokens)
        session = exchange.caller.session if exchange.caller.overrides.session else None
        if session is not None:
            learned.forms.stick(session, target, state.now_ns())


def _judge(state: State, exchange: ExchangeFacts) -> None:
    """Tell whether the model kept its service level, as its client saw it.

    A client that ends its own request says nothing about it.
    """
    winner, model = exchange.winner, exchange.alias.name
    called = None if winner is None else winner.called
    if winner is not None and called is not None and called.error is None:
        marks, asked_ns = winner.marks, exchange.inbound.received_ns
        if called.streamed and marks.first is not None and marks.last is not None:
            decoded = (called.tokens.out or 0, marks.last - marks.first)
            state.learned.observer.answered(model, marks.first - asked_ns, decoded)
    elif _status(exchange) >= 500:
        state.learned.observer.unanswered(model)


def _attempt(exchange: ExchangeFacts, attempt: Attempt, place: int) -> AttemptNote:
    target, bill, called = attempt.target.target, attempt.bill, attempt.called
    if called is None:
        raise RuntimeError("An attempt is settled once it is over.")
    facts = NoteFacts(
        f"{exchange.id}.{place}",
        exchange.id,
        target.name,
        target.provider.name,
        target.model,
        attempt.prepared.dialect.name,
        place,
        attempt.step.role,
        attempt is exchange.winner if len(exchange.attempts) > 1 else None,
        exchange.wall_ns + (attempt.began_ns - exchange.inbound.received_ns),
        bill.nano_usd,
        bill.source,
        bill.as_of,
        "batch" if exchange.caller.batch else "gateway",
    )
    return AttemptNote.of(facts, attempt.marks, called)


def _exchange(state: State, exchange: ExchangeFacts) -> ExchangeNote:
    request, inbound, winner = exchange.request, exchange.inbound, exchange.winner
    attempts, caller, refusal = exchange.attempts, exchange.caller, exchange.refusal
    endpoint, key, plan = request.endpoint, caller.key, exchange.plan
    target = called = end_ns = cost = source = paid = tokens_in = tokens_out = None
    if winner is not None:
        called, target, end_ns = winner.called, winner.step.target, winner.marks.end
        cost, source = winner.bill.nano_usd, winner.bill.source
    if called is not None:
        tokens_in, tokens_out = called.tokens.tokens_in, called.tokens.out
    sent = exchange.answered or exchange.reply.finished
    if called is not None and sent and exchange.last_out_ns is not None:
        status, outcome = 200, called.outcome._value_  # what nearly every exchange comes to
    else:
        status, outcome = _status(exchange), _outcome(exchange)
    if winner is None or len(attempts) > 1:
        paid = _lost_nano(exchange)
    return ExchangeNote(
        exchange.id,
        exchange.request_id.decode("ascii"),
        None if key is None else key.id,
        request.model,
        plan.policy,
        plan.story if not exchange.skipped else story_of(plan, exchange.skipped),
        target,
        exchange.cache,
        status,
        outcome,
        None if refusal is None else refusal.message[:500],
        endpoint.dialect,
        request.streamed,
        exchange.wall_ns,
        inbound.accepted_ns,
        inbound.first_byte_ns,
        inbound.received_ns,
        exchange.routed_ns,
        attempts[0].marks.send if attempts else None,
        exchange.first_in_ns,
        exchange.first_out_ns,
        end_ns,
        exchange.last_out_ns,
        exchange.closed_ns,
        tokens_in,
        tokens_out,
        cost,
        source,
        paid,
        caller.tags if key is not None or caller.overrides.tags is not None else None,
        state.worker,
        traceparent_of(caller.passed) if caller.passed else None,
        plan.predicted_ttft_ns,
        plan.predicted_low_ns,
        plan.predicted_high_ns,
        plan.in_flight,
        state.prints.of(request, "" if key is None else key.id),
    )


def _lost_nano(exchange: ExchangeFacts) -> int | None:
    """The price of the attempts that did not win; None where no such price is known."""
    prices = [
        attempt.bill.nano_usd
        for attempt in exchange.attempts
        if attempt is not exchange.winner and attempt.bill.nano_usd is not None
    ]
    return sum(prices) if prices else None


def _outcome(exchange: ExchangeFacts) -> str:
    """How it went for the client: the winner's outcome, or that of the last attempt."""
    attempt = exchange.winner or exchange.decisive
    if attempt is None or attempt.called is None:
        return "http_error"
    if not exchange.reply.finished or exchange.last_out_ns is None:
        return _CANCELLED
    outcome: str = attempt.called.outcome._value_
    return outcome


def _status(exchange: ExchangeFacts) -> int:
    if exchange.winner is not None or exchange.refusal is None:
        return 200 if exchange.reply.started else 499
    return exchange.refusal.status


def _tokens(exchange: ExchangeFacts, attempt: Attempt) -> int:
    called = attempt.called
    if called is None or exchange.request.endpoint.free:
        return 0
    said = called.tokens.tokens_in
    if said is None and exchange.request.endpoint.sound:
        said = 0
    return (exchange.request.tokens_in if said is None else said) + (called.tokens.out or 0)


def waits_for_another(exchange: ExchangeFacts, attempt: Attempt, now: int) -> bool:
    """Hold the first to speak back where a silent one will very likely end sooner."""
    rivals = [
        Rival(other.step.target, other.began_ns)
        for other in exchange.attempts
        if other is not attempt and other.called is None and not other.heard
    ]
    if not rivals:
        return False
    state = exchange.state
    key, most = exchange.caller.key, exchange.request.max_tokens
    lengths = state.learned.lengths
    key_id, size = "" if key is None else key.id, exchange.size
    expected = lengths.expected(exchange.alias.name, key_id, size % SIZES)
    tokens = min(expected or USUAL_TOKENS, most or expected or USUAL_TOKENS)
    # A client that wants the whole has no use for an early first token.
    worth = 0.0 if exchange.assembles else exchange.plan.silence
    answer = ExpectedAnswer(size, tokens, worth)
    spoke = Rival(attempt.step.target, attempt.marks.first or now)
    until = waits_ns(spoke, rivals, state.learned.forms, answer, now)
    if until is None:
        return False
    attempt.held_ns = until
    state.timers.wait(Held(attempt), until)
    return True


def stream_end(exchange: ExchangeFacts, attempt: Attempt) -> tuple[bytes, bytes]:
    """The end of a stream: its header lines where it has not begun, and its last bytes."""
    # Without a marker a provider's stream ends with its body.
    data = attempt.closing() if attempt.final is None else attempt.final
    lines = b"" if exchange.reply.started else attempt.media + exchange.headers(attempt)
    exchange.last_out_ns = now = exchange.state.now_ns()
    if exchange.first_out_ns is None and exchange.first_in_ns is not None:
        exchange.first_out_ns = now
    return lines, data


def send_stream_end(reply: ClientReply, lines: bytes, data: bytes) -> None:
    """Send the end of a stream, which may be all of it."""
    if reply.started:
        reply.finish(last=data)
    else:
        reply.start(200, lines, first=data)
        reply.finish()
