"""The bill of races and hedges: who won, the seconds that second attempts bought, and their price.

The formulas are those of `lightgate report --bill`. Only the first tokens that tell what a closed
attempt would still have taken come from the ledger's sums here, as the rows of all requests would
have to be read for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.console.api.figures import Figure
from lightgate.console.api.question import rfc3339
from lightgate.console.api.sums import sums_of_rollups
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.hourly import hourly_costs
from lightgate.ledger.store.schema import attempt_notes
from lightgate.report.money.bill import (
    BESIDE,
    Fired,
    Lives,
    attempts_query,
    bill_row,
    fired_of,
    life_of,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lightgate.clock.sketch import DDSketch
    from lightgate.console.api.question import Question
    from lightgate.console.api.sums import TargetSums
    from lightgate.ledger.store.store import Ledger
    from lightgate.report.money.bill import BillBy

LOOKED_AT: Final = 150_000  # attempts, the newest: no sum tells which had another one beside them
CAME: Final = 400  # quantiles that stand for the first tokens of a target
_NS_PER_S: Final = 1_000_000_000
_MS_PER_S: Final = 1000.0


class HedgeWinner(msgspec.Struct, frozen=True):
    """A target that answered instead of the first one, and how often."""

    target: str
    won: int


class HedgeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Requests with a second attempt beside the first.

    `name` is the first attempt's target, or a day (UTC). `won` are those in which a second attempt
    was first to speak and the first one was closed. `seconds` is what the first attempts would
    still have taken then, an estimate; its `n` is `won`. `losers_usd` was paid for attempts that
    were not used, `premium_usd` is what the winners cost more than the first targets do for as many
    tokens, null where a price is unknown. `usd_per_s` is both for each second.
    """

    name: str
    races: int
    hedges: int
    won: int
    seconds: Figure
    losers_usd: Decimal
    premium_usd: Decimal | None
    usd_per_s: float | None
    winners: tuple[HedgeWinner, ...]


class HedgeBill(msgspec.Struct, frozen=True, kw_only=True):
    """The bill of a period; `since` is later than asked where only the newest were counted."""

    as_of: str
    since: str
    until: str
    total: HedgeRow
    rows: tuple[HedgeRow, ...]
    days: tuple[HedgeRow, ...]
    counted: int
    ignored: tuple[str, ...]


class _Facts:
    """What rows are made of: the first tokens of every target and its dollars per output token."""

    def __init__(
        self, lives: dict[str, Lives], per_token: Mapping[str, Decimal | None], own: set[str]
    ) -> None:
        self.lives = lives
        self.per_token = per_token
        self.own = own  # self-hosted providers: one more answer costs nothing

    def row(self, by: BillBy, name: str, fired: Sequence[Fired], *, rounds: int) -> HedgeRow:
        """Add the requests of one group up."""
        sums = bill_row(by, name, fired, self.lives, rounds)
        won = [one for one in fired if one.waited_s is not None]
        premium = self._premium(won)
        between = sums.interval
        paid = float(sums.paid_usd + (premium or 0))
        names = Counter(one.winner.target for one in won)
        return HedgeRow(
            name=name,
            races=sum(one.race for one in fired),
            hedges=sum(not one.race for one in fired),
            won=sums.won,
            seconds=Figure(
                round(sums.seconds, 3),
                None if between is None else round(between.low, 3),
                None if between is None else round(between.high, 3),
                sums.won,
            ),
            losers_usd=round(sums.paid_usd, 6),
            premium_usd=None if premium is None else round(premium, 6),
            usd_per_s=paid / sums.seconds if sums.seconds > 0 else None,
            winners=tuple(HedgeWinner(*one) for one in names.most_common()),
        )

    def _premium(self, won: Iterable[Fired]) -> Decimal | None:
        """What winners cost above the first targets' usual price of as many tokens."""
        total = Decimal(0)
        for one in won:
            usual, tokens = self.per_token.get(one.target), one.winner.tokens_out
            free = one.winner.target.partition("/")[0] in self.own
            paid = 0 if free else one.winner.cost_nano
            if usual is None or tokens is None or paid is None:
                return None
            total += paid * NANO - tokens * usual
        return total


