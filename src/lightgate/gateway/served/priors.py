"""Gather the priors of targets: from the configuration, the ledger and past benchmark runs.

The supervisor does this when it writes a snapshot, and now and then while it runs; workers read the
snapshot and no database. A source that cannot be read is left out, with a line in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lightgate.errors import LightgateError
from lightgate.ledger.locate import locate
from lightgate.route.form.prior import ConfiguredPrior, PriorSources, known_priors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from lightgate.config.model import Config, ModelTable, PriorTable
    from lightgate.ledger.store.seen import ObservedSpeed
    from lightgate.route.form.prior import Prior, SourcedPrior

NS_PER_MS = 1e6
logger = logging.getLogger(__name__)


def gather_priors(
    config: Config, data: Path | None = None, now: datetime | None = None, *, strict: bool = False
) -> dict[str, SourcedPrior]:
    """What is known of every target that a model names; without a folder, by configuration alone.

    A ledger that cannot be read is left out; with `strict`, LedgerFailed is raised.
    """
    groups = [group for table in config.models.values() for group in _groups(table)]
    targets = {target for group in groups for target in group}
    told = {target: word for target in targets if (word := _told(config, target)) is not None}
    if data is None or now is None:
        return known_priors(groups, PriorSources(told, {}, {}))
    traffic = _gathered(lambda: _traffic(config, data, now), strict=strict)
    runs = _gathered(lambda: _runs(data, now), strict=strict)
    return known_priors(groups, PriorSources(told, traffic, runs))


def priors_of(known: Mapping[str, SourcedPrior]) -> dict[str, Prior]:
    """The priors for a snapshot: those of targets of which a source says something."""
    return {target: word.prior for target, word in known.items() if word.source != "default"}


def _groups(table: ModelTable) -> list[tuple[str, ...]]:
    """Groups of targets that can stand for each other: in a cascade only within a tier."""
    if table.policy == "cascade":
        return [tier.targets for tier in table.tiers]
    return [table.targets]


def _told(config: Config, target: str) -> ConfiguredPrior | None:
    table: PriorTable | None = config.priors.get(target)
    if table is None:
        table = config.priors.get(target.partition("/")[0])
    if table is None:
        return None
    return ConfiguredPrior(
        ttft_ms=None if table.ttft is None else table.ttft / NS_PER_MS,
        ttft_p95_ms=None if table.ttft_p95 is None else table.ttft_p95 / NS_PER_MS,
        speed_tps=table.speed,
    )


def _traffic(config: Config, data: Path, now: datetime) -> dict[str, ObservedSpeed]:
    place = locate(config, data)
    if place.missing:
        return {}
    from lightgate.ledger.store.seen import seen_in_traffic

    with place.open() as ledger:
        return seen_in_traffic(ledger, now)


def _runs(data: Path, now: datetime) -> dict[str, ObservedSpeed]:
    from lightgate.ledger.runs.history import HISTORY, History
    from lightgate.ledger.store.seen import seen_in_runs

    if not (data / HISTORY).exists():
        return {}
    with History(data / HISTORY) as history:
        return seen_in_runs(history, now)


def _gathered(
    read: Callable[[], dict[str, ObservedSpeed]], *, strict: bool
) -> dict[str, ObservedSpeed]:
    try:
        return read()
    except LightgateError as error:
        if strict:
            raise
        logger.warning("priors are made without this source: %s", error.message)
        return {}
