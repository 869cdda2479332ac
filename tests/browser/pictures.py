"""Make the pictures of the README: `python -m browser.pictures` in tests/."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from browser import traffic
from browser.conftest import running
from lightgate.clock.source import SYSTEM
from lightgate.console.admin.sign_in import SignIns

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.conftest import Site

PICTURES = Path(__file__).parents[2] / "docs" / "images"
LANES = ("sim-openai/gpt-4-turbo", "sim-anthropic/claude-opus-4.6")
WAIT_MS = 90_000  # for what is drawn on a busy machine


def ask(site: Site) -> str:
    """Send a streamed request that three targets race for; its id."""
    said = [{"role": "user", "content": "Explain how a sundial tells the time."}]
    body = {"model": "mistral-7b", "messages": said, "max_tokens": 120, "stream": True}
    address = urlsplit(site.gateway)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    fields = {"content-type": "application/json", "x-lightgate-race": "3"}
    connection.request("POST", f"{address.path}/chat/completions", json.dumps(body), fields)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.headers["x-lightgate-id"]


def keep(page: Page, name: str, last: str) -> None:
    """Write a picture of a page down to the end of an element, so that nothing is cut in half."""
    page.mouse.move(0, 0)
    page.evaluate("() => scrollTo(0, 0)")
    box = page.locator(last).first.bounding_box()
    if box is None:
        raise SystemExit(f"The page of {name} has no {last}.")
    clip = {"x": 0, "y": 0, "width": 1280, "height": round(box["y"] + box["height"]) + 16}
    page.screenshot(path=PICTURES / f"{name}.png", clip=clip, full_page=True)  # type: ignore[arg-type]


def take(page: Page, site: Site) -> None:
    """Open the pages one after the other."""
    page.goto(f"{site.console}/?from=-14d&sort=-speed_total")
    page.locator("#rows tr").first.wait_for()
    keep(page, "board", "#table")
    page.goto(f"{site.console}/map?from=-14d")
    page.locator("svg.points circle").first.wait_for()
    keep(page, "map", "#legend")
    raced = ask(site)
    while not page.request.get(f"{site.console}/api/requests/{raced}").ok:
        page.wait_for_timeout(200)  # until the ledger has it
    page.goto(f"{site.console}/requests?limit=4&open={raced}")
    page.locator(".waterfall").wait_for()
    keep(page, "waterfall", "[aria-label='Steps of each attempt']")
    page.goto(f"{site.console}/enter#{SignIns(site.data).new_link('pictures')}")
    page.wait_for_url(f"{site.console}/")
    page.goto(f"{site.console}/race")
    for lane in LANES:
        page.locator("#lanes label", has_text=lane).locator("input").check()
    page.locator("#go").click()
    page.locator("#result:not([hidden])").wait_for()
    keep(page, "race", ".answer")


def main() -> int:
    """Start the demo on two weeks of traffic and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    path = shutil.which("chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        (home / "lightgate-data").mkdir(mode=0o700)
        traffic.fill(home / "lightgate-data", SYSTEM.wall_ns() // 10**9, 12_000, hostile=False)
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        with running(home) as site:
            page = browser.new_page(
                viewport={"width": 1280, "height": 800}, timezone_id="UTC", locale="en-GB"
            )
            page.set_default_timeout(WAIT_MS)
            take(page, site)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
