"""What each policy means by "better": data, not code."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.route.plan.plan import Finish

if TYPE_CHECKING:
    from collections.abc import Mapping

Money = Literal["none", "beside", "first"]

USUAL_TOKENS: Final = 512  # of an answer, where neither history nor max_tokens says less


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a target's prediction becomes one number of seconds, and what money has to say.

    tail      the 80 % of the time to first token counts, not its median
    ttft      weight of that time
    decode    weight of the time for the tokens of the answer
    most      tokens of the answer that count; None: all that are expected
    failure   seconds that a failure costs
    money     none: seconds alone; beside: seconds and dollars, both relative to the best;
              first: the cheapest that is good enough, seconds between equals
    levels    whether the model's service levels say who is good enough
    finish    first: the first useful token wins a race; whole: the predicted end of the answer
    """

    name: str
    tail: bool = False
    ttft: float = 1.0
    decode: float = 1.0
    most: int | None = None
    failure: float = 1.0
    money: Money = "none"
    levels: bool = False
    finish: Finish = "first"
    sticky: float = 0.0
    hedges: bool = True


_ALL: Final = (
    Policy(name="fastest", finish="whole"),
    Policy(name="cheapest", money="first", levels=True),
    Policy(name="balanced", money="beside"),
    Policy(name="voice", tail=True, most=20),
    Policy(name="coding", ttft=0.3, finish="whole"),
    Policy(name="agent", failure=2.0, finish="whole", sticky=0.1),
    Policy(name="batch", money="first", finish="whole", hedges=False),
)
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType({row.name: row for row in _ALL})
