"""Hedges: when a second attempt starts beside the first, and how many of them there may be."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.route.form.size import SIZES
from lightgate.route.plan.worth import FLOOR_S, QUARTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.route.form.size import PromptSize
    from lightgate.route.form.target import Form

SHARE: Final = 0.15  # of a key's requests may be hedged
SPEND: Final = 0.10  # of what a key pays may go to hedges
RACE_SPEND: Final = 1.0  # of what a key pays may go to each racer: a race of k costs k times
SAVED: Final = 20.0  # hedges that a quiet time saves up
LOANS: Final = 2  # hedges that a key may be lent from what all keys together have saved up
CEILING: Final = 1.5  # times the long run's quantile: a sick target does not put its hedge off
AUTO: Final = 0.88
AUTO_THRIFTY: Final = 0.95  # where the first is billed in full though it is closed, or money counts
LATE: Final = 0.97  # when a hedge starts that has lost the draw for an early one
SICK: Final = 0.10  # of failures in 30 s: no hedge is sent to such a target
SICK_ENDS: Final = 5
LAG_TOKENS: Final = 15  # that a provider makes, and bills, after a stream was closed
MOST: Final = 4096  # keys
Z: Final[Mapping[float, float]] = MappingProxyType(
    {percent / 100: NormalDist().inv_cdf(percent / 100) for percent in range(75, 100)}
)
Duplicate = Literal["hedge", "racer"]


class TargetPrice(msgspec.Struct, frozen=True):
    """One target's price in nano-dollars per token, and whether closing a stream stops the bill."""

    tokens_in: float
    tokens_out: float
    cached_in: float | None = None
    abort_stops: bool = True

    def nano(self, tokens_in: int, tokens_out: int) -> float:
        """Return what a request costs."""
        return tokens_in * self.tokens_in + tokens_out * self.tokens_out


def quantile_of(hedge: str, *, thrifty: bool) -> float | None:
    """Return the quantile of "auto" or "p75" to "p99"; None for off and for fixed times."""
    if hedge == "auto":
        return AUTO_THRIFTY if thrifty else AUTO
    return int(hedge[1:]) / 100 if hedge.startswith("p") else None


def delay_ns(size: PromptSize, q: float) -> int:
    """Return how long the first attempt is waited for: its own quantile, from floor to ceiling."""
    known = size.delays.get(q)
    if known is None:
        usual_s, own_s = size.usual(Z[q]), size.own(q)
        delay_s = usual_s if own_s is None else min(own_s, CEILING * usual_s)
        known = size.delays[q] = int(max(FLOOR_S, delay_s) * 1e9)
    return known


def due_by_ns(form: Form, size: int, q: float) -> int:
    """Return when so many of a target's first tokens have come, for a prompt of this size."""
    return int(delay_ns(form.sizes[size % SIZES], q) * form.reads[size])


def chance(q: float) -> float:
    """Return how often a hedge at this quantile is planned, so that the budget lasts.

    An early hedge for a part of the requests does more than a late one for all, or than an early
    one for the first requests of a minute and none for the rest. The others are hedged at `LATE`.
    """
    if 1.0 - q <= SHARE:
        return 1.0
    return (SHARE - (1.0 - LATE)) / (LATE - q)


@lru_cache(maxsize=256)
def early_share(hedge: str, thrifty: bool) -> tuple[float | None, float]:
    """Return the quantile of a hedge, None for a fixed time, and how often it is planned early."""
    q = quantile_of(hedge, thrifty=thrifty)
    return q, 1.0 if q is None else chance(q)


def sick(form: Form, now_ns: int) -> bool:
    """Return whether a target fails so often that no second attempt is sent there."""
    window = form.trouble
    if not window.first:
        return False
    window.turn(now_ns)
    return window.second >= SICK_ENDS and window.first > SICK * window.second


def fit(form: Form, now_ns: int) -> bool:
    """Return whether a target may be sent a second attempt: it is well, and has room."""
    if sick(form, now_ns):
        return False
    if not form.in_flight and not form.shared:
        return True
    return form.curve.spare(form.flying(now_ns) + 1.0)


def reserve_nano(price: TargetPrice, tokens_in: int, most_tokens: int) -> float:
    """Return the most that an attempt costs if it loses; its answer has up to `most_tokens`."""
    out = min(LAG_TOKENS, most_tokens) if price.abort_stops else most_tokens
    return tokens_in * price.tokens_in + out * price.tokens_out


