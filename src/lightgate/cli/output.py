"""Output of the verbs: tables for people, JSON for programs, notes on stderr."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

UNKNOWN = "unknown"
# Wide enough that a table that goes into a file or a pipe is never folded.
_PIPE_WIDTH = 4_000


class Column(NamedTuple):
    """A column's heading and side; numbers go right."""

    title: str
    justify: Literal["left", "right"] = "left"


def emit_json(data: object) -> None:
    """Write one JSON document to stdout; Decimals are numbers, undefined is null."""
    encoded = msgspec.json.Encoder(decimal_format="number").encode(data)
    click.echo(msgspec.json.format(encoded, indent=2).decode())


def emit_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, caption: str = ""
) -> None:
    """Write a table to stdout; colours and folding only on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    page = io.StringIO()
    console = Console(file=sys.stdout if terminal else page, highlight=False)
    if not terminal:
        console.width = _PIPE_WIDTH
    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, justify=column.justify, overflow="fold")
    for row in rows:
        # Text, not markup: a model's name may hold square brackets.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    if caption:
        console.print(Text(caption, style="dim"))
    for line in page.getvalue().splitlines():
        click.echo(line.rstrip())


def note(text: str) -> None:
    """Write one line of progress or remarks to stderr."""
    click.echo(text, err=True)


def dollars(amount: Decimal | None) -> str:
    """Dollars without trailing zeros, or "unknown"."""
    if amount is None:
        return UNKNOWN
    text = format(amount.normalize(), "f")
    whole, point, part = text.partition(".")
    return f"{whole}.{part.ljust(2, '0')}" if point else f"{whole}.00"
