"""Requests whose answers are kept and shared: from the cache, along with another, or as the first.

Only the first one flies. What the others get has no attempt: no clock hears of it, and it costs
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.clock.outcome import Outcome
from lightgate.gateway.admit.admit import admit, admit_free
from lightgate.gateway.cache.follower import Made, Participant, follower_lines
from lightgate.gateway.cache.memory import AnswerEnding, KeepTerms, Owner, Tempo, hit_lines, replay
from lightgate.gateway.exchange.cascade_ahead import new_flight
from lightgate.gateway.exchange.exchange import JSON, SSE
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.ledger.journal.notes import ExchangeNote, Settled
from lightgate.route.prompt.cache_key import Beside, cache_key, cacheable

if TYPE_CHECKING:
    from lightgate.gateway.admit.admit import Guest
    from lightgate.gateway.cache.follower import Part
    from lightgate.gateway.cache.memory import KeptAnswer
    from lightgate.gateway.cache.single_flight import SharedAnswer
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.body import Wanted
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply


def shared_name(guest: Guest, wanted: Wanted) -> bytes | None:
    """The key of a request's answer; None where it is the client's alone.

    A client in a hurry flies by itself: others would have to live with its deadlines.
    """
    mode, asked = guest.alias.cache.mode, guest.wishes.cache
    if mode == "off" or asked == "off" or guest.hurried:
        return None
    dialect = wanted.path.dialect
    if not cacheable(dialect, wanted.fields, "any" if asked == "on" else mode):
        return None
    beside = Beside(
        streamed=wanted.streamed,
        targets=guest.alias.targets,
        cap=guest.cap,
        extra=guest.extra,
        policy=guest.wishes.policy,
    )
    tenant = "" if guest.key is None else guest.key.id
    return cache_key(tenant, dialect, wanted.model, wanted.fields, beside)


class Shared:
    """One client's request whose answer others may have, or have had."""

    def __init__(
        self, state: State, inbound: Inbound, reply: Reply, guest: Guest, wanted: Wanted
    ) -> None:
        self._state = state
        self._inbound = inbound
        self._reply = reply
        self._guest = guest
        self._wanted = wanted
        self._name = b""

    async def run(self, name: bytes) -> None:
        """Answer from the cache, from a call that is under way, or by a call."""
        state, guest = self._state, self._guest
        self._name = name
        kept = await state.answers.find(name, guest.alias.cache, state.now_ns(), state.draw())
        if kept is not None:
            admit_free(state, guest.key)
            await self._again(kept)
        elif name in state.single_flight:
            admit_free(state, guest.key)
            await self._along()
        else:
            await state.single_flight.share(name, self._participant())

    async def _again(self, kept: KeptAnswer) -> None:
        state, guest = self._state, self._guest
        lines = hit_lines(kept, guest.request_id, guest.id_bytes, state.wall_ns())
        if self._wanted.path.dialect == "anthropic-messages":
            lines += b"request-id: %b\r\n" % guest.request_id  # what their SDK looks for
        began = state.now_ns()
        tempo = Tempo(guest.alias.cache.pace, state.now_ns)
        try:
            await replay(kept, self._reply, (SSE if kept.streamed else JSON) + lines, tempo)
        finally:
            first = began if self._reply.started else None
            self._settle("hit", kept, first)

    async def _along(self) -> None:
        """Read what another is getting; should that one fail, this one may fly after all."""
        read = None
        try:
            read = await self._state.single_flight.share(self._name, self._participant())
        finally:
            if read is None:
                self._settle("join", None, None)
            elif read[1].part == "join":
                shared, first = read[0], read[1].first_out_ns
                shared.when_settled(lambda: self._settle("join", shared.made, first, shared.status))

    def _participant(self) -> Participant:
        guest, dialect = self._guest, self._wanted.path.dialect

        def dress(lines: bytes, part: Part) -> bytes:
            if part == "lead":
                return lines
            return follower_lines(lines, guest.request_id, guest.id_bytes)

        def broken(status: int) -> bytes:
            message = "No target could answer."
            return Refusal(status=status, message=message, code="unavailable").event(dialect)

        return Participant(self._reply, self._fly, dress, broken)

    async def _fly(self, shared: SharedAnswer) -> None:
        """Call as the leader; the shared answer is kept in the cache if it is complete."""
        state, guest, wanted = self._state, self._guest, self._wanted
        try:
            entry = admit(state, guest, wanted, "miss")
        except Refusing as refusing:
            own = b"x-request-id: %b\r\n" % guest.request_id
            refusing.refusal.send(shared, wanted.path.dialect, own)
            return
        flight = new_flight(state, self._inbound, shared, entry, wanted)
        shared.watch(flight)
        await flight.run()
        self._keep(shared, state.recent[entry.id], sound=flight.sound)

    def _keep(self, shared: SharedAnswer, settled: Settled, *, sound: bool) -> None:
        state, guest, note = self._state, self._guest, settled.exchange
        if note.winner is None:
            return
        made = Made(note.winner, note.tokens_in, note.tokens_out, note.cost_nano, state.wall_ns())
        shared.made = made
        if not sound:
            return
        won = next((a for a in settled.attempts if a.facts.target == note.winner), None)
        reason = None if won is None else won.finish_reason
        outcome = Outcome(note.outcome)
        ending = AnswerEnding(note.status, outcome, outcome is Outcome.OK, reason)
        terms = KeepTerms(guest.alias.cache, state.now_ns(), state.draw())
        owner = Owner(note.key_id, note.model_asked)
        kept = shared.kept(made, state.answers.most_answer_bytes)
        state.answers.keep(self._name, kept, ending, owner, terms)

    def _settle(
        self,
        cache: str,
        made: KeptAnswer | Made | None,
        first_out_ns: int | None,
        status: int = 200,
    ) -> None:
        """Write the exchange down: no attempts, no cost."""
        state, guest, wanted, inbound = self._state, self._guest, self._wanted, self._inbound
        done = self._reply.finished and first_out_ns is not None
        now = state.now_ns()
        fine = done and status == 200
        note = ExchangeNote(
            guest.id,
            guest.request_id.decode("ascii"),
            None if guest.key is None else guest.key.id,
            wanted.model,
            guest.alias.policy,
            "",
            None if made is None else made.target,
            cache,
            status if done else 499,
            (Outcome.OK if fine else Outcome.HTTP_ERROR if done else Outcome.CANCELLED).value,
            None,
            wanted.path.dialect,
            wanted.streamed,
            guest.wall_ns,
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
            guest.tags,
            state.worker,
        )
        settled = Settled(note, ())
        state.journal.write(settled)
        state.remember(settled)
