"""The scope of an advice: the history, its prices and times, and the configuration in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from lightgate.advise.prices import token_prices
from lightgate.advise.times import times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.advise.history import PastTraffic, Wholes
    from lightgate.advise.times import TargetTimes
    from lightgate.config.model import Config
    from lightgate.ledger.runs.run import Run
    from lightgate.ledger.store.hourly import MachineUse

T = TypeVar("T")
WORSE_CHECKS: Final = 0.05  # of the cases that another target may surely pass fewer


class AdviceScope:
    """What every kind of advice looks at."""

    def __init__(
        self,
        history: PastTraffic,
        config: Config | None,
        machines: Sequence[MachineUse] = (),
        checks: Run | None = None,
    ) -> None:
        self.history = history
        self.config = config
        self.machines = tuple(machines)
        self.prices = token_prices(history, config)
        self._checks = checks
        self._known: dict[str, Any] = {}
        self._times: dict[str, TargetTimes | None] = {}
        self._all_s = float(history.e2e_s.sum())
        hours = sum(float(use.usd_per_hour) * use.hours for use in machines)
        self._all_usd = float(np.nansum(history.usd)) + hours

    def money_share(self, use: MachineUse) -> float:
        """The share of all dollars that a machine's hours are."""
        return float(use.usd_per_hour) * use.hours / self._all_usd if self._all_usd else 0.0

    def checked(self, here: str, there: str) -> str | None:
        """Say why the user's own checks do not let answers come from another target.

        None: no run of checks has both targets. Empty: they do, the other one surely passes no
        fewer cases, by more than WORSE_CHECKS.
        """
        pairs = (
            () if self._checks is None or self._checks.checks is None else self._checks.checks.pairs
        )
        for pair in pairs:
            if {pair.a, pair.b} != {here, there} or pair.interval is None:
                continue
            least = pair.interval.low if pair.a == there else -pair.interval.high
            if least >= -WORSE_CHECKS:
                return ""
            return (
                f"the checks leave open that {there} passes {-least:.0%} of cases fewer than {here}"
            )
        return None

    def known(self, name: str, find: Callable[[PastTraffic], T]) -> T:
        """What was found in the history under a name; it is looked for once."""
        if name not in self._known:
            self._known[name] = find(self.history)
        found: T = self._known[name]
        return found

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
