"""What will be tried for one request: targets, when they start, and how long each has."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

Role = Literal["only", "primary", "hedge", "racer", "fallback"]


class Step(msgspec.Struct, frozen=True):
    """One attempt. Offsets and deadlines in nanoseconds.

    `start_ns` counts from the plan's start; None: once everything that was started has failed.
    `ttft_ns` counts from the step's own start; None: until the request's own deadline.
    """

    target: str
    start_ns: int | None
    ttft_ns: int | None
    role: Role


class Plan(msgspec.Struct, frozen=True, dict=True):
    """Steps in the order of their start; never empty, and the last one has the full budget."""

    steps: tuple[Step, ...]
    policy: str
    reason: str

    @cached_property
    def text(self) -> str:
        """For records: `a > b` fails over, `a + b` race, `a ~800ms b` hedges."""
        words = [self.steps[0].target]
        for step in self.steps[1:]:
            if step.start_ns is None:
                sign = ">"
            else:
                sign = "+" if step.role == "racer" else f"~{step.start_ns / 1e6:g}ms"
            words += [sign, step.target]
        return " ".join(words)
