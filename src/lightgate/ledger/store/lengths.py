"""How long answers were, by the model that was asked for and by key."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.quantile import quantile, quantiles
from lightgate.ledger.store.schema import attempts, exchanges

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from lightgate.ledger.store.store import Ledger

MOST_ROWS: Final = 500_000  # the newest answers; more say the same
# How dialects say that an answer met its limit, in lower case.
CUT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "continuation"})
_NS_PER_S: Final = 1_000_000_000


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one model to one key, or to all (`key_id` None); tokens as they were billed.

    `cut` is the number of them that met their limit; `speed_p50` in tokens per second while
    decoding, None where no answer was streamed.
    """

    model: str
    key_id: str | None
    n: int
    cut: int
    p50: int
    p99: int
    longest: int
    speed_p50: float | None
    targets: tuple[str, ...]


def answer_lengths(ledger: Ledger, last: timedelta, now: datetime) -> list[Lengths]:
    """Return the lengths of a period: for each model all of its answers, then those of each key.

    Whole answers of providers only: none from a cache, none that was broken off.
    """
    since_ns = int((now - last).timestamp()) * _NS_PER_S
    query = (
        sa.select(
            exchanges.c.model_asked, exchanges.c.key_id, attempts.c.tokens_out,
            attempts.c.finish_reason, attempts.c.speed_tps, attempts.c.target,
        )
        .join(attempts, attempts.c.exchange_id == exchanges.c.id)
        .where(
            exchanges.c.wall_ns >= since_ns, attempts.c.outcome == "ok",
            attempts.c.source == "gateway", attempts.c.won.is_distinct_from(sa.false()),
            attempts.c.tokens_out > 0,
        )
        .order_by(exchanges.c.wall_ns.desc())
        .limit(MOST_ROWS)
    )  # fmt: skip
    by_model: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    with ledger.reading() as connection:
        for row in connection.execute(query):
            by_model[row.model_asked][row.key_id or ""].append(row)
    found = []
    for model, by_key in sorted(by_model.items()):
        every = [row for rows in by_key.values() for row in rows]
        found.append(_lengths(model, None, every))
        found += [_lengths(model, key, rows) for key, rows in sorted(by_key.items()) if key]
    return found


def _lengths(model: str, key_id: str | None, rows: Sequence[Any]) -> Lengths:
    tokens = [row.tokens_out for row in rows]
    p50, p99, longest = quantiles(tokens, (0.5, 0.99, 1.0))
    speed = quantile([row.speed_tps for row in rows if row.speed_tps is not None], 0.5)
    return Lengths(
        model=model,
        key_id=key_id,
        n=len(rows),
        cut=sum((row.finish_reason or "").lower() in CUT for row in rows),
        p50=int(p50 or 0),
        p99=int(p99 or 0),
        longest=int(longest or 0),
        speed_p50=speed,
        targets=tuple(sorted({row.target for row in rows})),
    )
