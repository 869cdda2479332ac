"""Over time and Cost with a person in front of them: keys read a chart, sliders ask the server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from browser.conftest import drawn

if TYPE_CHECKING:
    from pathlib import Path

    from browser.conftest import Site, Visit


def test_keys_read_a_chart_and_open_its_requests(visit: Visit, site: Site) -> None:
    page = visit("/time?from=-14d")
    assert page.locator(".multiple").count() >= 2
    assert page.locator("path.line50").count() >= 2
    place = page.locator(".plot").first
    place.focus()
    last = page.locator("#read").inner_text()
    assert re.search(r"UTC · first token: median [\d,.]+ ms · p95 ", last)
    page.keyboard.press("ArrowLeft")
    before = page.locator("#read").inner_text()
    assert before != last
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/requests\?target=.*&from=.*&to="))
    drawn(page)


def test_a_young_ledger_fills_its_charts(visit: Visit) -> None:
    """The demo alone asks this target: what it has is minutes old, and no week is drawn for it."""
    fine = "a point is 5 minutes"
    for _ in range(60):  # until it has enough requests for a point
        page = visit("/time?target=sim-home-4060ti/phi-2")
        if fine in page.locator("#state").inner_text():
            break
        page.wait_for_timeout(1000)
        page.close()
    else:
        raise AssertionError("a young ledger has a week before it")
    first = visit("/time?target=sim-home-4060ti/phi-2&from=-1h")
    assert fine in first.locator("#state").inner_text()
    whole = visit("/time?target=sim-groq/mixtral")
    assert "a point is 6 hours" in whole.locator("#state").inner_text()


def test_a_metric_a_scale_and_a_week(visit: Visit) -> None:
    page = visit("/time")
    page.get_by_label("show").select_option("e2e")
    drawn(page)
    assert "metric=e2e" in page.url
    assert page.locator("figcaption").first.inner_text() == "Whole answer ms"
    page.get_by_label("scale").select_option("linear")
    drawn(page)
    assert page.locator(".tick.end").first.text_content() == "0"
    assert page.locator("#heat td").count() == 7 * 24
    page.locator("#heat-metric").select_option("speed")
    drawn(page)
    assert "median in tok/s" in page.locator("#heat-state").inner_text()


def test_a_map_is_saved_with_its_points(visit: Visit, tmp_path: Path) -> None:
    page = visit("/map")
    points = page.locator("svg.points .point").count()
    assert points >= 2
    with page.expect_download() as saved:
        page.locator("#html").click()
    saved.value.save_as(tmp_path / "map.html")
    alone = page.context.new_page()
    alone.goto((tmp_path / "map.html").as_uri())
    assert alone.locator("svg.points .point").count() == points
    assert all(one.bounding_box() for one in alone.locator("svg.points .point").all())
    names = alone.locator("svg.points text.label").all_text_contents()
    assert names == page.locator("svg.points text.label").all_text_contents()


def test_sliders_ask_the_server(visit: Visit) -> None:
    page = visit("/map")
    assert page.locator("svg .point").count() >= 2
    assert page.locator("svg .point.edge").count() >= 1
    said = page.locator("#verdict").inner_text()
    assert "a month" in said
    page.locator("input[name=busy]").focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => location.search.includes('busy=5')")
    assert page.locator("#busy-out").inner_text() == "5 %"
    page.wait_for_function(
        "(said) => document.getElementById('verdict').innerText !== said", arg=said
    )  # the question waits until the slider rests
    page.locator("input[name=gpu_hour]").fill("12.5")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.search.includes('gpu_hour=12.5')")
    drawn(page)
    page.get_by_label("against cost").select_option("ttft_p95")
    drawn(page)
    assert "down is better" in page.locator("#map-title").inner_text()
    assert "gpu_hour=12.5" in page.url
