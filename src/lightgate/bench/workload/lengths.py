"""DrawnLengths of prompts and answers that differ from request to request, in tokens.

`512` is always that; `uniform:100..900` any length between; `normal:512,128` a mean and a standard
deviation; `mix:80%*128,20%*4096` one of several by its share. The length of a request is a pure
function of the seed and its number, so every target is asked the same.
"""

from __future__ import annotations

import random
import re
from typing import Final

import msgspec

from lightgate.errors import UsageError

MOST_TOKENS: Final = 10_000_000
MOST_SPREAD: Final = 3.0  # standard deviations: a normal length is never further from its mean
_NUMBER: Final = r"([0-9]{1,8})"
_FIXED: Final = re.compile(_NUMBER)
_UNIFORM: Final = re.compile(rf"uniform:{_NUMBER}\.\.{_NUMBER}")
_NORMAL: Final = re.compile(rf"normal:{_NUMBER},{_NUMBER}")
_MIX: Final = re.compile(r"mix:(.+)")
_SHARE: Final = re.compile(rf"([0-9]{{1,3}}(?:\.[0-9]+)?)% *\* *{_NUMBER}")
_HINT: Final = 'Write 512, "uniform:100..900", "normal:512,128" or "mix:80%*128,20%*4096".'


class DrawnLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Drawn lengths: between `least` and `most`, around `mean`; or one of `shares`."""

    text: str  # as it was asked for
    least: int
    most: int
    mean: float | None = None  # of a normal distribution
    spread: float = 0.0
    shares: tuple[tuple[float, int], ...] = ()  # of a mix: up to which part of 1, which length

    @property
    def drawn(self) -> bool:
        """Whether requests differ in length."""
        return self.least != self.most

    def pick(self, key: str) -> int:
        """The length that the key decides."""
        if not self.drawn:
            return self.most
        drawn = random.Random(key)  # noqa: S311 - sizes of prompts, nothing secret
        if self.shares:
            part = drawn.random()
            return next((tokens for upto, tokens in self.shares if part < upto), self.most)
        if self.mean is None:
            return drawn.randint(self.least, self.most)
        return min(max(round(drawn.gauss(self.mean, self.spread)), self.least), self.most)


def parse_lengths(option: str, text: str) -> DrawnLengths:
    """Read lengths as they stand on the command line; UsageError says how to write them."""
    plain = text.strip()
    found = _simple(plain) or _mixed(plain)
    if found is None or not 1 <= found.least <= found.most <= MOST_TOKENS:
        raise UsageError(f"{option} {text!r} is no number of tokens.", hint=_HINT)
    return found


def _simple(text: str) -> DrawnLengths | None:
    if (match := _FIXED.fullmatch(text)) is not None:
        return DrawnLengths(text=text, least=int(match[1]), most=int(match[1]))
    if (match := _UNIFORM.fullmatch(text)) is not None:
        return DrawnLengths(text=text, least=int(match[1]), most=int(match[2]))
    if (match := _NORMAL.fullmatch(text)) is not None:
        mean, spread = int(match[1]), int(match[2])
        reach = round(MOST_SPREAD * spread)
        return DrawnLengths(
            text=text, least=max(1, mean - reach), most=mean + reach, mean=mean, spread=spread
        )
    return None


def _mixed(text: str) -> DrawnLengths | None:
    match = _MIX.fullmatch(text)
    parts = [_SHARE.fullmatch(part.strip()) for part in match[1].split(",")] if match else []
    known = [(float(part[1]) / 100.0, int(part[2])) for part in parts if part is not None]
    if not known or len(known) != len(parts):
        return None
    if abs(sum(share for share, _ in known) - 1.0) > 1e-6:
        raise UsageError(f"The shares of {text!r} do not add up to 100 %.", hint=_HINT)
    upto, shares = 0.0, []
    for share, tokens in known:
        upto += share
        shares.append((upto, tokens))
    sizes = [tokens for _, tokens in known]
    return DrawnLengths(text=text, least=min(sizes), most=max(sizes), shares=tuple(shares))
