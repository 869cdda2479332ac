"""Counts of a request's tokens: asked of a target that counts, else estimated and marked so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.neutral.estimate import estimate_tokens
from lightgate.dialect.neutral.items import AnswerHead
from lightgate.dialect.neutral.numbers import any_json
from lightgate.dialect.registry import DIALECTS
from lightgate.errors import UsageError
from lightgate.gateway.admit.admit import admit_free, admit_shared
from lightgate.gateway.exchange.attempt import JSON
from lightgate.gateway.exchange.cascade import begin
from lightgate.gateway.exchange.settle import settle_free
from lightgate.gateway.request.around import ReplyAround

if TYPE_CHECKING:
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.wire.door.reply import Reply

_SOURCE: Final = b"x-lightgate-count-source: %b\r\n"
_NAMED: Final = b"x-request-id: %b\r\nx-lightgate-id: %b\r\n"
_RENEWABLE: Final = frozenset((404, 405, 429))  # beside 5xx: the target does not count, or not now


async def answer_count(state: State, exchange: Exchange, reply: Reply) -> None:
    """Answer a request for a count."""
    able = tuple([name for name in exchange.alias.targets if _counts(exchange, name)])
    if not able:
        await admit_free(state, exchange.caller.key)
        now = state.now_ns()
        named = _NAMED % (exchange.request_id, exchange.id_bytes)
        reply.whole(200, JSON + named + _SOURCE % b"estimate", _estimated(exchange))
        settle_free(state, exchange, None, now)
        return
    exchange.alias = msgspec.structs.replace(
        exchange.alias, targets=able, policy="ordered", weights=(), tiers=(), verify=()
    )
    exchange.reply = _CountReply(reply, exchange)
    await admit_shared(state, exchange)
    begin(exchange)


def _counts(exchange: Exchange, name: str) -> bool:
    """Whether a target has the endpoint and can be told the request."""
    try:
        exchange.served.targets[name].prepare(exchange.request, None, b"")
    except UsageError:
        return False
    return True


def _estimated(exchange: Exchange) -> bytes:
    request = exchange.request
    facts = DIALECTS[request.endpoint.dialect].facts
    if facts is None:
        raise UsageError("This endpoint does not count.")
    head = AnswerHead(request.model, exchange.id, 0)
    count = None if request.found is None else request.found.count
    if count is None:
        count = estimate_tokens(any_json.decode(request.body))
    return facts.write(count, head)


class _CountReply(ReplyAround):
    """Marks a count as the provider's own, and estimates where all targets failed to count."""

    def __init__(self, reply: Reply, exchange: Exchange) -> None:
        super().__init__(reply)
        self._exchange = exchange

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send the count."""
        if status == 200:
            self.inner.whole(status, headers + _SOURCE % b"provider", body)
        elif status in _RENEWABLE or status >= 500:
            named = _NAMED % (self._exchange.request_id, self._exchange.id_bytes)
            lines = JSON + named + _SOURCE % b"estimate"
            self.inner.whole(200, lines, _estimated(self._exchange))
        else:
            self.inner.whole(status, headers, body)
