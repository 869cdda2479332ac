"""The cost of a run: an estimate before it starts, and a guard while it goes on.

Dollars as Decimal; an unknown price is said, never taken for 0. The estimate is the upper end:
every request that may be sent, every answer as long as it may be, nothing read from a cache. What
was announced is also the limit: a run that would cost more is stopped.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_UP, Decimal
from operator import add
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.load.trace import Trace
from lightgate.bench.run.order import TWIN, announced, with_twin
from lightgate.bench.workload.calibrate import MOST_PROBES
from lightgate.bench.workload.workload import WORDLESS
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lightgate.bench.run.order import RunOrder
    from lightgate.clock.attempt import AttemptRecord
    from lightgate.provider.target import Target

ASK_ABOVE: Final = Decimal(1)  # dollars that may be spent without a question
_CENT: Final = Decimal("0.01")
_OUR_END: Final = frozenset({Outcome.CUT, Outcome.CANCELLED})
_BYTES_PER_TOKEN: Final = 2  # of an own prompt, at least: four is usual


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The requests planned for one target, and the dollars of one request.

    `each` is None where the price is unknown; `free` where tokens are not billed. `timed` where
    time alone ends a load: then there may be more requests.
    """

    target: str
    requests: int
    tokens_in: int
    tokens_out: int
    probes: int = MOST_PROBES
    timed: bool = False
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
        requests = f"At most {sum(plan.requests + plan.probes for plan in self.plans):,} requests"
        if any(plan.timed for plan in self.plans):
            requests = "As many requests as fit into the time"
        billed = [plan for plan in self.plans if not plan.free]
        if not billed:
            return f"{requests}; none of them is billed by the token."
        unknown = f"the price of {', '.join(self.unknown)} is not known" if self.unknown else ""
        if len(self.unknown) == len(billed):
            return f"{requests}; {unknown}."
        said = f"{requests}; at most {rounded_up(self.total)} dollars at list prices"
        return f"{said}; {unknown}." if unknown else f"{said}."

    @property
    def ceiling(self) -> Decimal | None:
        """Dollars that the announcement allows; None where nothing has a known price."""
        return self.total.quantize(_CENT, rounding=ROUND_UP) if self.total else None


def announce(order: RunOrder, explored: int | None = 0) -> CostEstimate:
    """Count and price everything that a run may send; `explored` are the loads still to be chosen.

    The second half of an A/A pair is a target like the others, but for its probes.
    """
    counts = [announced(load, order) for load in order.loads] + [explored]
    requests, timed = sum(count or 0 for count in counts), None in counts
    tokens_in, tokens_out = largest(order)
    plans = []
    for target in with_twin(order):
        made = plan(target, requests, tokens_in, tokens_out, order.at)
        known = order.wish.own is not None or target.name.endswith(TWIN)
        changes: dict[str, object] = {"timed": timed, "probes": 0 if known else MOST_PROBES}
        if (each := _of_trace(order, target)) is not None and made.each is not None:
            changes["each"] = each
        plans.append(msgspec.structs.replace(made, **changes))
    return CostEstimate(plans=tuple(plans))


def largest(order: RunOrder) -> tuple[int, int]:
    """Tokens of a prompt and of an answer of a run, at most; of a conversation, on average."""
    wish, talk = order.wish, order.talk
    tokens_in, tokens_out = wish.tokens_in, 0 if wish.kind in WORDLESS else wish.tokens_out
    if wish.own is not None:
        usual = tokens_out
        sizes = [len(msgspec.json.encode((own.messages, own.turns))) for own in wish.own.prompts]
        answers = [
            sum(turn.max_tokens or usual for turn in own.turns[:-1]) for own in wish.own.prompts
        ]
        tokens_in = max(map(add, (size // _BYTES_PER_TOKEN + 1 for size in sizes), answers))
        limits = [own.max_tokens for own in wish.own.prompts]
        limits += [turn.max_tokens for own in wish.own.prompts for turn in own.turns]
        tokens_out = max(limit or usual for limit in limits)
    if talk is not None and not talk.own:
        tokens_in += (talk.turns - 1) * (talk.turn_tokens + talk.tokens_out) // 2 + 1
    return tokens_in, tokens_out


def _of_trace(order: RunOrder, target: Target) -> Decimal | None:
    """Dollars of a request of a trace, on average; None where there is no trace, or no price."""
    traces = [load.pacer for load in order.loads if isinstance(load.pacer, Trace)]
    sizes = Counter((e.tokens_in, e.tokens_out) for trace in traces for e in trace.entries)
    total = Decimal(0)
    for (tokens_in, tokens_out), count in sizes.items():
        cost = target.cost(Usage(tokens_in=tokens_in, tokens_out=tokens_out), order.at).cost_usd
        if cost is None:
            return None
        total += cost * count
    return total / sizes.total() if sizes else None


def is_free(target: Target) -> bool:
    """Whether the tokens of a target are billed by nobody."""
    return target.provider.local or target.hourly_cost is not None


def plan(target: Target, requests: int, tokens_in: int, tokens_out: int, at: datetime) -> Planned:
    """Price what is going to be asked of a target, by the same rules as what was asked."""
    free = is_free(target)
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
    """Guards --max-cost, and what was announced, by what finished attempts cost.

    Those under way are `committed` dollars, so that the limit is not passed by the requests still
    in flight.
    """

    __slots__ = ("_agreed", "_limit", "limited", "spent", "unpriced")

    def __init__(self, limit: Decimal | None, agreed: Decimal | None = None) -> None:
        if limit is not None and limit <= 0:
            raise UsageError("--max-cost must be more than nothing.", hint="Give dollars, like 2.")
        self._agreed = limit is None and agreed is not None  # nobody set a limit of their own
        self._limit = agreed if limit is None else limit
        self.limited = self._limit is not None
        self.spent = Decimal(0)
        self.unpriced = 0  # attempts whose cost is not known

    def add(self, attempt: AttemptRecord, each: Decimal = Decimal(0)) -> None:
        """Count a finished attempt; what we cut or cancelled may be billed in full.

        That is for `each` dollars. A failure without usage is billed by nobody that we know of.
        """
        if attempt.outcome in _OUR_END:
            self.spent += max(each, attempt.cost_usd or each)
        elif attempt.cost_usd is not None:
            self.spent += attempt.cost_usd
        elif attempt.cost_source != "hourly" and attempt.tokens_out:
            self.unpriced += 1

    def room(self, committed: Decimal = Decimal(0)) -> bool:
        """Whether requests for so many dollars may be sent, or be under way."""
        if self._limit is None:
            return True
        return self.spent + committed <= self._limit if committed else self.spent < self._limit

    @property
    def sentence(self) -> str:
        """The reason of a stop, as a sentence."""
        spent = rounded_up(self.spent)
        if self._agreed:
            return (
                f"Stopped: {spent} of the {self._limit} dollars that were announced are spent."
                " --max-cost sets another limit."
            )
        return f"Stopped by --max-cost: {spent} of {self._limit} dollars spent."


def rounded_up(dollars: Decimal) -> str:
    """Dollars in cents, never less than they are."""
    return format(dollars.quantize(_CENT, rounding=ROUND_UP), ",")
