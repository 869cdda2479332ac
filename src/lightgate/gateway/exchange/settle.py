"""Closing the account of a flight: what is journaled, billed and remembered. Nothing here waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.clock.outcome import Outcome
from lightgate.gateway.spend.counters import limited
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Settled

if TYPE_CHECKING:
    from lightgate.gateway.exchange.attempt import Leg
    from lightgate.gateway.exchange.exchange import Flight
    from lightgate.gateway.process.state import State


def settle(state: State, flight: Flight) -> None:
    """Write the exchange and its attempts, give the reservation back, count what was spent."""
    entry, legs = flight.entry, flight.legs
    for leg in legs:
        if leg.called is None:
            leg.abandon(state)
    settled = Settled(
        _exchange(state, flight),
        tuple([_attempt(flight, leg, place) for place, leg in enumerate(legs)]),
    )
    state.journal.write(settled)
    state.remember(settled)
    _teach(state, flight)
    key = entry.key
    if key is not None and state.spend is not None and limited(key):
        spent = sum(leg.bill.nano_usd or 0 for leg in legs)
        tokens = sum(_tokens(flight, leg) for leg in legs)
        state.spend.settle(key.id, entry.reserved, spent, entry.reserved_tokens, tokens)


def _teach(state: State, flight: Flight) -> None:
    """What the whole request says: to the hedge budgets, and about the length of answers."""
    entry, winner = flight.entry, flight.winner
    key_id = "" if entry.key is None else entry.key.id
    lost = won = 0
    for leg in flight.legs:
        if leg is winner or leg.rejected:  # a tier's answer is paid for, whoever asks again
            won += leg.bill.nano_usd or 0
        else:
            lost += leg.bill.nano_usd or 0
        leg.let_go()
    state.spent_nano += won + lost
    if flight.plan is not flight.alias.in_order:  # a plan that a budget had no part in
        state.observer.settled(key_id, flight.plan, flight.beside, won, lost)
    if flight.alias.slo is not None:
        _judge(state, flight)
    if winner is not None and winner.called is not None and winner.called.error is None:
        state.answered(flight.alias.name, winner.called.tokens.out)
        session = entry.session
        if session is not None:
            state.forms.stick(session, winner.step.target, state.now_ns())


def _judge(state: State, flight: Flight) -> None:
    """Whether the model kept what it promises, as its client saw it; a client's own end is none."""
    winner, model = flight.winner, flight.alias.name
    called = None if winner is None else winner.called
    if winner is not None and called is not None and called.error is None:
        marks, asked_ns = winner.marks, flight.inbound.received_ns
        if called.streamed and marks.first is not None and marks.last is not None:
            decoded = (called.tokens.out or 0, marks.last - marks.first)
            state.observer.answered(model, marks.first - asked_ns, decoded)
    elif _status(flight) >= 500:
        state.observer.unanswered(model)


def _attempt(flight: Flight, leg: Leg, place: int) -> AttemptNote:
    entry, target, bill = flight.entry, leg.target.target, leg.bill
    if leg.called is None:
        raise RuntimeError("An attempt is settled once it is over.")
    facts = NoteFacts(
        f"{entry.id}.{place}",
        entry.id,
        target.name,
        target.provider.name,
        target.model,
        leg.prepared.dialect.name,
        place,
        leg.step.role,
        leg is flight.winner if len(flight.legs) > 1 else None,
        entry.wall_ns + (leg.began_ns - flight.inbound.received_ns),
        bill.nano_usd,
        bill.source,
        bill.as_of,
    )
    return AttemptNote.of(facts, leg.marks, leg.called)


def _exchange(state: State, flight: Flight) -> ExchangeNote:
    entry, wanted, inbound, winner = flight.entry, flight.wanted, flight.inbound, flight.winner
    called = None if winner is None else winner.called
    marks = None if winner is None else winner.marks
    bill = None if winner is None else winner.bill
    losses = [leg.bill.nano_usd for leg in flight.legs if leg is not winner]
    paid = [nano for nano in losses if nano is not None]
    return ExchangeNote(
        entry.id,
        entry.request_id.decode("ascii"),
        None if entry.key is None else entry.key.id,
        wanted.model,
        flight.plan.policy,
        flight.plan.story,
        None if winner is None else winner.step.target,
        entry.cache,
        _status(flight),
        _outcome(flight),
        None if flight.refusal is None else flight.refusal.message[:500],
        wanted.path.dialect,
        wanted.streamed,
        entry.wall_ns,
        inbound.accepted_ns,
        inbound.first_byte_ns,
        inbound.received_ns,
        entry.routed_ns,
        flight.legs[0].marks.send if flight.legs else None,
        flight.first_in_ns,
        flight.first_out_ns,
        None if marks is None else marks.end,
        flight.last_out_ns,
        flight.closed_ns,
        None if called is None else called.tokens.tokens_in,
        None if called is None else called.tokens.out,
        None if bill is None else bill.nano_usd,
        None if bill is None else bill.source,
        sum(paid) if paid else None,
        entry.tags,
        state.worker,
    )


def _outcome(flight: Flight) -> str:
    """How it went for the client: the winner's outcome, or that of the last attempt."""
    leg = flight.decisive
    if leg is None or leg.called is None:
        return "http_error"
    if not flight.reply.finished or flight.last_out_ns is None:
        return Outcome.CANCELLED.value
    return leg.called.outcome.value


def _status(flight: Flight) -> int:
    if flight.winner is not None or flight.refusal is None:
        return 200 if flight.reply.started else 499
    return flight.refusal.status


def _tokens(flight: Flight, leg: Leg) -> int:
    called = leg.called
    if called is None:
        return 0
    said = called.tokens.tokens_in
    return (flight.wanted.tokens_in if said is None else said) + (called.tokens.out or 0)
