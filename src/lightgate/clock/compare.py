"""Which of several targets is faster, and how sure that is.

Samples are paired: the i-th of every target had the same prompt, in the same block of time. A block
is a stretch in which all targets were asked in random order; the weather of one block is shared by
its samples, so resampling and sign flips take whole blocks. Lower is better: give durations, or
reciprocals of rates. A failure has no duration: it is NaN, and its pairs are left out; compare
failure rates beside it.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from lightgate.clock.quantile import CONFIDENCE, Interval, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Blocks = NDArray[np.int64]
    Mask = NDArray[np.bool_]

ALPHA: Final = 1.0 - CONFIDENCE
# A board on which nothing differs shall claim a difference in fewer than 5 % of the runs. Holm's
# method keeps the level at most; the rest is a margin for blocks that are not quite alike.
LEVEL: Final = 0.04
SMALLEST: Final = 0.01  # a difference within this is none that anybody would act on
ROUNDS: Final = 4000  # resamplings; the error of a p-value of 0.05 is then 0.003
FLIPS: Final = 1 << 15  # exchanges of blocks: p-values of 1 in 2,720 (17 targets) are told apart
_CELLS: Final = 1 << 20  # numbers held at once: 8 MB
FEWEST_BLOCKS: Final = 6  # fewer give no sign test below 5 %, and no interval
SPARE_BLOCKS: Final = 8  # above the number with which only a unanimous result can be claimed

Found = Literal["faster", "slower", "tie", "unsure", "too few blocks", "n too small"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Target A against target B over `n` pairs in `blocks` blocks.

    `ratio` is the typical A / B of a pair, the geometric mean over blocks: 0.8 means that A takes
    four fifths of B's time. `p_less` is the probability that a sample of A is below one of B, a tie
    counting half. `among` is how many comparisons are read together with this one: `p_value` is
    adjusted for them.
    """

    n: int
    blocks: int
    ratio: float
    interval: Interval | None
    p_value: float
    p_less: float
    among: int = 1

    @property
    def verdict(self) -> Found:
        """The result for A.

        "tie" if the interval spans 1 or stays within the smallest effect of interest; "too few
        blocks" if no result could have been sure among so many; "unsure" if the interval excludes 1
        and the test, for all comparisons together, does not.
        """
        if self.interval is None:
            return "n too small"
        if self.interval.low >= 1.0 / (1.0 + SMALLEST) and self.interval.high <= 1.0 + SMALLEST:
            return "tie"
        if smallest_p(self.blocks) * self.among > LEVEL:
            return "too few blocks"
        if self.interval.spans(1.0):
            return "tie"
        if self.p_value > LEVEL:
            return "unsure"
        return "faster" if self.ratio < 1.0 else "slower"

    @property
    def differs(self) -> bool:
        """Whether A and B differ; true of an A/A pair, it voids the run that holds the pair."""
        return self.verdict in {"faster", "slower"}


class BoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of one target, from 1, the ranks that cannot be excluded, and P(fastest)."""

    name: str
    median: float
    rank: int
    best: int
    worst: int
    p_fastest: float | None


def smallest_p(blocks: int) -> float:
    """The smallest p-value that an exchange of so many blocks can give, all of them agreeing."""
    return 2.0 ** (1 - blocks)


def blocks_for(targets: int) -> int:
    """Blocks that a run of so many targets needs for a difference between any two to be claimed.

    All pairs are read together, so a p-value has to be below the level divided by their number.
    """
    pairs = max(1, targets * (targets - 1) // 2)
    return 1 + math.ceil(math.log2(pairs / LEVEL)) + SPARE_BLOCKS


def compare(
    a: ArrayLike,
    b: ArrayLike,
    *,
    rng: np.random.Generator,
    blocks: Sequence[int] | None = None,
) -> Comparison:
    """Compare two targets by their paired samples; without `blocks` every pair is its own."""
    found = compare_all({"a": a, "b": b}, rng=rng, blocks=blocks)["a", "b"]
    if found is None:
        raise ValueError("a comparison needs a pair of samples")
    return found


def compare_all(
    samples: Mapping[str, ArrayLike],
    *,
    rng: np.random.Generator,
    blocks: Sequence[int] | None = None,
) -> dict[tuple[str, str], Comparison | None]:
    """Compare every pair of targets, each over the places where both have a sample.

    None where they share no place. The p-values are plain: see `adjusted`.
    """
    values = _samples(list(samples.values()))
    labels = _labels(blocks, values.shape[1])
    pairs = list(combinations(range(len(values)), 2))
    gaps = _block_means(values, labels, pairs)
    p_values = _permutations(gaps, rng)
    names = list(samples)
    return {
        (names[a], names[b]): _compared(values[[a, b]], gap[np.isfinite(gap)], p_value)
        for (a, b), gap, p_value in zip(pairs, gaps.T, p_values, strict=True)
    }


def _block_means(values: Floats, labels: Blocks, pairs: Sequence[tuple[int, int]]) -> Floats:
    """Mean difference of the logarithms in every block, a column for each pair; NaN without one."""
    logs, count = np.log(values), int(labels.max()) + 1
    means = np.full((count, len(pairs)), np.nan)
    for at, (a, b) in enumerate(pairs):
        gap = logs[a] - logs[b]
        there = np.isfinite(gap)
        n = np.bincount(labels[there], minlength=count)
        sums = np.bincount(labels[there], weights=gap[there], minlength=count)
        means[n > 0, at] = sums[n > 0] / n[n > 0]
    return means


def _compared(pair: Floats, gaps: Floats, p_value: float) -> Comparison | None:
    """Compare two targets by the gap between them in each block, with Student's interval."""
    count = len(gaps)
    if not count:
        return None
    mask = np.logical_and.reduce(np.isfinite(pair))
    middle, interval = float(gaps.mean()), None
    if count >= FEWEST_BLOCKS:
        reach = student(count - 1, CONFIDENCE) * float(gaps.std(ddof=1)) / math.sqrt(count)
        interval = Interval(math.exp(middle - reach), math.exp(middle + reach))
    return Comparison(
        n=int(mask.sum()),
        blocks=count,
        ratio=math.exp(middle),
        interval=interval,
        p_value=p_value,
        p_less=p_less(pair[0, mask], pair[1, mask]),
    )


def _permutations(gaps: Floats, rng: np.random.Generator) -> list[float]:
    """Test whether paired samples differ: a two-sided permutation test on their logarithms.

    If A and B are alike, either could have had the other's samples in any block. All exchanges are
    tried where there are at most `FLIPS` of them, else as many random ones, the same for all pairs.
    """
    count, pairs = gaps.shape
    sums = np.nan_to_num(gaps)
    # Rounding must not make the same sum, added in another order, look less extreme.
    seen = np.abs(sums.sum(axis=0)) * (1.0 - 1e-9)
    extreme, tried = np.zeros(pairs, dtype=np.int64), 0
    every = 2**count <= FLIPS
    for size in _sizes(2**count if every else FLIPS, max(count, pairs)):
        if every:
            bits = np.arange(tried, tried + size)[:, None] >> np.arange(count) & 1
        else:
            bits = rng.integers(0, 2, size=(size, count), dtype=np.int8)
        extreme += np.count_nonzero(np.abs((2.0 * bits - 1.0) @ sums) >= seen, axis=0)
        tried += size
    # Of random exchanges, the one that was observed is one more.
    more = 0 if every else 1
    return [float((hits + more) / (tried + more)) for hits in extreme]


