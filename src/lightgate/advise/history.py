"""The history that advice is made of: one row a request, from the ledger or from a benchmark run.

Columns are arrays in the order of time. Only answered requests are rows; how often a target failed
is counted beside them.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import sqlalchemy as sa

from lightgate.clock.load import in_statistics
from lightgate.ledger.store.exchange import wall_ns_of
from lightgate.ledger.store.queries import measured
from lightgate.ledger.store.schema import attempts, exchange_notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.store.store import Ledger

    Floats = NDArray[np.float64]
    Wholes = NDArray[np.int64]

NS: Final = 1_000_000_000
MOST: Final = 100_000  # requests that are read, the newest: some ten seconds
MONTH_S: Final = 730 * 3600  # 365 x 24 / 12 hours
LEAST_SPAN_S: Final = 3600  # of a history that a month is made of
_CLOSED: Final = frozenset({"cancelled", "cut"})
_BESIDE: Final = frozenset({"hedge", "racer"})


class PastRow(NamedTuple):
    """One answered request: seconds, tokens and nano-dollars; NaN and -1 are unknown.

    `e2e_s` is from the sending of the winner's request to its last token; `start_ns` and `end_ns`
    are the client's, by the wall clock. `cost` is of all attempts of the request.
    """

    id: str
    model: str
    key: str
    target: str
    start_ns: int
    end_ns: int
    e2e_s: float
    ttft_s: float
    token_s: float
    tokens_in: int
    tokens_out: int
    cost: float
    cut: bool
    streamed: bool
    fingerprint: int | None
    beside: bool


class TargetCount(msgspec.Struct):
    """How often a target was asked, and how often it failed; whether it is paid by the hour."""

    provider: str
    model: str
    asked: int = 0
    failed: int = 0
    hourly: bool = False
    loads: list[tuple[int, int]] = []  # the start and the end of every attempt, by the wall clock


class PastTraffic:
    """The rows as columns, and what belongs to all of them."""

    def __init__(
        self,
        rows: Sequence[PastRow],
        counts: dict[str, TargetCount],
        period: tuple[datetime, datetime],
        *,
        source: str = "ledger",
    ) -> None:
        self.rows = sorted(rows, key=lambda row: row.start_ns)
        self.counts = counts
        self.since, self.until = period
        self.source = source
        self.cached: set[str] = set()  # models whose cache is on
        self.cascades: set[str] = set()  # models whose targets are steps of a cascade
        self.start_ns = _whole(self.rows, "start_ns")
        self.end_ns = _whole(self.rows, "end_ns")
        self.e2e_s = _real(self.rows, "e2e_s")
        self.ttft_s = _real(self.rows, "ttft_s")
        self.token_s = _real(self.rows, "token_s")
        self.tokens_in = _whole(self.rows, "tokens_in")
        self.tokens_out = _whole(self.rows, "tokens_out")
        self.usd = _real(self.rows, "cost") / 1e9
        self.model = np.array([row.model for row in self.rows], dtype=object)
        self.key = np.array([row.key for row in self.rows], dtype=object)
        self.target = np.array([row.target for row in self.rows], dtype=object)
        self.streamed = np.array([row.streamed for row in self.rows], dtype=np.bool_)
        self.cut = np.array([row.cut for row in self.rows], dtype=np.bool_)
        self.beside = np.array([row.beside for row in self.rows], dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def months(self) -> float | None:
        """The months that the rows stand for; None of a benchmark run, whose load was made."""
        if self.source != "ledger" or not self.rows:
            return None
        began = max(self.since.timestamp(), self.rows[0].start_ns / NS)
        # A ledger that has only just begun stands for the time since then, not for the period.
        asked = self.until.timestamp() - self.since.timestamp()
        missing = began - self.since.timestamp()
        span = asked if missing < 0.1 * asked else self.until.timestamp() - began
        return max(span, LEAST_SPAN_S) / MONTH_S

    def of_model(self, model: str) -> Wholes:
        """The places of a model's rows."""
        return np.flatnonzero(self.model == model)

    def models(self) -> list[str]:
        """The models asked for, the one with the most requests first."""
        names, counts = np.unique(self.model.astype(str), return_counts=True)
        order = sorted(
            zip(names.tolist(), counts.tolist(), strict=True), key=lambda p: (-p[1], p[0])
        )
        return [name for name, _ in order]

    def failures(self, target: str) -> float:
        """The share of attempts at a target that failed."""
        count = self.counts.get(target)
        return count.failed / count.asked if count is not None and count.asked else 0.0


def _real(rows: Iterable[PastRow], name: str) -> Floats:
    at = PastRow._fields.index(name)
    return np.array([row[at] for row in rows], dtype=np.float64)


def _whole(rows: Iterable[PastRow], name: str) -> Wholes:
    at = PastRow._fields.index(name)
    return np.array([row[at] for row in rows], dtype=np.int64)


def ledger_history(
    ledger: Ledger, since: datetime, until: datetime, most: int = MOST
) -> PastTraffic:
    """Read the answered requests of a period; a request without a key has the key "".

    Of more than `most` requests the newest are read, and the period begins with the first of them.
    """
    start, stop = (int(at.timestamp() * 1e6) * 1000 for at in (since, until))
    tried: dict[str, list[Any]] = defaultdict(list)
    cached: set[str] = set()
    cascades: set[str] = set()
    with ledger.reading() as connection:
        asked = connection.execute(_asked(start, stop).limit(most)).all()
        if len(asked) == most:
            start = asked[-1].wall_ns
            since = datetime.fromtimestamp(start / NS, UTC)
        for row in connection.execute(_tried(start, stop)):
            tried[row.exchange_id].append(row)
    counts: dict[str, TargetCount] = {}
    rows = []
    for one in asked:
        if one.cache in {"hit", "miss", "join"}:
            cached.add(one.model_asked)
        if one.policy == "cascade":
            cascades.add(one.model_asked)
        tries = tried.get(one.id, [])
        for attempt in tries:
            _count(counts, attempt)
        made = _row(one, tries)
        if made is not None:
            rows.append(made)
    history = PastTraffic(rows, counts, (since, until))
    history.cached, history.cascades = cached, cascades
    return history


