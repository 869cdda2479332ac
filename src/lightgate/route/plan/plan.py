"""Plans: which targets are tried for one request, when each starts, and how long each has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, Literal, get_args

import msgspec

from lightgate.route.plan.candidates import Basis, Candidate

Role = Literal["only", "primary", "hedge", "racer", "fallback"]
Level = Literal["simple", "medium", "complex"]  # how hard a request is, where a cascade asks
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
Finish = Literal["first", "whole"]


class StandInHedge(msgspec.Struct, frozen=True, gc=False):
    """A hedge of the target that stands in for a failed first one.

    It starts `delay_ns` after that one; `reserve_nano` and `premium` are as in `Plan`.
    """

    delay_ns: int
    reserve_nano: float = 0.0
    premium: float = 0.0


class Step(msgspec.Struct, frozen=True, gc=False):
    """One attempt of a plan. Offsets and deadlines in nanoseconds.

    `start_ns` counts from the plan's start; None: once everything that was started has failed.
    `ttft_ns` counts from the step's own start; None: until the request's own deadline.
    `tier` is the place of its tier in a cascade. `stands_by` has what a step costs that hedges a
    fallback; None: what the plan says.
    """

    target: str
    start_ns: int | None
    ttft_ns: int | None
    role: Role
    tier: int = 0
    stands_by: StandInHedge | None = None


class Plan(msgspec.Struct, frozen=True, dict=True):
    """Steps in the order of their start; never empty, and the last one has all the time left.

    `finish` says which attempt wins where two answer: the one with the first useful token, or
    (whole) the one whose answer is predicted to end first (`lightgate.route.plan.finish`).
    """

    steps: tuple[Step, ...]
    policy: str
    reason: str
    predicted_ttft_ns: int | None = None  # of the first step; None: nothing was predicted
    runner_up: str | None = None  # the target that would have been first otherwise
    hedge_ns: int | None = None  # when the second attempt starts; None: none was planned
    finish: Finish = "first"
    silence: float = 1.0  # seconds of the end that a second without a token is worth
    reserve_nano: float = 0.0  # for `HedgeBudgets.take`: what one more attempt can cost
    own_nano: float = 0.0  # what the request costs in any case
    premium: float = 0.0  # part of a second attempt's price that the first target does not cost
    extra_nano: float = 0.0  # that a race, or a hedge that starts, is expected to cost beside that
    level: Level | None = None
    points: float = 0.0  # that the level goes by
    # Between these lie 80 % of such first tokens, with `in_flight` requests at the target.
    predicted_low_ns: int | None = None
    predicted_high_ns: int | None = None
    in_flight: int | None = None
    basis: Basis | None = None  # of the candidates
    # The hedge of the second target, if that stands in for the first; asked only then.
    again: Callable[[], StandInHedge | None] | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The targets of the plan, with what was believed of each and why it was not taken."""
        if self.basis is None:
            return ()
        first = self.steps[0].target
        beside = {step.target: step.role for step in self.steps[1:] if step.start_ns is not None}
        return self.basis.candidates(first, beside)

    @cached_property
    def overlaps(self) -> bool:
        """Whether an attempt may start while another one runs."""
        return any(step.start_ns is not None for step in self.steps[1:])

    @cached_property
    def text(self) -> str:
        """The plan as records show it: `a > b` fails over, `a + b` race, `a ~800ms b` hedges."""
        words = [self.steps[0].target]
        for step in self.steps[1:]:
            if step.start_ns is None:
                sign = ">"
            else:
                sign = "+" if step.role == "racer" else f"~{round(step.start_ns / 1e6, 1):g}ms"
            words += [sign, step.target]
        return " ".join(words)

    @cached_property
    def story(self) -> str:
        """The plan and its reasons, in one line for the ledger."""
        why = [self.reason]
        if self.predicted_ttft_ns is not None:
            why.append(f"first token in {self.predicted_ttft_ns / 1e6:.0f} ms")
        if self.runner_up is not None:
            why.append(f"next {self.runner_up}")
        # A target may have been left out of the plan, which then has no second attempt.
        if self.extra_nano > 0.0 and self.overlaps:
            second = "the race" if self.steps[1].role == "racer" else "a hedge"
            why.append(f"{second} costs about ${self.extra_nano / 1e9:.2g} more")
        return f"{self.text} ({', '.join(why)})"
