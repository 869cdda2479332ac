"""The order of a run: targets, loads and workload, and the cut of a load into blocks."""

from __future__ import annotations

import itertools
import math
import os
import platform
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate import __version__
from lightgate.bench.checks.cases import CaseSet
from lightgate.bench.load.jobs import most_fillers, most_ramp
from lightgate.bench.load.processes import SPARE, processes_for, shares
from lightgate.bench.load.shape import Pacer
from lightgate.bench.run.findings import LoadFacts
from lightgate.bench.workload.conversation import Talk
from lightgate.bench.workload.workload import WorkloadWish
from lightgate.clock.compare import blocks_for
from lightgate.clock.load import Slo
from lightgate.clock.marks import StampSource
from lightgate.dialect.quirks import Quirks
from lightgate.ledger.runs.run import CellSummary, TargetFacts
from lightgate.price.rates import BatchDiscount, Rates, rates_of, with_discount
from lightgate.provider.catalogue import BatchOffer, Provider
from lightgate.provider.drivers import drivers
from lightgate.provider.target import Target
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.run.client_cpu import ClientCpu
    from lightgate.clock.attempt import AttemptRecord
    from lightgate.sim.server.serve import SimFacts
    from lightgate.sim.world import World, WorldBatch, WorldPrice, WorldProvider


TWIN: Final = " (twin)"
BLOCK_ROUNDS: Final = 4  # requests of each worker in one block, where their number is free
MOST_ROUNDS: Final = 12  # ... at most, in a longer run: then a ramp and a drain are a sixth of it
LEAST_ROUNDS: Final = 2  # ... at least: a shorter stretch is nearly all edge
MOST: Final = 16  # times the first stretch, that a wished precision may make of it
MIN_BLOCKS: Final = 10  # fewer, and no difference between five targets can be claimed
ENOUGH: Final = 96  # requests for a p95 with an interval
FASTEST_S: Final = 0.05  # that a request takes at least, beside its tokens, by the announcement
FASTEST_TPS: Final = 1_000


class RunObserver(Protocol):
    """An observer of a run; the live view of `report` is one."""

    def begin_cell(
        self,
        target: str,
        load: str,
        *,
        total: int | None = None,
        duration_s: float | None = None,
        inflight: Callable[[], int] | None = None,
    ) -> None:
        """Take in that a target begins with a load; `inflight` counts its requests under way."""

    def tick(self, attempt: AttemptRecord, *, warmup: bool = False) -> None:
        """Take in an attempt that has ended."""

    def end_cell(self, target: str, glance: CellSummary | None = None) -> None:
        """Take in that a target is through with a load; `glance` has its medians, if any."""

    def say(self, text: str) -> None:
        """Take in a sentence about what goes on."""


