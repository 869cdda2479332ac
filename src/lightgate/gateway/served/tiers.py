"""The cascades of a snapshot's aliases, with the checks that each one has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.route.cascade.tiers import Cascade, cascade_of
from lightgate.route.cascade.verify import BUILT_IN, GROUP, Check, checks_of, own_checks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.route.cascade.verify import CheckEntryPoint
    from lightgate.route.plan.alias import Alias


class Tiers(msgspec.Struct, frozen=True):
    """The cascade of one alias, and the checks of an answer below its last tier."""

    cascade: Cascade
    checks: tuple[Check, ...] = ()


def tiers_of(aliases: Iterable[Alias]) -> dict[str, Tiers]:
    """The cascades among the aliases, by name; ConfigError where a check cannot be loaded."""
    tall = [alias for alias in aliases if alias.tiers]
    names = [name for alias in tall for name in alias.verify]
    foreign = any(name not in BUILT_IN for name in names)
    own = own_checks(names, _installed()) if foreign else {}
    return {
        alias.name: Tiers(
            cascade_of(alias, alias.tiers, alias.verify), checks_of(alias.verify, own)
        )
        for alias in tall
    }


def _installed() -> Iterable[CheckEntryPoint]:
    """The checks that installed packages offer; few files name one, and the list costs 1 MB."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
