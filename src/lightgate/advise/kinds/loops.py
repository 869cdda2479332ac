"""Advice about when requests are sent: loops that wait for each answer, batch prices, quiet hours.

A loop is a series of requests of one key in which each begins as soon as the one before has ended,
so that a longer answer puts the next start off. Chance does not make such series: of requests that
come when they like, one in seven at most begins just then. A timer does, but its starts do not
hang on the answers. Two loops of one key at once are not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightgate.advise.advice import Advice, Touched
from lightgate.advise.effect import CONFIDENCE, Effect, change_of, evidence_of
from lightgate.advise.words import quoted, seconds, usd
from lightgate.bench.rehearse.service_curve import Presence, fit
from lightgate.clock.compare import student

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lightgate.advise.history import Floats, PastTraffic, Wholes
    from lightgate.advise.scope import AdviceScope

NS: Final = 1_000_000_000
GAP: Final = 0.5  # of the loop's usual answer that may lie between an end and the next start
LEAST_GAP_S: Final = 1.0
TIGHT: Final = 0.2  # of the usual answer: a gap so short needs no further sign
DELAYED: Final = 0.5  # correlation of an answer's time with the time until the next start
LATE_S: Final = 0.02  # by which two clocks of one machine may disagree on an order
SHORTEST: Final = 20  # requests of a loop
AT_ONCE: Final = (2, 4, 8, 16)  # requests in flight that are tried
USUAL: Final = 8  # where nothing shows what more in flight do: the batch verb finds the knee itself
DEPENDENT: Final = 0.5  # of steps whose prompt has grown by the answer before
QUIET_HOURS: Final = 6  # hours of a day that a quiet time lasts
FEWEST_HOURLY: Final = 30  # answers in the quiet hours, and requests that would move there
FEWEST_DAILY: Final = 5  # answers in the quiet hours and in the others of one day
FEWEST_DAYS: Final = 5  # days that judge
NORMAL: Final = 1.645  # standard errors of an interval of 90 %, where samples are many


class Loop(NamedTuple):
    """The requests of one loop, in their order."""

    key: str
    model: str
    rows: Wholes


def loops_of(history: PastTraffic) -> list[Loop]:
    """Find the loops of every key and model."""
    pairs: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(history.rows):
        pairs.setdefault((row.key, row.model), []).append(at)
    return [
        Loop(key, model, rows)
        for (key, model), places in sorted(pairs.items())
        for rows in _series(history, np.array(places, dtype=np.int64))
    ]


def in_loops(scope: AdviceScope) -> Wholes:
    """The places of all rows that are part of a loop."""
    found = [loop.rows for loop in scope.known("loops", loops_of)]
    return np.concatenate(found) if found else np.array([], dtype=np.int64)


def _series(history: PastTraffic, places: Wholes) -> list[Wholes]:
    """Cut the requests of one key into series without a pause and without an overlap."""
    if len(places) < SHORTEST:
        return []
    gap_s = (history.start_ns[places][1:] - history.end_ns[places][:-1]) / NS
    usual = float(np.median(history.e2e_s[places]))
    follows = (gap_s >= -LATE_S) & (gap_s <= max(LEAST_GAP_S, GAP * usual))
    edges = np.concatenate(([0], np.flatnonzero(~follows) + 1, [len(places)]))
    long = np.flatnonzero(np.diff(edges) >= SHORTEST)
    parts = [places[edges[at] : edges[at + 1]] for at in long]
    return [part for part in parts if _waits_for_answers(history, part)]


def _waits_for_answers(history: PastTraffic, part: Wholes) -> bool:
    """Whether the starts of a series hang on the answers, and not on a timer or on chance."""
    between = np.diff(history.start_ns[part]) / NS
    took = history.e2e_s[part][:-1]
    if float(np.median(between - took)) <= TIGHT * float(np.median(took)):
        return True
    if np.ptp(took) == 0.0 or np.ptp(between) == 0.0:
        return False
    return float(np.corrcoef(took, between)[0, 1]) >= DELAYED


def loop_advice(scope: AdviceScope, model: str) -> Iterator[Touched]:
    """Look at the loops of one model, key by key."""
    among = scope.history.of_model(model)
    by_key: dict[str, list[Loop]] = {}
    for loop in scope.known("loops", loops_of):
        if loop.model == model:
            by_key.setdefault(loop.key, []).append(loop)
    for key, loops in by_key.items():
        yield _parallel(scope, key, loops, among)
        yield from _batch_tier(scope, key, loops, among)
        yield from _quiet(scope, key, loops, among)


def grows(history: PastTraffic, rows: Wholes) -> bool:
    """Whether prompts take in the answers before them, as those of a conversation do."""
    grown = np.diff(history.tokens_in[rows])
    return bool(np.mean(grown >= 0.5 * history.tokens_out[rows][:-1]) > DEPENDENT)


def _parallel(scope: AdviceScope, key: str, loops: list[Loop], among: Wholes) -> Touched:
    """Send the same requests several at once: each takes what it took, the job ends sooner."""
    history, model = scope.history, loops[0].model
    rows = np.concatenate([loop.rows for loop in loops])
    waits = np.concatenate([_steps(history, loop.rows) for loop in loops])
    many, slower = _at_once(scope, rows)
    after = history.e2e_s[rows] * slower / many
    effect = Effect(
        rows, waits, np.minimum(after, waits), history.usd[rows], history.usd[rows], "modelled",
        of="job time per request",
    )  # fmt: skip
    dependent = all(grows(history, loop.rows) for loop in loops)
    whole, name = float(waits.sum()), key or "(no key)"
    advice = Advice(
        id=f"batch:{model}:{name}",
        kind="batching",
        model=model,
        state="refused" if dependent else "advised",
        because="every prompt has the answer before it in it: this work has to wait" * dependent,
        finding=(
            f"The key {name} sent {len(rows):,} requests for {model} one after the other, in"
            f" {len(loops):,} loop{'s' if len(loops) > 1 else ''} that took {seconds(whole)};"
            f" {many} at once would have taken about {seconds(float(effect.after_s.sum()))}."
        ),
        evidence=evidence_of(
            history, rows, f"key_id = {quoted(key)} AND model_asked = {quoted(model)}"
        ),
        change=change_of(history, effect, among),
        worse="More requests at once use up rate limits sooner; each one takes what it took.",
        effort="code",
        apply=f"lightgate batch run FILE.jsonl {_usual_target(history, rows)}",
        verify=f"lightgate batch run FILE.jsonl {_usual_target(history, rows)}, its last line",
        expect=f"{len(rows) / max(float(effect.after_s.sum()), 1e-9):.2g} requests a second",
    )
    return Touched(advice, rows, scope.weight(among))


def _usual_target(history: PastTraffic, rows: Wholes) -> str:
    names, counts = np.unique(history.target[rows].astype(str), return_counts=True)
    return str(names[int(np.argmax(counts))])


def _steps(history: PastTraffic, rows: Wholes) -> Floats:
    """The seconds that each request of a loop adds to it: until the next one begins."""
    starts = history.start_ns[rows]
    last = max(history.end_ns[rows[-1]], starts[-1])
    steps: Floats = np.diff(np.append(starts, last)) / NS
    return steps


def _at_once(scope: AdviceScope, rows: Wholes) -> tuple[int, float]:
    """How many to send at once, and how much slower each is then, by what load did before."""
    history = scope.history
    target = _usual_target(history, rows)
    loads = history.counts[target].loads
    presence = Presence(loads)
    here = np.flatnonzero(history.target == target)
    beside = [max(presence.at(int(at)) - 1, 0) for at in history.start_ns[here]]
    curve = fit(beside, history.e2e_s[here].tolist())
    if not curve.slope_s:
        return USUAL, 1.0
    usual = float(np.mean(history.e2e_s[rows]))
    slower = {many: 1.0 + curve.added_s(many - 1) / usual for many in AT_ONCE}
    many = min(AT_ONCE, key=lambda count: slower[count] / count)
    return many, slower[many]


def _batch_tier(
    scope: AdviceScope, key: str, loops: list[Loop], among: Wholes
) -> Iterator[Touched]:
    """The price of the provider's batch tier, where it has one."""
    history, model = scope.history, loops[0].model
    rows = np.concatenate([loop.rows for loop in loops])
    part = np.full(len(rows), np.nan)
    for target in set(history.target[rows].tolist()):
        price = scope.prices.get(target)
        if price is not None and price.batch is not None:
            part[history.target[rows] == target] = price.batch
    rows, part = rows[~np.isnan(part)], part[~np.isnan(part)]
    if not len(rows):
        return
    paid, took = history.usd[rows], history.e2e_s[rows]
    effect = Effect(rows, took, took, paid, paid * part, "modelled")
    change, name = change_of(history, effect, among), key or "(no key)"
    month = change.dollars_per_month
    advice = Advice(
        id=f"batch-tier:{model}:{name}",
        kind="batch price",
        model=model,
        finding=(
            f"{len(rows):,} requests of the key {name} came from loops, and their provider's batch"
            f" tier costs {float(part.mean()):.0%} of the usual price"
            f"{'' if month is None else f': {usd(month.value)} a month less'}."
        ),
        evidence=evidence_of(
            history, rows, f"key_id = {quoted(key)} AND model_asked = {quoted(model)}"
        ),
        change=change,
        worse="Answers come within 24 hours, mostly within one, and all together.",
        effort="code",
        apply=f"lightgate batch run FILE.jsonl {_usual_target(history, rows)} --via batch",
        verify="lightgate report --by key --last 7d",
        expect=f"{float(part.mean()):.0%} of the cost per 1,000 requests",
    )
    yield Touched(advice, rows, scope.weight(among))


