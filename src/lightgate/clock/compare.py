"""Which of several targets is faster, and how sure that is.

Samples are paired: the i-th of every target had the same prompt, in the same block of time. A block
is a stretch in which all targets were asked in random order; the weather of one block is shared by
its samples, so resampling and sign flips take whole blocks. Lower is better: give durations, or
reciprocals of rates. Failures have no duration: leave the pair out here and compare failure rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from lightgate.clock.quantile import CONFIDENCE, Interval, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Blocks = NDArray[np.int64]

ALPHA: Final = 1.0 - CONFIDENCE
ROUNDS: Final = 4000  # resamplings; the error of a p-value of 0.05 is then 0.003
_CELLS: Final = 1 << 20  # numbers held at once: 8 MB
FEWEST_BLOCKS: Final = 6  # fewer give no sign test below 5 %, and no interval


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Target A against target B over `n` pairs in `blocks` blocks.

    `ratio` is median(A) / median(B): 0.8 means that A takes four fifths of B's time. `p_less` is
    the probability that a sample of A is below one of B, a tie counting half.
    """

    n: int
    blocks: int
    ratio: float
    interval: Interval | None
    p_value: float
    p_less: float

    @property
    def verdict(self) -> Literal["faster", "slower", "tie", "n too small"]:
        """The result for A; "tie" if the interval spans 1 or the permutation test sees nothing."""
        if self.interval is None:
            return "n too small"
        if self.interval.spans(1.0) or self.p_value > ALPHA:
            return "tie"
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


def compare(
    a: ArrayLike,
    b: ArrayLike,
    *,
    rng: np.random.Generator,
    blocks: Sequence[int] | None = None,
    rounds: int = ROUNDS,
) -> Comparison:
    """Compare two targets by their paired samples; without `blocks` every pair is its own."""
    samples = _samples([a, b])
    labels = _labels(blocks, samples.shape[1])
    count = int(labels.max()) + 1
    medians = _weighted_medians(samples, np.ones((1, samples.shape[1]), dtype=np.int64))[0]
    interval = None
    if count >= FEWEST_BLOCKS:
        drawn = _bootstrap(samples, labels, rng, rounds)
        low, high = _ends(drawn[:, 0] / drawn[:, 1])
        interval = Interval(low, high)
    return Comparison(
        n=samples.shape[1],
        blocks=count,
        ratio=float(medians[0] / medians[1]),
        interval=interval,
        p_value=permutation_p(a, b, rng=rng, blocks=blocks, rounds=rounds),
        p_less=p_less(a, b),
    )


def permutation_p(
    a: ArrayLike,
    b: ArrayLike,
    *,
    rng: np.random.Generator,
    blocks: Sequence[int] | None = None,
    rounds: int = ROUNDS,
) -> float:
    """Test whether paired samples differ: a two-sided permutation test on their logarithms.

    If A and B are alike, either could have had the other's samples in any block. All exchanges are
    tried where there are at most `rounds` of them, else `rounds` random ones.
    """
    samples = _samples([a, b])
    labels = _labels(blocks, samples.shape[1])
    sums = np.bincount(labels, weights=np.log(samples[0]) - np.log(samples[1]))
    # Rounding must not make the same sum, added in another order, look less extreme.
    seen = abs(float(sums.sum())) * (1.0 - 1e-12)
    count = len(sums)
    if count < 63 and 2**count <= rounds:
        bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
        return float(np.mean(np.abs((2 * bits - 1) @ sums) >= seen))
    extreme = 0
    for size in _chunks(rounds, count):
        signs = 2 * rng.integers(0, 2, size=(size, count), dtype=np.int8) - 1
        extreme += int(np.count_nonzero(np.abs(signs @ sums) >= seen))
    return (1 + extreme) / (1 + rounds)  # the exchange that was observed is one of them


def p_less(a: ArrayLike, b: ArrayLike) -> float:
    """Probability that a sample of A is below a sample of B, a tie counting half."""
    first, second = _samples([a])[0], np.sort(_samples([b])[0])
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
        msgspec.structs.replace(comparison, p_value=p_value)
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

    With too few blocks no rank can be excluded, and P(fastest) is None.
    """
    values = _samples(list(samples.values()))
    labels = _labels(blocks, values.shape[1])
    medians = _weighted_medians(values, np.ones((1, values.shape[1]), dtype=np.int64))
    places = _places(medians)[0]
    drawn = None
    bounds = [(1.0, float(len(values)))] * len(values)
    if int(labels.max()) + 1 >= FEWEST_BLOCKS:
        drawn = _bootstrap(values, labels, rng, rounds)
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


def bootstrap_medians(
    values: ArrayLike,
    blocks: Sequence[int],
    *,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> NDArray[np.float64]:
    """Medians of one target whose blocks are drawn anew with replacement, one for each round."""
    samples = _samples([values])
    return _bootstrap(samples, _labels(blocks, samples.shape[1]), rng, rounds)[:, 0]


def _samples(rows: Sequence[ArrayLike]) -> Floats:
    arrays = [np.asarray(row, dtype=np.float64).ravel() for row in rows]
    if not arrays or len(arrays[0]) == 0 or any(len(row) != len(arrays[0]) for row in arrays):
        raise ValueError("a comparison needs the same number of samples of every target")
    samples = np.stack(arrays)
    if not bool(np.all(np.isfinite(samples) & (samples > 0.0))):
        raise ValueError("a comparison needs positive, finite samples")
    return samples


def _labels(blocks: Sequence[int] | None, n: int) -> Blocks:
    """Number the blocks from 0 without gaps."""
    if blocks is None:
        return np.arange(n, dtype=np.int64)
    if len(blocks) != n:
        raise ValueError("a comparison needs one block for every pair")
    return np.unique(np.asarray(blocks), return_inverse=True)[1].astype(np.int64)


def _chunks(rounds: int, width: int) -> Iterator[int]:
    """Cut the rounds so that no more than `_CELLS` numbers are held at once."""
    size = max(1, _CELLS // width)
    for done in range(0, rounds, size):
        yield min(size, rounds - done)


def _bootstrap(samples: Floats, labels: Blocks, rng: np.random.Generator, rounds: int) -> Floats:
    """Draw blocks with replacement, the same for all targets: medians, one row a round."""
    count = int(labels.max()) + 1
    parts = []
    for size in _chunks(rounds, samples.shape[1]):
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=size)
        parts.append(_weighted_medians(samples, drawn[:, labels]))
    return np.concatenate(parts)


def _weighted_medians(samples: Floats, weights: Blocks) -> Floats:
    """Nearest-rank medians of every target, where each sample counts as often as its weight."""
    medians = np.empty((len(weights), len(samples)))
    for at, row in enumerate(samples):
        order = np.argsort(row, kind="stable")
        reached = np.cumsum(weights[:, order], axis=1)
        medians[:, at] = row[order][np.argmax(2 * reached >= reached[:, -1:], axis=1)]
    return medians


def _places(medians: Floats) -> Blocks:
    """Rank the targets of every round from 1; equals share the better rank."""
    beaten_by = np.asarray(medians[:, :, None] > medians[:, None, :], dtype=np.int64)
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
