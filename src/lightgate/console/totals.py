"""Counters of what has been shipped since this process began.

Prometheus needs counters that never fall, and the ledger forgets: so every exchange is counted here
at the moment at which it has reached the ledger. A scrape reads the counters and nothing else,
however many names clients have made up.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final

from lightgate.console.api.ticks import Ticks
from lightgate.console.labels import OTHER, LabelNames, TargetLabels
from lightgate.dialect.registry import DIALECTS
from lightgate.ledger.store.queries import spend_per_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, Settled
    from lightgate.ledger.store.store import Ledger

MOST_KEYS: Final = 50  # keys with a series of their own; what the others spend is one series
# Bounds of the GenAI semantic conventions, in seconds and tokens. A token of today's fastest models
# takes less than the first of theirs: the times of a token begin lower.
DURATION_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48,
                     40.96, 81.92)  # fmt: skip
FIRST_TOKEN_S: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5,
                        5.0, 7.5, 10.0)  # fmt: skip
OUTPUT_TOKEN_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                         0.3, 0.4, 0.5, 0.75, 1.0, 2.5)  # fmt: skip
TOKENS: Final = tuple(4**power for power in range(14))
SPEED_TPS: Final = (1, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000)
OVERHEAD_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
# What the conventions call an operation; another kind of endpoint is called by its own name.
_OPERATIONS: Final = {
    "chat": "chat",
    "responses": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
}
PROBE: Final = "probe"  # the policy and the dialect of the gateway's own requests


class Histogram:
    """Counts of samples up to each bound, and their sum."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Count samples."""
        counts = self._counts
        for place, count in Counter(map(bisect_left, repeat(self.bounds), values)).items():
            counts[place] += count
        self.total = sum(values, self.total)

    def cumulative(self) -> list[int]:
        """The samples up to each bound, as Prometheus has them; the last number is of all."""
        return list(accumulate(self._counts))


class OperationTotals:
    """The histograms of one kind of operation at one target, by the GenAI conventions."""

    __slots__ = ("duration", "first_token", "output_token", "tokens")

    def __init__(self) -> None:
        self.duration = Histogram(DURATION_S)
        self.first_token = Histogram(FIRST_TOKEN_S)
        self.output_token = Histogram(OUTPUT_TOKEN_S)
        self.tokens = {"input": Histogram(TOKENS), "output": Histogram(TOKENS)}


class TargetTotals:
    """The counters of all attempts at one target; money in nano-dollars."""

    __slots__ = ("cost_nano", "loser_nano", "operations", "outcomes", "overhead", "roles",
                 "speed", "tokens")  # fmt: skip

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.roles: Counter[tuple[str, str]] = Counter()  # role, whether it won
        self.cost_nano = 0
        self.loser_nano = 0
        self.overhead = Histogram(OVERHEAD_S)
        self.speed = Histogram(SPEED_TPS)
        self.operations: dict[str, OperationTotals] = {}

    def take(self, attempts: Sequence[tuple[AttemptNote, ExchangeNote]]) -> None:
        """Count attempts, each with its exchange: many at a time, each step for all of them."""
        notes = [attempt for attempt, _ in attempts]
        facts = [note.facts for note in notes]
        lost = [one.cost_nano or 0 for one in facts if one.won is False]
        self.outcomes.update([note.outcome._value_ for note in notes])
        self.roles.update([(one.role, "false" if one.won is False else "true") for one in facts])
        self.cost_nano += sum([one.cost_nano or 0 for one in facts])
        self.loser_nano += sum(lost)
        self.tokens["input"] += sum([note.tokens_in or 0 for note in notes])
        self.tokens["output"] += sum([note.tokens_out or 0 for note in notes])
        measured = [pair for pair in attempts if pair[0].measured()]
        for name in dict.fromkeys([attempt.facts.dialect for attempt, _ in measured]):
            self._measure(name, [one for one, _ in measured if one.facts.dialect == name])
        added = [
            exchange.overhead_ms()
            for attempt, exchange in measured
            if exchange.outcome == "ok" and exchange.winner == attempt.facts.target
        ]
        self.overhead.add(_seconds(added))

    def _measure(self, dialect: str, notes: Sequence[AttemptNote]) -> None:
        """Count the numbers of answers of a dialect that say how fast their provider is."""
        name = operation_of(dialect)
        of = self.operations.get(name)
        if of is None:
            of = self.operations[name] = OperationTotals()
        numbers = [note.metrics() for note in notes]
        of.duration.add(_seconds([one[4] for one in numbers]))
        of.first_token.add(_seconds([one[0] for one in numbers]))
        speeds = [one[2] for one in numbers if one[2]]
        self.speed.add(speeds)
        of.output_token.add([1 / speed for speed in speeds])
        of.tokens["input"].add([note.tokens_in for note in notes if note.tokens_in is not None])
        of.tokens["output"].add([note.tokens_out for note in notes if note.tokens_out is not None])


