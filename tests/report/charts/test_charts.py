from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from lightgate.ledger.runs.run import CellSummary, CostFacts, Run
from lightgate.report.charts import charts
from lightgate.report.charts.svg import LINE_PX
from lightgate.report.pages.material import gather
from report.conftest import MODEL, Markup, renamed

if TYPE_CHECKING:
    from lightgate.report.charts.svg import Picture
    from report.conftest import Sample


def named(picture: Picture) -> dict[str, tuple[float, float]]:
    """Where the names of the targets stand."""
    read = Markup(picture.svg())
    places = [
        (float(attributes["x"]), float(attributes["y"]))
        for tag, attributes in read.elements
        if tag == "text" and attributes.get("class", "").startswith("n ")
    ]
    texts = [text for text in read.said("text") if text in set(PROVIDERS)]
    return dict(zip(texts, places, strict=True))


PROVIDERS = ("generalcompute", "groq", "fireworks", "together", "replicate")


def test_three_panels_with_a_label_for_each_target(sample: Sample) -> None:
    panels = charts.degradation(sample.run)
    titles = [panel.description for panel in panels]
    assert titles == ["TTFT p50, ms", "TTFT p95, ms", "speed p50, tok/s"]
    for panel in panels:
        assert set(named(panel)) == set(PROVIDERS)


def test_labels_do_not_touch(sample: Sample) -> None:
    for panel in charts.degradation(sample.run):
        heights = sorted(y for _, y in named(panel).values())
        assert all(b - a >= LINE_PX - 0.11 for a, b in pairwise(heights))
        assert heights[-1] <= panel.height


def test_the_slowest_is_highest_on_the_ttft_panel(sample: Sample) -> None:
    places = named(charts.degradation(sample.run)[0])
    assert places["replicate"][1] < places["groq"][1] < places["generalcompute"][1]


def test_every_point_tells_its_n_and_definition(sample: Sample) -> None:
    titles = Markup(charts.degradation(sample.run)[0].svg()).said("title")
    assert len(titles) == 15
    assert all("n = " in title and "From sending the request" in title for title in titles)


def test_one_load_gives_no_curve(sample: Sample) -> None:
    cells = tuple(cell for cell in sample.run.cells if cell.load == "c=1")
    assert charts.degradation(msgspec.structs.replace(sample.run, cells=cells)) == []
    assert charts.degradation(Run(id="r", started="now")) == []


def test_a_distribution_ends_at_the_share_that_succeeded(sample: Sample) -> None:
    material = gather(sample.run, sample.attempts, sample.recordings)
    panels = charts.distributions(sample.run, material.by_cell)
    assert len(panels) == 3
    heaviest = Markup(panels[2].svg())
    lines = [a["d"] for a in heaviest.named("path") if a.get("class", "").startswith("l ")]
    base, top = charts.PANEL[1] - 42, 28.0
    for target, line in zip(PROVIDERS, lines, strict=True):
        cell = next(
            c for c in sample.run.cells if c.target == f"{target}/{MODEL}" and c.load == "c=32"
        )
        share = cell.outcomes["ok"] / cell.requests
        last = float(re.findall(r"V([\d.]+)", line)[-1])
        assert abs((base - last) / (base - top) - share) < 0.001


def test_a_distribution_of_nothing_is_left_out(sample: Sample) -> None:
    assert charts.distributions(sample.run, {}) == []


def test_the_cost_map_has_a_point_for_each_load(sample: Sample) -> None:
    drawn = charts.cost_map(sample.run)
    assert drawn is not None
    titles = Markup(drawn.svg()).said("title")
    assert len(titles) == 15
    assert "groq at c=8: " in titles[4]
    assert "per 1,000 requests, n = 80" in titles[4]


def test_names_on_the_cost_map_do_not_touch(sample: Sample) -> None:
    drawn = charts.cost_map(sample.run)
    assert drawn is not None
    boxes = [(x, y, x + 6.0 * len(name)) for name, (x, y) in named(drawn).items()]
    for at, (left, y, right) in enumerate(boxes):
        for other_left, other_y, other_right in boxes[at + 1 :]:
            assert abs(y - other_y) >= 10 or right < other_left or left > other_right


def test_no_price_no_map(sample: Sample) -> None:
    cells = tuple(msgspec.structs.replace(cell, cost=CostFacts()) for cell in sample.run.cells)
    assert charts.cost_map(msgspec.structs.replace(sample.run, cells=cells)) is None


def test_whiskers_share_a_scale_and_need_a_number(sample: Sample) -> None:
    cells = [cell for cell in sample.run.cells if cell.load == "c=1"]
    scale = charts.whisker_scale(cells, "ttft_ms")
    assert scale is not None
    read = Markup(charts.whisker(0, cells[0], "ttft_ms", scale))
    band = next(a for a in read.named("rect") if a["class"].startswith("band"))
    dot = read.named("circle")[0]
    left = float(band["x"])
    assert left <= float(dot["cx"]) <= left + float(band["width"])
    bare = CellSummary(target="a", load="c=1")
    assert charts.whisker(0, bare, "ttft_ms", scale) == ""
    assert charts.whisker_scale([bare], "ttft_ms") is None


def test_a_long_name_is_cut_and_a_hostile_one_escaped(sample: Sample) -> None:
    run = renamed(sample.run, f"groq/{MODEL}", "<script>alert('x')</script>" * 4)
    facts = [msgspec.structs.replace(t, provider="p") for t in run.targets]
    for panel in charts.degradation(msgspec.structs.replace(run, targets=tuple(facts))):
        read = Markup(panel.svg())
        assert not read.named("script")
        assert "<script>alert('x…" in read.said("text")