def hedge_bill(
    ledger: Ledger, question: Question, now_ns: int, prices: Mapping[str, Decimal]
) -> HedgeBill:
    """Make the bill of a period: in all, by the first attempt's target, by day."""
    with ledger.reading() as connection:
        rows, oldest = _beside(connection, question)
        tried: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            tried[row.exchange_id].append(row)
        found = [one for some in tried.values() if (one := fired_of(some)) is not None]
        fired = _wanted(found, question)
        sums = _sums(connection, question, sorted({one.target for one in fired}))
        period = (question.period.start_s, question.period.stop_s)
        own = set(hourly_costs(connection, period, prices))
    closed: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for row in rows:
        life = life_of(row)
        if life is not None and not life[1]:
            closed[row.target].append(life)
    facts = _Facts(
        {name: _lives(sums.get(name), closed[name]) for name in {one.target for one in fired}},
        {name: _per_token(one, own) for name, one in sums.items()},
        own,
    )
    since, until = question.period.texts()
    by_day = _groups(fired, lambda one: rfc3339(one.wall_ns // _NS_PER_S)[:10])
    by_target = _groups(fired, lambda one: one.target)
    return HedgeBill(
        as_of=rfc3339(now_ns // _NS_PER_S),
        since=since if oldest is None else rfc3339(oldest),
        until=until,
        total=facts.row("all", "all", fired, rounds=100),
        rows=tuple(
            sorted(
                (facts.row("target", name, some, rounds=100) for name, some in by_target.items()),
                key=lambda row: (-row.won, -row.races - row.hedges, row.name),
            )
        ),
        days=tuple(facts.row("day", day, by_day[day], rounds=0) for day in sorted(by_day)),
        counted=len(fired),
        ignored=question.ignored,
    )


def _beside(connection: sa.Connection, question: Question) -> tuple[list[Any], int | None]:
    """The attempts of requests with a second one among the newest of the period.

    The second from which on they were looked at comes with them where that is not all of it.
    """
    table, period = attempt_notes.c, question.period
    start, stop = period.start_s * _NS_PER_S, period.end_s * _NS_PER_S
    at = table.wall_ns
    newest = sa.select(at).where(at >= start, at < stop).order_by(at.desc())
    oldest = connection.execute(newest.offset(LOOKED_AT).limit(1)).scalar()
    start = start if oldest is None else int(oldest) + 1
    second = sa.select(table.exchange_id).where(table.role.in_(BESIDE), at >= start, at < stop)
    rows = connection.execute(attempts_query().where(table.exchange_id.in_(second))).all()
    return list(rows), None if oldest is None else start // _NS_PER_S


def _wanted(found: Iterable[Fired], question: Question) -> list[Fired]:
    """Those whose first target the filters name."""
    targets, models, providers = (
        set(question.names(name)) for name in ("target", "model", "provider")
    )
    return [
        one
        for one in found
        if (not targets or one.target in targets)
        and (not models or one.target.partition("/")[2] in models)
        and (not providers or one.target.partition("/")[0] in providers)
    ]


def _sums(
    connection: sa.Connection, question: Question, targets: Sequence[str]
) -> dict[str, TargetSums]:
    if not targets:
        return {}
    values = {**question.values, "target": tuple(targets), "model": (), "provider": ()}
    asked = msgspec.structs.replace(question, values=values)
    return sums_of_rollups(connection, asked, ("ttft_ms",))


def _lives(sums: TargetSums | None, closed: Sequence[tuple[float, bool]]) -> Lives:
    """First tokens that came, by quantiles of the sums, with as many of the closed as belong."""
    sketch = None if sums is None else sums.sketches["ttft_ms"]
    count = 0 if sketch is None else sketch.count
    came = [] if sketch is None else _quantiles(sketch, min(count, CAME))
    if not came:
        return spread(list(closed))
    share = len(came) / count
    kept = max(round(len(closed) * share), min(len(closed), 1))
    stride = len(closed) / kept if kept else 1.0
    ordered = sorted(closed)
    picked = [ordered[int((at + 0.5) * stride)] for at in range(kept)]
    return spread([*((seconds, True) for seconds in came), *picked])


def _quantiles(sketch: DDSketch, count: int) -> list[float]:
    found = (sketch.quantile((at + 0.5) / count) for at in range(count))
    return [value / _MS_PER_S for value in found if value is not None]


def _per_token(sums: TargetSums, own: set[str]) -> Decimal | None:
    """Dollars per output token, prompts included; one more at a self-hosted provider costs none."""
    if sums.provider in own:
        return Decimal(0)
    return sums.cost / sums.tokens_out if sums.cost and sums.tokens_out else None


def _groups(fired: Iterable[Fired], name: Callable[[Fired], str]) -> dict[str, list[Fired]]:
    groups: dict[str, list[Fired]] = defaultdict(list)
    for one in fired:
        groups[name(one)].append(one)
    return groups
