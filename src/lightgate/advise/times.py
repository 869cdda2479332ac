"""How long a target takes: its own samples, asked what they would have done with another request.

What a target would have done with a request that it did not get is drawn from its own attempts
nearest in time, as in a rehearsal. The draw keeps its luck and takes the other request's lengths:
the first token moves with the prompt by the target's own slope, and every answer token takes what
it took in the draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightgate.bench.rehearse.past import NEAREST
from lightgate.bench.statistics.slope import LEAST_RANGE, theil_sen

if TYPE_CHECKING:
    from lightgate.advise.history import Floats, PastTraffic, Wholes

MOST_PAIRS: Final = 300  # samples that a slope is made of, evenly spread
LEAST: Final = 0.3  # of its own first token that a draw keeps when its prompt becomes shorter


class TargetTimes(NamedTuple):
    """The samples of one target, in the order of time."""

    start_ns: Wholes
    first_s: Floats
    token_s: Floats
    tokens_in: Wholes
    slope_s: float  # seconds of the first token per prompt token

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(self.start_ns)

    def draw(self, history: PastTraffic, rows: Wholes, seed: int) -> tuple[Floats, Floats]:
        """Return the seconds to the first token and to the end of the answer, for other rows."""
        picked = self._near(history.start_ns[rows], seed)
        first = self.first_s[picked]
        moved = history.tokens_in[rows] - self.tokens_in[picked]
        known = (history.tokens_in[rows] >= 0) & (self.tokens_in[picked] >= 0)
        first = np.maximum(first + np.where(known, moved * self.slope_s, 0.0), LEAST * first)
        rest = np.maximum(history.tokens_out[rows] - 1, 0) * self.token_s[picked]
        return first, first + rest

    def _near(self, at_ns: Wholes, seed: int) -> Wholes:
        """Choose for each instant one of the samples around it."""
        rng = np.random.default_rng(seed)
        middle = np.searchsorted(self.start_ns, at_ns)
        width = min(NEAREST, self.n)
        begin = np.clip(middle - width // 2, 0, self.n - width)
        picked: Wholes = begin + rng.integers(0, width, len(at_ns))
        return picked


def times_of(history: PastTraffic, target: str, *, streamed: bool = True) -> TargetTimes | None:
    """Take the samples of a target; whole answers are split by what a token took among them."""
    here = np.flatnonzero(history.target == target)
    split = ~np.isnan(history.ttft_s[here]) & ~np.isnan(history.token_s[here])
    if streamed and split.any():
        here = here[split]
        first, token = history.ttft_s[here], history.token_s[here]
    else:
        each = slope(history.tokens_out[here].astype(np.float64), history.e2e_s[here])
        token = np.full(len(here), max(each or 0.0, 0.0))
        first = np.maximum(history.e2e_s[here] - token * history.tokens_out[here], 0.0)
    if not len(here):
        return None
    prompts = history.tokens_in[here]
    sized = prompts > 0
    steep = slope(prompts[sized].astype(np.float64), first[sized])
    return TargetTimes(history.start_ns[here], first, token, prompts, max(steep or 0.0, 0.0))


def slope(lengths: Floats, seconds: Floats) -> float | None:
    """The median slope of seconds over lengths; None where the lengths are all alike."""
    if len(lengths) < 20:
        return None
    points = np.column_stack((lengths, seconds))
    points = points[np.linspace(0, len(points) - 1, min(len(points), MOST_PAIRS)).astype(int)]
    shortest, longest = np.quantile(points[:, 0], (0.1, 0.9))
    if longest < LEAST_RANGE * max(shortest, 1.0):
        return None
    per_1k = theil_sen(points)
    return None if per_1k is None else per_1k / 1000.0
