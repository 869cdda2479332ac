"""What may be asked from the console: the names that the gateway serves, each with its price.

The dollars are an upper end: every token of the prompt at the rate for fresh ones, an answer as
long as it may be, and every target of an alias that may run beside another. An unknown price is
said, never taken for 0.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.gateway.admit.worst import BYTES_PER_TOKEN
from lightgate.gateway.served.example import chat_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.gateway.served.snapshot import Snapshot
    from lightgate.route.plan.alias import Alias

MOST_NAMES: Final = 300  # that are offered for typing
_MILLION: Final = Decimal(1_000_000)


class LaneChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A name that can be asked: an alias, or a target; dollars for a million tokens.

    `free`: nobody bills its tokens. Prices are None where they are not known.
    """

    name: str
    kind: Literal["alias", "target"]
    targets: tuple[str, ...]
    input: Decimal | None = None
    output: Decimal | None = None
    free: bool = False

    def most_usd(self, prompt_bytes: int, max_tokens: int) -> Decimal | None:
        """The most that one request can cost; None where that is not known."""
        if self.free:
            return Decimal(0)
        if self.input is None or self.output is None:
            return None
        tokens_in = prompt_bytes // BYTES_PER_TOKEN + 1
        return (self.input * tokens_in + self.output * max_tokens) / _MILLION


def choice_of(snapshot: Snapshot, name: str) -> LaneChoice | None:
    """The choice that a name means; None where the gateway does not serve it."""
    for alias in snapshot.aliases:
        if alias.name == name:
            return _alias_choice(snapshot, alias)
    provider, _, model = name.partition("/")
    if provider in snapshot.providers and model:
        return _target_choice(snapshot, name)
    targets = snapshot.names.get(name, ())
    if not targets or (len(targets) > 1 and not snapshot.auto):
        return None
    dearest = _dearest((_target_choice(snapshot, one) for one in targets), 1)
    return msgspec.structs.replace(dearest, name=name, kind="alias", targets=targets)


def offered(snapshot: Snapshot) -> list[LaneChoice]:
    """What is offered at first: the aliases, their targets, and a model of every other provider."""
    found = [_alias_choice(snapshot, alias) for alias in snapshot.aliases]
    targets = [target for alias in snapshot.aliases for target in alias.targets]
    seen = {target.partition("/")[0] for target in targets}
    for name, reach in snapshot.providers.items():
        if name not in seen and (model := chat_model(reach)) is not None:
            targets.append(f"{name}/{model}")
    return found + [_target_choice(snapshot, target) for target in dict.fromkeys(targets)]


def other_names(snapshot: Snapshot, shown: Iterable[str]) -> list[str]:
    """More targets that can be typed, as many as a list may have."""
    known = set(shown)
    found: list[str] = []
    for name, reach in snapshot.providers.items():
        for model in dict.fromkeys((*reach.models, *reach.prices)):
            if f"{name}/{model}" not in known and len(found) < MOST_NAMES:
                found.append(f"{name}/{model}")
    return found


def _target_choice(snapshot: Snapshot, target: str) -> LaneChoice:
    provider, _, model = target.partition("/")
    reach = snapshot.providers.get(provider)
    if reach is None:
        return LaneChoice(name=target, kind="target", targets=(target,))
    rates = reach.prices.get(model)
    return LaneChoice(
        name=target,
        kind="target",
        targets=(target,),
        input=None if rates is None else rates.input,
        output=None if rates is None else rates.output,
        free=reach.provider.local or reach.hourly_cost is not None,
    )


def _alias_choice(snapshot: Snapshot, alias: Alias) -> LaneChoice:
    beside = max(alias.race, 1 if alias.hedge == "off" else 2)
    if alias.verify:
        beside = len(alias.targets)  # every tier may have to be paid
    dearest = _dearest((_target_choice(snapshot, one) for one in alias.targets), beside)
    return msgspec.structs.replace(dearest, name=alias.name, kind="alias", targets=alias.targets)


def _dearest(choices: Iterable[LaneChoice], count: int) -> LaneChoice:
    """The prices of the dearest ones together, unknown where one of them is unknown."""
    found = list(choices)
    billed = [one for one in found if not one.free]
    if not billed:
        return found[0]
    if any(one.input is None or one.output is None for one in billed):
        return msgspec.structs.replace(found[0], input=None, output=None, free=False)
    inputs = sorted((one.input or Decimal(0) for one in billed), reverse=True)
    outputs = sorted((one.output or Decimal(0) for one in billed), reverse=True)
    return msgspec.structs.replace(
        found[0],
        input=sum(inputs[:count], Decimal(0)),
        output=sum(outputs[:count], Decimal(0)),
        free=False,
    )
