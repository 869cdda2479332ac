"""Form as a record, which workers share and a restart finds again.

Instants are of the machine's monotonic clock. A sample of the future comes from another boot or
another machine, and counts as one of long ago: only its long run is taken.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from lightgate.route.form.pairs import PairState
from lightgate.route.form.size import ENOUGH
from lightgate.route.form.target import FORGET_S, NEVER, NS

if TYPE_CHECKING:
    from lightgate.route.form.size import PromptSize
    from lightgate.route.form.target import Form


class SizeState(msgspec.Struct, frozen=True, array_like=True):
    """One prompt size; logarithms of seconds, `recent` in seconds."""

    long: float
    variance: float
    seen: int
    recent: tuple[float, ...]
    reading: tuple[tuple[int, int, float], ...] = ()  # of each step


class TargetState(msgspec.Struct, frozen=True, array_like=True):
    """One target, with the fields of `Form`."""

    sizes: tuple[SizeState, ...]
    deviation: float
    variance: float
    noise: float
    last_ns: int
    speed_long: float
    speed_variance: float
    speed_deviation: float
    speed_seen: int
    speed_last_ns: int
    errors: float
    ends: float
    slowdown: tuple[float, float] = (0.0, 0.0)  # products and squares
    limit: float | None = None  # in flight; None: no limit
    curve: tuple[float, float, int, float] = (0.0, 0.0, 0, 0.0)  # room, slope, widest, holding
    pace: tuple[float, float, float] = (0.0, 0.0, 0.0)  # drag, known, usual number beside
    penalty: float = 0.0  # the part of the deviation that failures made


class FormState(msgspec.Struct, frozen=True):
    """What was learned of every target."""

    targets: dict[str, TargetState]
    pairs: tuple[PairState, ...] = ()


def record(form: Form) -> TargetState:
    """Make the record of a form; its load is left out."""
    sizes = tuple(
        SizeState(s.long, s.variance, s.seen, tuple(s.recent), s.reading.known())
        for s in form.sizes
    )
    return TargetState(
        sizes,
        form.deviation,
        form.variance,
        form.noise,
        form.last_ns,
        form.speed_long,
        form.speed_variance,
        form.speed_deviation,
        form.speed_seen,
        form.speed_last_ns,
        form.errors,
        form.ends,
        (form.slowdown.moved, form.slowdown.squares),
        form.limit.most if form.limit.firm else None,
        (form.curve.room, form.curve.slope, form.curve.widest, form.curve.holding_s),
        (form.pace.drag, form.pace.known, form.pace.usual),
        form.penalty,
    )


def moved(state: FormState, by_ns: int) -> FormState:
    """Return a record with its instants on the clock of another machine."""
    targets = {
        name: msgspec.structs.replace(
            known,
            last_ns=known.last_ns if known.last_ns == NEVER else known.last_ns + by_ns,
            speed_last_ns=(
                known.speed_last_ns if known.speed_last_ns == NEVER else known.speed_last_ns + by_ns
            ),
        )
        for name, known in state.targets.items()
    }
    return FormState(targets, state.pairs)


def merge(form: Form, known: TargetState, now_ns: int) -> None:
    """Merge the record of another worker into a form; the fresher weighs more.

    Means are weighted, and of counts the larger one is taken, not the sum: the record may hold what
    this worker has shared before, which must not count twice.
    """
    own, other = _fresh(form.last_ns, now_ns), _fresh(known.last_ns, now_ns)
    newer, share = other > own, _share(own, other)
    # The size that says most: beliefs are compared there, for their long runs may differ.
    at = max(range(len(form.sizes)), key=lambda n: form.sizes[n].seen + known.sizes[n].seen)
    belief = form.sizes[at].long + form.deviation
    belief += share * (known.sizes[at].long + known.deviation - belief)
    blank = form.last_ns == NEVER
    for mine, its in zip(form.sizes, known.sizes, strict=True):
        _merge_size(mine, its, now_ns, newer=newer, blank=blank)
    if share:
        form.deviation = belief - form.sizes[at].long
        form.penalty += share * (known.penalty - form.penalty)
    form.variance += share * (known.variance - form.variance)
    form.noise += share * (known.noise - form.noise)
    form.errors += share * (known.errors - form.errors)
    form.ends += share * (known.ends - form.ends)
    if newer:
        form.last_ns = known.last_ns
    _merge_speed(form, known, now_ns)
    _merge_limit(form, known, newer=newer)
    form.until_ns = NEVER


def _merge_size(mine: PromptSize, its: SizeState, now_ns: int, *, newer: bool, blank: bool) -> None:
    if its.reading:
        mine.lower(mine.reading.take(its.reading, math.sqrt(mine.variance), now_ns))
    share = 1.0 if blank else _share(mine.seen, its.seen)
    mine.long += share * (its.long - mine.long)
    mine.variance += share * (its.variance - mine.variance)
    mine.seen = max(mine.seen, its.seen)
    mine.delays.clear()
    few, many = len(mine.recent) < ENOUGH, len(its.recent) >= ENOUGH
    if (newer and many) or (few and len(its.recent) > len(mine.recent)):
        mine.fill(its.recent)


def _merge_speed(form: Form, known: TargetState, now_ns: int) -> None:
    own, other = _fresh(form.speed_last_ns, now_ns), _fresh(known.speed_last_ns, now_ns)
    fresher = _share(own, other)
    long = known.speed_long + _rescaled(form, known)
    belief = form.speed_long + form.speed_deviation
    belief += fresher * (long + known.speed_deviation - belief)
    share = _share(form.speed_seen, known.speed_seen)
    form.speed_long += share * (long - form.speed_long)
    form.speed_variance += share * (known.speed_variance - form.speed_variance)
    form.speed_seen = max(form.speed_seen, known.speed_seen)
    if fresher:
        form.speed_deviation = belief - form.speed_long
    if other > own:
        form.speed_last_ns = known.speed_last_ns


def _rescaled(form: Form, known: TargetState) -> float:
    """Return the log by which a record's speed alone is another one with this worker's drag.

    Both mean the same speed with as many in flight as the record's worker is used to.
    """
    drag, tried, usual = known.pace
    form.pace.take(drag, tried)
    return math.log(form.pace.slower(usual) / (1.0 + drag * usual))


def _merge_limit(form: Form, known: TargetState, *, newer: bool) -> None:
    """Merge the slope of the worker that has seen more, and the limit of the last one."""
    moved, squares = known.slowdown
    if squares > form.slowdown.squares:
        form.slowdown.moved, form.slowdown.squares = moved, squares
    if newer:
        form.limit.take(known.limit)
    form.curve.take(known.curve)


def _fresh(last_ns: int, now_ns: int) -> float:
    if last_ns == NEVER or last_ns > now_ns:
        return 0.0
    return math.exp((last_ns - now_ns) / (FORGET_S * NS))


def _share(own: float, other: float) -> float:
    """Return the other worker's part of a mean; all of it where this one has nothing."""
    return other / (own + other) if own + other > 0.0 else 0.0
