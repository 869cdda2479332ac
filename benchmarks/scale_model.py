"""From one node to a thousand: form staleness, budget error, ledger volume, merged sketches.

    python benchmarks/scale_model.py [--nodes 1,10,100,1000] [--workers 8] [--rate 100] [--seeds 5]

What is simulated is the product's own: the beats and limits of `gateway.shared.live`, the shares of
`gateway.shared.share` that a worker takes from while the store is away, the sketches of
`clock.sketch`, and rows and sums that the shipper really writes. Time is virtual. Every figure is
the median of the seeds with the least and the most beside it. What is not simulated: networks, and
the stores themselves.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import ship

from lightgate.clock.quantile import quantile
from lightgate.clock.sketch import DDSketch
from lightgate.gateway.shared.live import BEAT_S, FORM_S, MOST_FORMS
from lightgate.gateway.shared.share import Alone, KeyLimits, KeyShare, Needed, Told
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import LIMIT
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

DOLLAR = 1_000_000_000  # in nano-dollars
PRICE = DOLLAR // 100  # of a request
TARGETS = 40
NOTICED_NS = 30 * 1_000_000_000  # into the silence: shares hold, not only advances


class Spread(NamedTuple):
    """The median of the seeds, the least and the most."""

    middle: float
    least: float
    most: float

    def said(self, form: str = "{:.3g}") -> str:
        """The three numbers as text."""
        middle, least, most = (form.format(value) for value in self)
        return middle if least == most else f"{middle} ({least} - {most})"


def spread(seeds: int, measure: Callable[[random.Random], float]) -> Spread:
    """Measure with each seed."""
    found = [measure(random.Random(seed)) for seed in range(seeds)]  # noqa: S311 - a simulation
    return Spread(statistics.median(found), min(found), max(found))


# Form


def heard_after_s(members: int, dice: random.Random) -> float:
    """How long after it was learned a worker's form reaches one other worker of another machine.

    A form is told once a second. Each beat of the other hears at most MOST_FORMS, those first that
    were told first. Of more than a second's beats can hear, each is heard in its turn, and by then
    told again.
    """
    told = dice.random() * FORM_S
    turn_s = max(0.0, members / MOST_FORMS * BEAT_S - FORM_S)  # that the last one waits
    return told + dice.random() * (BEAT_S + turn_s)


def staleness(members: int, q: float) -> Callable[[random.Random], float]:
    """A quantile of that time, in seconds."""

    def measure(dice: random.Random) -> float:
        return quantile([heard_after_s(members, dice) for _ in range(2000)], q) or 0.0

    return measure


def first_of_a_node_s(nodes: int, workers: int, dice: random.Random) -> float:
    """... until the first worker of another node has it, which tells its siblings by a file."""
    return min(heard_after_s(nodes * workers, dice) for _ in range(workers))


def first_heard(nodes: int, workers: int) -> Callable[[random.Random], float]:
    """The median of that time, in seconds."""

    def measure(dice: random.Random) -> float:
        return quantile([first_of_a_node_s(nodes, workers, dice) for _ in range(500)], 0.5) or 0.0

    return measure


# Budgets


def spent_share(members: int, left: int, skew: float) -> Callable[[random.Random], float]:
    """Requests let in while the store is away, as a share of those that the budget had room for.

    Twice as many are asked for as there is room. With `skew` some workers get more of them.
    """

    def measure(dice: random.Random) -> float:
        budget = left * PRICE
        limits = KeyLimits(budget, -1, -1, 0)
        part = Needed(budget // members, 0, 0)
        told = Told(Needed(budget, 0, 0), part, part, 0)
        alone = Alone(NOTICED_NS, members, long=True)  # the store has noticed the silence
        shares = []
        for _ in range(members):
            share = KeyShare()
            share.told(told, (0, 0, 0), 0)
            shares.append(share)
        weights = [1 / (number + 1) ** skew for number in range(members)]
        need, let_in = Needed(PRICE, 1, 0), 0
        for at in dice.choices(range(members), weights, k=2 * left):
            if not shares[at].lacks(need, limits, 0, alone):
                shares[at].took(need, 0)
                let_in += 1
        return let_in / left

    return measure


# Ledger


class RowCost(NamedTuple):
    """What an exchange with one attempt takes in the ledger."""

    cpu_us: float
    bytes: float
    journal_bytes: float


def row_cost(exchanges: int = 8000) -> RowCost:
    """Ship a journal of streams into a new ledger and look at its file."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        Ledger.open("sqlite", data).close()
        empty = (data / FILE).stat().st_size
        options = SimpleNamespace(exchanges=exchanges, batch=LIMIT)
        cpu_us = ship.shipped_us(ship.Lite(), data, "sqlite", options, 100)
        journal = sum(path.stat().st_size for path in (data / "journal").iterdir())
        grown = sum(path.stat().st_size for path in data.glob(f"{FILE}*")) - empty
        return RowCost(cpu_us, grown / exchanges, _journal_bytes(exchanges, journal))


