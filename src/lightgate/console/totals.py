"""Counters of what the ledger has gained since this process began.

Prometheus needs counters that never fall, and the ledger forgets: so the rollups of the last hours
are read again and again, and what each row has gained since the last look is added up. Labels are
names of the configuration, of the price list or of providers' lists of models: what a client makes
up is counted as `other`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.clock.sketch import DDSketch
from lightgate.ledger.store.rollup import DAY_S, HOUR_S
from lightgate.ledger.store.schema import OUTCOMES, key_rollups, rollups

if TYPE_CHECKING:
    import sqlalchemy as sa

    from lightgate.gateway.served.snapshot import Snapshot
    from lightgate.ledger.store.store import Ledger

OTHER: Final = "other"
LOOK_BACK_S: Final = 3 * HOUR_S  # what is shipped later than this is in the ledger alone
TIMES: Final = ("ttft_ms", "e2e_ms", "overhead_ms")
# The bounds of the GenAI semantic conventions, in seconds; overhead has its own.
BOUNDS_S: Final = {
    "ttft_ms": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
                7.5, 10.0),
    "e2e_ms": (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96,
               81.92),
    "overhead_ms": (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0),
}  # fmt: skip
_SUMS: Final = (*OUTCOMES, "tokens_in", "tokens_out", "cost_usd")
_NS_PER_S: Final = 1_000_000_000


class TargetLabels(NamedTuple):
    """The labels of a target: provider and model."""

    provider: str
    model: str


class KnownNames:
    """The names that may become labels: those of the configuration, and of lists of models."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self._providers = frozenset(() if snapshot is None else snapshot.providers)
        self._aliases = frozenset(() if snapshot is None else (a.name for a in snapshot.aliases))
        targets: set[str] = set()
        if snapshot is not None:
            targets.update(target for alias in snapshot.aliases for target in alias.targets)
            for name, reach in snapshot.providers.items():
                targets.update(f"{name}/{model}" for model in (*reach.prices, *reach.models))
        self._bare = frozenset(() if snapshot is None else snapshot.names)
        self._targets = frozenset(targets)

    def labels(self, target: str) -> TargetLabels:
        """The labels of a target."""
        provider, _, model = target.partition("/")
        if provider not in self._providers:
            return TargetLabels(OTHER, OTHER)
        return TargetLabels(provider, model if target in self._targets else OTHER)

    def alias(self, model_asked: str) -> str:
        """The label of what a client asked for."""
        known = (self._aliases, self._targets, self._bare)
        return model_asked if any(model_asked in names for names in known) else OTHER


class Histogram:
    """Counts up to each bound, and the sum, in seconds."""

    def __init__(self, metric: str) -> None:
        self.bounds_s = BOUNDS_S[metric]
        self.counts = [0] * (len(self.bounds_s) + 1)  # the last is of all samples
        self.sum_s = 0.0

    def gain(self, counts: list[int], sum_s: float) -> None:
        """Add what came; each count is cumulative, as Prometheus has them."""
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        self.sum_s += sum_s


class _RowBefore(NamedTuple):
    mark: tuple[int, bytes | None]  # whatever changes the row changes one of these
    counts: dict[str, Any]
    times: dict[str, tuple[list[int], float]]


_NOTHING: Final = _RowBefore((0, None), defaultdict(int), {})


