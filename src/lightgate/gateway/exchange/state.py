"""The state of one worker: small owners of what its exchanges share. One loop, no locks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.gateway.aside.aside import Aside
from lightgate.gateway.aside.turns import Turns
from lightgate.gateway.cache.memory import MemoryCache
from lightgate.gateway.cache.single_flight import SingleFlight
from lightgate.gateway.exchange.load import Load
from lightgate.gateway.exchange.timers import Timers
from lightgate.gateway.request.prints import PromptPrints
from lightgate.route.admission.headers import REFUSED, read_rates
from lightgate.route.cascade.learned import LearnedBounds
from lightgate.route.form.forms import Forms
from lightgate.route.form.lengths import AnswerLengths
from lightgate.route.form.whole_time import WholeTimes
from lightgate.route.health.breaker import Breakers
from lightgate.route.observe import Observer
from lightgate.route.plan.course import RetryBudget
from lightgate.route.plan.hedge import HedgeBudgets
from lightgate.route.plan.kept import PlanCache
from lightgate.route.plan.plan import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.clock.source import Clock
    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.journal import JournalWriter
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.served.inner import InnerCaller
    from lightgate.gateway.served.served import Served
    from lightgate.gateway.shared.counters import SharedCounters
    from lightgate.gateway.shared.store import SharedStore
    from lightgate.gateway.spend.counters import SpendCounters
    from lightgate.route.admission.peaks import ClientPeaks
    from lightgate.route.plan.alias import Alias
    from lightgate.wire.client.client import Client

_MOST_ALIASES: Final = 4096
TICK_S: Final = 1.0
SAY_NS: Final = 60_000_000_000  # between two lines of the log about one thing that fails
_log = logging.getLogger(__name__)
LAST: Final = 20  # requests whose prompts say how long prompts usually are


class UnderWay(Protocol):
    """An exchange, as far as its worker looks after it."""

    request: ClientRequest
    caller: Caller

    @property
    def heard_ns(self) -> int:
        """The instant at which the client last got something, or asked."""
        ...

    def comment(self) -> None:
        """Tell the client that it waits."""

    def stop(self) -> None:
        """End the exchange because the worker stops."""


class Learned:
    """What the worker has learned of targets and models, and the budgets that go by it."""

    def __init__(self, served: Served) -> None:
        self.breakers = Breakers(served.terms.breaker, random.random)
        self.retries = RetryBudget()
        self.forms = Forms(served.priors)
        self.budgets = HedgeBudgets()
        self.plans = PlanCache(self.breakers, self.forms, self.budgets)
        self.observer = Observer(self.breakers, self.forms, self.budgets)
        self.whole_times = WholeTimes()
        self.unstreamable: set[str] = set()  # targets that would not stream a whole answer
        self.overbilled: set[str] = set()  # targets that bill more than was asked for
        self.asked_ns = 0  # when the last request came
        self.usual_in = 0.0  # tokens of a prompt, of the requests that form decides about
        self._asked = 0  # how many those were, up to LAST
        self.spent_nano = 0  # by users, since the start
        self._bounds: dict[tuple[str, tuple[str, ...]], LearnedBounds] = {}
        self.lengths = AnswerLengths()

    def asked_with(self, tokens_in: int) -> None:
        """Take in the length of a prompt: its usual length is the mean of about the last twenty."""
        if self._asked < LAST:
            self._asked += 1
        self.usual_in += (tokens_in - self.usual_in) / self._asked

    def use(self, served: Served) -> None:
        """Go on under another snapshot."""
        self.unstreamable.clear()  # a target may be another one now
        self.breakers.use(served.terms.breaker)
        self.forms.use(served.priors)

    def bounds_of(self, alias: Alias) -> LearnedBounds:
        """The learned bounds of a cascade; other tiers begin anew."""
        levels = tuple([upto or LEVELS[-1] for upto, _ in alias.tiers])
        found = self._bounds.get((alias.name, levels))
        if found is None:
            if len(self._bounds) >= _MOST_ALIASES:
                self._bounds.clear()
            found = self._bounds[alias.name, levels] = LearnedBounds(levels)
        return found


class SharedAnswers:
    """Answers that several requests may have: kept ones, and those under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self.memory = MemoryCache()
        self.single_flight = SingleFlight(loop, now_ns)


class State:
    """The owners that a worker's exchanges work with, and its time."""

    def __init__(
        self,
        served: Served,
        *,
        client: Client,
        journal: JournalWriter,
        spend: SpendCounters | None,
        worker: int,
        clock: Clock = SYSTEM,
    ) -> None:
        self.served = served
        self.client = client
        self.journal = journal
        self.spend = spend
        self.shared_spend: SharedCounters | None = None  # `spend`, where machines share limits
        self.store: SharedStore | None = None  # that machines share
        self.worker = worker
        self.prints = PromptPrints.of_process()  # a worker uses its folder's
        self.now_ns = clock.now_ns
        self.wall_ns = clock.wall_ns
        self.draw = random.random
        self.ids = Ids()
        self.loop = asyncio.get_running_loop()
        self.timers = Timers(self.loop, self.now_ns)
        self.learned = Learned(served)
        self.load = Load(self.now_ns)
        self.load.use(served.terms.limits)
        self.cache = SharedAnswers(self.loop, self.now_ns)
        self.aside = Aside(self.loop)
        self.turns = Turns(self.loop)
        self.exchanges: set[UnderWay] = set()
        self.refused: Counter[str] = Counter()  # requests that got no attempt, by the code of why
        self.peaks: ClientPeaks | None = None  # clients beside lines of batches, once there was one
        self.inner: InnerCaller | None = None  # who may send lines of batches, if anyone
        self.draining = False
        self.each_second: list[Callable[[], object]] = []
        self._failed: dict[str, int] = {}  # what is done each second: when its failure was said
        self._tasks: set[asyncio.Task[None]] = set()

    def move(self, served: Served) -> None:
        """Serve another snapshot from the next request on."""
        self.served = served
        self.learned.use(served)
        self.load.use(served.terms.limits)
        if self.spend is not None:
            self.spend.add(served.snapshot.keys)

    def limits_stated(
        self,
        target: str,
        began_ns: int,
        fields: Sequence[tuple[bytes, bytes]],
        tokens: int,
        status: int | None,
    ) -> None:
        """Tell the router what an answer's head says is left of its target's limits."""
        facts = read_rates(fields, self.wall_ns() / 1e9)
        if facts:
            self.learned.observer.stated(
                target, self.now_ns(), began_ns, facts, tokens=tokens, refused=status == REFUSED
            )

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a small task until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def tick(self) -> None:
        """Look after what is under way once a second, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.second()

    def second(self) -> None:
        """Comment on streams that have been silent for too long, then do whatever else is due."""
        quiet_since = self.now_ns() - self.served.terms.keep_alive_ns
        for exchange in tuple(self.exchanges):
            if exchange.request.streamed and exchange.heard_ns <= quiet_since:
                exchange.comment()
        for each in self.each_second:
            try:
                each()
            except Exception:  # noqa: BLE001 - the wall of a background task
                self._say_failed(each)

    def _say_failed(self, each: Callable[[], object]) -> None:
        """Log what fails once a second: the others go on, the sign of life among them."""
        name = getattr(each, "__qualname__", repr(each))
        now = self.now_ns()
        if now - self._failed.get(name, -SAY_NS) >= SAY_NS:
            self._failed[name] = now
            _log.exception("What a worker does once a second failed: %s", name)
