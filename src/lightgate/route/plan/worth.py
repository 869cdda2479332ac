"""What a second attempt is worth: the seconds that it saves, beside the money that it costs.

While the first target is silent, its last first tokens that took longer than this say how long it
will still be. Where the second target is expected to speak before that, it wins, and its answer
costs what its own price says. Only first tokens count: which second target is a good one is a
question of whole answers, and was asked before.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.route.form.size import SlowEnd

CHECKS: Final = (1.0, 2.0, 4.0, 8.0)  # times the delay: when the question is asked


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
