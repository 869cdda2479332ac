"""The client's header fields that one attempt carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.gateway.request.passed import IDEMPOTENCY, lines_of

if TYPE_CHECKING:
    from lightgate.gateway.exchange.attempt import ExchangeFacts
    from lightgate.gateway.served.target import ServedTarget


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
