"""The cost of a run: an estimate before it starts, and a guard while it goes on.

Dollars as Decimal; an unknown price is said, never taken for 0. The estimate is the upper end:
every answer as long as it may be, nothing read from a cache.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.provider.target import Target

ASK_ABOVE: Final = Decimal(1)  # dollars that may be spent without a question
PROBES: Final = 2  # requests that calibrate the prompt's length
_CENT: Final = Decimal("0.01")


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The requests planned for one target, and the dollars of one request.

    `each` is None where the price is unknown; `free` where tokens are not billed.
    """

    target: str
    requests: int
    tokens_in: int
    tokens_out: int
    probes: int = PROBES
    each: Decimal | None = None
    free: bool = False

    @property
    def dollars(self) -> Decimal | None:
        """All requests and probes; a probe costs no more than a request."""
        if self.free:
            return Decimal(0)
        return None if self.each is None else self.each * (self.requests + self.probes)


class CostEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of a run."""

    plans: tuple[Planned, ...]

    @property
    def total(self) -> Decimal:
        """Dollars of the targets whose price is known."""
        return sum((plan.dollars or Decimal(0) for plan in self.plans), Decimal(0))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Targets whose price is not known."""
        return tuple(plan.target for plan in self.plans if plan.dollars is None)

    @property
    def sentence(self) -> str:
        """The estimate as a sentence."""
        requests = sum(plan.requests + plan.probes for plan in self.plans)
        billed = [plan for plan in self.plans if not plan.free]
        if not billed:
            return f"{requests:,} requests; none of them is billed by the token."
        unknown = f"the price of {', '.join(self.unknown)} is not known" if self.unknown else ""
        if len(self.unknown) == len(billed):
            return f"{requests:,} requests; {unknown}."
        said = f"{requests:,} requests; at most {rounded_up(self.total)} dollars at list prices"
        return f"{said}; {unknown}." if unknown else f"{said}."


def plan(target: Target, requests: int, tokens_in: int, tokens_out: int, at: datetime) -> Planned:
    """Price what is going to be asked of a target, by the same rules as what was asked."""
    free = target.provider.local or target.hourly_cost is not None
    priced = None if free else target.cost(Usage(tokens_in=tokens_in, tokens_out=tokens_out), at)
    return Planned(
        target=target.name,
        requests=requests,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        each=None if priced is None else priced.cost_usd,
        free=free,
    )


def confirm(
    estimate: CostEstimate, *, yes: bool, ask: Callable[[str], bool] | None, limit: Decimal | None
) -> None:
    """Let a run start, or raise: over a dollar somebody has to agree.

    `ask` puts a question to the terminal, None where there is none; `limit` is `--max-cost`.
    """
    if limit is not None and estimate.unknown:
        raise UsageError(
            f"--max-cost cannot be kept: the price of {', '.join(estimate.unknown)} is unknown.",
            hint='Name it under [prices."provider/model"] in lightgate.toml.',
        )
    if estimate.total <= ASK_ABOVE or yes:
        return
    if ask is None:
        raise UsageError(
            f"This may cost {rounded_up(estimate.total)} dollars, and nobody was asked.",
            hint="Add --yes to agree, or --max-cost to limit it.",
        )
    if not ask(f"{estimate.sentence} Go on?"):
        raise UsageError("The run was not started.", hint="Nothing was sent.")


class CostGuard:
    """Guards `--max-cost` by what finished attempts cost.

    Those under way count as `each`, so the limit is not passed by the requests still in flight.
    """

    __slots__ = ("_limit", "spent", "unpriced")

    def __init__(self, limit: Decimal | None) -> None:
        if limit is not None and limit <= 0:
            raise UsageError("--max-cost must be more than nothing.", hint="Give dollars, like 2.")
        self._limit = limit
        self.spent = Decimal(0)
        self.unpriced = 0  # attempts whose cost is not known

    def add(self, attempt: AttemptRecord) -> None:
        """Count a finished attempt; a failure without usage is billed by nobody that we know of."""
        if attempt.cost_usd is not None:
            self.spent += attempt.cost_usd
        elif attempt.cost_source != "hourly" and attempt.tokens_out:
            self.unpriced += 1

    def room(self, inflight: int = 0, each: Decimal | None = None) -> bool:
        """Whether one more request of `each` dollars may be sent beside those in flight."""
        if self._limit is None:
            return True
        expected = self.spent + (each or Decimal(0)) * (inflight + 1)
        return expected <= self._limit if each else self.spent < self._limit

    @property
    def sentence(self) -> str:
        """The reason of a stop, as a sentence."""
        return f"Stopped by --max-cost: {rounded_up(self.spent)} of {self._limit} dollars spent."


def rounded_up(dollars: Decimal) -> str:
    """Dollars in cents, never less than they are."""
    return format(dollars.quantize(_CENT, rounding=ROUND_UP), ",")
