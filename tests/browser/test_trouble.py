"""Pages while something is wrong, with too few samples, in narrow windows and on paper."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from browser.conftest import changed, drawn, was_seen, watch
from browser.traffic import HOSTILE
from lightgate.console.site.pages import PAGES, ConsolePage

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from browser.conftest import Visit

BUSY = "The ledger is busy."
SOON = """
  for (const name of ["setTimeout", "setInterval"]) {
    const wait = window[name];
    window[name] = (act, ms, ...given) => wait(act, ms === 5000 ? 600 : ms, ...given);
  }
"""  # what a page does again after five seconds
# A refused question is an error in the browser's own log, so the refusal is made before it is sent.
DOWN = (
    f"""(() => {{ {SOON}"""
    """
  const sent = window.fetch;
  window.down = true;
  window.fetch = (...given) => window.down && String(given[0]).startsWith("/api/")
    ? Promise.resolve(new Response("The ledger is busy.\\n", { status: 503 })) : sent(...given);
})();"""
)
OVER = (
    f"""(() => {{ {SOON}"""
    """
  const sent = window.fetch;
  window.over = false;
  window.fetch = (...given) => {
    if (!window.over || !String(given[0]).startsWith("/api/")) return sent(...given);
    const session = String(given[0]) === "/api/session";
    const told = session ? '{"signed_in": false, "line": "lightgate console link"}' : "No session.";
    return Promise.resolve(new Response(told, { status: session ? 200 : 401 }));
  };
})();"""
)
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
HIDDEN_WIDTH = "(box) => box.scrollWidth - box.clientWidth"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_busy_ledger_is_said_and_waited_for(page: ConsolePage, visit: Visit) -> None:
    visit("/enter").context.add_init_script(DOWN)
    shown = visit(page.path)
    assert BUSY in shown.locator("#state.stale").inner_text()
    assert "tries again" in shown.locator("#state").inner_text()
    shown.evaluate("() => { window.down = false; }")
    shown.locator("#state:not(.stale)").wait_for(state="attached")
    drawn(shown)
    assert BUSY not in shown.locator("main").inner_text()


def test_a_console_that_is_gone_is_said_in_words(visit: Visit) -> None:
    visit("/enter").context.add_init_script(
        "window.fetch = () => Promise.reject(new TypeError('Failed to fetch'));"
    )
    said = visit("/").locator("#state.stale").inner_text()
    assert said.startswith("The console does not answer.")


@pytest.mark.parametrize("path", ["/", "/requests?limit=5"])
def test_a_stream_says_that_its_numbers_are_old(visit: Visit, path: str) -> None:
    def troubled(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body=f'event: trouble\ndata: "{BUSY}"\n\n')

    # Before the page is opened: Chromium may let a request pass that follows at once.
    visit("/enter").context.route("**/api/live?**", troubled)
    page = visit(path)
    watch(page, f"document.querySelector('#live.stale')?.textContent.startsWith('{BUSY} Th')")
    page.get_by_label("period").select_option("-1h")
    page.wait_for_function("() => window.seen")
    assert was_seen(page)


@pytest.mark.parametrize("path", ["/keys", "/health-view"])
def test_a_session_that_ends_is_said(signed_in: Visit, path: str) -> None:
    signed_in("/enter").context.add_init_script(OVER)
    page = signed_in(path)
    assert page.locator("#body").is_visible()
    page.evaluate("() => { window.over = true; }")
    if path == "/keys":
        page.locator("#filters [name=state]").select_option("revoked")
    page.locator("#signin pre").wait_for()
    assert page.locator("#state.stale").inner_text().startswith("The session has ended.")
    assert page.locator("#body").is_hidden()


def test_points_of_too_few_samples_are_said(visit: Visit) -> None:
    asked = urlencode({"target": HOSTILE, "from": "-24h", "bucket": "5m"})
    page = visit(f"/time?{asked}")
    assert page.locator("figure.chart").count() == 2
    assert page.locator("figure.chart .plot").count() == 0  # no axes of nothing
    for said in page.locator("figure.chart p").all_inner_texts():
        assert said.startswith("n too small: a point needs 6 answers")


def test_every_edge_of_the_map_has_its_name(visit: Visit) -> None:
    def longer(told: dict[str, Any]) -> None:
        for row in told["rows"]:
            row["target"] += "-with-a-name-that-somebody-typed-for-an-evaluation"

    changed(visit, "**/api/map?**", longer)
    page = visit("/map?from=-30d", width=390)
    page.keyboard.press("r")
    page.locator("#points", has_text="an-evaluation").wait_for()
    assert page.locator(".point.edge").count() >= 2
    assert page.locator(".point.edge .label").count() == page.locator(".point.edge").count()


@pytest.mark.parametrize("path", ["/?from=-14d", "/requests?limit=12&from=-14d&outcome=bad"])
def test_a_tablet_shows_every_column(visit: Visit, path: str) -> None:
    page = visit(path, width=1024)
    assert page.locator("#table").evaluate(HIDDEN_WIDTH) <= 0


def test_marks_of_the_grades_do_not_touch(visit: Visit) -> None:
    """At 720 pixels, as a window of 1440 that is enlarged twice has, and on a phone."""
    for width in (1440, 720, 390):
        page = visit("/?from=-14d", width=width)
        page.locator("#live", has_text="Live").wait_for()
        page.wait_for_function("() => document.querySelectorAll('.scale span').length > 1")
        spans: list[list[float]] = page.evaluate(
            "() => [...document.querySelectorAll('.scale span')].map((one) => {"
            " const box = one.getBoundingClientRect(); return [box.left, box.right]; })"
        )
        assert all(one[1] < after[0] for one, after in itertools.pairwise(spans)), width


def test_paper_shows_every_column(visit: Visit) -> None:
    page = visit("/requests?limit=12&from=-14d", width=1032)  # A4 on its side
    page.emulate_media(media="print")
    assert page.locator("#filters").is_hidden()
    assert page.locator("#table").evaluate("(box) => getComputedStyle(box).overflowX") == "visible"
    assert page.evaluate(OVERFLOW) <= 0
