"""Generations of models: what one takes where another refuses it, and wishes put into its words.

The rows are data (`lightgate.provider.generations`). A dialect's builder reads them from the
request; without a row a wish is said as it was asked.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

# From the least to the most.
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Tokens of thinking that an effort stands for where a model takes a number; up to "high" they are
# those of Google's own compatibility endpoint.
_TOKENS: Final = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 32768,
    "max": 65536,
}
# The most tokens of thinking that still are this effort: half-way to the next one.
_UPTO: Final = (("low", 4096), ("medium", 16384), ("high", 28672), ("xhigh", 49152))


class Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What models of one generation take; the names are matched in lower case, `*` is any text.

    `thinking`: how a wish for reasoning is said: an effort in words (`effort`), adaptive thinking
    with an effort (`adaptive`), a number of tokens (`budget`), a level (`level`), not at all
    (`none`), or as it was asked (`any`). `efforts` are the words, `least` and `most` the tokens
    that it takes (0: no limit), `off` whether reasoning can be switched off. `sampling`: whether
    temperature, top_p and top_k are all taken, one of the first two, or none. `schema`: answers can
    be bound to a schema, `schema_with_tools` also beside tools. `max_tokens` is the longest answer
    (0: not known).
    """

    match: tuple[str, ...] = ()
    thinking: Literal["any", "effort", "adaptive", "budget", "level", "none"] = "any"
    efforts: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    off: bool = True
    sampling: Literal["all", "one", "none"] = "all"
    schema: bool = True
    schema_with_tools: bool = True
    max_tokens: int = 0

    def effort(self, wish: str | int) -> str:
        """Put a wish into the nearest of the words that are taken; a lesser one comes first."""
        asked = effort_of(wish) if isinstance(wish, int) else wish
        if not self.efforts or asked in self.efforts or asked not in EFFORTS:
            return asked
        place = EFFORTS.index(asked)
        known = [EFFORTS.index(word) for word in self.efforts]
        below = [one for one in known if one < place]
        # Not at all is no lesser effort, but another wish.
        return EFFORTS[max(below) if below and max(below) > 0 else min(one for one in known if one)]

    def tokens(self, wish: str | int) -> int:
        """Put a wish into a number of tokens between the least and the most that are taken."""
        asked = wish if isinstance(wish, int) else _TOKENS.get(wish, _TOKENS["medium"])
        if asked == 0 and self.off:
            return 0
        asked = max(asked, self.least)
        return min(asked, self.most) if self.most else asked

    def cap(self, asked: int) -> int:
        """Return a limit on tokens that is no higher than the longest answer."""
        return min(asked, self.max_tokens) if self.max_tokens else asked


def effort_of(tokens: int) -> str:
    """Return the effort that a number of tokens of thinking stands for."""
    if tokens <= 0:
        return "none"
    return next((word for word, upto in _UPTO if tokens <= upto), "max")