class Totals:
    """Counters of attempts by target, of exchanges by model, and of money by key.

    `names` decides what may be a label. A key keeps its series for as long as the process lives:
    those that had spent most when it began come first, then those that spend first. `ticks` are the
    stamps of the newest answers, which the ledger does not keep.
    """

    def __init__(self, names: LabelNames) -> None:
        self.names = names
        self.targets: dict[TargetLabels, TargetTotals] = {}
        self.exchanges: Counter[tuple[str, str]] = Counter()
        self.shared: Counter[tuple[str, str]] = Counter()  # answers by model and use of the cache
        self.key_nano: dict[str, int] = {}
        self.ticks = Ticks()
        self.lock = threading.Lock()  # held while the counters are changed or read

    def begin(self, ledger: Ledger) -> None:
        """Give the keys that have spent most a series each."""
        spent = spend_per_key(ledger)
        dearest = sorted(spent, key=lambda key_id: (-spent[key_id], key_id))[:MOST_KEYS]
        self.key_nano = dict.fromkeys(dearest, 0)

    def take(self, settled: Sequence[Settled]) -> None:
        """Count exchanges that are in the ledger now."""
        self.names.look()
        self.ticks.take(settled)
        attempts: dict[str, list[tuple[AttemptNote, ExchangeNote]]] = {}
        for note in settled:
            exchange = note.exchange
            for attempt in note.attempts:
                target = attempt.facts.target
                found = attempts.get(target)
                if found is None:
                    found = attempts[target] = []
                found.append((attempt, exchange))
        with self.lock:
            self._take_exchanges([n.exchange for n in settled if n.exchange.policy != PROBE])
            for target, pairs in attempts.items():
                place = self.names.target(target)
                of = self.targets.get(place)
                if of is None:
                    of = self.targets[place] = TargetTotals()
                of.take(pairs)

    def _take_exchanges(self, exchanges: Sequence[ExchangeNote]) -> None:
        """Count exchanges by model and by key; names come in the order in which they were seen."""
        ends = Counter([(one.model_asked, one.outcome == "ok", one.cache) for one in exchanges])
        for (asked, ok, cache), count in ends.items():
            model = self.names.model(asked)
            self.exchanges[model, "ok" if ok else "failed"] += count
            if cache != "off":
                self.shared[model, cache] += count
        spent: dict[str, int] = {}
        for one in exchanges:
            if one.key_id is not None:
                nano = (one.cost_nano or 0) + (one.loser_cost_nano or 0)
                spent[one.key_id] = spent.get(one.key_id, 0) + nano
        for key_id, nano in spent.items():
            if key_id not in self.key_nano and len(self.key_nano) >= MOST_KEYS:
                key_id = OTHER  # noqa: PLW2901 - the series that it is counted in
            self.key_nano[key_id] = self.key_nano.get(key_id, 0) + nano


@lru_cache(maxsize=64)  # for every batch of every target; there are few dialects
def operation_of(dialect: str) -> str:
    """What the GenAI conventions call the operation of a dialect's endpoint."""
    known = DIALECTS.get(dialect)
    if known is None:  # the gateway's own probe
        return "chat"
    if known.family == "gemini" and known.kind == "chat":
        return "generate_content"
    return _OPERATIONS.get(known.kind, known.kind)


def _seconds(times_ms: Sequence[float | None]) -> list[float]:
    """Times that exist; one below zero (a stamp of another clock) is no time."""
    return [time_ms / 1000 for time_ms in times_ms if time_ms is not None and time_ms >= 0]