class Explorer(Protocol):
    """A chooser of the next load by what the last ones came to."""

    def next(self, cells: Sequence[CellSummary]) -> Loading | None:
        """The next load, or None at the end; `said` then holds the finding."""
        ...

    @property
    def said(self) -> str:
        """The finding, in one sentence."""
        ...

    def most(self, order: RunOrder) -> int:
        """Requests that it may come to, at most."""
        ...


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """One load to be driven: so many workers, or a plan of instants."""

    label: str
    concurrency: int | None = None
    pacer: Pacer | None = None
    requests: int | None = None
    duration_ns: int | None = None
    block: int | None = None  # requests of one target in a block; None: as fits their number
    cap: int | None = None  # requests that a duration may come to; None: any number
    max_inflight: int | None = None  # of a plan; what cannot be sent is dropped and counted
    precision: float | None = None  # wished half width of the medians' intervals, as a share

    @property
    def most(self) -> int | None:
        """Requests that it may come to; None where time ends it."""
        if self.requests is None or self.precision is None:
            return self.requests
        return MOST * self.requests

    def facts(self, dropped: dict[str, int], cpu: ClientCpu | None = None) -> LoadFacts:
        """Make the facts of the load for the record."""
        rate = None if self.pacer is None else self.pacer.rate_per_s
        return LoadFacts(
            label=self.label,
            concurrency=self.concurrency,
            rate=rate,
            dropped=dropped,
            client_cpu=None if cpu is None else cpu.shares.get(self.label),
            machine_cpu=None if cpu is None else cpu.machine.get(self.label),
        )


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run is asked for."""

    targets: tuple[Target, ...]
    loads: tuple[Loading, ...]
    wish: WorkloadWish
    seed: int
    stamps: StampSource
    at: datetime
    aa: bool = True
    together: bool = False
    stagger: bool = True  # begin the workers of a closed loop over the time of one request
    processes: int | None = None  # None: one for every 1,000 streams begun
    hosts: int = 0  # other machines that make the load; 0: this one makes it
    warmup: int = 2
    patience_s: float | None = None  # a target whose probes take longer is left out
    slo: Slo | None = None
    max_cost: Decimal | None = None
    agreed: Decimal | None = None  # dollars that were announced
    deadlines: Deadlines = Deadlines()
    options: dict[str, str] = {}
    talk: Talk | None = None  # conversations instead of single requests
    cases: CaseSet | None = None  # whose prompts the workload has: answers are kept to be judged


def enough(workers: int, targets: int) -> int:
    """Requests for a p95 with an interval, and for blocks enough to compare."""
    return max(ENOUGH, blocks_for(targets) * BLOCK_ROUNDS * workers)


def block_size(workers: int, requests: int, targets: int) -> int:
    """Requests of one target in one block: rounds enough for a steady load, but blocks enough too.

    One worker has no ramp, so its blocks may be short.
    """
    most = BLOCK_ROUNDS if workers == 1 else MOST_ROUNDS * workers
    least = 1 if workers == 1 else LEAST_ROUNDS * workers
    return max(least, min(most, requests // blocks_for(targets)))


def cut(load: Loading, requests: int | None, targets: int) -> tuple[int, ...]:
    """Sizes of the blocks of so many requests of one target; none where time ends them.

    They add up to the requests, and differ by one at most.
    """
    if requests is None:
        return ()
    size = usual_size(load, targets)
    return tuple(shares(requests, max(1, requests // size)))


def usual_size(load: Loading, targets: int) -> int:
    """Requests of a block of a load, but for the rest that is shared out."""
    workers = load.concurrency or 1
    if load.block is not None:
        return load.block
    if load.requests is None:
        return BLOCK_ROUNDS * workers if load.pacer is None else 50
    if load.pacer is not None:
        return max(1, load.requests // MIN_BLOCKS)
    return block_size(workers, load.requests, targets)


def announced(load: Loading, order: RunOrder) -> int | None:
    """Requests that one target may be sent at a load, at most; None where only time ends it.

    Those that count, and those that do not: warm-up, ramps, fillers. Probes come on top.
    """
    if load.pacer is not None:
        return _planned(load)
    counted = load.most if load.requests is not None else load.cap
    if counted is None:
        return None
    if order.talk is not None:  # at least one whole conversation
        own = order.wish.own
        return counted if own is None else max(counted, len(own.pick(0).turns))
    workers, targets = load.concurrency or 1, len(order.targets)
    processes = processes_for(workers, order.processes, order.hosts)
    apart = processes > 1 or order.hosts > 0
    stretches = 1 if load.precision is None else 2
    if not order.together and targets > 1 and not apart:
        stretches = -(-counted // usual_size(load, targets)) + stretches - 1
    extra = most_ramp(workers) + most_fillers(workers)
    if apart:
        extra += SPARE * processes
    return counted + stretches * extra + max(order.warmup, 1)


def most_in_time(seconds: float, workers: int, tokens: int) -> int:
    """Requests that a closed loop is allowed in a time: as many as the fastest target would."""
    return math.ceil(seconds / (FASTEST_S + tokens / FASTEST_TPS)) * workers


def _planned(load: Loading) -> int | None:
    """Count the planned instants of an open load."""
    if load.pacer is None:
        return None
    offsets = itertools.islice(load.pacer.offsets(), load.requests)
    if load.duration_ns is None:
        return load.requests
    lasts = load.duration_ns
    return sum(1 for _ in itertools.takewhile(lambda at: at < lasts, offsets))


def with_twin(order: RunOrder) -> tuple[Target, ...]:
    """The targets, and for a comparison the first of them once more under another name."""
    if not order.aa or len(order.targets) < 2 or order.together:
        return order.targets
    first = order.targets[0]
    return (*order.targets, msgspec.structs.replace(first, name=first.name + TWIN))


def target_facts(target: Target, order: RunOrder) -> TargetFacts:
    """Make the facts of a target for the record; never its key."""
    listed = target.provider.price_provider
    rates = target.rates or (rates_of(listed, target.model, order.at) if listed else None)
    twin = target.name.endswith(TWIN)
    return TargetFacts(
        name=target.name,
        provider=target.provider.name,
        model=target.model,
        base_url=target.base_url,
        dialect=target.provider.dialect,
        twin_of=target.name.removesuffix(TWIN) if twin else None,
        price_input=None if rates is None else rates.input,
        price_output=None if rates is None else rates.output,
        price_as_of=None if rates is None else rates.as_of,
        hourly_cost=target.hourly_cost,
        drivers=drivers(target.provider, target.model),
    )


def environment(stamps: StampSource) -> dict[str, str]:
    """Describe the machine and the versions of a run."""
    return {
        "lightgate": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count() or 1),
        "stamps": stamps,
    }


def target(facts: SimFacts, world: World, provider: str, model: str) -> Target:
    """One model of one simulated provider; no key is needed."""
    maker = world.providers[provider]
    # The simulator writes as many tokens as it is asked for.
    quirks = Quirks(ignore_eos=True) if maker.dialect == "openai" else Quirks()
    row = Provider(
        name=provider,
        title=maker.title or provider,
        base_url=facts.providers[provider],
        dialect=maker.dialect,
        auth="none",
        local=True,
        quirks=quirks,
        batch=_batch_offer(maker),
    )
    return Target(
        name=f"{provider}/{model}",
        provider=row,
        model=model,
        base_url=row.base_url,
        hourly_cost=maker.hourly_cost,
        rates=_rates(maker.models[model].price, maker.batch),
    )


def targets(facts: SimFacts, world: World) -> list[Target]:
    """Every model of every provider of a world."""
    return [
        target(facts, world, provider, model)
        for provider, maker in world.providers.items()
        for model in maker.models
    ]


def _batch_offer(maker: WorldProvider) -> BatchOffer | None:
    """The batch API of a simulated provider."""
    batch = maker.batch
    if batch is None:
        return None
    return BatchOffer(
        form=batch.form or maker.dialect,
        lines=batch.most_lines,
        window_h=math.ceil(batch.window_s / 3600),
        keep_h=math.ceil(batch.keep_s / 3600),
        source="the world",
    )


def _rates(price: WorldPrice | None, batch: WorldBatch | None) -> Rates | None:
    if price is None:
        return None
    rates = Rates(input=price.input, output=price.output, source="override")
    if batch is None:
        return rates
    share = Decimal(str(batch.price))
    return with_discount(rates, BatchDiscount(input=share, output=share))
