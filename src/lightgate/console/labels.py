"""The names that may become labels of metrics: a bounded number of them.

They are names of the configuration, of the price list or of providers' lists of models. What a
client makes up is counted as `other`, and so is what is known but beyond a limit: lists of models
may be long, and a client could ask for every one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.errors import LightgateError
from lightgate.gateway.served.example import example_name
from lightgate.gateway.served.snapshot import FILE, read_snapshot

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from lightgate.gateway.served.snapshot import Snapshot
    from lightgate.price.rates import Rates

OTHER: Final = "other"
MOST: Final = 50  # targets, and models, beside those of the configuration's [models]


class TargetLabels(NamedTuple):
    """The labels of a target: provider and model."""

    provider: str
    model: str


class LabelNames:
    """The names of the snapshot in force, read again when there is another one."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._seen: tuple[int, int] | None = None
        self._providers: frozenset[str] = frozenset()
        self._known_targets: frozenset[str] = frozenset()
        self._known_models: frozenset[str] = frozenset()
        self._targets: dict[str, TargetLabels] = {}  # those that have become labels
        self._models: set[str] = set()
        self._room = [MOST, MOST]
        self.configured: tuple[str, ...] = ()  # targets of the configuration's [models]
        self.hourly: dict[str, Decimal] | None = None  # prices of self-hosted providers
        self.rates: dict[str, dict[str, Rates]] = {}  # prices by provider and model
        self.example: str | None = None  # the name of a model for a first try
        self.keyed = False  # whether clients need a virtual key
        self.look()

    def look(self) -> None:
        """Read the snapshot if it is another one than at the last look."""
        try:
            found = (self._data / FILE).stat()
            seen = (found.st_ino, found.st_mtime_ns)
            if seen != self._seen:
                self.use(read_snapshot(self._data))
                self._seen = seen
        except (OSError, LightgateError):
            return  # the names of the last snapshot stay

    def target(self, target: str) -> TargetLabels:
        """The labels of a target."""
        known = self._targets.get(target)
        if known is not None:
            return known
        provider, _, model = target.partition("/")
        if provider not in self._providers:
            return TargetLabels(OTHER, OTHER)
        if target not in self._known_targets or not self._room[0]:
            return TargetLabels(provider, OTHER)
        self._room[0] -= 1
        self._targets[target] = labels = TargetLabels(provider, model)
        return labels

    def model(self, asked: str) -> str:
        """The label of what a client asked for."""
        if asked in self._models:
            return asked
        if asked not in self._known_models or not self._room[1]:
            return OTHER
        self._room[1] -= 1
        self._models.add(asked)
        return asked

    def use(self, snapshot: Snapshot) -> None:
        """Take over the names of a snapshot; what has become a label stays one."""
        self._providers = frozenset(snapshot.providers)
        self.hourly = {
            name: reach.hourly_cost
            for name, reach in snapshot.providers.items()
            if reach.hourly_cost is not None
        }
        self.rates = {name: reach.prices for name, reach in snapshot.providers.items()}
        self.configured = tuple(
            dict.fromkeys(target for alias in snapshot.aliases for target in alias.targets)
        )
        listed = (
            f"{name}/{model}"
            for name, reach in snapshot.providers.items()
            for model in (*reach.prices, *reach.models)
        )
        self._known_targets = frozenset((*self.configured, *listed))
        self._known_models = self._known_targets.union(snapshot.names)
        for target in self.configured:
            provider, _, model = target.partition("/")
            self._targets[target] = TargetLabels(provider, model)
        self.example = example_name(snapshot)
        self.keyed = bool(snapshot.keys)
        self._models.update(alias.name for alias in snapshot.aliases)
