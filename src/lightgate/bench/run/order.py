"""The order of a run: targets, loads and workload, and the cut of a load into blocks."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate import __version__
from lightgate.bench.load.shape import Pacer
from lightgate.bench.run.findings import LoadFacts
from lightgate.bench.workload.conversation import Talk
from lightgate.bench.workload.workload import WorkloadWish
from lightgate.clock.load import Slo
from lightgate.clock.marks import StampSource
from lightgate.dialect.quirks import Quirks
from lightgate.ledger.runs.run import CellSummary, TargetFacts
from lightgate.price.rates import Rates, rates_of
from lightgate.provider.catalogue import Provider
from lightgate.provider.drivers import drivers
from lightgate.provider.target import Target
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.sim.server.serve import SimFacts
    from lightgate.sim.world import World, WorldPrice


TWIN: Final = " (twin)"
BLOCK_ROUNDS: Final = 4  # requests of each worker in one block: its ramp is then a quarter of it
MOST: Final = 16  # times the first stretch, that a wished precision may make of it
MIN_BLOCKS: Final = 10  # fewer, and no difference between five targets can be claimed


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


class Explorer(Protocol):
    """A chooser of the next load by what the last ones came to."""

    def next(self, cells: Sequence[CellSummary]) -> Loading | None:
        """The next load, or None at the end; `said` then holds the finding."""
        ...

    @property
    def said(self) -> str:
        """The finding, in one sentence."""
        ...


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """One load to be driven: so many workers, or a plan of instants."""

    label: str
    concurrency: int | None = None
    pacer: Pacer | None = None
    requests: int | None = None
    duration_ns: int | None = None
    block: int | None = None  # requests of one target in a block; None: as fits their number
    max_inflight: int | None = None  # of a plan; what cannot be sent is dropped and counted
    precision: float | None = None  # wished half width of the medians' intervals, as a share

    @property
    def most(self) -> int | None:
        """Requests that it may come to; None where time ends it."""
        if self.requests is None or self.precision is None:
            return self.requests
        return MOST * self.requests

    def facts(self, dropped: dict[str, int]) -> LoadFacts:
        """Make the facts of the load for the record."""
        rate = None if self.pacer is None else self.pacer.rate_per_s
        return LoadFacts(label=self.label, concurrency=self.concurrency, rate=rate, dropped=dropped)


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
    processes: int | None = None  # None: one for every 1,000 streams begun
    warmup: int = 2
    slo: Slo | None = None
    max_cost: Decimal | None = None
    deadlines: Deadlines = Deadlines()
    options: dict[str, str] = {}
    talk: Talk | None = None  # conversations instead of single requests


def block_size(concurrency: int, requests: int) -> int:
    """Requests of one target in one block: rounds enough for its ramp, but blocks enough too."""
    most, wanted = BLOCK_ROUNDS * concurrency, requests // MIN_BLOCKS
    least = 1 if concurrency == 1 else 2 * concurrency
    return max(least, min(most, wanted))


def cut(load: Loading) -> tuple[int, int | None]:
    """Size and number of the blocks of a load; no number for a duration."""
    workers = load.concurrency or 1
    if load.requests is None:
        return (BLOCK_ROUNDS * workers if load.pacer is None else 50), None
    if load.pacer is not None:
        size = max(1, load.requests // MIN_BLOCKS)
        return size, -(-load.requests // size)
    size = load.block or block_size(workers, load.requests)
    return size, -(-load.requests // size)


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
    )
    return Target(
        name=f"{provider}/{model}",
        provider=row,
        model=model,
        base_url=row.base_url,
        hourly_cost=maker.hourly_cost,
        rates=_rates(maker.models[model].price),
    )


def targets(facts: SimFacts, world: World) -> list[Target]:
    """Every model of every provider of a world."""
    return [
        target(facts, world, provider, model)
        for provider, maker in world.providers.items()
        for model in maker.models
    ]


def _rates(price: WorldPrice | None) -> Rates | None:
    return (
        None if price is None else Rates(input=price.input, output=price.output, source="override")
    )