def _quiet(scope: AdviceScope, key: str, loops: list[Loop], among: Wholes) -> Iterator[Touched]:
    """Move loops to the hours in which their targets answer soonest."""
    history, model = scope.history, loops[0].model
    rows = np.concatenate([loop.rows for loop in loops])
    here = np.flatnonzero(np.isin(history.target.astype(str), history.target[rows].astype(str)))
    pace = _pace(scope, here)
    hours = history.start_ns[here] // (3600 * NS) % 24
    days = history.start_ns[here] // (24 * 3600 * NS)
    # The hours are chosen on every other day and judged on the days between: the best of 24 would
    # look better than it is on the days that chose it.
    best = min(range(24), key=lambda hour: _median(pace[(days % 2 == 0) & _within(hours, hour)]))
    moved = rows[~_within(history.start_ns[rows] // (3600 * NS) % 24, best)]
    gaps = _daily_gaps(pace, days, _within(hours, best))
    if len(gaps) < FEWEST_DAYS or len(moved) < FEWEST_HOURLY:
        return
    factor = float(np.exp(gaps.mean()))
    # A day is one sample: moods last for hours.
    error = float(gaps.std(ddof=1)) / len(gaps) ** 0.5 * student(len(gaps) - 1, CONFIDENCE) / NORMAL
    took, paid = history.e2e_s[moved], history.usd[moved]
    effect = Effect(
        moved, took, took * factor, paid, paid, "modelled",
        spread_s=error * factor * float(took.mean()),
    )  # fmt: skip
    end, name = (best + QUIET_HOURS) % 24, key or "(no key)"
    advice = Advice(
        id=f"quiet-hours:{model}:{name}",
        kind="quiet hours",
        model=model,
        finding=(
            f"Between {best:02}:00 and {end:02}:00 UTC the targets of {model} took"
            f" {factor:.0%} of their usual time per token; {len(moved):,} requests of loops of the"
            f" key {name} were sent at other hours."
        ),
        evidence=evidence_of(
            history, moved, f"key_id = {quoted(key)} AND model_asked = {quoted(model)}"
        ),
        change=change_of(history, effect, among),
        worse="The work waits for its hours.",
        effort="code",
        apply=(
            f"lightgate batch run FILE.jsonl {_usual_target(history, rows)}"
            f" --quiet-hours {best:02}:00-{end:02}:00"
        ),
        verify="lightgate report --by key --last 24h",
        expect=f"{1.0 / max(factor, 0.01):.2g} times the tokens a second",
    )
    yield Touched(advice, moved, scope.weight(among))


def _pace(scope: AdviceScope, rows: Wholes) -> Floats:
    """How much longer than usual each answer of so many tokens took at its target, as a log."""
    history = scope.history
    usual = np.ones(len(rows))
    for target in set(history.target[rows].tolist()):
        times, here = scope.times(target), history.target[rows] == target
        if times is not None:
            tokens = history.tokens_out[rows[here]]
            usual[here] = np.median(times.first_s) + tokens * np.median(times.token_s)
    pace: Floats = np.log(history.e2e_s[rows] / usual)
    return pace


def _daily_gaps(pace: Floats, days: Wholes, quiet: NDArray[np.bool_]) -> Floats:
    """The difference between the quiet hours and the others on each day that judges."""
    gaps = []
    for day in np.unique(days[days % 2 == 1]):
        this = days == day
        inside, outside = pace[this & quiet], pace[this & ~quiet]
        if min(len(inside), len(outside)) >= FEWEST_DAILY:
            gaps.append(float(inside.mean() - outside.mean()))
    return np.array(gaps)


def _within(hours: Wholes, first: int) -> NDArray[np.bool_]:
    return np.isin(hours, [(first + more) % 24 for more in range(QUIET_HOURS)])


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) >= FEWEST_HOURLY else float("inf")
