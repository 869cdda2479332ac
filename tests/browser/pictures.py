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

from browser.demo import Site, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
PROMPT = "Explain in five sentences how a sundial tells the time."


def ask(site: Site, **headers: str) -> str:
    """Send a streamed request; its id."""
    body = {"model": site.model, "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 200, "stream": True}  # fmt: skip
    address = urlsplit(site.gateway)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    fields = {"content-type": "application/json", **headers}
    connection.request("POST", f"{address.path}/chat/completions", json.dumps(body), fields)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.headers["x-lightgate-id"]


def keep(page: Page, name: str) -> None:
    """Write a picture of the first screen."""
    page.mouse.move(0, 0)
    page.screenshot(path=PICTURES / f"{name}.png")


def main() -> int:
    """Start the demo on two weeks of traffic and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    path = shutil.which("chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        with serving(Path(home), 12_000, hostile=False) as site:
            raced = ask(site, **{"x-lightgate-race": "2"})
            page = browser.new_page(viewport=SIZE, timezone_id="UTC", locale="en-GB")  # type: ignore[arg-type]
            page.goto(f"{site.console}/?from=-14d&sort=-speed_total")
            page.locator("#rows tr").first.wait_for()
            keep(page, "board")
            page.goto(f"{site.console}/map?from=-14d")
            page.locator("main svg circle").first.wait_for()
            keep(page, "map")
            page.goto(f"{site.console}/requests?limit=4&open={raced}")
            page.locator(".waterfall").wait_for()
            keep(page, "waterfall")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
