"""What a request costs on a machine of one's own, by how much the machine is used, and at APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.report.charts.charts import NAME, WIDE
from lightgate.report.charts.svg import (
    CHAR_PX,
    Scale,
    colour,
    element,
    end_labels,
    escape,
    left_of,
    log_scale,
    marker,
    path,
    plot,
)
from lightgate.report.tables.arrange import names, targets
from lightgate.report.tables.figures import dollars, percent, shorten

if TYPE_CHECKING:
    from lightgate.ledger.runs.run import BreakEven, Run
    from lightgate.report.charts.svg import Picture

LEAST_USE: Final = 0.01
_TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def use_charts(run: Run) -> list[Picture]:
    """Draw a chart for each machine: what it costs falls with its use, an API's cost does not."""
    known = [row for row in run.break_even if row.hosted_per_1k and row.api_per_1k]
    machines = dict.fromkeys(row.hosted for row in known)
    return [_chart(run, [row for row in known if row.hosted == name]) for name in machines]


def _chart(run: Run, rows: list[BreakEven]) -> Picture:
    short, order = names(run), targets(run)
    own = rows[0]
    full = float(own.hosted_per_1k or 0)
    flat = {row.api: float(row.api_per_1k or 0) for row in rows}
    named = {name: shorten(short.get(name, name), NAME) for name in (own.hosted, *flat)}
    width, height = WIDE
    room = max(map(len, named.values())) * CHAR_PX + 26
    y = log_scale([full, full / LEAST_USE, *flat.values()], height - 42, 28.0)
    x = Scale(LEAST_USE, 1.0, left_of(y), width - room, log=True)
    at = {name: order.index(name) for name in named if name in order}
    falling = [(x(use), y(full / use)) for use in _TICKS]
    parts = [element("path", d=path(falling), class_=f"l {colour(at[own.hosted])}")]
    for row in rows:
        name, price = row.api, flat[row.api]
        line = [(x.start, y(price)), (x.stop, y(price))]
        title = element(
            "title", escape(f"{named[name]}: {dollars(row.api_per_1k)} per 1,000 requests")
        )
        parts.append(element("path", title, d=path(line), class_=f"l {colour(at[name])}"))
    for row in rows:
        if row.utilisation is not None and row.utilisation >= LEAST_USE:
            told = f"cheaper than {named[row.api]} from {percent(row.utilisation)} of its use"
            parts.append(marker(at[row.api], x(row.utilisation), y(flat[row.api]), told, size=5.0))
    tips = [(at[name], named[name], y(price)) for name, price in flat.items()]
    tips.append((at[own.hosted], named[own.hosted], y(full)))
    ends = end_labels(tips, x.stop + 4, 30.0, height - 44)
    titles = (
        f"dollars per 1,000 requests: {named[own.hosted]} at {own.load} by its use, and APIs",
        "share of the machine's capacity that is used",
    )
    return plot(WIDE, x, y, titles).draw("".join(parts) + ends, list(_TICKS))
