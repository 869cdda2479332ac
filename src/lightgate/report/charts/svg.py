"""Pieces of SVG: elements with escaped text, scales, plots with axes, markers of many shapes.

Colours are CSS classes (`s0` to `s7` for the targets), so that a page can follow the reader's light
or dark mode; `Picture.file` puts the style sheet into the file.
"""

from __future__ import annotations

import html
import math
from importlib import resources
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.report.charts.ticks import linear_ticks, log_ticks, spread
from lightgate.report.tables.figures import tick

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SERIES: Final = 8  # colours; further targets begin again with another dash
CHAR_PX: Final = 7.0  # width of a character of a chart's text, rather too wide than too narrow
_MARGIN: Final = 14  # around a drawing in a file of its own
LINE_PX: Final = 14  # height of a line of it
_SHAPES: Final = {"circle", "path", "rect"}  # may close themselves, in HTML as in XML
_DASHES: Final = ("", "6 3", "2 3", "9 3 2 3")


def escape(text: str) -> str:
    """Escape text for markup and attribute values; characters that XML forbids are replaced."""
    fine = "".join(char if _allowed(char) else "\N{REPLACEMENT CHARACTER}" for char in text)
    return html.escape(fine, quote=True)


def element(tag: str, content: str = "", **attributes: object) -> str:
    """Write one element; `content` is markup, attribute values are escaped, None leaves one out.

    `class_` is class, and an underscore in a name is a hyphen.
    """
    made = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if not content and tag in _SHAPES:
        return f"<{tag}{made}/>"
    return f"<{tag}{made}>{content}</{tag}>"


def label(x: float, y: float, text: str, **attributes: object) -> str:
    """Write text at a place."""
    return element("text", escape(text), x=x, y=y, **attributes)


def path(points: Iterable[tuple[float, float]], *, step: bool = False) -> str:
    """Return the `d` of a line through the points; with `step` it goes across, then up."""
    parts: list[str] = []
    for x, y in points:
        if not parts:
            parts.append(f"M{_plain(x)} {_plain(y)}")
        elif step:
            parts.append(f"H{_plain(x)}V{_plain(y)}")
        else:
            parts.append(f"L{_plain(x)} {_plain(y)}")
    return "".join(parts)


def colour(at: int) -> str:
    """Return the colour class of the at-th target."""
    return f"s{at % SERIES}"


