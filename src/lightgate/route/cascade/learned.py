"""Learned bounds of one cascade: where a tier ends, moved by what the checks say of its answers.

Each tier below the last has a bound on the points of a request. An answer to a request just below
the bound that fails its checks moves the bound down, one that passes moves it up a little, so that
it settles where `FAILS` of the answers at the bound fail: a request above it starts one tier higher
at once. Requests far below a bound say nothing about it. A bound never goes further than `FURTHEST`
from where the fit has put it, and never past another one.
"""

from __future__ import annotations

from typing import Final

from lightgate.route.cascade.complexity import COMPLEX_FROM, MEDIUM_FROM

FAILS: Final = 0.3  # of the answers at a bound: a second try costs more time than it saves money
NEAR: Final = 1.5  # points below a bound within which an answer counts
FURTHEST: Final = 3.0  # points from the fitted bound
STEP: Final = 0.1  # points that a bound moves by, for a failed answer less `FAILS` of it
_BOUNDS: Final = {"simple": MEDIUM_FROM, "medium": COMPLEX_FROM}


class LearnedBounds:
    """Bounds of the tiers below the last of one cascade, by the hardest level of each."""

    __slots__ = ("_fitted", "bounds", "checked")

    def __init__(self, levels: tuple[str, ...]) -> None:
        self._fitted = tuple([_BOUNDS[level] for level in levels[:-1]])
        self.bounds = list(self._fitted)
        self.checked = 0  # answers that have moved a bound

    def higher(self, points: float) -> int:
        """Return by how many tiers a request starts higher than by its level; below 0: lower."""
        now = sum([points >= bound for bound in self.bounds])
        return now - sum([points >= bound for bound in self._fitted])

    def answered(self, tier: int, points: float, *, failed: bool) -> None:
        """Take in the check of the answer of the tier in which a request has started."""
        if tier >= len(self.bounds):
            return
        bound = self.bounds[tier]
        if not bound - NEAR <= points < bound:
            return
        self.checked += 1
        moved = bound + STEP * (FAILS - (1.0 if failed else 0.0))
        low = self.bounds[tier - 1] if tier else -float("inf")
        high = self.bounds[tier + 1] if tier + 1 < len(self.bounds) else float("inf")
        fitted = self._fitted[tier]
        moved = min(max(moved, fitted - FURTHEST), fitted + FURTHEST)
        self.bounds[tier] = min(max(moved, low), high)
