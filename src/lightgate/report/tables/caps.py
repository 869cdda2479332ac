"""Caps on answers that the traffic itself suggests, and what they would save. Nothing is applied.

A cap is the worst case of a request: what a budget sets aside for it, and for how long a model that
does not stop keeps its client waiting.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.ledger.store.lengths import Lengths

ROOM: Final = 1.25  # times the 99 % of answers
STEPS: Final = ((512, 64), (2048, 128), (math.inf, 256))  # up to here a cap is a multiple of that
ENOUGH: Final = 200  # answers that a suggestion needs: two of them are above the 99 %
CUT_SHARE: Final = 0.01  # of answers at their limit, above which their true length is not known
MTOK: Final = 1_000_000

Because = Literal["suggested", "too few answers", "answers are cut", "the cap is tight already"]


class TokenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The caps in force: of models by name, of keys by id."""

    models: dict[str, int] = {}
    keys: dict[str, int] = {}

    def on(self, model: str, key_id: str | None) -> int | None:
        """Return the smallest cap of a model and a key; None where there is none."""
        own = None if key_id is None else self.keys.get(key_id)
        both = (self.models.get(model), own)
        return min([limit for limit in both if limit is not None], default=None)


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """One model's answers, and the cap that they suggest; None where nothing is suggested.

    `reserved_usd` is what a request's answer sets aside at the dearest of its targets, `worst_s`
    how long it lasts at most: under the cap in force (`now`) and under the suggested one. None
    without a cap, a price, a speed.
    """

    model: str
    key_id: str | None
    n: int
    p50: int
    p99: int
    longest: int
    cut_share: float
    cap: int | None
    suggested: int | None
    because: Because
    reserved_now_usd: Decimal | None
    reserved_usd: Decimal | None
    worst_now_s: float | None
    worst_s: float | None
    speed_p50: float | None


def suggest(
    lengths: Iterable[Lengths], limits: TokenLimits, per_mtok: Mapping[str, Decimal]
) -> list[Cap]:
    """Suggest a cap for each row of lengths.

    `per_mtok` are the targets' prices of answer tokens, in dollars per million.
    """
    return [_cap(row, limits.on(row.model, row.key_id), per_mtok) for row in lengths]


def rounded(tokens: float) -> int:
    """Round a number of tokens up to a multiple that suits its size."""
    step = next(step for most, step in STEPS if tokens <= most)
    return math.ceil(tokens / step) * step


def _cap(row: Lengths, cap: int | None, per_mtok: Mapping[str, Decimal]) -> Cap:
    suggested, because = _suggested(row, cap)
    price = max([per_mtok[name] for name in row.targets if name in per_mtok], default=None)
    return Cap(
        model=row.model,
        key_id=row.key_id,
        n=row.n,
        p50=row.p50,
        p99=row.p99,
        longest=row.longest,
        cut_share=row.cut / row.n,
        cap=cap,
        suggested=suggested,
        because=because,
        reserved_now_usd=_usd(cap, price),
        reserved_usd=_usd(suggested, price),
        worst_now_s=_seconds(cap, row.speed_p50),
        worst_s=_seconds(suggested, row.speed_p50),
        speed_p50=row.speed_p50,
    )


def _usd(tokens: int | None, price: Decimal | None) -> Decimal | None:
    return None if tokens is None or price is None else tokens * price / MTOK


def _seconds(tokens: int | None, speed: float | None) -> float | None:
    return None if tokens is None or not speed else tokens / speed


def _suggested(row: Lengths, cap: int | None) -> tuple[int | None, Because]:
    if row.n < ENOUGH:
        return None, "too few answers"
    if row.cut > CUT_SHARE * row.n:
        return None, "answers are cut"
    suggested = rounded(ROOM * row.p99)
    if cap is not None and suggested >= cap:
        return None, "the cap is tight already"
    return suggested, "suggested"
