"""The race track against the simulator, and a benchmark that is started from its page."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from browser.conftest import drawn, findings, shot, was_seen, watch
from console.work.test_runs import from_two_regions
from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from browser.conftest import Site, Visit

LANES = ("sim-groq/mixtral", "sim-together/mixtral", "sim-openai/gpt-4-turbo")
RACE = "/race?" + "&".join(f"lane={name}" for name in LANES)


def places(page: Page) -> list[str]:
    """Lanes of the track by their place at the finish."""
    marks = page.locator(".course .place").all_inner_texts()
    names = page.locator(".course .who").all_inner_texts()
    return [name for _, name in sorted(zip(marks, names, strict=True))]


def test_a_race_from_the_prompt_to_the_ledger(signed_in: Visit, site: Site) -> None:
    page = signed_in(RACE)
    assert page.locator(".chip :checked").count() == len(LANES)
    assert "At most $" in page.locator("#estimate").inner_text()
    page.get_by_label("most tokens").fill("40")
    page.keyboard.press("Escape")
    watch(page, "document.querySelector('.said span') && !document.getElementById('stop').hidden")
    page.keyboard.press("s")
    page.locator("#result:not([hidden])").wait_for()
    drawn(page)
    assert was_seen(page)
    assert page.locator("#state").inner_text().startswith(f"{places(page)[0]} finished first")
    assert "The race cost $" in page.locator("#state").inner_text()
    assert all(len(text) > 20 for text in page.locator(".said").all_inner_texts())
    # The order on the track, that of the table, and the instants of the ledger agree.
    table = page.locator("#rows td:nth-child(2)").all_inner_texts()
    assert table == places(page)
    assert sorted(table) == sorted(LANES)
    assert page.locator("#rows td:nth-child(1)").all_inner_texts() == ["1st", "2nd", "3rd"]
    ends = []
    for link in page.locator("#rows a").all():
        id_ = (link.get_attribute("href") or "").partition("open=")[2]
        told = page.request.get(f"{site.console}/api/requests/{id_}").json()
        assert told["exchange"]["tags"] == "race"
        (attempt,) = told["attempts"]
        ends.append(attempt["e2e_ms"])
    assert ends == sorted(ends)
    with page.expect_download() as sheet:
        page.locator("#csv").click()
    lines = Path(sheet.value.path()).read_text("utf-8").splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [str(place), name] for place, name in enumerate(table, 1)
    ]
    for text in page.locator(".said").all():
        assert text.evaluate("(one) => one.clientHeight % 21") == 0  # no line is cut in half
    assert findings(page) == []
    shot(page, "race-finished")
    page.get_by_role("button", name="¼ speed").click()
    page.wait_for_function(
        "() => document.querySelectorAll('.course .place:not(:empty)').length < 3"
    )
    page.locator("#rows a").first.click()
    page.wait_for_url("**/requests?open=*")


def test_who_is_not_signed_in_is_told_how(site: Site, browser: Browser) -> None:
    page = browser.new_page()  # its refused order is an error in the browser's own log
    page.goto(f"{site.console}/race")
    page.locator("#go:enabled").click()
    page.locator("#empty:not([hidden])").wait_for()
    assert "needs a sign-in" in page.locator("#state").inner_text()
    line = page.locator("#empty pre").inner_text()
    page.close()
    words = [sys.executable, "-m", *shlex.split(line)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout
    assert said.startswith(f"{site.console}/enter#")


def test_a_race_that_is_stopped(signed_in: Visit) -> None:
    page = signed_in(RACE)
    page.get_by_label("most tokens").fill("2000")
    page.get_by_role("button", name="Start").click()
    page.wait_for_function("() => document.querySelectorAll('.said span').length > 0")
    page.get_by_role("button", name="Stop").click()
    page.wait_for_function("() => document.querySelector('#state').textContent.startsWith('Stop')")
    assert page.locator("#stop").is_hidden()
    assert page.locator("#result").is_hidden()


def test_a_benchmark_is_started_followed_and_opened(signed_in: Visit) -> None:
    page = signed_in("/runs")
    page.get_by_role("button", name="Start a run").click()
    page.locator(".chip").first.wait_for()
    assert page.locator("#new").is_hidden()  # one button that starts at a time
    page.get_by_label("in flight").fill("1,2")
    page.get_by_label("requests each").fill("8")
    page.get_by_label("prompt tokens").fill("32")
    page.get_by_label("most tokens").fill("8")
    page.wait_for_function(
        "() => document.querySelector('#estimate').textContent.startsWith('16 ')"
    )
    assert "--concurrency 1,2 --requests 8" in page.locator("#line").inner_text()
    watch(page, "document.querySelector('#live:not([hidden]) .scroll > table') !== null")
    page.locator("#go:enabled").click()
    page.wait_for_url("**/runs?open=console-*")
    drawn(page)
    assert was_seen(page)
    assert page.locator(".curve").count() >= 1
    assert "finished" in page.locator("#one").inner_text()
    assert page.locator("#one tbody tr").count() == 2
    assert findings(page) == []
    shot(page, "runs-one")


def test_a_run_from_two_regions_is_read_by_region(visit: Visit, site: Site) -> None:
    RunFolder.create(site.data / "runs" / "far").write_run(from_two_regions())
    page = visit("/runs?open=far")
    medians = page.locator("#one tbody td[data-label='TTFT p50']")
    assert medians.all_inner_texts() == ["100", "200"]
    page.get_by_label("load from").select_option("west")
    assert medians.all_inner_texts() == ["120", "220"]
    assert "region=west" in page.url
    assert findings(page) == []
    page.reload()
    drawn(page)
    assert medians.all_inner_texts() == ["120", "220"]
    shot(page, "runs-regions")
