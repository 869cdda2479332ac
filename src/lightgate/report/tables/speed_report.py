"""The production speed report: how fast the requests of the last days really were, by group.

The speed of a request is its tokens over its whole time, connecting included (`speed_total`). Only
successful requests count, and only groups with enough of them are judged.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.clock.load import BANDS, band, cost_1k, grade
from lightgate.clock.quantile import smallest_n
from lightgate.ledger.runs.run import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.runs.run import Run
    from lightgate.ledger.store.hourly import HourlyRow, MachineUse
    from lightgate.ledger.store.queries import SpeedRow

By = Literal["model", "provider", "target", "alias", "key", "tag"]
GROUPINGS: Final[tuple[By, ...]] = ("model", "provider", "target", "alias", "key", "tag")
MIN_REQUESTS: Final = 500
FEWEST: Final = smallest_n(0.5)  # requests without which a median has no interval
LAST_DAYS: Final = 14


class SpeedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What the report is about: grouping, period (RFC 3339, UTC), and how many are enough.

    `preliminary`: no group has had `MIN_REQUESTS` yet, and fewer are taken as enough.
    """

    by: By = "model"
    since: str
    until: str
    min_requests: int = MIN_REQUESTS
    preliminary: bool = False


class SpeedReport(NamedTuple):
    """The groups with enough requests, the fastest first, and those without.

    `hourly` are the self-hosted providers, which cost by the hour whether they were used or not;
    `machines` are how much they were used, and `own` their break-even against the ledger's APIs.
    """

    asked: SpeedQuestion
    rows: tuple[SpeedRow, ...]
    small: tuple[SpeedRow, ...]
    hourly: tuple[HourlyRow, ...] = ()
    machines: tuple[MachineUse, ...] = ()
    own: Run | None = None

    @property
    def requests(self) -> int:
        """Successful requests of all groups, the small ones too."""
        return sum(row.successes for row in (*self.rows, *self.small))


def relaxed(rows: Iterable[SpeedRow], asked: SpeedQuestion) -> SpeedQuestion:
    """The question with the fewest requests that have an interval, while no group has enough.

    A gateway that was started a minute ago has figures to show, and each comes with its interval.
    """
    if any(row.successes >= asked.min_requests for row in rows):
        return asked
    return msgspec.structs.replace(asked, min_requests=FEWEST, preliminary=True)


def with_hours(
    rows: Iterable[SpeedRow], asked: SpeedQuestion, hourly: Sequence[HourlyRow]
) -> list[SpeedRow]:
    """The groups with the hours of self-hosted providers in their cost.

    The targets of a provider share its hours by their output tokens. Groups of another kind do not
    have them: an hour is not one client's or one model's.
    """
    given = list(rows)
    if asked.by not in {"provider", "target"}:
        return given
    costs = {row.provider: row for row in hourly}
    found = []
    for row in given:
        owner = costs.get(row.name.partition("/")[0])
        if owner is None or not owner.tokens_out:
            found.append(row)
            continue
        share = Decimal(min(row.tokens_out, owner.tokens_out)) / owner.tokens_out
        whole = owner.cost_usd if asked.by == "provider" else owner.cost_usd * share
        found.append(msgspec.structs.replace(row, cost_usd=row.cost_usd + whole))
    return found


def arranged(
    rows: Iterable[SpeedRow], asked: SpeedQuestion, hourly: Sequence[HourlyRow] = ()
) -> SpeedReport:
    """Sort the groups out and put the fastest first; of equal ones the one with more requests."""
    enough: list[SpeedRow] = []
    small: list[SpeedRow] = []
    for row in with_hours(rows, asked, hourly):
        (enough if row.successes >= asked.min_requests else small).append(row)
    enough.sort(key=lambda row: (-(row.speed_total_p50 or 0.0), -row.successes, row.name))
    small.sort(key=lambda row: (-row.successes, row.name))
    return SpeedReport(asked, tuple(enough), tuple(small), tuple(hourly))


def speed_of(row: SpeedRow) -> Estimate:
    """Return the median of `speed_total` with its n and its interval."""
    return Estimate(
        q=0.5, n=row.successes, value=row.speed_total_p50, interval=row.speed_total_interval
    )


def ttft_of(row: SpeedRow, q: float) -> Estimate:
    """Return TTFT p50 or p95; None where there are too few samples for an interval around it."""
    found = row.ttft_p95_ms if q > 0.5 else row.ttft_p50_ms
    enough = row.successes >= smallest_n(q)
    return Estimate(q=q, n=row.successes, value=found if enough else None)


def grade_of(row: SpeedRow) -> str | None:
    """Return the grade, or the two between which the interval of the median cannot decide."""
    between = row.speed_total_interval
    return None if between is None else str(grade(between.low, between.high))


def cost_1k_of(row: SpeedRow) -> Decimal | None:
    """Return the dollars of 1,000 answered requests, what failed and lost included; None: unknown.

    By the formula of every table: a self-hosted provider's hours are in it, idle ones too.
    """
    return cost_1k(row.cost_usd, row.successes) if row.cost_usd else None


def tokens_per_dollar_of(row: SpeedRow) -> float | None:
    """Return the output tokens that a dollar bought; None where no dollar is known."""
    return float(row.tokens_out / row.cost_usd) if row.cost_usd and row.tokens_out else None


def band_of(row: SpeedRow) -> int | None:
    """Return the grade of the median itself, from 1 to 5."""
    return None if row.speed_total_p50 is None else band(row.speed_total_p50)


def bands_text() -> str:
    """Write the bands of the grades."""
    floors = [f"{number} from {floor:g}" for number, floor in BANDS if floor > 0]
    return f"Grades by the median: {', '.join(floors)} tok/s, {BANDS[-1][0]} below"


def definition(asked: SpeedQuestion) -> str:
    """Write what the numbers are, in one sentence each."""
    return (
        "Speed: all tokens of an answer over its whole time, connecting included; successful "
        f"requests only, groups of at least {asked.min_requests:,}. TTFT: from sending to the "
        "first token, streamed requests only. Left out: attempts that failed, were cancelled, "
        "lost a race or were the gateway's own probes. "
        f"{bands_text()}; 1\N{EN DASH}2 where the 95 % interval cannot decide."
    )


def preliminary_sentence(report: SpeedReport) -> str:
    """Say that no group has enough requests yet; empty where one has, and without any group."""
    if not report.asked.preliminary or not report.rows:
        return ""
    return (
        f"First figures: no {report.asked.by} has {MIN_REQUESTS:,} successful requests yet, so"
        f" those with at least {FEWEST} are shown. The 95 % interval says how little is known."
    )


def plural(by: By) -> str:
    """The word for several groups."""
    return "aliases" if by == "alias" else f"{by}s"


def owner_sentence(asked: SpeedQuestion) -> str:
    """Say where the numbers of a report by key, tag or alias come from; empty for others."""
    if asked.by not in {"alias", "key", "tag"}:
        return ""
    twice = " A request with several tags counts for each of them." if asked.by == "tag" else ""
    return f"From the rows of single requests, as long as the ledger keeps them.{twice}"


def small_sentence(report: SpeedReport) -> str:
    """Say which groups are not judged; empty where there are none."""
    if not report.small:
        return ""
    count = len(report.small)
    total = sum(row.successes for row in report.small)
    groups = f"1 {report.asked.by}" if count == 1 else f"{count:,} {plural(report.asked.by)}"
    requests = "1 request" if total == 1 else f"{total:,} requests"
    return f"n too small (fewer than {report.asked.min_requests:,}): {groups} with {requests}"
