"""The scope of an advice: the history, its prices and times, and the configuration in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightgate.advise.prices import token_prices
from lightgate.advise.times import times_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.advise.history import PastTraffic, Wholes
    from lightgate.advise.times import TargetTimes
    from lightgate.config.model import Config
    from lightgate.ledger.store.hourly import HourlyRow


class AdviceScope:
    """What every kind of advice looks at."""

    def __init__(
        self, history: PastTraffic, config: Config | None, hourly: Sequence[HourlyRow] = ()
    ) -> None:
        self.history = history
        self.config = config
        self.hourly = {row.provider: row for row in hourly}
        self.prices = token_prices(history, config)
        self._times: dict[str, TargetTimes | None] = {}
        self._all_s = float(history.e2e_s.sum())
        self._all_usd = float(np.nansum(history.usd))

    def times(self, target: str) -> TargetTimes | None:
        """The samples of a target, read once."""
        if target not in self._times:
            self._times[target] = times_of(self.history, target)
        return self._times[target]

    def targets_of(self, model: str) -> tuple[str, ...]:
        """The targets of a model: those of the configuration, and those that answered for it."""
        table = None if self.config is None else self.config.models.get(model)
        told = () if table is None else table.targets
        used = self.history.target[self.history.of_model(model)].tolist()
        return tuple(dict.fromkeys((*told, *used)))

    def weight(self, among: Wholes) -> tuple[float, float]:
        """The share of all seconds and of all dollars that these rows are."""
        history = self.history
        part_s = float(history.e2e_s[among].sum())
        part_usd = float(np.nansum(history.usd[among]))
        return (
            part_s / self._all_s if self._all_s else 0.0,
            part_usd / self._all_usd if self._all_usd else 0.0,
        )
