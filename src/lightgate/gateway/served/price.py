"""Price requests in whole numbers: pico-dollars per token, nano-dollars per request."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.route.plan.hedge import TargetPrice

if TYPE_CHECKING:
    from lightgate.clock.tokens import Tokens
    from lightgate.price.rates import Rates

NANO: Final = 1_000_000_000
_PICO_PER_TOKEN: Final = 1_000_000  # one dollar per million tokens is a million pico-dollars each
USUAL_ANSWER: Final = 4096  # tokens reserved where neither client nor configuration names a limit


# Limits of what is believed: a provider's counts go into budgets, speeds and 64-bit words.
SLACK: Final = 16  # tokens above the limit, which some providers add themselves
MOST_REASONED: Final = 200_000  # hidden tokens of reasoning in one answer
MOST_GIVEN: Final = 2_000_000  # tokens of pictures and files that are given by address


class Bill(msgspec.Struct, frozen=True, gc=False):
    """The cost of one attempt and its source; None where the price is unknown."""

    nano_usd: int | None
    source: str | None  # list, override, hourly, estimated
    as_of: str | None


NO_BILL: Final = Bill(None, None, None)
FREE: Final = Bill(0, "list", None)  # of an endpoint that no provider charges for


class TokenPrices:
    """The prices of one target; a target paid by the hour costs nothing per request."""

    __slots__ = (
        "_cached",
        "_in",
        "_out",
        "_written",
        "as_of",
        "hourly",
        "known",
        "source",
        "unpriced",
    )

    def __init__(self, rates: Rates | None, *, hourly: bool = False) -> None:
        self.hourly = hourly
        self.known = hourly or (rates is not None and rates.input is not None)
        self.source = "hourly" if hourly else rates.source if rates is not None else None
        self.as_of = rates.as_of if rates is not None and not hourly else None
        self.unpriced = Bill(None, self.source, None)  # of a target whose price nobody knows
        free = hourly or rates is None
        self._in = 0 if free or rates is None else _pico(rates.input)
        self._out = 0 if free or rates is None else _pico(rates.output)
        self._cached = self._in
        self._written = self._in
        if rates is not None and not free:
            self._cached = self._in if rates.cached is None else _pico(rates.cached)
            self._written = self._in if rates.cache_write is None else _pico(rates.cache_write)

    def bill(self, tokens: Tokens) -> Bill:
        """The cost of counted tokens; None where a count or the price is missing."""
        if self.hourly:
            return Bill(None, self.source, None)
        if not self.known or tokens.tokens_in is None or tokens.out is None:
            return NO_BILL
        cached, written = tokens.cached or 0, tokens.cache_write or 0
        fresh = tokens.tokens_in - cached - written
        if fresh < 0:
            return NO_BILL  # the provider's counts contradict each other
        pico = fresh * self._in + cached * self._cached + written * self._written
        source = "estimated" if tokens.source == "estimate" else self.source
        return Bill((pico + tokens.out * self._out + 500) // 1000, source, self.as_of)

    def estimate(self, tokens_in: int, tokens_out: int) -> Bill:
        """The cost of tokens that were estimated, not counted."""
        if not self.known or self.hourly:
            return Bill(None, self.source, None)
        pico = tokens_in * self._in + tokens_out * self._out
        return Bill((pico + 500) // 1000, "estimated", self.as_of)

    def price(self, *, abort_stops: bool) -> TargetPrice | None:
        """Nano-dollars per token, for the router; zero for a target paid by the hour."""
        if not self.known:
            return None
        return TargetPrice(self._in / 1000, self._out / 1000, self._cached / 1000, abort_stops)

    def worst(self, tokens_in: int, tokens_out: int | None) -> int:
        """The most that a request can cost, in nano-dollars; zero where no price is known."""
        out = USUAL_ANSWER if tokens_out is None else tokens_out
        return -(-(tokens_in * max(self._in, self._written) + out * self._out) // 1000)


def believed(tokens: Tokens, asked: int | None, received: int, sent: int) -> Tokens:
    """Token counts, cut down to what can be true.

    `asked` is the limit on all answers together (None: none was set), `received` and `sent` are
    bytes. An answer is no longer than its limit, a visible token has at least a byte, and a count
    that is cut down becomes an estimate.
    """
    changes: dict[str, Any] = {}
    out = tokens.out
    if out is not None:
        ceiling = max(received, USUAL_ANSWER) if asked is None else asked
        ceiling += SLACK + min(tokens.reasoning or 0, MOST_REASONED)
        if out > ceiling:
            changes = {"out": ceiling - SLACK, "source": "estimate"}
    if changes or (tokens.streamed or 0) > received:
        changes |= {"streamed": None, "first_burst": None}
    if (tokens.reasoning or 0) > MOST_REASONED:
        changes["reasoning"] = None
    if max(tokens.tokens_in or 0, tokens.cached or 0, tokens.cache_write or 0) > sent + MOST_GIVEN:
        changes |= {"tokens_in": None, "cached": None, "cache_write": None}
    return msgspec.structs.replace(tokens, **changes) if changes else tokens


def dollars(nano_usd: int) -> str:
    """Nano-dollars as dollars, with all digits."""
    whole, rest = divmod(nano_usd, NANO)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


def _pico(rate: Decimal | None) -> int:
    scaled = (rate or Decimal(0)) * _PICO_PER_TOKEN
    return int(scaled.to_integral_value(ROUND_HALF_EVEN))
