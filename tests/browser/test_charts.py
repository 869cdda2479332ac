"""Over time and Cost with a person in front of them: keys read a chart, sliders ask the server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from browser.conftest import drawn

if TYPE_CHECKING:
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
