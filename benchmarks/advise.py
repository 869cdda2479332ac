"""Advice against the truth: planted waste is found, none is invented, and savings come as said.

Every seed makes four histories with random parameters (tests/advice/histories.py): answers that run
away and prompts that come again, a slow host and a sequential loop, a dear target, and one without
waste. Each goes into a ledger, and `lightgate advise` reads that ledger. Then each advice is done:
the same demand is played again with it, with other luck, and what it saved is printed beside what
was said. Changes of routing are rehearsed as well.

    .venv/bin/python benchmarks/advise.py --seeds 12
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from advice.histories import (
    PLANTED,
    T0,
    SimWorld,
    keep_in,
    said_saved,
    simulate,
    truly_saved,
)
from lightgate.advise.of_ledger import advise_ledger, scope_of
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from lightgate.advise.advice import Advice
    from lightgate.advise.advise import AdviceReport

LUCK = 1000  # seeds of what hosts do, apart from those of what clients ask


def report_of(world: SimWorld, seed: int) -> AdviceReport:
    """Simulate a world, write its ledger and read that."""
    calls = simulate(world, seed, seed + LUCK)
    with tempfile.TemporaryDirectory() as folder, Ledger.open("sqlite", Path(folder)) as ledger:
        keep_in(ledger, calls)
        end = max(call.at_s for call in calls) + 60.0
        period = (datetime.fromtimestamp(T0, UTC), datetime.fromtimestamp(T0 + end, UTC))
        return advise_ledger(ledger, scope_of(ledger, period, None))


def errors(world: SimWorld, advice: Advice, seed: int) -> dict[str, float]:
    """By how much the said saving is off, as shares: of a replay, and of the rehearsal."""
    said, true = said_saved(advice), truly_saved(world, advice, seed, seed + 2 * LUCK)
    found = {}
    change = advice.change
    if change is not None and change.seconds_share.low > 0.05:
        found["seconds, replayed"] = said.seconds / true.seconds - 1.0
    if change is not None and change.dollars_share.low > 0.05:
        found["dollars, replayed"] = said.usd / true.usd - 1.0
    told = advice.rehearsal
    if told is not None and "seconds, replayed" in found:
        found["seconds, rehearsed"] = told.advised_seconds_mean / told.seconds_mean - 1.0
    if told is not None and told.dollars_per_1k and "dollars, replayed" in found:
        found["dollars, rehearsed"] = told.advised_dollars_per_1k / told.dollars_per_1k - 1.0
    return found


class Tally:
    """What was found and invented, and how far said savings were off."""

    def __init__(self) -> None:
        self.found: dict[str, int] = defaultdict(int)
        self.off: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.invented: list[str] = []

    def take(self, name: str, world: SimWorld, seed: int, planted: tuple[str, ...]) -> None:
        """Add one history."""
        for advice in report_of(world, seed).offered:
            if advice.id not in planted:
                self.invented.append(f"{name} {seed}: {advice.id}")
                continue
            self.found[advice.id] += 1
            for what, error in errors(world, advice, seed).items():
                self.off[advice.id][what].append(error)

    def kept(self, seeds: int) -> bool:
        """Whether all was found, nothing invented, and no saving off by more than a fifth."""
        planted = [name for names in PLANTED.values() for name in names]
        worst = [abs(e) for kinds in self.off.values() for some in kinds.values() for e in some]
        every = all(self.found[name] == seeds for name in planted)
        return every and not self.invented and max(worst, default=0.0) <= 0.2

    def show(self, planted: str, seeds: int) -> None:
        """Print the lines of one planted waste."""
        head = f"{planted:<34} {self.found[planted]:>3}/{seeds:<3}"
        for what, errors_of in self.off[planted].items():
            typical, worst = float(np.median(np.abs(errors_of))), max(errors_of, key=abs)
            print(f"{head}  {what:<20} {typical:>10.1%} {worst:>+10.1%}")
            head = " " * len(head)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seeds", type=int, default=12)
    asked.add_argument("--first", type=int, default=1)
    given = asked.parse_args()
    tally = Tally()
    for seed in range(given.first, given.first + given.seeds):
        for make, planted in PLANTED.items():
            tally.take(make.__name__, make(seed), seed, planted)
    print(f"{given.seeds} seeds, {len(PLANTED)} histories each; invented: {len(tally.invented)}")
    for line in tally.invented:
        print("  ", line)
    print(f"{'planted':<34} {'found':>7}  {'saving':<20} {'median off':>10} {'worst off':>10}")
    for names in PLANTED.values():
        for name in names:
            tally.show(name, given.seeds)
    sys.exit(0 if tally.kept(given.seeds) else 6)


if __name__ == "__main__":
    main()
