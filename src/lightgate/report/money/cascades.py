"""What cascades came to: who answered, what was asked again after a failed check, and the money.

A cascade has to beat the one model that would be used for everything. So its bill, rejected answers
included, stands beside what the same tokens would have cost at the dearest target that was asked.
Whether the answers of the smaller targets are as good, a ledger cannot say: it has no answers.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from lightgate.clock.quantile import quantile
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.schema import attempt_notes, exchange_notes
from lightgate.report.tables.figures import DOT, clean, dollars, milliseconds, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from lightgate.ledger.store.store import Ledger
    from lightgate.price.rates import Rates

    Prices = Callable[[str], Rates | None]

MOST: Final = 200_000  # attempts that are read, the newest
HEADS: Final = (
    "n", "share", "after a failed check", "e2e p50 ms", "p95", "paid", "all at the dearest",
    "saved",
)  # fmt: skip
MEANS: Final = (
    "After a failed check: a smaller target had answered, and its answer was not good enough."
    " Paid: every attempt, rejected ones too. All at the dearest: the same tokens"
    " at the dearest target that was asked. Whether the answers are as good is not in the ledger."
)
_MTOK: Final = Decimal(1_000_000)
_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000


class CascadeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a model with a cascade; `target` is None for all of them together.

    `dearest_usd` is None where a price of the dearest target is not known.
    """

    model: str
    target: str | None
    n: int
    share: float
    escalated: int
    e2e_p50_ms: float | None
    e2e_p95_ms: float | None
    paid_usd: Decimal
    dearest: str | None
    dearest_usd: Decimal | None


class _Answer(NamedTuple):
    model: str
    winner: str
    escalated: bool
    e2e_ms: float | None
    paid_nano: int
    tokens_in: int
    tokens_out: int
    targets: frozenset[str]


def cascades(ledger: Ledger, since: datetime, until: datetime, prices: Prices) -> list[CascadeRow]:
    """Read the cascades of a period: for each model its targets, the busiest first, then all."""
    by_model: dict[str, list[_Answer]] = defaultdict(list)
    for answer in _answers(ledger, since, until):
        by_model[answer.model].append(answer)
    rows: list[CascadeRow] = []
    for model, answers in sorted(by_model.items()):
        dearest = _dearest(answers, prices)
        by_target: dict[str, list[_Answer]] = defaultdict(list)
        for answer in answers:
            by_target[answer.winner].append(answer)
        busiest = sorted(by_target.items(), key=lambda one: (-len(one[1]), one[0]))
        rows += [_row(model, name, some, len(answers), dearest) for name, some in busiest]
        rows.append(_row(model, None, answers, len(answers), dearest))
    return rows


def _answers(ledger: Ledger, since: datetime, until: datetime) -> list[_Answer]:
    one, try_ = exchange_notes.c, attempt_notes.c
    start, stop = (int(at.timestamp()) * _NS_PER_S for at in (since, until))
    query = (
        sa.select(
            one.id, one.model_asked, one.winner, one.tokens_in, one.tokens_out,
            one.received_ns, one.last_out_ns,
            try_.target, try_.outcome, try_.won, try_.cost_nano,
        )
        .join(attempt_notes, try_.exchange_id == one.id)
        .where(
            one.policy == "cascade", one.outcome == "ok", one.winner.is_not(None),
            one.cache.not_in(("hit", "join")), one.wall_ns >= start, one.wall_ns < stop,
        )
        .order_by(one.wall_ns.desc(), one.id)
        .limit(MOST)
    )  # fmt: skip
    tried: dict[str, list[Any]] = defaultdict(list)
    with ledger.reading() as connection:
        for row in connection.execute(query):
            tried[row.id].append(row)
    return [_answer(rows) for rows in tried.values()]


def _answer(rows: Sequence[Any]) -> _Answer:
    first = rows[0]
    ended = first.received_ns is not None and first.last_out_ns is not None
    return _Answer(
        model=first.model_asked,
        winner=first.winner,
        # A whole answer that is not the one which was delivered was rejected by a check.
        escalated=any(row.outcome == "ok" and not row.won for row in rows if len(rows) > 1),
        e2e_ms=(first.last_out_ns - first.received_ns) / _MS if ended else None,
        paid_nano=sum(row.cost_nano or 0 for row in rows),
        tokens_in=first.tokens_in or 0,
        tokens_out=first.tokens_out or 0,
        targets=frozenset(row.target for row in rows),
    )


def _dearest(answers: Iterable[_Answer], prices: Prices) -> tuple[str, Rates] | None:
    """Return the target that would have cost the most for all of these; None: prices are missing.

    A target without a price may be the dearest: then nobody can say what it would have cost.
    """
    answers = list(answers)
    found: list[tuple[Decimal, str, Rates]] = []
    for name in sorted(frozenset().union(*(one.targets for one in answers))):
        rates = prices(name)
        if rates is None or rates.input is None or rates.output is None:
            return None
        found.append((_usd(answers, rates), name, rates))
    _, name, rates = max(found, key=lambda one: one[:2])
    return name, rates


def _usd(answers: Iterable[_Answer], rates: Rates) -> Decimal:
    each_in, each_out = rates.input or Decimal(0), rates.output or Decimal(0)
    total = sum(
        (one.tokens_in * each_in + one.tokens_out * each_out for one in answers), Decimal(0)
    )
    return total / _MTOK


def _row(
    model: str,
    target: str | None,
    answers: Sequence[_Answer],
    of: int,
    dearest: tuple[str, Rates] | None,
) -> CascadeRow:
    took = [one.e2e_ms for one in answers if one.e2e_ms is not None]
    return CascadeRow(
        model=model,
        target=target,
        n=len(answers),
        share=len(answers) / of,
        escalated=sum(one.escalated for one in answers),
        e2e_p50_ms=quantile(took, 0.5),
        e2e_p95_ms=quantile(took, 0.95),
        paid_usd=sum(one.paid_nano for one in answers) * Decimal(NANO),
        dearest=None if dearest is None else dearest[0],
        dearest_usd=None if dearest is None else _usd(answers, dearest[1]),
    )


def cascade_cells(row: CascadeRow) -> list[str]:
    """The cells of a row of the table: model, target, then HEADS."""
    saved = None
    if row.dearest_usd:
        saved = float(1 - row.paid_usd / row.dearest_usd)
    return [
        clean(row.model),
        "all" if row.target is None else clean(row.target),
        f"{row.n:,}",
        percent(row.share),
        f"{row.escalated:,}",
        milliseconds(row.e2e_p50_ms),
        milliseconds(row.e2e_p95_ms),
        dollars(row.paid_usd),
        DOT if row.dearest_usd is None else f"{dollars(row.dearest_usd)} ({row.dearest})",
        DOT if saved is None else percent(saved),
    ]
