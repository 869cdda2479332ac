"""Pairs of targets that are slow together: how their first tokens correlate.

Two keys at one provider, or two resellers of one cloud, are slow at the same time: a second attempt
there gains little. What counts are pairs of samples that came at nearly the same time, from hedges,
races and probes alike, each as sigmas from its target's long run.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

TOGETHER_NS: Final = 2_000_000_000  # two samples of a pair are at most that far apart
FEW: Final = 16  # targets whose last sample is kept in mind
MOST: Final = 4096  # pairs
CLIP: Final = 3.0  # sigmas that one sample counts for
SAME: Final = 0.6  # expected of two targets of one provider
WEIGHT: Final = 12.0  # of that expectation, as squared sigmas
MEMORY: Final = 300.0  # squared sigmas
WORSE: Final = 0.42  # of its value at a correlation of 1: a second of the same provider loses 25 %
_SQRT2: Final = math.sqrt(2.0)


class PairState(msgspec.Struct, frozen=True, array_like=True):
    """What two targets have shown together."""

    one: str
    other: str
    product: float
    one_square: float
    other_square: float


class _Pair:
    __slots__ = ("first", "product", "second", "used_ns")

    def __init__(self) -> None:
        self.product = self.first = self.second = 0.0
        self.used_ns = 0

    @property
    def weight(self) -> float:
        # A hedge starts because one of the two is slow. The regression on that one, which has the
        # larger square, is not biased by this; the usual formula would be.
        return max(self.first, self.second)


class Pairs:
    """All pairs of targets of which both were seen at once."""

    __slots__ = ("_known", "_last", "_worse")

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], _Pair] = OrderedDict()
        self._worse: dict[tuple[str, str], float] = {}  # both ways round, until more is known

    def saw(self, target: str, now_ns: int, sigmas: float) -> None:
        """Take in a first token that came so many sigmas after the long run's."""
        sigmas = CLIP if sigmas > CLIP else max(sigmas, -CLIP)
        last = self._last
        for other, (at_ns, its) in last.items():
            if -TOGETHER_NS < now_ns - at_ns < TOGETHER_NS and other != target:
                if target < other:
                    self._pair((target, other), sigmas, its, at_ns)
                else:
                    self._pair((other, target), its, sigmas, at_ns)
        if target not in last and len(last) >= FEW:
            last.popitem(last=False)
        last[target] = (now_ns, sigmas)
        last.move_to_end(target)

    def waited(self, target: str, now_ns: int, sigmas: float) -> None:
        """Take in an attempt closed after so many sigmas: it counts as what is expected beyond.

        Below the median nothing is learned: a loser that was closed early was not slow.
        """
        if sigmas > 0.0:
            later = max(0.5 * math.erfc(sigmas / _SQRT2), 1e-9)
            density = math.exp(-0.5 * sigmas * sigmas) / math.sqrt(2.0 * math.pi)
            self.saw(target, now_ns, density / later)

    def correlation(self, one: str, other: str) -> float:
        """Return the correlation of two targets: learned, and before that by their providers."""
        expected = SAME if one.partition("/")[0] == other.partition("/")[0] else 0.0
        pair = self._known.get((one, other) if one < other else (other, one))
        if pair is None:
            return expected
        found = (expected * WEIGHT + pair.product) / (WEIGHT + pair.weight)
        return max(-1.0, min(1.0, found))

    def worse(self, one: str, other: str) -> float:
        """Return the factor for the value of `other` as the second of `one`: 1 or more."""
        key = (one, other)
        found = self._worse.get(key)
        if found is None:
            if len(self._worse) >= 2 * MOST:
                self._worse.clear()
            found = self._worse[key] = 1.0 + WORSE * max(0.0, self.correlation(one, other))
        return found

    def export(self) -> tuple[PairState, ...]:
        """Return all pairs as records."""
        return tuple(
            PairState(*key, pair.product, pair.first, pair.second)
            for key, pair in self._known.items()
        )

    def adopt(self, states: Iterable[PairState]) -> None:
        """Take in the pairs of another worker, where it has seen more: nothing counts twice."""
        for state in states:
            key = (state.one, state.other)
            pair = self._known.get(key) or self._made(key)
            if max(state.one_square, state.other_square) > pair.weight:
                pair.product = state.product
                pair.first, pair.second = state.one_square, state.other_square
                self._forget(key)

    def _pair(self, key: tuple[str, str], first: float, second: float, used_ns: int) -> None:
        """Take in two samples of a pair; `used_ns` is the instant of the older one."""
        pair = self._known.get(key) or self._made(key)
        if pair.used_ns == used_ns:
            return  # a sample makes no pair with the same target twice
        pair.used_ns = used_ns
        if pair.weight > MEMORY:
            pair.product, pair.first, pair.second = (
                pair.product / 2.0,
                pair.first / 2.0,
                pair.second / 2.0,
            )
        pair.product += first * second
        pair.first += first * first
        pair.second += second * second
        if self._worse:
            self._forget(key)

    def _made(self, key: tuple[str, str]) -> _Pair:
        pair = self._known[key] = _Pair()
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return pair

    def _forget(self, key: tuple[str, str]) -> None:
        self._worse.pop(key, None)
        self._worse.pop((key[1], key[0]), None)
