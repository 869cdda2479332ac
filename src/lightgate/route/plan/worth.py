"""What a second attempt is worth: the seconds that it saves, beside the money that it costs.

While the first target is silent, its last first tokens that took longer than this say how long it
will still be. Where the second target is expected to speak before that, it wins, and its answer
costs what its own price says. For that only first tokens count: which second target is a good one
is a question of whole answers, and was asked before.

A second attempt also takes one from the budget of its key. When it starts under "auto" is therefore
a choice between all instants: too soon, the first token was about to come; too late, less is saved.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp
from typing import TYPE_CHECKING, Final

from lightgate.route.form.size import SIZES

if TYPE_CHECKING:
    from lightgate.route.form.size import SlowEnd
    from lightgate.route.form.target import Form

CHECKS: Final = (1.0, 2.0, 4.0, 8.0)  # times the delay: when the question is asked
# Parts of the last first tokens that have come: the instants between which "auto" chooses.
STARTS: Final = (0.4, 0.5, 0.6, 0.7, 0.78, 0.84, 0.88, 0.91, 0.94, 0.97)
HEDGE: Final = 0.06  # of a usual first token: what a hedge has to save where the budget is full
SCARCE: Final = 2.0  # log by which it has to save more where nothing is saved up
QUARTERS: Final = 4  # in which what is saved up is counted
FLOOR_S: Final = 0.05  # no hedge sooner: it would be a race
NS: Final = 1e9


# What a second is worth, and what a second attempt costs: all in nano-dollars. The second number is
# for one that wins: what the first has cost, and what the second costs more than the first would
# have; less than nothing where it is cheaper. The third is for one that does not win.
Stakes = tuple[float, float, float]


def saved(late: SlowEnd, age_s: float, second_s: float) -> tuple[float, float]:
    """Return what a second attempt saves that starts when the first has been silent for `age_s`.

    That is the seconds by which it is sooner, and how often it wins. Where no first token took so
    long, it is taken to need as long again. `second_s` is when the second one's first token comes.
    """
    seconds, sums = late
    count = len(seconds) - bisect_right(seconds, age_s)
    if not count:
        sooner_s = age_s - second_s
        return (sooner_s, 1.0) if sooner_s > 0.0 else (0.0, 0.0)
    due_s = age_s + second_s
    place = bisect_right(seconds, due_s)
    wins = len(seconds) - place
    return (sums[place] - wins * due_s) / count, wins / count


def worth_after(late: SlowEnd, delay_s: float, second_s: float, stakes: Stakes) -> float | None:
    """Return the silence after which a second attempt is worth its price; None: never.

    Nothing is asked before `delay_s`, and then each time when twice as much time has passed.
    """
    second, won, lost = stakes
    seconds = late.seconds
    # One such stall among all of them, at the higher of both prices, is often reason enough.
    least_s = (seconds[-1] - delay_s - second_s) / len(seconds)
    if least_s > 0.0 and least_s * second >= (won if won > lost else lost):  # noqa: FURB136 - cheaper
        return delay_s
    for times in CHECKS:
        age_s = times * delay_s
        first_s, wins = saved(late, age_s, second_s)
        if first_s > 0.0:
            price = wins * won + (1.0 - wins) * lost
            if first_s * second >= price:
                return age_s
    return None


def worth_ns(
    first: Form,
    second: Form,
    size: int,
    waits: tuple[float, float],
    when: tuple[float, int],
    stakes: Stakes,
) -> int | None:
    """Return when a hedge is worth its price for the first time; None: never.

    `waits` are those of one more request at both targets. `when` has the part of the first one's
    first tokens that have come when a hedge starts at the soonest, and that instant.
    """
    q, hedge_ns = when
    wait_s, second_wait_s = waits
    at = first.sizes[size % SIZES]
    # Times as slow as those first tokens were: by weather, or by a queue.
    slower = (first.ttfts_s[size] + wait_s) / exp(at.long)
    second_s = second.ttfts_s[size]
    if second.in_flight:
        second_s += second_wait_s
    if slower <= 1.0:
        slower = 1.0
    else:
        stakes = slower * stakes[0], stakes[1], stakes[2]
    delay_s = hedge_ns / NS
    after_s = worth_after(at.slowest(q), delay_s / slower, second_s / slower, stakes)
    return None if after_s is None else int(after_s * slower * NS)


def start_ns(
    first: Form,
    second: Form,
    size: int,
    waits: tuple[float, float],
    later_s: float,
    quarters: int,
) -> int:
    """Return the silence of the first target after which a hedge saves most beyond its costs.

    `waits` are those of one more request at both targets. `later_s` is what a later end of the
    second one's answer counts for, in seconds of its first token. `quarters` is what is saved up
    for hedges: the less there is, the more a hedge has to save.
    """
    wait_s, second_wait_s = waits
    late = first.recent.ranked
    first_s = first.ttfts_s[size] + wait_s  # the last ones are multiples of both together
    if late is None:
        return int(first_s * NS)
    behind = (second.ttfts_s[size] + second_wait_s + later_s) / first_s
    costs_s = HEDGE * exp(first.sizes[size % SIZES].long + SCARCE * (1.0 - quarters / QUARTERS))
    start_s = best_start(late, behind, costs_s / first_s) * first_s
    return int((start_s if start_s > FLOOR_S else FLOOR_S) * NS)  # noqa: FURB136 - cheaper


def best_start(late: SlowEnd, behind: float, costs: float) -> float:
    """Return the silence after which a hedge saves most beyond its costs.

    All in multiples of the first target's expected first token. `late` are its last first tokens,
    and a stall. A hedge that starts now is sooner than a first token that comes more than `behind`
    from now, by the rest. Each first token that is later than the start costs a hedge. At the
    latest a hedge starts after the longest silence that was seen.
    """
    seconds, sums = late
    count = len(seconds)
    later = behind if behind > 0.0 else 0.0  # noqa: FURB136 - cheaper
    best = seconds[-2]
    left = seconds[-1] - best
    most = (left - behind if left > later else 0.0) - costs
    for part in STARTS:
        place = int(part * count)
        start = seconds[place]
        beyond = bisect_right(seconds, start + later)
        gain = sums[beyond] - (count - beyond) * (start + behind) - costs * (count - place - 1)
        if gain > most:
            best, most = start, gain
    return best
