"""The bill of hedges and races: how many were started, the seconds that they bought, and the price.

What a second attempt bought is the time that the first one would still have taken. That one was
closed, so its time is not known; only that it was longer. What is left of such a time is estimated
from all attempts at the same target, those that were closed included (Kaplan and Meier): the mean
of what remains beyond the instant at which the second one spoke. Where the slowest attempts were
all closed, the rest is taken to go on at the pace at which the slowest fifth spoke.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import sqlalchemy as sa

from lightgate.clock.quantile import Interval
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.owners import NO_KEY
from lightgate.ledger.store.schema import attempt_notes, exchange_notes, keys
from lightgate.report.tables.figures import DOT, clean, dollars, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from lightgate.ledger.store.store import Ledger

    Floats = NDArray[np.float64]

BillBy = Literal["target", "key", "day", "all"]
NS: Final = 1_000_000_000
ROUNDS: Final = 200
CONFIDENCE: Final = 0.95
MOST: Final = 5000  # times of a target that are looked at, evenly spread
SLOWEST: Final = 0.8  # quantile from which on times tell how the curve goes on
FEWEST: Final = 6  # won second attempts, below which there is no interval
HEADS: Final = (
    "fired", "won by the second", "seconds bought", "95 %", "paid", "$ a second",
)  # fmt: skip
MEANS: Final = (
    "Fired: requests with a second attempt beside the first. Seconds bought: what the first attempt"
    " would still have taken where the second one won, estimated from all attempts at that target."
    " Paid: attempts beside the winner."
)
BESIDE: Final = frozenset({"hedge", "racer"})  # roles of attempts beside a first one
_ROLES: Final = ("primary", "only", "hedge", "racer")
_CLOSED: Final = frozenset({"cancelled", "cut"})


class BillRow(msgspec.Struct, frozen=True, kw_only=True):
    """The second attempts of a group of requests; None where undefined."""

    by: BillBy
    name: str
    fired: int
    won: int
    seconds: float
    interval: Interval | None
    paid_usd: Decimal
    usd_per_s: float | None


class Fired(NamedTuple):
    """A request with a second attempt; `waited_s` is None where the first attempt won."""

    target: str
    key: str
    waited_s: float | None
    paid_nano: int
    wall_ns: int
    winner: Any  # the attempt that won, as the ledger has it; None where none did
    race: bool


class Lives(NamedTuple):
    """The first tokens of a target: seconds, and whether they came or the attempt was closed."""

    seconds: Floats
    came: NDArray[np.bool_]


def bill(ledger: Ledger, since: datetime, until: datetime) -> list[BillRow]:
    """Read the second attempts of a period: by target, then by key; the most frequent first."""
    start, stop = (int(at.timestamp() * 1e6) * 1000 for at in (since, until))
    tried: dict[str, list[Any]] = defaultdict(list)
    lives: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    with ledger.reading() as connection:
        named = {row.id: row.name for row in connection.execute(sa.select(keys.c.id, keys.c.name))}
        for row in connection.execute(_query(start, stop)):
            life = life_of(row)
            if life is not None:
                lives[row.target].append(life)
            if row.attempts > 1:
                tried[row.exchange_id].append(row)
    fired = [one for rows in tried.values() if (one := fired_of(rows)) is not None]
    known = {target: spread(found) for target, found in lives.items()}
    rows = _rows("target", fired, known, {})
    return rows + _rows("key", fired, known, named)


def _query(start: int, stop: int) -> sa.Select[Any]:
    at = attempt_notes.c.wall_ns
    return attempts_query().where(at >= start, at < stop).order_by(at, attempt_notes.c.id)


def attempts_query() -> sa.Select[Any]:
    """The attempts that a bill is made of, with what it reads of each."""
    table, whole = attempt_notes.c, exchange_notes.c
    return (
        sa.select(
            table.exchange_id, table.seq, table.target, table.role, table.won, table.outcome,
            table.cost_nano, table.t_send_ns, table.t_first_ns, table.t_end_ns, table.tokens_out,
            table.wall_ns, whole.key_id, whole.attempts,
        )
        .join(exchange_notes, whole.id == table.exchange_id)
        .where(table.source == "gateway", table.role.in_(_ROLES))
    )  # fmt: skip


def life_of(row: Any) -> tuple[float, bool] | None:
    """The seconds of an attempt to its first token, and whether it came before the attempt's end.

    None where it failed, or was never sent.
    """
    if row.t_send_ns is None:
        return None
    if row.t_first_ns is not None:
        return (row.t_first_ns - row.t_send_ns) / NS, True
    if row.outcome in _CLOSED and row.t_end_ns is not None:
        return (row.t_end_ns - row.t_send_ns) / NS, False
    return None


def spread(found: Sequence[tuple[float, bool]]) -> Lives:
    """Keep as many of them as are looked at, evenly spread."""
    picked = np.linspace(0, len(found) - 1, min(len(found), MOST)).astype(int)
    seconds = np.array([found[at][0] for at in picked])
    return Lives(seconds, np.array([found[at][1] for at in picked], dtype=np.bool_))


def fired_of(rows: Sequence[Any]) -> Fired | None:
    """Make one of a request with a second attempt; None where the first one was not beside it.

    All attempts of a race are racers: the first of them is the one that the plan names first.
    """
    started = sorted(rows, key=lambda row: row.seq or 0)
    first = next((row for row in started if row.role in {"primary", "only", "racer"}), None)
    second = [row for row in started if row.role in BESIDE and row is not first]
    if first is None or not second or first.t_send_ns is None:
        return None
    winner = next((row for row in second if row.won and row.t_first_ns is not None), None)
    waited = None
    if winner is not None and first.outcome in _CLOSED:
        waited = max((winner.t_first_ns - first.t_send_ns) / NS, 0.0)
    return Fired(
        target=first.target,
        key=first.key_id or "",
        waited_s=waited,
        paid_nano=sum(row.cost_nano or 0 for row in rows if not row.won),
        wall_ns=first.wall_ns,
        winner=next((row for row in rows if row.won), None),
        race=any(row.role == "racer" for row in second),
    )


def _rows(
    by: BillBy, fired: Iterable[Fired], lives: dict[str, Lives], named: dict[str, str]
) -> list[BillRow]:
    groups: dict[str, list[Fired]] = defaultdict(list)
    for one in fired:
        groups[one.target if by == "target" else one.key].append(one)
    found = [bill_row(by, _name(by, name, named), some, lives) for name, some in groups.items()]
    return sorted(found, key=lambda row: (-row.fired, row.name))


def _name(by: BillBy, name: str, named: dict[str, str]) -> str:
    if by == "target":
        return name
    return f"{named[name]} ({name})" if named.get(name) else name or NO_KEY


def bill_row(
    by: BillBy, name: str, fired: Sequence[Fired], lives: dict[str, Lives], rounds: int = ROUNDS
) -> BillRow:
    """Add a group of requests up; without `rounds` of drawing anew there is no interval."""
    won = [one for one in fired if one.waited_s is not None]
    paid = sum(one.paid_nano for one in fired) * NANO
    seconds = _bought(won, lives, None)
    between = None
    if len(won) >= FEWEST and rounds:
        rng = np.random.default_rng(len(fired))
        drawn = [_bought(won, lives, rng) for _ in range(rounds)]
        tail = (1.0 - CONFIDENCE) / 2.0
        low, high = np.quantile(drawn, (tail, 1.0 - tail))
        between = Interval(float(low), float(high), CONFIDENCE)
    return BillRow(
        by=by,
        name=name,
        fired=len(fired),
        won=len(won),
        seconds=seconds,
        interval=between,
        paid_usd=Decimal(paid),
        usd_per_s=float(paid) / seconds if seconds > 0 else None,
    )


def _bought(
    won: Sequence[Fired], lives: dict[str, Lives], rng: np.random.Generator | None
) -> float:
    """Sum up what was left of the first attempts; with `rng`, of a sample drawn anew."""
    by_target: dict[str, list[float]] = defaultdict(list)
    chosen = won if rng is None else [won[at] for at in rng.integers(0, len(won), len(won))]
    for one in chosen:
        by_target[one.target].append(one.waited_s or 0.0)
    total = 0.0
    for target, waited in by_target.items():
        found = lives[target]
        if rng is not None:
            again = rng.integers(0, len(found.seconds), len(found.seconds))
            found = Lives(found.seconds[again], found.came[again])
        total += float(remaining_s(found, np.array(waited)).sum())
    return total


def remaining_s(lives: Lives, waited: Floats) -> Floats:
    """The mean time that is left of first tokens that have not come after so long."""
    order = np.argsort(lives.seconds, kind="stable")
    times, came = lives.seconds[order], lives.came[order]
    at_risk = np.arange(len(times), 0, -1)
    alive = np.cumprod(np.where(came, 1.0 - 1.0 / at_risk, 1.0))  # behind each time
    # The area under the curve from each time on: to the longest one, and what lies beyond it.
    beyond = alive[-1] * _tail_s(times, came)
    area = np.append(np.cumsum((alive[:-1] * np.diff(times))[::-1])[::-1], 0.0) + beyond
    place = np.searchsorted(times, waited, side="right") - 1
    before = place < 0
    safe = np.maximum(place, 0)
    still = np.where(before, 1.0, alive[safe])
    passed = np.minimum(waited, times[-1]) - times[safe]
    rest = np.where(before, area[0] + times[0] - waited, area[safe] - passed * still)
    left: Floats = np.where(still > 0.0, np.maximum(rest, 0.0) / np.maximum(still, 1e-12), 0.0)
    return left


def _tail_s(times: Floats, came: NDArray[np.bool_]) -> float:
    """The mean time between first tokens among the slowest fifth, for one attempt of them."""
    from_s = times[int(SLOWEST * len(times))]
    late = times > from_s
    spoke = int(came[late].sum())
    return float((times[late] - from_s).sum()) / spoke if spoke else 0.0


def bill_cells(row: BillRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    between = row.interval
    return (
        clean(row.name),
        f"{row.fired:,}",
        f"{row.won:,} ({percent(row.won / row.fired)})",
        f"{number(row.seconds)} s",
        DOT if between is None else f"[{number(between.low)}, {number(between.high)}]",
        dollars(row.paid_usd),
        DOT if row.usd_per_s is None else dollars(Decimal(str(round(row.usd_per_s, 9)))),
    )
