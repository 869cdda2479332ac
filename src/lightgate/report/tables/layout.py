"""The layout of every table in the terminal: columns side by side, two spaces apart.

A table that is wider than the terminal is printed in several parts, one under the other, and each
part begins with the first column. Words and names are never broken: only a column of prose is
folded, at its spaces.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH: Final = 4_000  # so wide that a table in a file or a pipe is never folded
GAP: Final = 2  # between two columns
NARROWEST_PROSE: Final = 32  # characters; with less room, prose goes into a part of its own


class TextColumn(NamedTuple):
    """A heading and its cells; numbers go right, prose may be folded."""

    title: str
    cells: tuple[str, ...]
    right: bool = True
    prose: bool = False

    @property
    def width(self) -> int:
        """The characters that the column takes where nothing is folded."""
        from rich.cells import cell_len

        return max(cell_len(text) for text in (self.title, *self.cells))

    @property
    def least(self) -> int:
        """The fewest characters that the column can do with."""
        return min(self.width, NARROWEST_PROSE) if self.prose else self.width


def fit(groups: Sequence[Sequence[TextColumn]], width: int) -> Iterator[list[TextColumn]]:
    """Put groups of columns side by side while they fit; the first group begins each part."""
    names_of, *others = groups
    together = list(names_of)
    for group in others:
        if len(together) > len(names_of) and _least([*together, *group]) > width:
            yield _folded(together, width)
            together = list(names_of)
        together += group
    yield _folded(together, width)


def table(columns: Sequence[TextColumn]) -> Text:
    """Columns side by side as one text, the headings in bold."""
    from rich.cells import cell_len
    from rich.text import Text

    widths = [column.width for column in columns]

    def line(cells: Sequence[str]) -> str:
        shown = []
        for column, width, cell in zip(columns, widths, cells, strict=True):
            space = " " * (width - cell_len(cell))
            shown.append(f"{space}{cell}" if column.right else f"{cell}{space}")
        return (" " * GAP).join(shown).rstrip()

    head = Text(line([column.title for column in columns]), style="bold")
    rows = zip(*(column.cells for column in columns), strict=True)
    return Text("\n").join((head, *(Text(line(cells)) for cells in rows)))


def print_columns(groups: Sequence[Sequence[TextColumn]], console: Console) -> None:
    """Print a table in as few parts as the console's width allows."""
    for part in fit(groups, console.width):
        # A name that is wider than the terminal is left to the terminal, which can copy it whole.
        console.print(table(part), soft_wrap=True)


def _least(columns: Sequence[TextColumn]) -> int:
    return sum(column.least + GAP for column in columns) - GAP


def _folded(columns: list[TextColumn], width: int) -> list[TextColumn]:
    """The columns of one part, with prose folded so that the part is not wider than `width`."""
    spare = width - sum(column.width + GAP for column in columns) + GAP
    if spare >= 0 or not any(column.prose for column in columns):
        return columns
    fixed = sum((0 if column.prose else column.width) + GAP for column in columns) - GAP
    room = max((width - fixed) // sum(column.prose for column in columns), NARROWEST_PROSE)
    cells = [
        [_lines(cell, room) if column.prose else [cell] for cell in column.cells]
        for column in columns
    ]
    heights = [max(map(len, row)) for row in zip(*cells, strict=True)]
    return [
        column._replace(
            cells=tuple(
                line
                for lines, height in zip(shown, heights, strict=True)
                for line in (*lines, *[""] * (height - len(lines)))
            )
        )
        for column, shown in zip(columns, cells, strict=True)
    ]


def _lines(cell: str, room: int) -> list[str]:
    return textwrap.wrap(cell, room, break_long_words=False, break_on_hyphens=False) or [""]
