"""Probe targets that had no request for a while, so that their form stays fresh.

A probe is a request of our own: sixteen tokens in, one out. Probes go only to targets among which a
policy chooses by form, only while there is traffic, one at a time and from one worker, for at most
one per cent of what users spend. A probe never uses a user's request, and is in no target's speeds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lightgate.clock.ids import Ids
from lightgate.clock.marks import Marks
from lightgate.clock.source import SYSTEM
from lightgate.dialect.request import Message, Request
from lightgate.errors import HttpRefused, LightgateError, StreamError
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Settled
from lightgate.provider.call import Call
from lightgate.provider.prepare import prepare
from lightgate.route.health.failure import named_status, what
from lightgate.route.plan.policy import BY_FORM
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from lightgate.clock.source import Clock
    from lightgate.gateway.exchange.journal import JournalWriter
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.served.served import Served
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.route.observe import Observer
    from lightgate.wire.client.client import Client

NS: Final = 1_000_000_000
STALE_NS: Final = 30 * NS  # a target without a sample for so long is probed
QUIET_NS: Final = 600 * NS  # a worker without a request for so long probes nothing
SHARE: Final = 0.01  # of what users spend
TOKENS_IN: Final = 16
_ASK: Final = Message(
    role="user", content="Answer with one word: are you there? Say yes or say no."
)
_DEADLINES: Final = Deadlines(connect_s=3.0, first_byte_s=10.0, idle_s=10.0, total_s=15.0)


class Prober:
    """Probes stale targets; `look` is called once a second."""

    def __init__(
        self,
        state: State,
        client: Client,
        observer: Observer,
        journal: JournalWriter,
        *,
        worker: int = 0,
        clock: Clock = SYSTEM,
    ) -> None:
        self._state = state
        self._client = client
        self._observer = observer
        self._journal = journal
        self._worker = worker
        self._clock = clock
        self._ids = Ids()
        self._probing: asyncio.Task[None] | None = None
        self.spent_nano = 0
        self.sent = 0

    def look(self) -> str | None:
        """Begin a probe if one is due and paid for; its target."""
        state, now = self._state, self._clock.now_ns()
        busy = self._probing is not None and not self._probing.done()
        if busy or state.draining or now - state.learned.asked_ns > QUIET_NS:
            return None
        chosen = _chosen_by_form(state.served)
        for name in self._observer.forms.stale(now, STALE_NS, sorted(chosen)):
            if name in chosen and self._observer.breakers.allows(name, now):
                target = state.served.targets[name]
                if self._affordable(target):
                    self._probing = asyncio.get_running_loop().create_task(self._probe(target))
                    return name
        return None

    def _affordable(self, target: ServedTarget) -> bool:
        """Whether a probe's price is known and within the share of what users have spent."""
        if target.prices.hourly:
            return True
        if not target.prices.known:
            return False
        worst = target.prices.worst(TOKENS_IN, 1)
        return self.spent_nano + worst <= SHARE * self._state.learned.spent_nano

    async def _probe(self, target: ServedTarget) -> None:
        observer, marks, name = self._observer, Marks(), target.target.name
        request = Request(model=target.target.model, messages=(_ASK,), max_tokens=1, stream=True)
        began, wall_ns = self._clock.now_ns(), self._clock.wall_ns()
        observer.began(name, began)
        try:
            called = await Call(prepare(target.target, request), marks).run(
                self._client, _DEADLINES
            )
        except LightgateError:  # a request that cannot be made says nothing about the target
            observer.lost(name, 0, self._clock.now_ns(), began, spoke=True)
            return
        self.sent += 1
        self._learn(name, marks, called, began)
        self._write(target, marks, called, wall_ns)

    def _learn(self, target: str, marks: Marks, called: Called, began: int) -> None:
        observer, now = self._observer, self._clock.now_ns()
        error = called.error
        if marks.first is not None and marks.send is not None:
            observer.spoke(target, 0, began + (marks.first - marks.send), began)
        if error is None:
            observer.succeeded(target, now, began, (0, 0))
            return
        status = called.status
        if isinstance(error, StreamError):
            status = named_status(error.word, error.code) or status
        wait_s = error.retry_after_s if isinstance(error, HttpRefused) else None
        observer.failed(target, 0, now, began, (what(called.outcome, status, error), wait_s))

    def _write(self, served: ServedTarget, marks: Marks, called: Called, wall_ns: int) -> None:
        """Write the exchange of a probe at its price, as for a user's request."""
        target = served.target
        bill = served.prices.bill(called.tokens)
        if called.error is None and bill.nano_usd is None:
            bill = served.prices.estimate(TOKENS_IN, 1)
        self.spent_nano += bill.nano_usd or 0
        id_ = self._ids.new()
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
            called.tokens.out, bill.nano_usd, bill.source, None, None, self._worker,
        )  # fmt: skip
        self._journal.write(Settled(exchange, (AttemptNote.of(facts, marks, called),)))


def _chosen_by_form(served: Served) -> set[str]:
    """The targets among which a policy chooses by form."""
    return {
        target
        for alias in served.asked_for()
        if len(alias.targets) > 1 and alias.policy in BY_FORM
        for target in alias.targets
    }
