"""What targets are told beside the body, and what they are not: fields, or the request itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.dialect.neutral.omit import listed
from lightgate.gateway.request.passed import IDEMPOTENCY, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.gateway.exchange.attempt import Attempt, ExchangeFacts
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.route.plan.plan import Plan

Skipped = tuple[tuple[str, str], ...]  # targets, each with what it cannot be told or has no price


def skipped_line(skipped: Skipped) -> bytes:
    """The targets that were passed over, as a header line."""
    names = listed(f"{target}={field}" for target, field in dict.fromkeys(skipped))
    return b"x-lightgate-skipped: %b\r\n" % names


def dropped_so_far(attempts: Iterable[Attempt]) -> bytes:
    """The fields that any attempt was not told, as a header line; for a head that comes early."""
    found = dict.fromkeys(path for attempt in attempts for path in attempt.prepared.dropped)
    return b"x-lightgate-dropped: %b\r\n" % listed(found) if found else b""


def story_of(plan: Plan, skipped: Skipped) -> str:
    """The plan and its reasons for the ledger, without the targets that were passed over."""
    if not skipped:
        return plan.story
    over = {target for target, _ in skipped}
    steps = tuple(step for step in plan.steps if step.target not in over)
    words = ", ".join(f"{target} ({field})" for target, field in dict.fromkeys(skipped))
    reason = f"{plan.reason}, not asked: {words}"[:400]
    if not steps:
        return f"no target ({reason})"
    return msgspec.structs.replace(plan, steps=steps, reason=reason).story


def passed_lines(exchange: ExchangeFacts, target: ServedTarget) -> bytes:
    """The header lines of the client for a target's provider.

    A provider that honours an idempotency key answers the second request with what it has of the
    first, or with a conflict while that runs. So the key goes along again only where the provider
    has not answered: a hedge at the same provider, or a second try after an error, has no key.
    """
    passed, provider = exchange.caller.passed, target.target.provider.name
    if any(name == IDEMPOTENCY for name, _ in passed):
        before = [
            attempt
            for attempt in exchange.attempts
            if attempt.target.target.provider.name == provider
        ]
        if any(attempt.called is None or attempt.status is not None for attempt in before):
            passed = tuple(pair for pair in passed if pair[0] != IDEMPOTENCY)
    return lines_of(passed, target.passes)