def p_less(a: ArrayLike, b: ArrayLike) -> float:
    """Probability that a sample of A is below a sample of B, a tie counting half."""
    first, second = np.asarray(a), np.sort(b)
    at_most = np.searchsorted(second, first, side="left")
    below = np.searchsorted(second, first, side="right")
    return float(1.0 - (at_most.sum() + below.sum()) / (2 * len(first) * len(second)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for having looked several times (Holm's step-down method), in their order."""
    adjusted = [0.0] * len(p_values)
    reached = 0.0
    for step, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        reached = max(reached, min(1.0, (len(p_values) - step) * p_values[at]))
        adjusted[at] = reached
    return adjusted


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Put Holm's p-values in place of the plain ones, for comparisons that are read together."""
    p_values = holm([comparison.p_value for comparison in comparisons])
    return [
        msgspec.structs.replace(comparison, p_value=p_value, among=len(comparisons))
        for comparison, p_value in zip(comparisons, p_values, strict=True)
    ]


def standings(
    samples: Mapping[str, ArrayLike],
    *,
    rng: np.random.Generator,
    blocks: Sequence[int] | None = None,
    rounds: int = ROUNDS,
) -> list[BoardRow]:
    """Rank targets by their medians, best first, with rank intervals from the block bootstrap.

    Only the places where all targets have a sample count. With too few blocks no rank can be
    excluded, and P(fastest) is None.
    """
    values = _samples(list(samples.values()))
    mask: Mask = np.logical_and.reduce(np.isfinite(values))
    if not mask.any():
        return []
    labels = _labels(blocks, values.shape[1])
    medians = np.array([[_median(row[mask]) for row in values]])
    places = _places(medians)[0]
    drawn = None
    bounds = [(1.0, float(len(values)))] * len(values)
    if len(np.unique(labels[mask])) >= FEWEST_BLOCKS:
        drawn = _bootstrap(
            values[:, mask], _labels(labels[mask].tolist(), int(mask.sum())), rng, rounds
        )
        bounds = [_ends(column) for column in _places(drawn).T]
    rows = [
        BoardRow(
            name=name,
            median=float(medians[0, at]),
            rank=int(places[at]),
            best=int(bounds[at][0]),
            worst=int(bounds[at][1]),
            p_fastest=None if drawn is None else _share_fastest(drawn, at),
        )
        for at, name in enumerate(samples)
    ]
    return sorted(rows, key=lambda row: (row.rank, row.name))


def student(freedom: int, confidence: float) -> float:
    """Two-sided point of Student's t: what |t| stays below with `confidence`; by bisection."""
    low, high = 0.0, 1.0
    while within(high, freedom) < confidence:
        low, high = high, high + high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return high


def within(t: float, freedom: int) -> float:
    """Probability that |Student's t| is at most `t`; a finite series for whole degrees."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total


def _samples(rows: Sequence[ArrayLike]) -> Floats:
    arrays = [np.asarray(row, dtype=np.float64).ravel() for row in rows]
    if not arrays or len(arrays[0]) == 0 or any(len(row) != len(arrays[0]) for row in arrays):
        raise ValueError("a comparison needs the same number of samples of every target")
    samples = np.stack(arrays)
    if not bool(np.all(np.isnan(samples) | (np.isfinite(samples) & (samples > 0.0)))):
        raise ValueError("a comparison needs positive, finite samples")
    return samples


def _labels(blocks: Sequence[int] | None, n: int) -> Blocks:
    """Number the blocks from 0 without gaps."""
    if blocks is None:
        return np.arange(n)
    if len(blocks) != n:
        raise ValueError("a comparison needs one block for every pair")
    return np.unique(np.asarray(blocks), return_inverse=True)[1].astype(np.int64)


def _sizes(rounds: int, width: int) -> Iterator[int]:
    """Cut the rounds so that no more than `_CELLS` numbers are held at once."""
    size = max(1, _CELLS // width)
    for done in range(0, rounds, size):
        yield min(size, rounds - done)


def _bootstrap(samples: Floats, labels: Blocks, rng: np.random.Generator, rounds: int) -> Floats:
    """Draw blocks with replacement, the same for all targets: medians, one row a round."""
    count = int(labels.max()) + 1
    parts = []
    for size in _sizes(rounds, samples.shape[1]):
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=size)
        medians = [_weighted_medians(row, drawn[:, labels]) for row in samples]
        parts.append(np.stack(medians, axis=1))
    return np.concatenate(parts)


def _median(values: Floats) -> float:
    """Nearest rank."""
    return float(np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2])


def _weighted_medians(row: Floats, weights: Blocks) -> Floats:
    """Nearest-rank medians of a target, where each sample counts as often as its weight."""
    order = np.argsort(row)
    reached = np.cumsum(weights[:, order], axis=1)
    medians: Floats = row[order][np.argmax(2 * reached >= reached[:, -1:], axis=1)]
    return medians


def _places(medians: Floats) -> Blocks:
    """Rank the targets of every round from 1; equals share the better rank."""
    beaten_by = medians[:, :, None] > medians[:, None, :]
    places: Blocks = 1 + beaten_by.sum(axis=2)
    return places


def _share_fastest(drawn: Floats, at: int) -> float:
    """Share of the rounds that one target won; a shared first place counts in part."""
    first = drawn == drawn.min(axis=1, keepdims=True)
    return float(np.mean(first[:, at] / first.sum(axis=1)))


def _ends(drawn: Floats | Blocks) -> tuple[float, float]:
    low, high = quantiles(drawn.tolist(), (ALPHA / 2.0, 1.0 - ALPHA / 2.0))
    if low is None or high is None:
        raise ValueError("a bootstrap needs at least one round")
    return low, high
