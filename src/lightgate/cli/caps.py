"""`lightgate models --caps`: caps on answers that their lengths in the ledger suggest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lightgate.cli.output import Column, dollars, emit_json, emit_table
from lightgate.config.notation import parse_duration
from lightgate.config.toml_text import table_text
from lightgate.errors import UsageError
from lightgate.ledger.locate import locate

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from lightgate.config.model import Config
    from lightgate.report.tables.caps import Cap

_NS_PER_US: Final = 1_000
_NONE: Final = "none"
_NOTHING: Final = "·"  # unknown


def show_caps(config: Config | None, data: Path | None, last: str, *, as_json: bool) -> None:
    """Print the suggested caps, and the lines of a configuration with them."""
    from lightgate.config.model import Config as Defaults

    config = config or Defaults()
    caps = _caps(config, data, last)
    if as_json:
        emit_json([_facts(cap) for cap in caps])
        return
    if not caps:
        click.echo(f"No answer of the last {last} is in the ledger.")
        return
    right = ("n", "p50", "p99", "longest", "cut", "cap", "suggested", "reserves", "lasts at most")
    columns = [Column("model"), Column("key"), *(Column(title, "right") for title in right)]
    emit_table(
        [*columns, Column("because", prose=True)],
        [_cells(cap) for cap in caps],
        caption="Tokens of whole answers. reserves, lasts at most: one answer's dollars and"
        " seconds under the cap now > under the suggested one. Nothing is applied.",
        names=2,
    )
    for cap in caps:
        if cap.key_id is None and cap.model in config.models and cap.suggested is not None:
            click.echo("")
            click.echo(_line(cap), nl=False)


def _caps(config: Config, data: Path | None, last: str) -> list[Cap]:
    from lightgate.ledger.store.keys import read_keys
    from lightgate.ledger.store.lengths import answer_lengths
    from lightgate.report.tables.caps import TokenLimits, suggest

    with locate(config if data is None else None, data).open_existing() as ledger:
        lengths = answer_lengths(ledger, _length(last), datetime.now(UTC))
        with ledger.reading() as connection:
            keys = read_keys(connection)
    limits = TokenLimits(
        models={
            name: table.max_tokens for name, table in config.models.items() if table.max_tokens
        },
        keys={key.id: key.max_tokens for key in keys if key.max_tokens},
    )
    return suggest(lengths, limits, _prices(config, {t for row in lengths for t in row.targets}))


def _prices(config: Config, targets: set[str]) -> dict[str, Decimal]:
    """Dollars per million answer tokens of these targets, where they are known."""
    from lightgate.provider.target import rates_at

    at = datetime.now(UTC)
    rates = {target: rates_at(target, config, at) for target in targets}
    return {
        target: found.output
        for target, found in rates.items()
        if found is not None and found.output is not None
    }


def _length(last: str) -> timedelta:
    try:
        return timedelta(microseconds=parse_duration(last) // _NS_PER_US)
    except (ValueError, OverflowError):
        raise UsageError(f"--last {last!r} is no duration.", hint="Such as 7d or 24h.") from None


def _facts(cap: Cap) -> dict[str, Any]:
    line = None if cap.suggested is None or cap.key_id is not None else _line(cap)
    return msgspec.structs.asdict(cap) | {"config": line}


def _line(cap: Cap) -> str:
    return table_text(("models", cap.model), {"max_tokens": cap.suggested})


def _cells(cap: Cap) -> tuple[str, ...]:
    return (
        cap.model,
        cap.key_id or "all",
        f"{cap.n:,}",
        str(cap.p50),
        str(cap.p99),
        str(cap.longest),
        f"{100 * cap.cut_share:.1f} %",
        _NONE if cap.cap is None else str(cap.cap),
        _NONE if cap.suggested is None else str(cap.suggested),
        _change(_usd(cap.reserved_now_usd), _usd(cap.reserved_usd)),
        _change(_seconds(cap.worst_now_s), _seconds(cap.worst_s)),
        cap.because,
    )


def _change(now: str | None, then: str | None) -> str:
    return _NOTHING if now is None and then is None else f"{now or _NOTHING} > {then or _NOTHING}"


def _usd(amount: Decimal | None) -> str | None:
    return None if amount is None else f"${dollars(amount)}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"
