"""Tiny requests of our own to targets that nobody has asked for a while, so that form stays fresh.

Sixteen tokens in, one out, only for models whose policy looks at form, only while there is traffic,
one at a time and from one worker, for at most one per cent of what is spent. Never from a user's
request, and never in a target's speeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks
from lightgate.dialect.request import Message, Request
from lightgate.errors import HttpRefused, LightgateError, StreamError
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Settled
from lightgate.provider.call import Call
from lightgate.provider.prepare import prepare
from lightgate.route.health.failure import named_status, what
from lightgate.route.plan.policy import BY_FORM
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from lightgate.gateway.process.state import State
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called

NS: Final = 1_000_000_000
STALE_NS: Final = 30 * NS  # without a sample for so long, a target is asked
QUIET_NS: Final = 600 * NS  # without a request for so long, nobody is
SHARE: Final = 0.01  # of the spend
TOKENS_IN: Final = 16
_ASK: Final = Message(
    role="user", content="Answer with one word: are you there? Say yes or say no."
)
_DEADLINES: Final = Deadlines(connect_s=3.0, first_byte_s=10.0, idle_s=10.0, total_s=15.0)


class Prober:
    """Asks stale targets; `look` is called once a second."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._busy = False
        self.spent_nano = 0
        self.sent = 0

    def look(self) -> str | None:
        """Begin a probe if one is due and paid for; its target."""
        state = self._state
        now = state.now_ns()
        if self._busy or state.draining or now - state.asked_ns > QUIET_NS:
            return None
        watched = _watched(state)
        for name in state.forms.stale(now, STALE_NS):
            if name in watched and state.breakers.allows(name, now):
                target = state.served.target(name)
                if self._affordable(target):
                    self._busy = True
                    state.keep(state.loop.create_task(self._probe(target)))
                    return name
        return None

    def _affordable(self, target: ServedTarget) -> bool:
        """Whether its price is known and within the share of what users have spent here."""
        if target.prices.hourly:
            return True
        if not target.prices.known:
            return False
        worst = target.prices.worst(TOKENS_IN, 1)
        return self.spent_nano + worst <= SHARE * self._state.spent_nano

    async def _probe(self, target: ServedTarget) -> None:
        state, marks, name = self._state, Marks(), target.target.name
        request = Request(model=target.target.model, messages=(_ASK,), max_tokens=1, stream=True)
        began = state.now_ns()
        wall_ns = state.wall_ns()
        state.observer.began(name, 0, began)
        try:
            called = await Call(prepare(target.target, request), marks).run(
                state.client, _DEADLINES
            )
        except LightgateError:  # what cannot even be asked says nothing
            state.observer.lost(name, 0, state.now_ns(), began, spoke=True)
            return
        finally:
            self._busy = False
        self.sent += 1
        self._learn(name, marks, called, began)
        self._write(target, marks, called, wall_ns)

    def _learn(self, target: str, marks: Marks, called: Called, began: int) -> None:
        observer, now = self._state.observer, self._state.now_ns()
        error = called.error
        if marks.first is not None and marks.send is not None:
            observer.spoke(target, 0, began + (marks.first - marks.send), began)
        if error is None:
            observer.succeeded(target, 0, now, began, (0, 0))
            return
        status = called.status
        if isinstance(error, StreamError):
            status = named_status(error.word, error.code) or status
        wait_s = error.retry_after_s if isinstance(error, HttpRefused) else None
        observer.failed(target, 0, now, began, (what(called.outcome, status, error), wait_s))

    def _write(self, served: ServedTarget, marks: Marks, called: Called, wall_ns: int) -> None:
        """A row of its own, at its price: what we spend ourselves is in the books, too."""
        state, target = self._state, served.target
        bill = served.prices.bill(called.tokens)
        if called.error is None and bill.nano_usd is None:
            bill = served.prices.estimate(TOKENS_IN, 1)
        self.spent_nano += bill.nano_usd or 0
        id_ = state.ids.new()
        facts = NoteFacts(
            f"{id_}.0", id_, target.name, target.provider.name, target.model,
            "probe", 0, "probe", None, wall_ns, bill.nano_usd, bill.source, bill.as_of, "probe",
        )  # fmt: skip
        status = called.status or 0
        said = None if called.error is None else called.error.message[:500]
        exchange = ExchangeNote(
            id_, id_, None, target.name, "probe", target.name, target.name, "off", status,
            called.outcome.value, said, "probe", True, wall_ns, None, None, None, None, marks.send,
            marks.first, None, marks.end, None, marks.end, called.tokens.tokens_in,
            called.tokens.out, bill.nano_usd, bill.source, None, None, state.worker,
        )  # fmt: skip
        state.journal.write(Settled(exchange, (AttemptNote.of(facts, marks, called),)))


def _watched(state: State) -> set[str]:
    """The targets among which form decides."""
    return {
        target
        for alias in state.served.aliases.values()
        if len(alias.targets) > 1 and alias.policy in BY_FORM
        for target in alias.targets
    }
