"""`lightgate prices`: what tokens cost."""

from __future__ import annotations

import difflib
import fnmatch
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import UNKNOWN, Column, dollars, emit_json, emit_table
from lightgate.provider.catalogue import known_providers
from lightgate.provider.target import own_rates
from lightgate.report.tables.figures import DOT

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.config.model import Config
    from lightgate.price.rates import Rates

_KINDS = (
    "input",
    "output",
    "cached",
    "cache_write",
    "batch_input",
    "batch_output",
    "batch_cached",
)
_MARK = "~"  # before a price that follows from a discount
_BATCH = ("batch_input", "batch_output", "batch_cached")


@click.command("prices", epilog="Example: lightgate prices 'groq/*llama*'")
@click.argument("pattern", required=False)
@config_option
@json_option
def command(*, pattern: str | None, config_file: Path | None, as_json: bool) -> None:
    """Show prices in dollars per million tokens, of all targets or those that match PATTERN.

    PATTERN is a part of provider/model, or a pattern with *, ? and [...]. Your own prices in
    lightgate.toml come before the list's. An unknown price is a dot (null in JSON), never 0.
    """
    config = read_config(config_file)
    known = _all_rates(config)
    rows = {name: rates for name, rates in known.items() if _matches(name, pattern)}
    if as_json:
        emit_json([{"target": name, "rates": rates} for name, rates in rows.items()])
        return
    if not rows:
        click.echo(_none_known(pattern, known))
        return
    columns, cells = _columns(rows)
    dates = {rates.as_of or UNKNOWN for rates in rows.values()}
    dated = f" Prices as of {dates.pop()}." if len(dates) == 1 else ""
    if any(rates.batch_source == "discount" for rates in rows.values()):
        dated = f" {_MARK} = the list price with the provider's batch discount.{dated}"
    emit_table(
        columns,
        cells,
        caption=f"Dollars per million tokens; {DOT} = not known; + = more for longer prompts."
        + dated,
    )


def _none_known(pattern: str | None, known: dict[str, Rates]) -> str:
    """The sentence for no row, with the nearest names: a pattern is often a name with a slip."""
    if pattern is None:
        return "No price is known."
    short = {name.partition("/")[2].lower(): name for name in reversed(known)}
    pool = [*short, *(name.lower() for name in known)]
    near = difflib.get_close_matches(pattern.lower(), pool, n=3)
    means = f" Did you mean {' or '.join(short.get(name, name) for name in near)}?" if near else ""
    return f"No price is known for {pattern!r}.{means}"


def _columns(rows: dict[str, Rates]) -> tuple[list[Column], list[list[str]]]:
    """The table: a column that would say nothing, or the same on every line, is left out."""
    kinds = [
        kind
        for kind in _KINDS
        if kind in {"input", "output"}
        or any(getattr(rates, kind) is not None for rates in rows.values())
    ]
    columns = [
        Column("target"),
        *(Column(_title(kind), "right", joined=kind in _BATCH[1:]) for kind in kinds),
    ]
    cells = [[name, *_cells(rates, kinds)] for name, rates in rows.items()]
    if any(rates.source != "list" for rates in rows.values()):
        columns.append(Column("source"))
        for row, rates in zip(cells, rows.values(), strict=True):
            row.append(rates.source)
    if len({rates.as_of for rates in rows.values()}) > 1:
        columns.append(Column("as of"))
        for row, rates in zip(cells, rows.values(), strict=True):
            row.append(rates.as_of or DOT)
    return columns, cells


def _title(kind: str) -> str:
    """The head of a column; those of batch prices stand beside each other, and are short."""
    words = {"batch_input": "batch in", "batch_output": "batch out"}
    return words.get(kind, kind.replace("_", " "))


def _cells(rates: Rates, kinds: list[str]) -> list[str]:
    cells = [dollars(getattr(rates, kind), DOT) for kind in kinds]
    if rates.batch_source == "discount":
        marked = zip(kinds, cells, strict=True)
        cells = [f"{_MARK}{c}" if k in _BATCH and c != DOT else c for k, c in marked]
    return [f"{cells[0]}+", *cells[1:]] if rates.tiered else cells


def _all_rates(config: Config | None) -> dict[str, Rates]:
    """Prices by target: the lists of all known providers, the user's own over them."""
    from lightgate.price.rates import models_of, with_discount

    at = datetime.now(UTC)
    rates = {
        f"{provider.name}/{model.id}": with_discount(
            model.rates, provider.batch.discount if provider.batch is not None else None
        )
        for provider in known_providers(config).values()
        if provider.price_provider is not None
        for model in models_of(provider.price_provider, at)
    }
    own = config.prices if config is not None else {}
    return rates | {target: own_rates(table) for target, table in own.items()}


def _matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    wild = any(c in pattern for c in "*?[")
    name, pattern = name.lower(), pattern.lower()
    return fnmatch.fnmatchcase(name, pattern) if wild else pattern in name