class _Account:
    __slots__ = ("credit", "due_nano", "hedge_nano", "lent", "paid_nano", "racer_nano")

    def __init__(self) -> None:
        self.credit = 0.0  # hedges
        self.paid_nano = 0.0
        self.due_nano = 0.0  # that races under way will cost in any case
        self.hedge_nano = 0.0  # spent or reserved
        self.racer_nano = 0.0
        self.lent = 0  # hedges that others had saved up, and that were not paid back yet

    def hedges(self, nano: float) -> bool:
        """Return whether one more hedge that may cost `nano` keeps both shares."""
        return self.credit >= 1.0 - 1e-9 and self.hedge_nano + nano <= SPEND * self.paid_nano


class HedgeBudgets:
    """What each key may still spend on second attempts; "" stands for requests without a key.

    For every request: `deposit` when it comes in, `take` when a step of the role "hedge" or
    "racer" is about to start by the clock (a racer: all but the first), `settle` when that
    attempt's price is known, `paid` when the winner's is. A hedge that is refused stays a fallback.
    Where several racers start beside the first, each counts for its part of them all.

    The shares of hedges hold for each key, but that a young key is lent a few, which it pays back
    before it may hedge of its own. They hold for all keys together at every instant.
    """

    __slots__ = ("_accounts", "_all")

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._all = _Account()  # of hedges alone

    def deposit(self, key: str) -> None:
        """Count a request that came in."""
        account = self._accounts.get(key) or self._new(key)
        credit = account.credit + SHARE
        account.credit = min(SAVED, credit)
        self._all.credit += SHARE

    def may(self, key: str, role: Duplicate, nano: float, own_nano: float = 0.0) -> bool:
        """Return whether a second attempt that may cost `nano` could start now.

        `own_nano` is the least that the request itself will cost: it is paid in any case.
        """
        account = self._accounts.get(key)
        if role == "racer":
            if account is None:
                return nano <= RACE_SPEND * own_nano
            own_nano += account.due_nano
            return account.racer_nano + nano <= RACE_SPEND * (account.paid_nano + own_nano)
        if not self._all.hedges(nano):
            return False
        return account is None or account.lent < LOANS or account.hedges(nano)

    def quarters(self, key: str) -> int:
        """Return how much a key has saved up for hedges, in quarters of the most."""
        account = self._accounts.get(key)
        return 0 if account is None else max(0, round(QUARTERS * account.credit / SAVED))

    def take(self, key: str, role: Duplicate, nano: float, own_nano: float = 0.0) -> bool:
        """Set `nano` aside for a second attempt that starts; False: the budget has no room."""
        if not self.may(key, role, nano, own_nano):
            return False
        account = self._accounts.get(key) or self._new(key)
        if role == "racer":
            account.racer_nano += nano
            account.due_nano += own_nano
        else:
            account.lent += not account.hedges(nano)
            for each in (account, self._all):
                each.credit -= 1.0
                each.hedge_nano += nano
        return True

    def settle(
        self,
        key: str,
        role: Duplicate,
        reserved_nano: float,
        spent_nano: float,
        own_nano: float = 0.0,
    ) -> None:
        """Settle a second attempt that is over: `spent_nano` beyond what the request costs anyway.

        What was given to `take` is taken back.
        """
        account = self._accounts.get(key) or self._new(key)
        more = spent_nano - reserved_nano
        if role == "racer":
            account.racer_nano = max(0.0, account.racer_nano + more)
            account.due_nano = max(0.0, account.due_nano - own_nano)
        else:
            for each in (account, self._all):
                each.hedge_nano = max(0.0, each.hedge_nano + more)

    def paid(self, key: str, nano: float) -> None:
        """Add the price of a winner: its request was answered."""
        account = self._accounts.get(key) or self._new(key)
        account.paid_nano += nano
        self._all.paid_nano += nano
        if account.lent and account.hedges(0.0):
            account.lent = 0

    def spent(self, key: str) -> tuple[float, float, float]:
        """Return nano-dollars for winners, hedges and racers; reservations included."""
        account = self._accounts.get(key)
        if account is None:
            return 0.0, 0.0, 0.0
        return account.paid_nano, account.hedge_nano, account.racer_nano

    def _new(self, key: str) -> _Account:
        while len(self._accounts) >= MOST:
            del self._accounts[next(iter(self._accounts))]
        account = self._accounts[key] = _Account()
        return account
