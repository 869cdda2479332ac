"""Candidates of a plan: what was believed of each target when it was made, and why it came second.

A plan keeps a `Basis`: references to what its ranking has worked out anyway, and the few numbers of
each target that change later. The candidates and their sentences are made of it only when somebody
asks about the request, so a request that is never explained pays for one small tuple per target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lightgate.route.form.size import SIZES
from lightgate.route.form.target import Belief, without
from lightgate.route.plan.hedge import TargetPrice

NS: Final = 1e9
_SAME: Final = 1.005  # factors within which money counts as equal
_ALIKE_S: Final = 0.001  # seconds within which times do


class Candidate(msgspec.Struct, frozen=True):
    """One target of a plan, as it was believed to be.

    `ttft_s` is the expected time to the first token, `end_s` that to the end of the answer; neither
    counts failures, which have `p_error`. `samples` are first tokens of this prompt size, `age_s`
    is how old the last sample is, None without any. `nano` is the price of this request in
    nano-dollars, None where it is not known. `value` is what the policy ranks by, None where it
    ranks by something else. `why` says why this target was taken, or why not.
    """

    target: str
    ttft_s: float
    end_s: float
    samples: int
    age_s: float | None
    in_flight: int
    p_error: float
    nano: float | None
    value: float | None
    why: str


class Basis(msgspec.Struct, frozen=True, eq=False):
    """What a plan was made of, in the order in which its ranking looked at the targets.

    Of each target there are its form's belief, its requests in flight, and the wait behind those.
    The first `well` targets were allowed, the next `full` ones at their limit.
    """

    order: Sequence[str]
    size: int  # of the prompt
    beliefs: Sequence[Belief]
    flying: Sequence[int]
    waits: Sequence[float]
    slows: Sequence[float]  # the part of its time alone that a token takes longer; empty: none
    values: Sequence[float]
    over: Sequence[float]  # misses of service levels, where they decide
    prices: Mapping[str, TargetPrice] | None
    tokens: tuple[int, int]  # of the prompt, and expected of the answer
    well: int
    full: int
    now_ns: int

    def __eq__(self, other: object) -> bool:
        """Two plans that do the same are equal, whatever they were made of."""
        return isinstance(other, Basis)

    def __hash__(self) -> int:
        return 0

    def candidates(self, first: str, beside: Mapping[str, str]) -> tuple[Candidate, ...]:
        """Make the candidates, in the order of their value.

        `first` is the target that the plan begins with; `beside` has the roles of those that may
        start while it runs.
        """
        made = [self._candidate(place) for place in range(len(self.order))]
        lead = next((one for one in made if one.target == first), None)
        if lead is None:
            return ()
        told = [
            msgspec.structs.replace(one, why=self._why(place, one, lead, beside))
            for place, one in enumerate(made)
        ]
        told.sort(key=lambda one: (one.target != first, one.value is None, one.value or 0.0))
        return tuple(told)

    def _candidate(self, place: int) -> Candidate:
        target = self.order[place]
        ttfts_s, penalty, slowness, seen, last_ns, p_error = self.beliefs[place]
        ttft_s, samples = ttfts_s[self.size], seen[self.size % SIZES]
        if penalty:
            ttft_s *= without(penalty, self.now_ns - last_ns)
        ttft_s += self.waits[place]
        price = None if self.prices is None else self.prices.get(target)
        return Candidate(
            target,
            ttft_s,
            ttft_s + slowness * (1.0 + (self.slows[place] if self.slows else 0.0)) * self.tokens[1],
            samples,
            (self.now_ns - last_ns) / NS if samples else None,
            self.flying[place],
            p_error,
            None if price is None else price.nano(*self.tokens),
            self.values[place] if place < len(self.values) else None,
            "",
        )

    def _why(self, place: int, one: Candidate, lead: Candidate, beside: Mapping[str, str]) -> str:
        if one is lead:
            return self._why_first(one)
        said = _BESIDE.get(beside.get(one.target, ""), "")
        if place >= self.well:
            if place < self.well + self.full:
                return "is at its limit: of requests in flight, or of what it says is left"
            return "is left alone for a while: it failed"
        return f"{said}{self._worse(place, one, lead)}"

    def _why_first(self, one: Candidate) -> str:
        if one.value is None:
            return "taken: first in the order of the configuration or the draw"
        least = min(self.values)
        if one.value > least:
            return "taken: nearly the best, and load is shared or the last choice kept"
        if self.over and min(self.over) > 0.0:
            return "taken: misses its service levels least"
        return "taken: the best value for the policy"

    def _worse(self, place: int, one: Candidate, lead: Candidate) -> str:
        """Say in what a target is worse than the first one; the weightiest thing alone."""
        if one.value is None or lead.value is None:
            return "comes later in the order of the configuration or the draw"
        first = self.order.index(lead.target)
        dearer = one.nano is not None and lead.nano is not None and one.nano > lead.nano * _SAME
        found = (
            (
                self.over and self.over[place] > self.over[first],
                "is expected to miss a service level",
            ),
            (self.over and dearer, _dearer(one, lead)),
            (
                one.value <= lead.value,
                "is as good; load is shared, or the last choice was kept",
            ),
            (
                one.end_s > lead.end_s + _ALIKE_S,
                f"its answer is expected to end {_later(one.end_s - lead.end_s)} later",
            ),
            (
                one.ttft_s > lead.ttft_s + _ALIKE_S,
                f"its first token is expected {_later(one.ttft_s - lead.ttft_s)} later",
            ),
            (dearer, _dearer(one, lead)),
            (
                one.p_error > lead.p_error,
                f"fails more often ({one.p_error:.1%} of its attempts)",
            ),
            (True, "is ranked lower by the policy: rare long waits, or load"),
        )
        return next(said for holds, said in found if holds)


_BESIDE: Final = {
    "hedge": "starts too if the first is slow; ",
    "racer": "starts at once as well; ",
}


def _dearer(one: Candidate, lead: Candidate) -> str:
    if not lead.nano or one.nano is None:
        return "costs more"
    return f"costs {one.nano / lead.nano:.3g} times as much"


def _later(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1.0 else f"{seconds * 1e3:.3g} ms"
