"""Fit what each sign of a hard request is worth: an ordinal regression on labelled prompts.

The model is the one that `score` applies: a weighted sum of signs, and two bounds on it. The
weights are those that make the labels likeliest (proportional odds, full gradient), drawn towards
the hand-set `PRIOR`, and never of the wrong sign: a sign of difficulty may not make a request
simpler. Prompts that are kept out of the fit (`held`, `late`, `fresh`) are not looked at.

Prints the table for src/lightgate/route/cascade/complexity.py; exit code 6 with --check if the
table there is another one.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from typing import TYPE_CHECKING

from cascade import FIT_SETS, prompts, read_as

from lightgate.route.cascade.complexity import COMPLEX_FROM, MEDIUM_FROM, WORTH, signs
from lightgate.route.plan.plan import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Where the fit starts from and is drawn to; a sign that no prompt shows keeps this.
PRIOR = {
    "proof": 4.0, "design": 3.0, "analysis": 2.5, "argument": 2.0, "depth": 1.5, "systems": 2.0,
    "strategy": 2.0, "theory": 2.0, "several": 0.5, "hard_make": 0.5, "explain": 1.5,
    "worked": 1.0, "condense": 1.0, "long_form": 1.5, "structured": 0.3, "easy": -1.5,
    "fact": -1.0, "chat": -1.0, "pick": -0.3, "short_form": -1.0, "limits": 0.4, "reason": 0.4,
    "ask": 0.9, "hard_setting": 0.7, "conditions": 0.3, "formulas": 0.75, "numbers": 0.3,
    "fence": 0.25, "pasted": 0.1, "items": 0.25, "earlier": 0.25, "earlier_code": 1.0,
    "tools": 0.4, "steps": 0.2, "schema": 0.75, "images": 0.75, "effort": 2.5, "system": 0.5,
}  # fmt: skip
Row = tuple[dict[str, float], int, float]  # signs, rank, weight
BOUNDS = (2.0, 6.0)
PULL = 0.5  # how strongly a weight is drawn to its prior, in prompts
MASS = {"tune": 150.0, "held": 150.0, "made": 150.0}  # what a set weighs in all, in prompts
ROUNDS = 1500
STEP = 0.5


def _odds(value: float) -> float:
    return 1 / (1 + math.exp(-max(min(value, 40.0), -40.0)))


def fit(
    rows: Sequence[tuple[dict[str, float], int, float]],
) -> tuple[dict[str, float], list[float]]:
    """Return the weights and the two bounds for rows of signs, rank and weight."""
    worth, bounds = dict(PRIOR), list(BOUNDS)
    mass = dict.fromkeys(PRIOR, 1.0)
    for found, _, weight in rows:
        for name, amount in found.items():
            mass[name] += weight * amount * amount
    total = sum(weight for _, _, weight in rows)
    for _ in range(ROUNDS):
        slope = {name: PULL * (PRIOR[name] - value) for name, value in worth.items()}
        edge = [0.0, 0.0]
        for found, rank, weight in rows:
            points = sum(worth[name] * amount for name, amount in found.items())
            over = [_odds(points - bound) for bound in bounds]
            # The gradient of the log likelihood by the points, and by each bound.
            if rank == 0:
                by = (-over[0], 0.0)
            elif rank == 2:
                by = (0.0, 1 - over[1])
            else:
                share = max(over[0] - over[1], 1e-9)
                by = (over[0] * (1 - over[0]) / share, -over[1] * (1 - over[1]) / share)
            edge[0] -= weight * by[0]
            edge[1] -= weight * by[1]
            pull = weight * (by[0] + by[1])
            for name, amount in found.items():
                slope[name] += pull * amount
        for name, value in slope.items():
            moved = worth[name] + STEP * value / mass[name]
            worth[name] = max(moved, 0.0) if PRIOR[name] > 0 else min(moved, 0.0)
        bounds = [bound + STEP * value / total for bound, value in zip(bounds, edge, strict=True)]
    return worth, bounds


def rows_of() -> list[Row]:
    """The signs, the rank and the weight of each prompt of the fit; each level weighs the same."""
    used = [(place, one) for place, one in enumerate(prompts()) if one.set in FIT_SETS]
    counts = Counter((one.set, one.level) for _, one in used)
    return [
        (
            signs(read_as(one, place)),
            LEVELS.index(one.level),
            MASS[one.set] / 3 / counts[one.set, one.level],
        )
        for place, one in used
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the table in the code")
    options = parser.parse_args()
    worth, bounds = fit(rows_of())
    shown = {name: round(value, 2) for name, value in worth.items()}
    for name, value in shown.items():
        print(f'        "{name}": ({value}, "{WORTH[name][1]}"),')
    print(f"MEDIUM_FROM: Final = {bounds[0]:.2f}\nCOMPLEX_FROM: Final = {bounds[1]:.2f}")
    if options.check:
        same = shown == {name: value for name, (value, _) in WORTH.items()}
        return (
            0
            if same and (round(bounds[0], 2), round(bounds[1], 2)) == (MEDIUM_FROM, COMPLEX_FROM)
            else 6
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
