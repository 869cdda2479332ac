"""Words of advice: figures as they can be known, and the lines of a configuration."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from lightgate.price.cost import money

if TYPE_CHECKING:
    from lightgate.advise.history import Floats
    from lightgate.advise.scope import AdviceScope


def quoted(name: str) -> str:
    """A name in double quotes, as TOML and SQL readers take it."""
    return json.dumps(name, ensure_ascii=False)


def seconds(value: float) -> str:
    """Seconds, rounded to what can be known."""
    if abs(value) < 1.0:
        return ms(value)
    return f"{value:.1f} s" if abs(value) < 100 else f"{value:,.0f} s"


def ms(value: float) -> str:
    """Milliseconds of a time in seconds; from a second on, seconds."""
    if abs(value) >= 1.0:
        return f"{value:.2f} s"
    return f"{round(value * 1e3)} ms"


def usd(value: float) -> str:
    """Dollars; what is below a ten-thousandth of a cent is 0."""
    known = round(value, 6)
    return ("-" if known < 0 else "") + money(Decimal(repr(abs(known))))


def per_1k(costs: Floats) -> str:
    """Dollars per 1,000 requests of these costs; "an unknown price" where none is known."""
    known = costs[~np.isnan(costs)]
    return usd(1000.0 * float(known.mean())) if len(known) else "an unknown price"


def alias_lines(scope: AdviceScope, model: str, targets: tuple[str, ...], **more: str | int) -> str:
    """The lines of a model's table with its targets in another order, and what else is set."""
    known = [name for name in scope.targets_of(model) if name not in targets]
    listed = ", ".join(quoted(name) for name in (*targets, *known))
    lines = [f"[models.{quoted(model)}]", f"targets = [{listed}]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in more.items()]
    return "\n".join(lines) + "\n"


def model_lines(scope: AdviceScope, model: str, line: str) -> str:
    """One line in a model's table; with its targets, where the configuration has no such table."""
    if scope.config is not None and model in scope.config.models:
        return f"[models.{quoted(model)}]\n{line}\n"
    listed = ", ".join(quoted(name) for name in scope.targets_of(model))
    return f"[models.{quoted(model)}]\ntargets = [{listed}]\n{line}\n"
