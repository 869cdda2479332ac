"""Requests whose answers are shared: from the cache, along with another one, or as the first.

Only the first one calls a target. What the others get has no attempt: no clock hears of it, and it
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.clock.outcome import Outcome
from lightgate.gateway.admit.admit import admit_free, admit_shared
from lightgate.gateway.aside.jobs import ShareAsk, name_of
from lightgate.gateway.cache.follower import Made, Participant, follower_lines
from lightgate.gateway.cache.memory import AnswerEnding, KeepTerms, Owner, Tempo, hit_lines, replay
from lightgate.gateway.exchange.attempt import JSON, SSE
from lightgate.gateway.exchange.cascade import begin
from lightgate.gateway.exchange.settle import settle_free
from lightgate.gateway.request.passed import of_answer
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.route.prompt.cache_key import Beside

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.gateway.cache.follower import Part
    from lightgate.gateway.cache.memory import KeptAnswer
    from lightgate.gateway.cache.single_flight import SharedAnswer
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.around import ClientReply, ReplyAround
    from lightgate.ledger.journal.notes import Settled


def shared_name(exchange: Exchange) -> bytes | None:
    """The key of a request's answer; None where it is the client's alone.

    A client in a hurry asks by itself: others would have to live with its deadlines.
    """
    if exchange.request.found is not None:
        return exchange.request.found.shared
    ask = share_ask(exchange)
    return None if ask is None else name_of(exchange.request.fields, ask)


def share_ask(exchange: Exchange) -> ShareAsk | None:
    """What the key of a request's answer depends on; None where it is the client's alone."""
    caller, request, alias = exchange.caller, exchange.request, exchange.alias
    mode, asked = alias.cache.mode, caller.overrides.cache
    if mode == "off" or asked == "off" or caller.overrides.hurried:
        return None
    beside = Beside(
        streamed=request.streamed,
        targets=alias.targets,
        cap=exchange.cap,
        extra=of_answer(caller.passed),
        policy=caller.overrides.policy,
    )
    tenant = "" if caller.key is None else caller.key.id
    wanted = "any" if asked == "on" else mode
    return ShareAsk(tenant, request.endpoint.dialect, request.model, wanted, beside)


class Shared:
    """One client's request whose answer others may have, or have had."""

    def __init__(self, state: State, exchange: Exchange, reply: ClientReply) -> None:
        self._state = state
        self._exchange = exchange
        self._reply = reply
        self._name = b""
        self.around: Callable[[Exchange, SharedAnswer], ReplyAround] | None = None

    async def run(self, name: bytes) -> None:
        """Answer from the cache, from a call that is under way, or by a call."""
        state, exchange = self._state, self._exchange
        self._name = name
        rule = exchange.alias.cache
        kept = await state.cache.memory.find(name, rule, state.now_ns(), state.draw())
        if kept is not None:
            await admit_free(state, exchange.caller.key)
            await self._again(kept)
        elif name in state.cache.single_flight:
            await admit_free(state, exchange.caller.key)
            await self._along()
        else:
            await state.cache.single_flight.share(name, self._participant())

    async def _again(self, kept: KeptAnswer) -> None:
        state, exchange = self._state, self._exchange
        request_id = exchange.request_id
        lines = hit_lines(kept, request_id, exchange.id_bytes, state.wall_ns())
        if exchange.request.endpoint.dialect == "anthropic-messages":
            lines += b"request-id: %b\r\n" % request_id  # what their SDK looks for
        began = state.now_ns()
        tempo = Tempo(exchange.alias.cache.pace, state.now_ns)
        try:
            await replay(kept, self._reply, (SSE if kept.streamed else JSON) + lines, tempo)
        finally:
            first = began if self._reply.started else None
            self._settle("hit", kept, first)

    async def _along(self) -> None:
        """Read what another is getting; should that one fail, this one may ask after all."""
        read = None
        try:
            read = await self._state.cache.single_flight.share(self._name, self._participant())
        finally:
            if read is None:
                self._settle("join", None, None)
            elif read[1].part == "join":
                shared, first = read[0], read[1].first_out_ns
                shared.when_settled(lambda: self._settle("join", shared.made, first, shared.status))

    def _participant(self) -> Participant:
        exchange, dialect = self._exchange, self._exchange.request.endpoint.dialect

        def dress(lines: bytes, part: Part) -> bytes:
            if part == "lead":
                return lines
            return follower_lines(lines, exchange.request_id, exchange.id_bytes)

        def broken(status: int) -> bytes:
            message = "No target could answer."
            return Refusal(status=status, message=message, code="unavailable").event(dialect)

        return Participant(self._reply, self._lead, dress, broken)

    async def _lead(self, shared: SharedAnswer) -> None:
        """Ask a target; the answer goes to all who share it, and into the cache if complete."""
        state, exchange = self._state, self._exchange
        exchange.cache = "miss"
        try:
            await admit_shared(state, exchange)
        except Refusing as refusing:
            own = b"x-request-id: %b\r\n" % exchange.request_id
            refusing.refusal.send(shared, exchange.request.endpoint.dialect, own)
            return
        exchange.reply = shared if self.around is None else self.around(exchange, shared)
        shared.watch(exchange)
        settled = state.loop.create_future()
        exchange.on_over = settled.set_result
        begin(exchange)
        try:
            self._keep(shared, await settled, sound=exchange.sound)
        finally:
            exchange.on_over = None
            exchange.client_left()  # where the call is given up; else it is over

    def _keep(self, shared: SharedAnswer, settled: Settled, *, sound: bool) -> None:
        state, note = self._state, settled.exchange
        if note.winner is None:
            return
        made = Made(note.winner, note.tokens_in, note.tokens_out, note.cost_nano, state.wall_ns())
        shared.made = made
        if not sound:
            return
        won = next((a for a in settled.attempts if a.facts.won is not False), None)
        reason = None if won is None else won.finish_reason
        if won is not None and won.last is None and reason is not None:
            return  # an answer without a token: the next request may well get one
        outcome = Outcome(note.outcome)
        ending = AnswerEnding(note.status, outcome, outcome is Outcome.OK, reason)
        terms = KeepTerms(self._exchange.alias.cache, state.now_ns(), state.draw())
        owner = Owner(note.key_id, note.model_asked)
        kept = shared.kept(made, state.cache.memory.most_answer_bytes)
        state.cache.memory.keep(self._name, kept, ending, owner, terms)

    def _settle(
        self,
        cache: str,
        made: KeptAnswer | Made | None,
        first_out_ns: int | None,
        status: int = 200,
    ) -> None:
        """Write the exchange down: no attempts, no cost."""
        self._exchange.cache = cache
        self._exchange.reply = self._reply
        settle_free(self._state, self._exchange, made, first_out_ns, status)
