"""Degradation curves in the terminal: lines of braille dots, a letter at every measured point.

Both axes are logarithmic. The letter names the target, so the curves can be told apart without
colour.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.ledger.runs.doubt import quantile_name
from lightgate.report.charts.ticks import log_ticks
from lightgate.report.tables.arrange import amount, headline, loads, names, targets
from lightgate.report.tables.figures import DEFINITIONS, shorten, tick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from lightgate.ledger.runs.run import CellSummary, Run

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SEVERAL: Final = "*"  # more than one target has its point here
COLOURS: Final = ("blue", "red", "green", "magenta", "cyan", "yellow", "white", "bright_blue")
_ROWS: Final = 11  # text rows of one plot
_GUTTER: Final = 8  # for the labels of the vertical axis
_NARROWEST: Final = 40
# The bit of each of the 2 x 4 dots of a braille character, by column and row.
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK: Final = 0x2800


class LoadCurve(NamedTuple):
    """One target: its place in the run and its points (load, value), in order of load."""

    at: int
    points: tuple[tuple[float, float], ...]


def curves(run: Run, *, width: int = 80) -> Text | None:
    """Draw TTFT p50, TTFT p95 and speed p50 over the load; None where the run has only one load."""
    from rich.text import Text

    cells = [cell for cell in run.cells if cell.target in names(run)]
    unit = "requests in flight"
    kind = [cell for cell in cells if cell.concurrency is not None]
    if len({amount(cell) for cell in kind}) < 2:
        kind = [cell for cell in cells if cell.concurrency is None and cell.rate]
        unit = "requests per second"
    if len({amount(cell) for cell in kind}) < 2:
        return None
    first = headline(kind[0])
    page = Text()
    for metric, q in ((first, 0.5), (first, 0.95), ("speed_tps", 0.5)):
        made = series(run, kind, metric, q)
        if made:
            scale = "tok/s" if metric.endswith("_tps") else "ms"
            title = f"{DEFINITIONS[metric].title} {quantile_name(q, metric)}, {scale}"
            _plot(page, title, made, max(width, _NARROWEST))
            page.append(f"{'':{_GUTTER}}{unit}\n\n", style="dim")
    if not page.plain:
        return None
    _key(page, run, width)
    return page


def series(run: Run, cells: Sequence[CellSummary], metric: str, q: float) -> list[LoadCurve]:
    """Return one curve per target, made of the points whose number exists."""
    order = {load: at for at, load in enumerate(loads(run))}
    made = []
    for at, target in enumerate(targets(run)):
        mine = sorted((c for c in cells if c.target == target), key=lambda c: order[c.load])
        points = [(amount(cell), cell.value(metric, q)) for cell in mine]
        kept = tuple((x, y) for x, y in points if x and y and math.isfinite(y))
        if kept:
            made.append(LoadCurve(at, kept))
    return made


def _plot(page: Text, title: str, made: list[LoadCurve], width: int) -> None:
    columns = width - _GUTTER - 2
    xs = sorted({x for curve in made for x, _ in curve.points})
    ys = [y for curve in made for _, y in curve.points]
    low, high = _padded(min(ys), max(ys))
    canvas = _Canvas(columns, (xs[0], max(xs[-1], xs[0] * 1.01)), (low, high))
    for curve in made:
        canvas.line(curve)
    for curve in made:
        canvas.letter(curve)
    labels = {canvas.row(at): tick(at) for at in log_ticks(low, high, most=5)}
    page.append(f"{'':{_GUTTER}}{title}\n", style="bold")
    for row in range(_ROWS):
        label = labels.get(row, "")
        page.append(f"{label:>{_GUTTER - 2}} {'┤' if label else '│'}", style="dim")
        for char, owner in canvas.characters(row):
            page.append(char, style=None if owner is None else COLOURS[owner % len(COLOURS)])
        page.append("\n")
    page.append(f"{'':{_GUTTER - 1}}└{'─' * columns}\n", style="dim")
    page.append(f"{'':{_GUTTER}}{_below(canvas, xs)}\n", style="dim")


def _below(canvas: _Canvas, xs: list[float]) -> str:
    """Write the loads under the axis; those that have no room are left out."""
    line = [" "] * (canvas.columns + 1)
    free = 0
    for x in xs:
        text = f"{x:g}"
        start = min(max(canvas.column(x) - len(text) // 2, 0), len(line) - len(text))
        if start >= free:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(line).rstrip()


def _key(page: Text, run: Run, width: int) -> None:
    short = names(run)
    used = 0
    for at, target in enumerate(targets(run)):
        entry = f"{_letter(at)} {shorten(short[target], 28)}"
        if used and used + len(entry) + 3 > width:
            page.append("\n")
            used = 0
        page.append(f"{'   ' if used else ''}")
        page.append(entry, style=COLOURS[at % len(COLOURS)])
        used += len(entry) + 3
    page.append(f"\n{SEVERAL} = more than one here; both axes are logarithmic", style="dim")


def _letter(at: int) -> str:
    return LETTERS[at % len(LETTERS)]


def _padded(low: float, high: float) -> tuple[float, float]:
    """Widen a range a little, so that it is never empty."""
    air = max(math.log(high / low) * 0.06, 0.05)
    return low * math.exp(-air), high * math.exp(air)


class _Canvas:
    """Braille dots over a logarithmic plane; the last curve that touched a character owns it."""

    def __init__(self, columns: int, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.columns = columns
        self._x, self._y = x, y
        self._bits: dict[tuple[int, int], int] = {}
        self._owner: dict[tuple[int, int], int] = {}
        self._letters: dict[tuple[int, int], str] = {}

    def column(self, x: float) -> int:
        return self._dot_x(x) // 2

    def row(self, y: float) -> int:
        return self._dot_y(y) // 4

    def line(self, curve: LoadCurve) -> None:
        dots = [(self._dot_x(x), self._dot_y(y)) for x, y in curve.points]
        for (x0, y0), (x1, y1) in pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self._set(
                    round(x0 + (x1 - x0) * step / steps),
                    round(y0 + (y1 - y0) * step / steps),
                    curve.at,
                )

    def letter(self, curve: LoadCurve) -> None:
        for x, y in curve.points:
            place = (self.column(x), self.row(y))
            self._letters[place] = SEVERAL if place in self._letters else _letter(curve.at)
            self._owner[place] = curve.at

    def characters(self, row: int) -> list[tuple[str, int | None]]:
        places = [(column, row) for column in range(self.columns)]
        return [(self._character(place), self._owner.get(place)) for place in places]

    def _character(self, place: tuple[int, int]) -> str:
        if place in self._letters:
            return self._letters[place]
        bits = self._bits.get(place)
        return " " if bits is None else chr(_BLANK + bits)

    def _dot_x(self, x: float) -> int:
        return round(_share(x, self._x) * (self.columns * 2 - 1))

    def _dot_y(self, y: float) -> int:
        return round((1 - _share(y, self._y)) * (_ROWS * 4 - 1))

    def _set(self, x: int, y: int, owner: int) -> None:
        place = (x // 2, y // 4)
        self._bits[place] = self._bits.get(place, 0) | _DOTS[x % 2][y % 4]
        self._owner[place] = owner


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = span
    return math.log(value / low) / math.log(high / low)
