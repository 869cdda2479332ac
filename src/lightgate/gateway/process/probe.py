"""Probe targets that had no request for a while, so that their form stays fresh.

A probe is a request of our own for one word. Probes go only to targets among which a policy chooses
by form, only while there is traffic, one at a time and from one worker, within what
`[gateway.probes]` allows. A probe never uses a user's request, and is in no target's speeds.

A model that thinks may spend a small cap before its first word. That is an answer: the target is
alive, and the next probe of it may have more tokens.

A probe is short where it is paid for. On engines of one's own, which bill nobody, it is as long as
requests usually are, and never the same: there the first token of a short prompt, or of one that
is in the engine's cache, says little about that of a request.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from lightgate.clock.ids import Ids
from lightgate.clock.marks import Marks
from lightgate.clock.source import SYSTEM
from lightgate.dialect.request import Message, Request
from lightgate.errors import (
    DeadlineMissed,
    EmptyAnswer,
    HttpRefused,
    LightgateError,
    StreamError,
)
from lightgate.gateway.request.body import BYTES_PER_TOKEN
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Settled
from lightgate.provider.call import Call
from lightgate.provider.prepare import prepare
from lightgate.route.admission.headers import REFUSED, read_rates
from lightgate.route.form.size import size_of
from lightgate.route.health.failure import named_status, what
from lightgate.route.plan.policy import BY_FORM
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from lightgate.clock.source import Clock
    from lightgate.gateway.exchange.journal import JournalWriter
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.served.served import Served
    from lightgate.gateway.served.snapshot import ProbeTerms
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.route.observe import Observer
    from lightgate.wire.client.client import Client

NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * NS
QUIET_NS: Final = 600 * NS  # a worker without a request for so long probes nothing
TOKENS_IN: Final = 16
# The cap of an answer, and the next one for a target that had no word under the last. OpenAI's
# responses take no smaller one than the first.
CAPS: Final = (16, 64, 256)
SELDOM: Final = 10  # times as rarely is a target probed that has no word under the largest cap
# Nano-dollars of a token whose price is not known: $600 for a million, as the dearest models cost.
UNKNOWN_NANO: Final = 600_000
REST: Final = 9  # times as long as it took: an own engine is probed for a tenth of its time at most
LONGEST_IN: Final = 960  # tokens of a probe: the size of prompts that it speaks for ends at 1,024
_ASK: Final = "Answer with one word: are you there? Say yes or say no."
_WORDS: Final = (
    "apple", "bank", "cold", "door", "east", "fish", "gold", "hand", "iron", "jump", "king", "lake",
    "moon", "nine", "open", "park", "queen", "rain", "salt", "tree", "under", "voice", "wind",
)  # fmt: skip
_DEADLINES: Final = Deadlines(connect_s=3.0, first_byte_s=10.0, idle_s=20.0, total_s=30.0)


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
        self._caps: dict[str, int] = {}  # target: the place of its cap in CAPS
        self._not_before: dict[str, int] = {}  # target: no probe of it sooner
        self._day = 0
        self._day_nano = 0  # spent on this day
        self.spent_nano = 0
        self.sent = 0

    def look(self) -> str | None:
        """Begin a probe if one is due and paid for; its target."""
        state, now = self._state, self._clock.now_ns()
        busy = self._probing is not None and not self._probing.done()
        terms = state.served.snapshot.terms.probes
        if busy or state.draining or not terms.on or now - state.learned.asked_ns > QUIET_NS:
            return None
        chosen = _chosen_by_form(state.served) - self._observer.forms.closed(now)
        for name in self._observer.forms.stale(now, terms.every_ns, sorted(chosen)):
            if name not in chosen or now < self._not_before.get(name, 0):
                continue
            target = state.served.targets[name]
            if self._observer.breakers.allows(name, now) and self._affordable(target, terms):
                self._probing = asyncio.get_running_loop().create_task(self._probe(target))
                return name
        return None

    def _affordable(self, target: ServedTarget, terms: ProbeTerms) -> bool:
        """Whether a probe's price is within what probes may cost.

        A price that is not known is taken for that of the dearest models. It is no part of users'
        spend, which may have no known price either: only the day's limit holds for it.
        """
        if bills_nobody(target):
            return True
        day = self._clock.wall_ns() // DAY_NS
        if day != self._day:
            self._day, self._day_nano = day, 0
        cap, share = self._cap(target.target.name), terms.share * self._state.learned.spent_nano
        if not target.prices.known:
            return self._day_nano + UNKNOWN_NANO * (TOKENS_IN + cap) <= terms.day_nano
        worst = target.prices.worst(TOKENS_IN, cap)
        return self.spent_nano + worst <= share and self._day_nano + worst <= terms.day_nano

    def _cap(self, target: str) -> int:
        return CAPS[self._caps.get(target, 0)]

    async def _probe(self, target: ServedTarget) -> None:
        observer, marks, name = self._observer, Marks(), target.target.name
        cap, tokens_in = self._cap(name), TOKENS_IN
        if bills_nobody(target):
            tokens_in = max(TOKENS_IN, min(LONGEST_IN, round(self._state.learned.usual_in)))
        size, said = size_of(tokens_in), (Message(role="user", content=question(tokens_in)),)
        request = Request(model=target.target.model, messages=said, max_tokens=cap, stream=True)
        began, wall_ns = self._clock.now_ns(), self._clock.wall_ns()
        observer.began(name, began)
        try:
            call = Call(prepare(target.target, request), marks)
            called = await call.run(self._client, _DEADLINES)
        except LightgateError:  # a request that cannot be made says nothing about the target
            observer.lost(name, size, self._clock.now_ns(), began, spoke=True)
            return
        self.sent += 1
        if call.limits:
            facts, now = read_rates(call.limits, self._clock.wall_ns() / NS), self._clock.now_ns()
            refused = called.status == REFUSED
            observer.stated(name, now, began, facts, tokens=tokens_in, refused=refused)
        self._write(target, marks, called, wall_ns)
        self._learn(name, size, marks, called, began)
        if bills_nobody(target):  # a small engine may be busy with it for seconds
            now = self._clock.now_ns()
            self._not_before[name] = max(self._not_before.get(name, 0), now + REST * (now - began))
        elif not target.prices.known:
            rest_ns = SELDOM * self._state.served.snapshot.terms.probes.every_ns
            self._not_before[name] = self._clock.now_ns() + rest_ns

    def _learn(self, target: str, size: int, marks: Marks, called: Called, began: int) -> None:
        observer, now = self._observer, self._clock.now_ns()
        error = called.error
        if marks.first is not None and marks.send is not None:
            observer.spoke(target, size, began + (marks.first - marks.send), began)
        quiet = isinstance(error, EmptyAnswer) and (marks.event is not None or not called.streamed)
        if error is None or quiet:
            observer.succeeded(target, now, began, (0, 0))
            if marks.first is None:
                self._wordless(target, now)
            return
        if isinstance(error, DeadlineMissed) and called.status == 200:  # it may be thinking
            observer.lost(target, size, now, began, spoke=marks.first is not None)
            return
        status = called.status
        if isinstance(error, StreamError):
            status = named_status(error.word, error.code) or status
        wait_s = error.retry_after_s if isinstance(error, HttpRefused) else None
        observer.failed(target, size, now, began, (what(called.outcome, status, error), wait_s))

    def _wordless(self, target: str, now: int) -> None:
        """Note that a target is alive and had no word: more tokens next time, or more time."""
        every_ns = self._state.served.snapshot.terms.probes.every_ns
        at = self._caps.get(target, 0)
        last = at == len(CAPS) - 1
        self._caps[target] = at if last else at + 1
        self._not_before[target] = now + every_ns * (SELDOM if last else 1)

    def _write(self, served: ServedTarget, marks: Marks, called: Called, wall_ns: int) -> None:
        """Write the exchange of a probe at its price, as for a user's request."""
        target = served.target
        bill = served.prices.bill(called.tokens)
        if called.status == 200 and bill.nano_usd is None and not served.prices.hourly:
            seen = called.tokens.out or (1 if called.error is None else self._cap(target.name))
            bill = served.prices.estimate(TOKENS_IN, seen)
        self.spent_nano += bill.nano_usd or 0
        if not served.prices.known and not bills_nobody(served):
            self._day_nano += UNKNOWN_NANO * (TOKENS_IN + self._cap(target.name))
        self._day_nano += bill.nano_usd or 0
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


def bills_nobody(target: ServedTarget) -> bool:
    """Whether an engine is paid by the hour, or has neither a key nor a price."""
    engine, prices = target.target, target.prices
    keyless = engine.api_key is None and engine.signer is None
    return prices.hourly or (keyless and not prices.known)


def question(tokens_in: int) -> str:
    """Return a question of about so many tokens; a long one begins with other words each time.

    Tokens are counted by bytes, as those of requests are: an engine may cut words into many.
    """
    words: list[str] = []
    left = (tokens_in - TOKENS_IN) * BYTES_PER_TOKEN
    while left > 0:
        words.append(random.choice(_WORDS))  # noqa: S311 - no secret
        left -= len(words[-1]) + 1
    return " ".join([*words, _ASK])


def _chosen_by_form(served: Served) -> set[str]:
    """The targets among which a policy chooses by form."""
    return {
        target
        for alias in served.asked_for()
        if len(alias.targets) > 1 and alias.policy in BY_FORM
        for target in alias.targets
    }