def _journal_bytes(exchanges: int, left: int) -> float:
    """The bytes of one exchange in a journal; a shipped one is emptied."""
    if left:
        return left / exchanges
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal", 0)
        for note in ship.notes(1000, 100):
            journal.write(note)
        journal.close()
        return sum(path.stat().st_size for path in (Path(folder) / "journal").iterdir()) / 1000


# Sketches


class Merged(NamedTuple):
    """Sketches of many nodes, merged: the largest error of a quantile, and bytes."""

    error: float
    bytes_one: float
    bytes_all: float
    merge_us: float
    add_us: float


def merged(nodes: int, dice: random.Random, each: int = 200) -> Merged:
    """Merge the sketches of all nodes and hold them against all samples."""
    samples: list[float] = []
    sketches, added = [], 0.0
    for _ in range(nodes):
        own = [dice.lognormvariate(math.log(300), 0.8) for _ in range(each)]
        samples += own
        sketch = DDSketch()
        began = time.process_time()
        sketch.add_many(own)
        added += time.process_time() - began
        sketches.append(sketch)
    whole = DDSketch()
    began = time.process_time()
    for sketch in sketches:
        whole.merge(sketch)
    took = time.process_time() - began
    error = 0.0
    for q in (0.5, 0.95, 0.99):
        true = quantile(samples, q) or 1.0
        error = max(error, abs((whole.quantile(q) or 0.0) - true) / true)
    one = statistics.mean(len(sketch.to_bytes()) for sketch in sketches)
    size = len(whole.to_bytes())
    return Merged(error, one, size, took / nodes * 1e6, added / len(samples) * 1e6)


def print_form(given: Any) -> None:
    print("Form: seconds until another node's worker knows what one learned")
    print("| nodes | workers of all | p50 | p99 | first worker of the node, p50 |")
    print("|---|---|---|---|---|")
    for nodes in given.nodes:
        members = nodes * given.workers
        half, worst = (spread(given.seeds, staleness(members, q)) for q in (0.5, 0.99))
        first = spread(given.seeds, first_heard(nodes, given.workers))
        alone = nodes == 1
        row = ["·"] * 3 if alone else [half.said(), worst.said(), first.said()]
        print(f"| {nodes} | {members} | {' | '.join(row)} |")


def print_budgets(given: Any) -> None:
    print("\nBudget: requests let in while the store is away, of those that there was room for")
    print("| nodes | workers of all | room for | traffic even | traffic uneven (Zipf 1) |")
    print("|---|---|---|---|---|")
    for nodes in given.nodes:
        members = nodes * given.workers
        for left in (100, 10_000):
            row = [spread(given.seeds, spent_share(members, left, skew)) for skew in (0.0, 1.0)]
            shown = " | ".join(one.said("{:.1%}") for one in row)
            print(f"| {nodes} | {members} | {left:,} | {shown} |")


def print_ledger(given: Any) -> None:
    costs = [row_cost() for _ in range(given.seeds)]
    cpu, size = (statistics.median(one[at] for one in costs) for at in (0, 1))
    least, most = (f(one.cpu_us for one in costs) for f in (min, max))
    journal = costs[0].journal_bytes
    print(f"\nLedger: {cpu:.0f} µs of CPU ({least:.0f} - {most:.0f}), {size:.0f} bytes, and"
          f" {journal:.0f} bytes of journal, for one exchange of 100 bursts")  # fmt: skip
    print(f"at {given.rate} requests/s a node:")
    print("| nodes | exchanges/s | cores that ship | raw GB a day | rows of sums a day |")
    print("|---|---|---|---|---|")
    sums = TARGETS * (DAY_S // FINE_S + DAY_S // HOUR_S + 1)
    for nodes in given.nodes:
        rate = nodes * given.rate
        raw = rate * 86_400 * size / 1e9
        print(f"| {nodes} | {rate:,} | {rate * cpu / 1e6:.2f} | {raw:,.1f} | {sums:,} |")
    print(f"(sums: {TARGETS} targets, whatever the number of nodes or requests)")


def print_sketches(given: Any) -> None:
    print("\nSketches: one of each node, merged; 200 samples each, log-normal")
    print("| nodes | bytes of one | bytes merged | worst error of p50, p95, p99 | µs per merge |")
    print("|---|---|---|---|---|")
    for nodes in given.nodes:
        found = [merged(nodes, random.Random(seed)) for seed in range(given.seeds)]  # noqa: S311
        columns = [Spread(statistics.median(x), min(x), max(x)) for x in zip(*found, strict=True)]
        error, one, size, merge_us, _ = columns
        print(f"| {nodes} | {one.said('{:.0f}')} | {size.said('{:.0f}')} | {error.said('{:.2%}')}"
              f" | {merge_us.said('{:.1f}')} |")  # fmt: skip
        if error.most > 0.0101:
            raise SystemExit("A merged sketch is further off than its promised 1 %.")


def main() -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="1,10,100,1000")
    parser.add_argument("--workers", type=int, default=8, help="of one node")
    parser.add_argument("--rate", type=int, default=100, help="requests/s of one node")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    given.nodes = [int(word) for word in given.nodes.split(",")]
    for part in (print_form, print_budgets, print_ledger, print_sketches):
        part(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
