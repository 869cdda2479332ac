"""Requests that the client cancels on purpose, as people do who close a page.

`10%` cancels a tenth of the requests at their first token; `10% after 0.5s..3s` after a time that
is drawn for each. Which requests, and when, follows from the seed and their number alone, so every
target loses the same ones. What is cancelled is no failure, and in no latency.
"""

from __future__ import annotations

import random
import re
from typing import Final

import msgspec

from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError

AT_FIRST_TOKEN: Final = 0  # in place of a time
_FORM: Final = re.compile(
    r"(?P<share>[0-9]+(?:\.[0-9]+)?)%(?:\s*after\s+(?P<low>[0-9.]+[a-z]+)"
    r"(?:\s*\.\.\s*(?P<high>[0-9.]+[a-z]+))?)?"
)
_HINT: Final = 'Write "10%", which is at the first token, or "10% after 0.5s..3s".'


class Cancelling(msgspec.Struct, frozen=True, kw_only=True):
    """The share of requests to cancel, and the times between which one is drawn for each, in ns.

    Without times, requests are cancelled at their first token.
    """

    text: str  # as it was asked for
    share: float
    low_ns: int = 0
    high_ns: int = 0

    def draw(self, key: str) -> int | None:
        """Draw when a request is cancelled, in ns after it was started; None: it is not."""
        drawn = random.Random(key)  # noqa: S311 - a design, not a secret
        if drawn.random() >= self.share:
            return None
        return drawn.randint(self.low_ns, self.high_ns) if self.high_ns else AT_FIRST_TOKEN


def parse_cancel(text: str) -> Cancelling:
    """Read `--cancel`; UsageError says how to write it."""
    match = _FORM.fullmatch(text.strip())
    share = float(match["share"]) / 100.0 if match is not None else 0.0
    if match is None or not 0.0 < share < 1.0:
        raise UsageError(f"--cancel {text!r} is no share of the requests.", hint=_HINT)
    low, high = match["low"], match["high"]
    try:
        low_ns = parse_duration(low) if low else 0
        high_ns = parse_duration(high) if high else low_ns
    except ValueError as reason:
        raise UsageError(f"--cancel {text!r}: {reason}.", hint=_HINT) from None
    if high_ns < low_ns or (low and not high_ns):
        raise UsageError(f"--cancel {text!r} ends before it begins.", hint=_HINT)
    return Cancelling(text=text.strip(), share=share, low_ns=low_ns, high_ns=high_ns)
