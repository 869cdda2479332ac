"""What came of one policy on one seed's traffic, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lightgate.bench.rehearse.scene import Offer

NS: Final = 1_000_000_000


class Bills:
    """Dollars, twice: where aborting stops the bill everywhere, and as the providers say they do.

    `extra` is what was spent on duplicates, by the second reading: it is never the smaller one.
    """

    __slots__ = ("extra", "honoured", "mixed", "probes")

    def __init__(self) -> None:
        self.honoured = 0.0
        self.mixed = 0.0
        self.extra = 0.0
        self.probes = 0.0

    def probe(self, offer: Offer, tokens_in: int, tokens_out: int) -> None:
        """A probe was answered, or tried."""
        dollars = price(offer, tokens_in, tokens_out)
        self.probes += dollars
        self.honoured += dollars
        self.mixed += dollars

    def attempt(self, honoured: float, mixed: float, *, extra: bool) -> None:
        """An attempt is over."""
        self.honoured += honoured
        self.mixed += mixed
        if extra:
            self.extra += mixed


def price(offer: Offer, tokens_in: int, tokens_out: float) -> float:
    """Dollars of so many tokens."""
    return (tokens_in * offer.price_in + tokens_out * offer.price_out) / 1e6


class Tally:
    """One run: an entry a request; times in seconds, NaN where there was no answer."""

    def __init__(self, requests: int, targets: int) -> None:
        self.ttft_s: NDArray[np.float64] = np.full(requests, np.nan)
        self.done_s: NDArray[np.float64] = np.full(requests, np.nan)
        self.ends = [0] * requests  # how often each request ended: once
        self.first_target = [-1] * requests  # where its first attempt went
        self.winner = [-1] * requests
        self.attempts = 0
        self.duplicates = 0  # attempts that were started beside another one
        self.failures = 0  # requests without a whole answer
        self.probes = 0
        self.wins = [0] * targets
        self.bills = Bills()

    @property
    def requests(self) -> int:
        """How many there were."""
        return len(self.ends)
