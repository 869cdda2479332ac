"""Output of the verbs: tables for people, JSON for programs, notes on stderr."""

from __future__ import annotations

import io
import shutil
import sys
from decimal import Context
from typing import TYPE_CHECKING, Literal, NamedTuple

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

UNKNOWN = "unknown"
_LONGEST = 8  # digits after the point that a price may have


class Column(NamedTuple):
    """A column's heading and side; numbers go right, prose may be folded on a narrow terminal.

    A column that is `joined` stays beside the one before it where a table is printed in parts.
    """

    title: str
    justify: Literal["left", "right"] = "left"
    prose: bool = False
    joined: bool = False


def emit_json(data: object) -> None:
    """Write one JSON document to stdout; Decimals are numbers, undefined is null."""
    encoded = msgspec.json.Encoder(decimal_format="number").encode(data)
    click.echo(msgspec.json.format(encoded, indent=2).decode())


def emit_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, caption: str = "", names: int = 1
) -> None:
    """Write a table to stdout; only a terminal gets colours, and parts that fit its width.

    The first `names` columns say what a row is about, and begin each part.
    """
    from rich.console import Console
    from rich.text import Text

    from lightgate.report.tables.layout import PIPE_WIDTH, TextColumn, print_columns

    terminal = sys.stdout.isatty()
    page = io.StringIO()
    console = Console(file=sys.stdout if terminal else page, highlight=False)
    if not terminal:
        console.width = PIPE_WIDTH
    listed = list(rows)
    groups: list[list[TextColumn]] = []
    for at, column in enumerate(columns):
        cells = tuple(row[at] for row in listed)
        made = TextColumn(column.title, cells, column.justify == "right", column.prose)
        if column.joined or 0 < at < names:
            groups[-1].append(made)
        else:
            groups.append([made])
    print_columns(groups, console)
    if caption:
        console.print(Text(caption, style="dim"))
    for line in page.getvalue().splitlines():
        click.echo(line.rstrip())


def text_width(most: int) -> int:
    """The characters in a line of prose on stdout: no more than a terminal has."""
    return min(most, shutil.get_terminal_size().columns) if sys.stdout.isatty() else most


def note(text: str) -> None:
    """Write one line of progress or remarks to stderr."""
    click.echo(text, err=True)


def dollars(amount: Decimal | None, unknown: str = UNKNOWN) -> str:
    """Dollars without trailing zeros; `unknown` where the amount is not known."""
    if amount is None:
        return unknown
    whole, point, part = format(amount.normalize(), "f").partition(".")
    if len(part) > _LONGEST:  # such as a third of a cent: six digits say enough
        shorter = amount.normalize(Context(prec=6))
        whole, point, part = format(shorter, "f").partition(".")
    return f"{whole}.{part.ljust(2, '0')}" if point else f"{whole}.00"
