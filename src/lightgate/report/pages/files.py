"""The files of a report, beside the run: report.html, summary.csv, the charts as SVG and PNG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.ledger.runs.folder import DiskFailed
from lightgate.report.charts.charts import PANEL, cost_map, degradation, distributions
from lightgate.report.charts.raster import png
from lightgate.report.charts.strips import strips
from lightgate.report.charts.svg import legend, row
from lightgate.report.pages.html import page
from lightgate.report.pages.material import read
from lightgate.report.tables.arrange import names, targets
from lightgate.report.tables.summary_csv import summary_csv
from lightgate.whole_file import own_name, put

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.report.charts.svg import Picture
    from lightgate.report.pages.material import Material

HTML: Final = "report.html"
CSV: Final = "summary.csv"


def write_report(folder: RunFolder) -> list[Path]:
    """Write every file that the run has material for; gives their paths."""
    material = read(folder)
    made = {HTML: page(material), CSV: summary_csv(material.run)}
    written = [write_whole(folder.path / name, text.encode()) for name, text in made.items()]
    for name, drawing in charts(material).items():
        written.append(write_whole(folder.path / f"{name}.svg", drawing.file().encode()))
        written.append(write_whole(folder.path / f"{name}.png", png(drawing)))
    return written


def charts(material: Material) -> dict[str, Picture]:
    """Draw the main charts, by name; a chart that has no data is left out."""
    run = material.run
    short = names(run)
    key = [(at, short[target]) for at, target in enumerate(targets(run))]
    curves = degradation(run)
    spreads = distributions(run, material.by_cell)
    found: dict[str, Picture] = {}
    if curves:
        found["degradation"] = row(curves)
    if spreads:
        found["ttft_cdf"] = row(spreads, legend(key, PANEL[0] * len(spreads)))
    prices = cost_map(run)
    if prices is not None:
        found["cost_speed"] = prices
    arrivals = strips(run, material.by_cell, material.recordings)
    found |= {f"arrivals_{at}": one for at, one in enumerate(arrivals, 1)}
    return found


def write_whole(path: Path, content: bytes) -> Path:
    """Replace the file as a whole, so that nobody reads half of it."""
    try:
        put(path, content, mode=0o666, unborn=own_name(path))
    except OSError as error:
        raise DiskFailed(f"{path} cannot be written: {error.strerror}.") from None
    return path