def dash(at: int) -> str | None:
    """Return the dash of the at-th target: solid for the first eight."""
    return _DASHES[at // SERIES % len(_DASHES)] or None


def marker(at: int, x: float, y: float, title: str = "", *, size: float = 4.2) -> str:
    """Draw the marker of the at-th target; shapes differ as well, so that colour is not needed."""
    inner = element("title", escape(title)) if title else ""
    kind = f"m {colour(at)}"
    turn = at % 5
    if turn == 0:
        return element("circle", inner, cx=x, cy=y, r=size, class_=kind)
    if turn == 1:
        side = size * 1.75
        return element(
            "rect", inner, x=x - side / 2, y=y - side / 2, width=side, height=side, class_=kind
        )
    corners = {
        2: ((0, -1.25), (1.15, 0.85), (-1.15, 0.85)),
        3: ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
        4: ((0, 1.25), (1.15, -0.85), (-1.15, -0.85)),
    }[turn]
    outline = path((x + dx * size, y + dy * size) for dx, dy in corners) + "Z"
    return element("path", inner, d=outline, class_=kind)


class Scale(msgspec.Struct, frozen=True):
    """A scale turns a value into a pixel."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; a value outside the range gets the nearer end."""
        if self.high <= self.low:
            return (self.start + self.stop) / 2
        at = min(max(value, self.low), self.high)
        share = (
            math.log(at / self.low) / math.log(self.high / self.low)
            if self.log
            else (at - self.low) / (self.high - self.low)
        )
        return self.start + share * (self.stop - self.start)

    def ticks(self, most: int) -> list[float]:
        """Return round values along the scale."""
        return (log_ticks if self.log else linear_ticks)(self.low, self.high, most)


def log_scale(values: Sequence[float], start: float, stop: float, *, air: float = 0.05) -> Scale:
    """Make a logarithmic scale around positive values, a little wider than they are."""
    low, high = min(values), max(values)
    room = max(math.log(high / low) * air, 0.02)
    return Scale(low * math.exp(-room), high * math.exp(room), start, stop, log=True)


class Picture(msgspec.Struct, frozen=True):
    """A drawing and its size in pixels; `content` is markup."""

    width: float
    height: float
    content: str
    description: str

    def svg(self, **place: object) -> str:
        """Write one `svg` element that scales with its place in a page or in another drawing."""
        return element(
            "svg",
            self.content,
            **place,
            viewBox=f"0 0 {_plain(self.width)} {_plain(self.height)}",
            width=self.width,
            height=self.height,
            role="img",
            aria_label=self.description,
            class_="chart",
        )

    def file(self, *, style: str | None = None) -> str:
        """Write an SVG file: the drawing with its own style sheet, a background and a margin."""
        sheet = element("style", stylesheet("chart.css") if style is None else style)
        width, height = self.width + 2 * _MARGIN, self.height + 2 * _MARGIN
        ground = element("rect", width=width, height=height, class_="ground")
        inner = element("g", self.content, transform=f"translate({_MARGIN} {_MARGIN})")
        opened = Picture(width, height, sheet + ground + inner, self.description)
        return opened.svg(xmlns="http://www.w3.org/2000/svg") + "\n"


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """The frame of one chart; pixels from the top left."""

    width: float
    height: float
    x: Scale
    y: Scale
    title: str
    x_title: str

    def draw(self, content: str, x_ticks: Sequence[float] | None = None) -> Picture:
        """Draw the chart: title, grid, axes, content."""
        across = self.x.ticks(6) if x_ticks is None else _roomy(x_ticks, self.x)
        grid = "".join(self._level(at) for at in self.y.ticks(6))
        below = self.y.start
        marks = "".join(
            element("path", d=f"M{_plain(self.x(at))} {_plain(below)}v4", class_="axis")
            + label(self.x(at), below + 16, tick(at), class_="t", text_anchor="middle")
            for at in across
        )
        axis = element(
            "path",
            d=f"M{_plain(self.x.start)} {_plain(below)}H{_plain(self.x.stop)}",
            class_="axis",
        )
        head = label(0, 13, self.title, class_="h")
        middle = (self.x.start + self.x.stop) / 2
        foot = label(middle, below + 32, self.x_title, class_="t", text_anchor="middle")
        drawn = head + grid + axis + marks + foot + content
        return Picture(self.width, self.height, drawn, self.title)

    def _level(self, at: float) -> str:
        y = self.y(at)
        line = f"M{_plain(self.x.start)} {_plain(y)}H{_plain(self.x.stop)}"
        text = label(self.x.start - 6, y + 4, tick(at), class_="t", text_anchor="end")
        return element("path", d=line, class_="grid") + text


def left_of(y: Scale) -> float:
    """Return the first pixel of a chart's plot that leaves room for the figures of its y axis."""
    return max(46.0, 14.0 + CHAR_PX * max(len(tick(at)) for at in y.ticks(6)))


def plot(size: tuple[float, float], x: Scale, y: Scale, titles: tuple[str, str]) -> Plot:
    """Make a frame of a size; `titles` are those of the chart and of its horizontal axis."""
    return Plot(width=size[0], height=size[1], x=x, y=y, title=titles[0], x_title=titles[1])


def end_labels(wanted: Sequence[tuple[int, str, float]], x: float, low: float, high: float) -> str:
    """Write names beside the ends of lines (series, name, y), moved apart where they touch."""
    places = spread([y for _, _, y in wanted], LINE_PX, low, high)
    return "".join(
        element("path", d=path([(x + 2, y), (x + 10, at)]), class_="lead")
        + label(x + 13, at + 4, name, class_=f"n {colour(series)}")
        for (series, name, y), at in zip(wanted, places, strict=True)
    )


def legend(entries: Sequence[tuple[int, str]], width: float) -> tuple[str, float]:
    """Draw markers with names in rows; return them and the height that they take."""
    x, y, parts = 6.0, 12.0, []
    for at, name in entries:
        room = 24 + len(name) * CHAR_PX
        if x + room > width and x > 6:
            x, y = 6.0, y + LINE_PX + 4
        parts.append(marker(at, x, y - 4) + label(x + 11, y, name, class_="t"))
        x += room
    return "".join(parts), y + 10


def row(pictures: Sequence[Picture], key: tuple[str, float] = ("", 0.0)) -> Picture:
    """Put pictures side by side into one, with a legend above."""
    drawn, top = key
    parts, x = [drawn], 0.0
    for one in pictures:
        parts.append(one.svg(x=x, y=top))
        x += one.width
    height = max(one.height for one in pictures)
    described = "; ".join(one.description for one in pictures)
    return Picture(x, height + top, "".join(parts), described)


def stylesheet(name: str) -> str:
    """Read one of the style sheets that are shipped."""
    return resources.files("lightgate.report").joinpath("assets", name).read_text("utf-8")


def _roomy(wanted: Sequence[float], scale: Scale) -> list[float]:
    """Keep the marks whose labels do not touch; the last one always stays."""
    kept: list[float] = []
    for at in sorted(wanted, reverse=True):
        need = (len(tick(at)) + 1) * CHAR_PX
        if not kept or abs(scale(kept[-1]) - scale(at)) >= need:
            kept.append(at)
    return kept[::-1]


def _allowed(char: str) -> bool:
    code = ord(char)
    return (
        char in "\t\n\r"
        or 0x20 <= code < 0x7F
        or 0xA0 <= code < 0xD800
        or 0xE000 <= code < 0xFFFE
        or code > 0xFFFF
    )


def _plain(value: object) -> str:
    """Write a number of pixels with at most one digit after the point; other values as they are."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)
