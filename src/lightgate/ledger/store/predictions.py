"""Predictions in the ledger: the first token as it was predicted, beside the one that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import sqlalchemy as sa

from lightgate.ledger.journal.notes import STREAMED
from lightgate.ledger.store.schema import attempt_notes, exchange_notes

if TYPE_CHECKING:
    from datetime import datetime

    from lightgate.ledger.store.store import Ledger

MOST: Final = 200_000  # exchanges that are read, the newest
_NS_PER_S: Final = 1_000_000_000
_CLOSED: Final = frozenset({"cancelled", "cut"})


class KeptPrediction(msgspec.Struct, frozen=True):
    """One streamed exchange whose first target had a prediction; times in nanoseconds.

    `actual_ns` is None where no first token came. Then the attempt either `failed`, or was closed
    after `waited_ns` because another one won or the client left.
    """

    target: str
    predicted_ns: int
    low_ns: int
    high_ns: int
    in_flight: int | None
    actual_ns: int | None
    waited_ns: int | None
    failed: bool


def predictions(ledger: Ledger, since: datetime, until: datetime) -> list[KeptPrediction]:
    """Return the predictions of a time, the newest first, each with what its attempt came to.

    Only first attempts at the predicted target count; one that was skipped was not put to the test.
    """
    one, try_ = exchange_notes.c, attempt_notes.c
    columns = (
        one.plan, one.predicted_ttft_ns, one.predicted_low_ns, one.predicted_high_ns,
        one.in_flight, try_.target, try_.outcome, try_.t_plan_ns, try_.t_first_ns, try_.t_end_ns,
    )  # fmt: skip
    query = (
        sa.select(*columns)
        .join(attempt_notes, sa.and_(try_.exchange_id == one.id, try_.seq == 0))
        .where(
            one.predicted_ttft_ns.is_not(None),
            one.predicted_low_ns.is_not(None),
            one.predicted_high_ns.is_not(None),
            one.wall_ns >= int(since.timestamp()) * _NS_PER_S,
            one.wall_ns < int(until.timestamp()) * _NS_PER_S,
            try_.flags.op("&")(STREAMED) != 0,
        )
        .order_by(one.wall_ns.desc())
        .limit(MOST)
    )
    found = []
    with ledger.reading() as connection:
        for row in connection.execute(query):
            if row.target != row.plan.partition(" ")[0]:
                continue
            begun, first, end = row.t_plan_ns, row.t_first_ns, row.t_end_ns
            found.append(
                KeptPrediction(
                    row.target,
                    row.predicted_ttft_ns,
                    row.predicted_low_ns,
                    row.predicted_high_ns,
                    row.in_flight,
                    None if begun is None or first is None else first - begun,
                    None if begun is None or end is None else end - begun,
                    first is None and row.outcome not in _CLOSED,
                )
            )
    return found
