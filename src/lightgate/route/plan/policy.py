"""The table of policies: how each one puts targets in order, as data.

A new policy is a row here and its name in `lightgate.config.values.Policy`. The configuration, the
header `x-lightgate-policy` and `lightgate rehearse` take their names from these two places.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.route.plan.plan import Finish

if TYPE_CHECKING:
    from collections.abc import Mapping

    # Never decoded, so never looked up: pydantic stays out of the workers.
    from lightgate.config.values import Policy as PolicyName  # noqa: TC004

Order = Literal["form", "configured", "drawn", "tiers"]
Money = Literal["none", "beside", "first"]

USUAL_TOKENS: Final = 512  # of an answer, where neither history nor max_tokens says less


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a target's prediction becomes one number of seconds, and what money has to say.

    order     form: by predictions, as all the following say; configured: as in the configuration;
              drawn: at random, by weight; tiers: a cascade, which needs tiers of its own
    reason    what a plan says of its order
    tail      the 80 % of the time to first token counts, not its mean
    ttft      weight of that time
    decode    weight of the time for the tokens of the answer
    most      tokens of the answer that count; None: all that are expected
    failure   seconds that a failure costs
    money     none: seconds alone; beside: seconds and dollars, both relative to the best;
              first: the cheapest that is good enough, seconds between equals
    levels    whether the model's service levels say which targets are good enough
    finish    first: the first useful token wins a race; whole: the predicted end of the answer
    silence   seconds of the end that one second of silence is worth, where two attempts answer
    sticky    part of the time that staying with a warm prompt cache is worth, beyond what it saves
    hedges    whether a second attempt may start beside the first
    second    what a second sooner is worth, in prices of the request
    """

    name: PolicyName
    order: Order = "form"
    reason: str = "by form"
    tail: bool = False
    ttft: float = 1.0
    decode: float = 1.0
    most: int | None = None
    failure: float = 1.0
    money: Money = "none"
    levels: bool = False
    finish: Finish = "first"
    silence: float = 1.0
    sticky: float = 0.0
    hedges: bool = True
    second: float = 60.0


ORDERED: Final = Policy(name="ordered", order="configured", reason="configured order")
_ALL: Final = (
    Policy(name="chat", tail=True, ttft=3.3),
    Policy(name="fastest", finish="whole"),
    Policy(name="cheapest", money="first", levels=True),
    Policy(name="balanced", money="beside", second=5.0),
    Policy(name="voice", tail=True, most=20),
    Policy(name="coding", ttft=0.3, finish="whole"),
    Policy(name="agent", failure=2.0, finish="whole", sticky=0.1),
    Policy(name="batch", money="first", finish="whole", hedges=False),
    ORDERED,
    Policy(name="weighted", order="drawn", reason="drawn by weight"),
    Policy(name="cascade", order="tiers"),
)
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType({row.name: row for row in _ALL})
_RANKED: Final[Mapping[str, Policy]] = {row.name: row for row in _ALL if row.order != "tiers"}
BY_FORM: Final = tuple([row.name for row in _ALL if row.order == "form"])
DRAWN: Final = tuple([row.name for row in _ALL if row.order == "drawn"])
# What a request may ask for: tiers belong to a model.
ASKABLE: Final = tuple([row.name for row in _ALL if row.order != "tiers"])


def policy_of(name: str) -> Policy:
    """Return the policy by which one list of targets is put in order: without tiers, `ordered`."""
    return _RANKED.get(name, ORDERED)
