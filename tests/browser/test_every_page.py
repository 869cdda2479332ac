"""Every page of the list: drawn without an error, on a phone, in the dark, for a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from browser.conftest import AXE, drawn, findings, shot
from lightgate.console.site.pages import PAGES, ConsolePage

if TYPE_CHECKING:
    from collections.abc import Callable

    from browser.conftest import Site, Visit

WEIGHT = 300_000  # bytes of a page with its style and its scripts
GROUND = "() => getComputedStyle(document.body).backgroundColor"
LOADED = """() => [...performance.getEntriesByType("navigation"),
  ...performance.getEntriesByType("resource").filter((one) => one.name.includes("/static/"))]
  .map((one) => one.decodedBodySize)"""
# Colours are what the dark changes; a phone's boxes scroll and its targets are touched.
VIEWS: tuple[tuple[str, Literal["light", "dark"], int, tuple[str, ...]], ...] = (
    ("wide", "light", 1440, ()),
    ("dark", "dark", 1440, ("color-contrast",)),
    ("phone", "light", 390, ("scrollable-region-focusable", "target-size", "label", "list")),
)
FEWER = {"requests": "?limit=12"}  # rows of a page, whose cells are all looked at
# The second of the two keys counts for a second and a half, in which a busy machine may do nothing.
TYPED = """(keys) => keys.forEach((key) =>
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })))"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> ConsolePage:
    found: ConsolePage = request.param
    return found


def test_it_is_drawn_light_dark_and_on_a_phone(
    page: ConsolePage, visit: Visit, missing: Callable[[str], None]
) -> None:
    if not AXE.is_file():
        missing("axe-core is not here; make test fetches it.")
    shown = visit(page.path + FEWER.get(page.name, ""))
    assert shown.title() == f"{page.word} · Lightgate"
    assert shown.locator("h1").inner_text() == page.title
    assert shown.locator("#pages a[aria-current]").inner_text() == page.word
    assert shown.locator("#pages a").all_inner_texts() == [one.word for one in PAGES]
    sizes: list[int] = shown.evaluate(LOADED)
    assert len(sizes) >= 5
    assert sum(sizes) <= WEIGHT
    grounds = []
    for name, scheme, width, rules in VIEWS:
        shown.set_viewport_size({"width": width, "height": 900})
        shown.emulate_media(color_scheme=scheme)
        drawn(shown)
        assert shown.evaluate(OVERFLOW) <= 0, name
        assert findings(shown, *rules) == [], name
        grounds.append(shown.evaluate(GROUND))
        shot(shown, f"{page.name}-{name}")
    assert grounds[0] == grounds[2] != grounds[1]
    assert not shown.locator("#pages").is_visible()
    shown.locator("#menu").click()
    assert shown.locator("#pages").is_visible()
    assert shown.evaluate(OVERFLOW) <= 0


def test_keys_lead_everywhere(page: ConsolePage, visit: Visit, site: Site) -> None:
    shown = visit(page.path)
    shown.keyboard.press("Tab")
    assert shown.evaluate("() => document.activeElement.textContent") == "To the content"
    shown.keyboard.press("?")
    words = shown.locator("dialog.keys dd").all_inner_texts()
    everywhere = [one.word for one in PAGES]
    assert [word for word in words if word in everywhere] == everywhere
    shown.keyboard.press("Escape")
    shown.locator("dialog.keys").wait_for(state="detached")
    other = PAGES[(PAGES.index(page) + 1) % len(PAGES)]
    shown.evaluate(TYPED, ["g", other.key])
    shown.wait_for_url(site.console + other.path)
    drawn(shown)
    assert shown.locator("h1").inner_text() == other.title
