"""Tiers of a cascade: which is asked first, which next, and which starts ahead of its turn.

A request starts in the first tier that takes its level. If there is a tier above, the answer is
verified; where the answer fails, or the tier cannot answer at all, the next tier up is asked. The
tiers below are asked only where no tier above can answer: some answer is better than none.

Within a tier the plan is `decide`'s for the tier's targets: `tier_ask` makes the question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.errors import ConfigError
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.plan import LEVELS, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.plan.alias import PlanAsk

TurnRole = Literal["start", "ahead", "next", "below"]
WITHIN: Final = "chat"  # the policy inside a tier, where the client asks for none
_RANK: Final = {level: rank for rank, level in enumerate(LEVELS)}


class Tier(msgspec.Struct, frozen=True):
    """One tier of a cascade: the hardest level that starts there, and its targets as an alias."""

    upto: Level
    alias: Alias


class Cascade(msgspec.Struct, frozen=True):
    """Tiers from the cheapest up; with `verify`, answers below the last tier are checked.

    With `ahead_ns` as well, the tier after the first starts that long after the request.
    """

    tiers: tuple[Tier, ...]
    verify: tuple[str, ...] = ()
    ahead_ns: int | None = None


class TierTurn(msgspec.Struct, frozen=True):
    """The turn of one tier in answering a request.

    start  begins at once and answers the client
    ahead  begins at `start_ns`, beside the turn before it. Its answer is held back until that one
           has failed, and closed if that one has passed. If it is whole first, and good enough, it
           is the answer
    next   begins once all turns before it have failed
    below  begins only if no tier above has answered anything

    `start_ns` counts from the start of the first turn; None: the turn starts by what happens. The
    answer of a turn that is `checked` is verified, and therefore held back until it is whole; all
    others are passed on as they come.
    """

    tier: int
    role: TurnRole
    start_ns: int | None = None
    checked: bool = False


def cascade_of(
    alias: Alias,
    tiers: Sequence[tuple[Level | None, tuple[str, ...]]],
    verify: tuple[str, ...] = (),
) -> Cascade:
    """Make the cascade of a model's table; ConfigError where its tiers do not rise."""
    made: list[Tier] = []
    for place, (upto, targets) in enumerate(tiers):
        last = place == len(tiers) - 1
        level = LEVELS[-1] if upto is None or last else upto
        if upto is None and not last:
            raise ConfigError(f"The model {alias.name!r} has a tier before its last without upto.")
        if made and _RANK[level] <= _RANK[made[-1].upto]:
            raise ConfigError(
                f"The tiers of the model {alias.name!r} do not rise.",
                hint='Each takes harder ones than the one before: "simple", "medium", then all.',
            )
        name = f"{alias.name} tier {place + 1}"  # under which the last first target is remembered
        made.append(Tier(level, _within(alias, targets, name)))
    if not made:
        raise ConfigError(f"The model {alias.name!r} has no tiers.")
    return Cascade(tuple(made), verify, alias.ahead_ns)


def starting(cascade: Cascade, level: Level) -> int:
    """Return the place of the tier in which a request of this level starts; the last takes all."""
    rank, tiers = _RANK[level], cascade.tiers
    return next(place for place, tier in enumerate(tiers) if rank <= _RANK[tier.upto])


def tier_turns(cascade: Cascade, start: int) -> tuple[TierTurn, ...]:
    """Put the turns of the tiers in order: the first, those above it, then those below it.

    Where the cascade has an `ahead_ns` and answers are checked, the second turn begins that long
    after the first, whatever the first does.
    """
    last = len(cascade.tiers) - 1
    made = []
    for place in range(start, last + 1):
        role: TurnRole = "start" if place == start else "next"
        start_ns = 0 if place == start else None
        checked = bool(cascade.verify) and place < last
        if place == start + 1 and cascade.ahead_ns is not None and cascade.verify:
            role, start_ns = "ahead", cascade.ahead_ns
        made.append(TierTurn(place, role, start_ns, checked))
    made += [TierTurn(place, "below") for place in range(start - 1, -1, -1)]
    return tuple(made)


def tier_ask(
    cascade: Cascade, place: int, ask: PlanAsk, tried: frozenset[str] = frozenset()
) -> PlanAsk:
    """Make the question for `decide`: the request, with the targets of this tier.

    `tried` are targets whose answers have failed; they are left out unless the tier has no other.
    """
    alias = cascade.tiers[place].alias
    if not tried.isdisjoint(alias.targets):
        left = tuple([target for target in alias.targets if target not in tried])
        if left:
            alias = _within(alias, left, alias.name)
    policy = None if ask.policy == "cascade" else ask.policy
    return msgspec.structs.replace(ask, alias=alias, policy=policy)


def _within(alias: Alias, targets: tuple[str, ...], name: str) -> Alias:
    policy = WITHIN if alias.policy == "cascade" else alias.policy
    return msgspec.structs.replace(
        alias,
        name=name,
        targets=targets,
        weights=(),
        policy=policy,
        tiers=(),
        verify=(),
        ahead_ns=None,
        learned_bounds=False,
        self_hedge=False,  # a tier that is slow has the next one
    )
