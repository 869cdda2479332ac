"""`lightgate models --priors`: the prior of each target, and its source."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.output import Column, emit_json, emit_table

if TYPE_CHECKING:
    from lightgate.config.model import Config
    from lightgate.route.form.prior import SourcedPrior

_DAY_S = 86_400.0
_HOUR_S = 3_600.0


def show_priors(config: Config | None, data: Path | None, *, as_json: bool) -> None:
    """Print the prior of every target that a model names, with its source."""
    from lightgate.config.model import Config as Defaults
    from lightgate.gateway.served.priors import gather_priors

    config = config or Defaults()
    if data is not None:
        config = config.model_copy(update={"ledger": type(config.ledger)()})
    known = gather_priors(config, data or Path(config.gateway.data), datetime.now(UTC))
    if as_json:
        emit_json([_facts(target, word) for target, word in known.items()])
        return
    if not known:
        click.echo("No model of the configuration names a target.")
        return
    right = ("ttft p50 ms", "p95", "speed p50 tok/s", "slow 5 %", "counts for", "n", "age")
    emit_table(
        [
            Column("target"),
            Column("source"),
            *(Column(title, "right", joined=title in {"p95", "slow 5 %"}) for title in right),
        ],
        [(target, word.source, *_cells(word)) for target, word in known.items()],
        caption="What a gateway believes of a target before it has seen it; then it learns.",
    )


def _facts(target: str, word: SourcedPrior) -> dict[str, Any]:
    prior = word.prior
    return {
        "target": target,
        "source": word.source,
        "ttft_p50_ms": prior.ttft_ms,
        "ttft_p95_ms": prior.ttft_p95_ms,
        "speed_p50_tps": prior.speed_tps,
        "speed_p5_tps": prior.speed_slow_tps,
        "weight": prior.weight,
        "n": word.n,
        "age_s": word.age_s,
    }


def _cells(word: SourcedPrior) -> tuple[str, ...]:
    prior = word.prior
    return (
        f"{prior.ttft_ms:.0f}",
        f"{prior.ttft_p95_ms:.0f}",
        f"{prior.speed_tps:.0f}",
        f"{prior.speed_slow_tps:.0f}",
        f"{prior.weight:.1f}",
        "" if word.n is None else f"{word.n:,}",
        "" if word.age_s is None else _age(word.age_s),
    )


def _age(age_s: float) -> str:
    return f"{age_s / _DAY_S:.0f}d" if age_s >= 2 * _DAY_S else f"{age_s / _HOUR_S:.0f}h"
