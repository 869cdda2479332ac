"""The charts of a run: degradation curves, TTFT distributions, cost against speed, whiskers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.load import with_failures
from lightgate.clock.quantile import rank
from lightgate.ledger.runs.doubt import quantile_name
from lightgate.report.charts.svg import (
    CHAR_PX,
    LINE_PX,
    Picture,
    Scale,
    colour,
    dash,
    element,
    end_labels,
    escape,
    label,
    left_of,
    log_scale,
    marker,
    path,
    plot,
)
from lightgate.report.tables.arrange import amount, cell_of, headline, loads, names, targets
from lightgate.report.tables.figures import (
    DEFINITIONS,
    dollars,
    explain,
    milliseconds,
    number,
    percent,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.run import CellSummary, Estimate, Run

PANEL: Final = (372.0, 268.0)
WIDE: Final = (760.0, 330.0)
WHISKER: Final = (190.0, 22.0)
NAME: Final = 17  # characters of a target's name in a chart
_POINTS: Final = 160  # of one distribution curve


class ChartPoint(NamedTuple):
    """One target under one load on a chart."""

    series: int
    name: str
    x: float
    y: float
    title: str


def degradation(run: Run) -> list[Picture]:
    """Draw TTFT p50, TTFT p95 and speed p50 over the load; None where the run has only one load."""
    cells = _comparable(run)
    if not cells:
        return []
    metric = headline(cells[0])
    wanted = ((metric, 0.5), (metric, 0.95), ("speed_tps", 0.5))
    panels = [_degradation(run, cells, name, q) for name, q in wanted]
    return [panel for panel in panels if panel is not None]


def _comparable(run: Run) -> list[CellSummary]:
    """Return the cells of one kind of load, concurrency or else rate, if there are two loads."""
    short = names(run)
    closed = [c for c in run.cells if c.target in short and c.concurrency is not None]
    scheduled = [c for c in run.cells if c.target in short and c.concurrency is None and c.rate]
    for cells in (closed, scheduled):
        if len({amount(cell) for cell in cells}) > 1:
            return cells
    return []


def _degradation(run: Run, cells: list[CellSummary], metric: str, q: float) -> Picture | None:
    short = names(run)
    made = []
    for series, target in enumerate(targets(run)):
        mine = sorted((c for c in cells if c.target == target), key=lambda c: amount(c) or 0.0)
        found = [(amount(cell) or 0.0, cell, cell.estimate(metric, q)) for cell in mine]
        kept = [(x, cell, one) for x, cell, one in found if one and one.value and x > 0]
        if kept:
            made.append((series, shorten(short[target], NAME), kept))
    if not made:
        return None
    ends = [end for _, _, kept in made for _, _, one in kept for end in _ends(one)]
    xs = sorted({x for _, _, kept in made for x, _, _ in kept})
    room = max(len(name) for _, name, _ in made) * CHAR_PX + 26
    width, height = PANEL
    y = log_scale(ends, height - 42, 28.0)
    x = Scale(xs[0], xs[-1], left_of(y), width - room, log=True)
    lines = "".join(_curve(series, name, kept, metric, x, y) for series, name, kept in made)
    tips = [(series, name, y(kept[-1][2].value or 0.0)) for series, name, kept in made]
    named = end_labels(tips, x.stop + 4, 30.0, height - 44)
    unit = "tok/s" if metric.endswith("_tps") else "ms"
    title = f"{DEFINITIONS[metric].title} {quantile_name(q, metric)}, {unit}"
    what = "requests in flight" if cells[0].concurrency is not None else "requests per second"
    return plot(PANEL, x, y, (title, what)).draw(lines + named, xs)


def _ends(one: Estimate) -> list[float]:
    ends = [one.value or 0.0]
    if one.interval is not None:
        ends += [one.interval.low, one.interval.high]
    return [end for end in ends if end > 0 and math.isfinite(end)]


def _curve(
    series: int,
    name: str,
    kept: Sequence[tuple[float, CellSummary, Estimate]],
    metric: str,
    x: Scale,
    y: Scale,
) -> str:
    points = [(x(load), y(one.value or 0.0)) for load, _, one in kept]
    line = element(
        "path", d=path(points), class_=f"l {colour(series)}", stroke_dasharray=dash(series)
    )
    parts = [line]
    for (load, cell, one), (px, py) in zip(kept, points, strict=True):
        if one.interval is not None:
            beside = x(load) + _aside(series)
            ends = [(beside, y(one.interval.low)), (beside, y(one.interval.high))]
            parts.append(element("path", d=path(ends), class_=f"w {colour(series)}"))
        parts.append(marker(series, px, py, f"{name} at {cell.load}. {explain(one, metric)}"))
    return "".join(parts)


def _aside(series: int) -> float:
    """Return how far an interval is drawn beside its point, so that intervals do not overlap."""
    return (series % 5 - 2) * 1.2


def distributions(
    run: Run, by_cell: Mapping[tuple[str, str], Sequence[AttemptRecord]]
) -> list[Picture]:
    """Draw how the TTFT of each target is spread, one panel per load; failures never arrive."""
    short = names(run)
    panels: list[tuple[str, str, list[tuple[int, str, list[float]]]]] = []
    for load in loads(run):
        made, metric = [], "ttft_ms"
        for series, target in enumerate(targets(run)):
            cell = cell_of(run, target, load)
            attempts = by_cell.get((target, load), ())
            if cell is None or not attempts:
                continue
            metric = headline(cell)
            values = with_failures(list(attempts), _getter(metric))
            if any(math.isfinite(value) for value in values):
                made.append((series, short[target], sorted(values)))
        if made:
            panels.append((load, metric, made))
    finite = [v for _, _, made in panels for _, _, row in made for v in row if 0 < v < math.inf]
    if not finite:
        return []
    x = log_scale(finite, 46.0, PANEL[0] - 14, air=0.02)
    return [_distribution(load, metric, made, x) for load, metric, made in panels]


def _getter(metric: str) -> Callable[[AttemptRecord], float | None]:
    return lambda attempt: attempt.ttft_plan_ms if metric == "ttft_plan_ms" else attempt.ttft_ms


def _distribution(
    load: str, metric: str, made: list[tuple[int, str, list[float]]], x: Scale
) -> Picture:
    y = Scale(0.0, 100.0, PANEL[1] - 42, 28.0)
    parts = []
    for series, name, row in made:
        points = [(x(at), y(share * 100)) for at, share in _steps(row)]
        title = element("title", escape(_spread_of(name, row)))
        drawn = path(points, step=True)
        kind = colour(series)
        parts.append(element("path", d=drawn, class_=f"l {kind}", stroke_dasharray=dash(series)))
        parts.append(element("path", title, d=drawn, class_="hit"))
        parts += [
            marker(series, x(row[rank(len(row), q) - 1]), y(q * 100), _spread_of(name, row))
            for q in (0.5,)
            if math.isfinite(row[rank(len(row), q) - 1])
        ]
    sizes = sorted({len(row) for _, _, row in made})
    counted = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    titles = (
        f"{load}: share of requests, %",
        f"{DEFINITIONS[metric].title}, ms (n = {counted})",
    )
    return plot(PANEL, x, y, titles).draw("".join(parts))


def _steps(row: list[float]) -> list[tuple[float, float]]:
    """Return the steps of a distribution, thinned evenly; failed requests lie beyond its end."""
    n = len(row)
    finite = [at for at in range(n) if math.isfinite(row[at])]
    every = max(1, len(finite) // _POINTS)
    kept = sorted({*finite[::every], finite[-1]})
    return [(row[kept[0]], 0.0), *((row[at], (at + 1) / n) for at in kept)]


def _spread_of(name: str, row: list[float]) -> str:
    failed = sum(not math.isfinite(one) for one in row)
    middle = row[rank(len(row), 0.5) - 1]
    lost = (
        f"; {failed:,} failed ({percent(failed / len(row), digits=1)}) and never arrive"
        if failed
        else ""
    )
    return f"{name}: half within {milliseconds(middle)}, n = {len(row):,}{lost}"


def cost_map(run: Run) -> Picture | None:
    """Draw speed p50 against dollars per million output tokens; lighter loads are hollow."""
    points = _cost_points(run)
    if not points:
        return None
    width, height = WIDE
    y = log_scale([point.y for point, _ in points], height - 42, 28.0, air=0.1)
    x = log_scale([point.x for point, _ in points], left_of(y), width - 24, air=0.14)
    heavy = [point for point, filled in points if filled]
    parts = []
    for series in sorted({point.series for point, _ in points}):
        mine = [(x(p.x), y(p.y)) for p, _ in points if p.series == series]
        parts.append(
            element("path", d=path(mine), class_=f"w {colour(series)}", stroke_dasharray="2 3")
        )
    for point, filled in points:
        drawn = marker(point.series, x(point.x), y(point.y), point.title, size=5 if filled else 3.4)
        parts.append(drawn if filled else drawn.replace('class="m ', 'class="m hollow ', 1))
    parts.append(_beside([(x(p.x), y(p.y)) for p, _ in points], heavy, x, y))
    better = label(x.start + 6, 42, "↖ faster and cheaper", class_="t")
    titles = ("speed p50, tok/s", "dollars per 1,000 requests of this workload")
    return plot(WIDE, x, y, titles).draw(better + "".join(parts))


def _cost_points(run: Run) -> list[tuple[ChartPoint, bool]]:
    short = names(run)
    order = loads(run)
    made = []
    for series, target in enumerate(targets(run)):
        mine = [cell_of(run, target, load) for load in order]
        kept = []
        for cell in mine:
            speed = None if cell is None else cell.value("speed_tps", 0.5)
            if cell is None or not speed or not cell.cost.per_1k:
                continue
            price = cell.cost.per_1k
            title = (
                f"{short[target]} at {cell.load}: {number(speed)} tok/s, {dollars(price)} "
                f"per 1,000 requests, n = {cell.requests:,}"
            )
            kept.append(
                ChartPoint(series, shorten(short[target], NAME), float(price), speed, title)
            )
        made += [(point, point is kept[-1]) for point in kept]
    return made


def _beside(taken: list[tuple[float, float]], heavy: list[ChartPoint], x: Scale, y: Scale) -> str:
    """Place names beside their points, on the first side where nothing is in the way."""
    boxes = [(px - 5, py - 5, px + 5, py + 5) for px, py in taken]
    parts = []
    for point in heavy:
        px, py, room = x(point.x), y(point.y), len(point.name) * CHAR_PX
        sides = [
            (px + 9, py + 4),
            (px - 9 - room, py + 4),
            (px - room / 2, py + 19),
            (px - room / 2, py - 9),
        ]
        sides += [(px + 9, py + 4 + off * LINE_PX) for off in (1, -1, 2, -2)]
        left, base = next((side for side in sides if _free(side, room, boxes, x)), sides[0])
        boxes.append((left, base - 10, left + room, base + 3))
        parts.append(label(left, base, point.name, class_=f"n {colour(point.series)}"))
    return "".join(parts)


def _free(
    side: tuple[float, float],
    room: float,
    boxes: list[tuple[float, float, float, float]],
    x: Scale,
) -> bool:
    left, top, right, bottom = side[0], side[1] - 10, side[0] + room, side[1] + 3
    if left < x.start or right > x.stop + 22:
        return False
    return all(right < a or left > c or bottom < b or top > d for a, b, c, d in boxes)


def whisker(series: int, cell: CellSummary, metric: str, x: Scale) -> str:
    """Draw the median, its interval and p95 on a scale that all rows of a table share."""
    width, height = WHISKER
    middle, tail = cell.estimate(metric, 0.5), cell.value(metric, 0.95)
    if middle is None or middle.value is None:
        return ""
    y = height / 2
    parts = [element("path", d=path([(x.start, y), (x.stop, y)]), class_="grid")]
    if tail is not None and math.isfinite(tail):
        line = path([(x(middle.value), y), (x(tail), y)])
        end = f"M{x(tail):.1f} {y - 4:.1f}v8"
        parts.append(element("path", d=line + end, class_=f"w {colour(series)}"))
    if middle.interval is not None:
        low, high = x(middle.interval.low), x(middle.interval.high)
        parts.append(
            element(
                "rect",
                x=low,
                y=y - 4,
                width=max(high - low, 1.0),
                height=8.0,
                rx=2,
                class_=f"band {colour(series)}",
            )
        )
    parts.append(marker(series, x(middle.value), y, size=3.6))
    return Picture(width, height, "".join(parts), explain(middle, metric)).svg()


def whisker_scale(cells: Sequence[CellSummary], metric: str) -> Scale | None:
    """Return one scale for all whiskers of a table."""
    ends = [
        end
        for cell in cells
        for q in (0.5, 0.95)
        if (one := cell.estimate(metric, q)) is not None and one.value is not None
        for end in _ends(one)
    ]
    return log_scale(ends, 6.0, WHISKER[0] - 6) if ends else None