class Totals:
    """Counters of attempts by target, and of exchanges by alias."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[TargetLabels, str], int] = defaultdict(int)
        self.tokens: dict[tuple[TargetLabels, str], int] = defaultdict(int)
        self.cost_usd: dict[TargetLabels, float] = defaultdict(float)
        self.times: dict[tuple[str, TargetLabels], Histogram] = {}
        self.exchanges: dict[tuple[str, str], int] = defaultdict(int)
        self.lock = threading.Lock()  # held while the counters are changed or read
        self._rows: dict[tuple[int, str], _RowBefore] = {}
        self._keys: dict[tuple[int, str, str], tuple[int, int]] = {}

    def begin(self, ledger: Ledger, wall_ns: int) -> None:
        """Remember the rows that are there already: they are not counted."""
        self.look(ledger, wall_ns, KnownNames(None))
        for gained in (self.outcomes, self.tokens, self.cost_usd, self.exchanges):
            gained.clear()
        self.times.clear()

    def look(self, ledger: Ledger, wall_ns: int, names: KnownNames) -> None:
        """Read the last hours and add what they have gained."""
        since_s = wall_ns // _NS_PER_S - LOOK_BACK_S
        hours = rollups.select().where(
            rollups.c.width_s == HOUR_S, rollups.c.bucket_s >= since_s - HOUR_S
        )
        days = key_rollups.select().where(
            key_rollups.c.width_s == DAY_S, key_rollups.c.bucket_s >= since_s - DAY_S
        )
        with ledger.reading() as connection:
            targets, keys = connection.execute(hours).all(), connection.execute(days).all()
        with self.lock:
            for row in targets:
                self._take_target(row, names)
            for row in keys:
                self._take_key(row, names)
            self._forget(since_s)

    def _take_target(self, row: sa.Row[Any], names: KnownNames) -> None:
        at = (row.bucket_s, row.target)
        before = self._rows.get(at, _NOTHING)
        mark = (row.attempts, row.overhead_ms_sketch)
        if before.mark == mark:
            return
        place = names.labels(row.target)
        counts = {name: getattr(row, name) for name in _SUMS}
        gained = {name: max(0, value - before.counts[name]) for name, value in counts.items()}
        for outcome in OUTCOMES:
            if gained[outcome]:
                self.outcomes[place, outcome] += gained[outcome]
        for kind, column in (("input", "tokens_in"), ("output", "tokens_out")):
            self.tokens[place, kind] += gained[column]
        self.cost_usd[place] += float(gained["cost_usd"])
        times = {metric: _packed(row, metric) for metric in TIMES}
        for metric, (values, sum_s) in times.items():
            self._gain(metric, place, before.times.get(metric), (values, sum_s))
        self._rows[at] = _RowBefore(mark, counts, times)

    def _gain(
        self,
        metric: str,
        place: TargetLabels,
        before: tuple[list[int], float] | None,
        now: tuple[list[int], float],
    ) -> None:
        old, old_sum_s = before or ([0] * len(now[0]), 0.0)
        histogram = self.times.setdefault((metric, place), Histogram(metric))
        fresh = [max(0, a - b) for a, b in zip(now[0], old, strict=True)]
        histogram.gain(fresh, max(0.0, now[1] - old_sum_s))

    def _take_key(self, row: sa.Row[Any], names: KnownNames) -> None:
        at = (row.bucket_s, row.key_id, row.model_asked)
        exchanges, ok = self._keys.get(at, (0, 0))
        alias = names.alias(row.model_asked)
        self.exchanges[alias, "ok"] += max(0, row.ok - ok)
        failed, before = row.exchanges - row.ok, exchanges - ok
        self.exchanges[alias, "failed"] += max(0, failed - before)
        self._keys[at] = (row.exchanges, row.ok)

    def _forget(self, since_s: int) -> None:
        """Drop the memory of rows that are not read again."""
        self._rows = {at: seen for at, seen in self._rows.items() if at[0] >= since_s - HOUR_S}
        self._keys = {at: seen for at, seen in self._keys.items() if at[0] >= since_s - DAY_S}


def _packed(row: sa.Row[Any], metric: str) -> tuple[list[int], float]:
    """A sketch of milliseconds as cumulative counts and a sum in seconds."""
    data = getattr(row, f"{metric}_sketch")
    sketch = DDSketch() if data is None else DDSketch.from_bytes(data)
    counts = [sketch.at_most(bound * 1000) for bound in BOUNDS_S[metric]]
    return [*counts, sketch.count], sketch.total / 1000
