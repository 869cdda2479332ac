"""The chart of the speed report: a bar a group in its grade's colour, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.load import BANDS
from lightgate.report.charts.svg import CHAR_PX, Picture, Scale, element, escape, label
from lightgate.report.charts.ticks import linear_ticks
from lightgate.report.tables.figures import DOT, bounds, clean, number, shorten, tick
from lightgate.report.tables.speed_report import band_of, grade_of

if TYPE_CHECKING:
    from lightgate.ledger.store.queries import SpeedRow
    from lightgate.report.tables.speed_report import SpeedReport

WIDTH: Final = 760.0
MOST: Final = 40  # bars; a longer list is a table's matter
_NAME: Final = 34  # characters
_ROW_PX: Final = 26.0
_BAR_PX: Final = 14.0
_TOP: Final = 46.0
_RIGHT: Final = 150.0  # for the figures beside the bars


def speed_chart(report: SpeedReport) -> Picture | None:
    """Draw the groups that have enough requests; None where none of them has a speed."""
    rows = [row for row in report.rows if row.speed_total_p50 is not None][:MOST]
    if not rows:
        return None
    names = [shorten(clean(row.name), _NAME) for row in rows]
    left = max(map(len, names)) * CHAR_PX + 12
    x = Scale(0.0, max(map(_end, rows)), left, WIDTH - _RIGHT)
    below = _TOP + len(rows) * _ROW_PX
    parts = [
        label(0, 13, f"total speed p50 by {report.asked.by}, tok/s", class_="h"),
        _floors(x, below),
    ]
    for at, (row, name) in enumerate(zip(rows, names, strict=True)):
        parts.append(_bar(row, name, x, _TOP + at * _ROW_PX + _ROW_PX / 2))
    parts.append(_axis(x, below))
    left_out = len(report.rows) - len(rows)
    more = f"; {left_out} more are not drawn" if left_out else ""
    foot = (
        f"{report.asked.since[:10]} to {report.asked.until[:10]}; tokens over the whole time of "
        f"successful requests; whiskers: 95 % interval{more}"
    )
    parts.append(label(0, below + 42, foot, class_="t"))
    return Picture(WIDTH, below + 50, "".join(parts), f"Speed by {report.asked.by}")


def _end(row: SpeedRow) -> float:
    high = 1.0 if row.speed_total_interval is None else row.speed_total_interval.high
    return max(row.speed_total_p50 or 0.0, high, 1.0)


def _bar(row: SpeedRow, name: str, x: Scale, y: float) -> str:
    middle = row.speed_total_p50 or 0.0
    said = f"{number(middle)} tok/s {bounds(row.speed_total_interval)}".rstrip()
    judged = grade_of(row)
    graded = "" if judged is None else f", grade {judged}"
    title = element("title", escape(f"{clean(row.name)}: {said}{graded}, n = {row.successes:,}"))
    parts = [
        label(x.start - 8, y + 4, name, class_="strong", text_anchor="end"),
        element(
            "rect",
            title,
            x=x.start,
            y=y - _BAR_PX / 2,
            width=max(x(middle) - x.start, 1.0),
            height=_BAR_PX,
            rx=2,
            class_=f"bar g{band_of(row)}",
        ),
    ]
    tip = x(middle)
    if row.speed_total_interval is not None:
        low, high = x(row.speed_total_interval.low), x(row.speed_total_interval.high)
        reach = f"M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8"
        parts.append(element("path", d=reach, class_="reach"))
        tip = max(tip, high)
    parts.append(label(tip + 8, y + 4, number(middle), class_="strong tag"))
    figures = f"grade {judged or DOT} · n {row.successes:,}"
    parts.append(label(WIDTH, y + 4, figures, class_="t", text_anchor="end"))
    return "".join(parts)


def _floors(x: Scale, below: float) -> str:
    """Draw the limits between grades, and the number of each grade between them."""
    parts = []
    ceiling = x.high
    for grade, floor in BANDS:
        if floor >= x.high:
            continue
        if floor > 0:
            line = f"M{x(floor):.1f} {_TOP - 6:.1f}V{below:.1f}"
            parts.append(element("path", d=line, class_="floor"))
        if x(ceiling) - x(floor) > 3 * CHAR_PX:
            middle = (x(floor) + x(ceiling)) / 2
            parts.append(
                label(middle, _TOP - 10, str(grade), class_=f"n g{grade}", text_anchor="middle")
            )
        ceiling = floor
    parts.append(label(x.start - 8, _TOP - 10, "grade", class_="t", text_anchor="end"))
    return "".join(parts)


def _axis(x: Scale, y: float) -> str:
    line = element("path", d=f"M{x.start:.1f} {y:.1f}H{x.stop:.1f}", class_="axis")
    return line + "".join(
        element("path", d=f"M{x(at):.1f} {y:.1f}v4", class_="axis")
        + label(x(at), y + 16, tick(at), class_="t", text_anchor="middle")
        for at in linear_ticks(0.0, x.high, 6)
    )