def _asked(start: int, stop: int) -> sa.Select[Any]:
    table = exchange_notes.c
    columns = (
        table.id, table.model_asked, table.policy, table.key_id, table.winner, table.cache,
        table.outcome, table.wall_ns, table.received_ns, table.last_out_ns, table.closed_ns,
        table.cost_nano, table.loser_cost_nano, table.fingerprint,
    )  # fmt: skip
    here = (table.wall_ns >= start, table.wall_ns < stop)
    return sa.select(*columns).where(*here).order_by(table.wall_ns.desc())


def _tried(start: int, stop: int) -> sa.Select[Any]:
    table = attempts.c
    columns = (
        table.exchange_id, table.target, table.provider, table.model, table.wall_ns, table.role,
        table.won, table.outcome, table.streamed, table.ttft_ms, table.speed_tps, table.e2e_ms,
        table.tokens_in, table.tokens_out, table.finish_reason, table.cost_source,
        table.t_send_ns, table.t_last_ns, table.t_end_ns, measured().label("measured"),
    )  # fmt: skip
    # An attempt may begin after its exchange's period has ended.
    later = stop + 600 * NS
    return sa.select(*columns).where(
        table.wall_ns >= start, table.wall_ns < later, table.source == "gateway"
    )


def _count(counts: dict[str, TargetCount], attempt: Any) -> None:
    found = counts.get(attempt.target)
    if found is None:
        found = counts[attempt.target] = TargetCount(attempt.provider, attempt.model, loads=[])
    if attempt.outcome not in _CLOSED:
        found.asked += 1
        found.failed += attempt.outcome != "ok"
    found.hourly = found.hourly or attempt.cost_source == "hourly"
    ended = attempt.t_end_ns if attempt.t_end_ns is not None else attempt.t_last_ns
    if ended is not None and attempt.t_send_ns is not None:
        found.loads.append((attempt.wall_ns, attempt.wall_ns + ended - attempt.t_send_ns))


def _row(one: Any, tries: Sequence[Any]) -> PastRow | None:
    """Make the row of an exchange; None where a cache or nobody answered."""
    from lightgate.ledger.store.lengths import CUT

    won = next((a for a in tries if a.measured and a.target == one.winner), None)
    if one.outcome != "ok" or won is None or won.e2e_ms is None or not won.tokens_out:
        return None
    ended = one.last_out_ns if one.last_out_ns is not None else one.closed_ns
    lasted = ended - one.received_ns if ended is not None and one.received_ns is not None else None
    cost = None if one.cost_nano is None else one.cost_nano + (one.loser_cost_nano or 0)
    return PastRow(
        id=one.id,
        model=one.model_asked,
        key=one.key_id or "",
        target=won.target,
        start_ns=one.wall_ns,
        end_ns=one.wall_ns + max(int(won.e2e_ms * 1e6), lasted or 0),
        e2e_s=won.e2e_ms / 1e3,
        ttft_s=np.nan if won.ttft_ms is None else won.ttft_ms / 1e3,
        token_s=np.nan if not won.speed_tps else 1.0 / won.speed_tps,
        tokens_in=-1 if won.tokens_in is None else won.tokens_in,
        tokens_out=won.tokens_out,
        cost=np.nan if cost is None else float(cost),
        cut=(won.finish_reason or "").lower() in CUT,
        streamed=bool(won.streamed),
        fingerprint=one.fingerprint,
        beside=any(a.role in _BESIDE for a in tries),
    )


def run_history(tried: Iterable[AttemptRecord], period: tuple[datetime, datetime]) -> PastTraffic:
    """Take the answered requests of a benchmark run; the model asked for is the target's own."""
    from lightgate.provider.identity import identity

    rows = []
    counts: dict[str, TargetCount] = {}
    for one in tried:
        start = wall_ns_of(one.wall_time)
        long = 0 if one.e2e_ms is None else int(one.e2e_ms * 1e6)
        found = counts.setdefault(one.target, TargetCount(one.provider, one.model, loads=[]))
        if one.outcome.value not in _CLOSED:
            found.asked += 1
            found.failed += one.outcome.value != "ok"
        found.hourly = found.hourly or one.cost_source == "hourly"
        found.loads.append((start, start + long))
        if not in_statistics(one) or one.e2e_ms is None or not one.tokens_out:
            continue
        rows.append(
            PastRow(
                id=one.id,
                model=identity(one.model),
                key="",
                target=one.target,
                start_ns=start,
                end_ns=start + long,
                e2e_s=one.e2e_ms / 1e3,
                ttft_s=np.nan if one.ttft_ms is None else one.ttft_ms / 1e3,
                token_s=np.nan if not one.speed_tps else 1.0 / one.speed_tps,
                tokens_in=-1 if one.tokens_in is None else one.tokens_in,
                tokens_out=one.tokens_out,
                cost=np.nan if one.cost_usd is None else float(one.cost_usd) * 1e9,
                cut=False,
                streamed=one.streamed,
                fingerprint=None,
                beside=False,
            )
        )
    return PastTraffic(rows, counts, period, source="run")
