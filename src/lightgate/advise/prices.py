"""What tokens cost at each target, as this history was billed.

Prices of the configuration or of the list are taken where they come to what was billed. Else the
two prices are found from the bills themselves: a bill is a sum of two products, so a few bills with
different lengths give both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightgate.provider.target import rates_at

if TYPE_CHECKING:
    from lightgate.advise.history import Floats, PastTraffic, Wholes

    Bills = tuple[Wholes, Wholes, Floats]  # tokens in, tokens out, dollars
    from lightgate.config.model import Config
    from lightgate.price.rates import Rates

NEAR: Final = 0.1  # of the bills, by which known prices may be off: cached tokens, tiers
FITS: Final = 0.05  # of the bills that may stay unexplained by two prices
DEARER: Final = 4.0  # times that answer tokens cost more, where the bills cannot tell them apart


class TokenPrice(NamedTuple):
    """Dollars per token; `batch` is what part of them the batch tier costs, None where unknown."""

    per_in: float
    per_out: float
    batch: float | None = None

    def usd(self, tokens_in: Wholes, tokens_out: Wholes) -> Floats:
        """Dollars of so many tokens."""
        priced: Floats = np.maximum(tokens_in, 0) * self.per_in + tokens_out * self.per_out
        return priced


def token_prices(history: PastTraffic, config: Config | None) -> dict[str, TokenPrice]:
    """Find the price of every target that was billed by the token."""
    found = {}
    for target in history.counts:
        here = (history.target == target) & ~history.beside
        here &= ~np.isnan(history.usd) & (history.tokens_in >= 0)
        billed = (history.tokens_in[here], history.tokens_out[here], history.usd[here])
        price = _price(target, history, billed, config)
        if price is not None:
            found[target] = price
    return found


def _price(
    target: str, history: PastTraffic, billed: Bills, config: Config | None
) -> TokenPrice | None:
    tokens_in, tokens_out, usd = billed
    total = float(usd.sum())
    known = rates_at(target, config, history.until)
    batch = None if known is None else _batch(known)
    if known is not None and known.input is not None and known.output is not None:
        price = TokenPrice(float(known.input) / 1e6, float(known.output) / 1e6, batch)
        expected = float(price.usd(tokens_in, tokens_out).sum())
        if not total or not expected:
            return price
        if abs(total / expected - 1.0) < NEAR:
            scale = total / expected
            return TokenPrice(price.per_in * scale, price.per_out * scale, batch)
    if not total:
        return None
    return _fitted(tokens_in, tokens_out, usd)._replace(batch=batch)


def _fitted(tokens_in: Wholes, tokens_out: Wholes, usd: Floats) -> TokenPrice:
    """Solve the bills for two prices."""
    both = np.column_stack((tokens_in, tokens_out)).astype(np.float64)
    (per_in, per_out), _, rank, _ = np.linalg.lstsq(both, usd, rcond=None)
    rest = float(np.abs(both @ np.array([per_in, per_out]) - usd).sum())
    if rank == 2 and min(per_in, per_out) >= 0.0 and rest <= FITS * float(usd.sum()):
        return TokenPrice(float(per_in), float(per_out))
    each = float(usd.sum() / (tokens_in + DEARER * tokens_out).sum())
    return TokenPrice(each, DEARER * each)


def _batch(rates: Rates) -> float | None:
    if rates.batch_output is None or not rates.output:
        return None
    return float(rates.batch_output / rates.output)
