"""What lives as long as the worker: its connections, its journal, what it knows of targets."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.gateway.cache.memory import MemoryCache
from lightgate.gateway.cache.single_flight import SingleFlight
from lightgate.gateway.exchange.timers import Patience
from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Breakers
from lightgate.route.observe import Observer
from lightgate.route.plan.course import RetryBudget
from lightgate.route.plan.hedge import HedgeBudgets

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.gateway.exchange.exchange import Flight
    from lightgate.gateway.process.journal import JournalWriter
    from lightgate.gateway.served.served import Served
    from lightgate.gateway.spend.counters import SpendCounters
    from lightgate.ledger.journal.notes import Settled
    from lightgate.wire.client.client import Client

_RECENT: Final = 2000  # exchanges that /v1/requests can tell without the ledger
_MOST_ALIASES: Final = 4096
TICK_S: Final = 1.0


class State:
    """The worker's own state; one loop, no locks."""

    def __init__(
        self,
        served: Served,
        *,
        client: Client,
        journal: JournalWriter,
        spend: SpendCounters | None,
        worker: int,
    ) -> None:
        self.served = served
        self.client = client
        self.journal = journal
        self.spend = spend
        self.worker = worker
        self.ids = Ids()
        self.draining = False
        self.breakers = Breakers(served.terms.breaker, random.random)
        self.retries = RetryBudget()
        self.forms = Forms(served.priors)
        self.budgets = HedgeBudgets()
        self.observer = Observer(self.breakers, self.forms, self.budgets)
        self.unstreamable: set[str] = set()  # targets that would not stream a whole answer
        self._lengths: dict[str, float] = {}  # tokens of an alias' answers, lately
        self.flights: set[Flight] = set()  # requests under way
        self.recent: OrderedDict[str, Settled] = OrderedDict()
        self.asked_ns = 0  # when the last request came
        self.spent_nano = 0  # by users, since the start
        self._tasks: set[asyncio.Task[None]] = set()
        self.each_second: list[Callable[[], object]] = []
        self.now_ns = time.monotonic_ns
        self.loop = asyncio.get_running_loop()
        self.patience = Patience(self.loop, self.now_ns)
        self.answers = MemoryCache()
        self.single_flight = SingleFlight(self.loop, self.now_ns)
        self.wall_ns = SYSTEM.wall_ns
        self.draw = random.random

    def move(self, served: Served) -> None:
        """Serve another snapshot from the next request on."""
        self.served = served
        self.unstreamable.clear()  # a target may be another one now
        self.breakers.use(served.terms.breaker)
        self.forms.use(served.priors)
        if self.spend is not None:
            self.spend.add(served.snapshot.keys)

    def expected_tokens(self, alias: str) -> int | None:
        """How long an answer of this model is, by the last ones; None before the first."""
        length = self._lengths.get(alias)
        return None if length is None else round(length)

    def answered(self, alias: str, tokens: int | None) -> None:
        """An answer of so many tokens was given."""
        if tokens:
            before = self._lengths.get(alias)
            if before is None and len(self._lengths) >= _MOST_ALIASES:
                self._lengths.clear()
            self._lengths[alias] = tokens if before is None else before + 0.1 * (tokens - before)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a small task until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def remember(self, settled: Settled) -> None:
        """Keep an exchange for /v1/requests."""
        recent = self.recent
        recent[settled.exchange.id] = settled
        if len(recent) > _RECENT:
            recent.popitem(last=False)

    async def tick(self) -> None:
        """Once a second, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.second()

    def second(self) -> None:
        """Say something on streams that have been silent for too long; whatever else is due."""
        quiet_since = self.now_ns() - self.served.terms.keep_alive_ns
        for flight in tuple(self.flights):
            if flight.wanted.streamed and flight.heard_ns <= quiet_since:
                flight.comment()
        for each in self.each_second:
            each()
