"""The board and the requests in a browser: filters, live numbers, exports, the path by keys."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from browser.conftest import drawn, shot, was_seen, watch
from browser.traffic import HOSTILE, KEYS

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from browser.conftest import Site, Visit

GROQ = "sim-groq/mixtral"
TEXTS = {
    "model": "mixtral", "provider": "sim-groq", "target": GROQ, "key": KEYS[0], "tag": "search",
    "min_n": "20", "ttft_min": "200", "open": f"{2999:032x}",
}  # fmt: skip
NAMES = (
    "[...document.querySelectorAll('#rows tr')].map((row) => row.querySelector('a').textContent)"
)
TOPS = "[...document.querySelectorAll('#rows tr')].map((row) => row.getBoundingClientRect().top)"


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def ask_the_gateway(site: Site, model: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}
    address = urlsplit(site.gateway)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    connection.request(
        "POST", f"{address.path}/chat/completions", json.dumps(body),
        {"content-type": "application/json"},
    )  # fmt: skip
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize("path", ["/", "/requests"])
def test_every_filter_is_in_the_address_and_is_kept(visit: Visit, path: str) -> None:
    page = visit(path)
    fields: list[list[str]] = page.evaluate(
        "() => [...document.querySelectorAll('#filters input, #filters select')]"
        ".filter((one) => one.offsetParent).map((one) => [one.name, one.type])"
    )
    given: dict[str, str] = {}
    for name, kind in dict(fields).items():
        field = page.locator(f"#filters [name={name}]")
        if kind == "select-one":
            last = field.locator("option").last
            given[name] = last.get_attribute("value") or last.inner_text()
            field.select_option(given[name])
        elif kind in {"radio", "checkbox"}:
            given[name] = field.last.get_attribute("value") or ""
            field.last.check()
        else:
            given[name] = TEXTS[name]
            field.fill(given[name])
            field.press("Enter")
        page.wait_for_url(lambda url, name=name: name in parse_qs(urlsplit(url).query))  # type: ignore[misc]
        drawn(page)
        assert asked(page) == {one: [value] for one, value in given.items()}
        assert page.locator("#state.stale").count() == 0, name
    page.reload()
    drawn(page)
    for name, value in given.items():
        field = page.locator(f"#filters [name={name}]").last
        kept = field.input_value() if dict(fields)[name] not in {"radio", "checkbox"} else None
        assert field.is_checked() if kept is None else kept == value, name


def test_a_filter_is_applied(visit: Visit) -> None:
    page = visit("/?from=-14d&model=mixtral")
    assert set(page.evaluate(NAMES)) == {GROQ, "sim-together/mixtral"}
    page = visit("/requests?from=-14d&outcome=bad")
    outcomes = set(page.locator("#rows td.outcome").all_inner_texts())
    assert outcomes == {"reset", "rate_limited"}


def test_a_use_ranks_and_says_why(visit: Visit) -> None:
    page = visit("/?from=-14d")
    page.locator("#filters [name=use][value=voice]").check()
    page.locator("body.ranked").wait_for()
    drawn(page)
    ranks = [text for text in page.locator("#rows td.rank").all_inner_texts() if text != "·"]
    assert ranks == [str(place) for place in range(1, len(ranks) + 1)]
    assert page.locator("#ranked").inner_text().startswith("Ranked for voice")
    assert all(page.locator("#rows .why").all_inner_texts())
    shot(page, "board-voice")


def test_hosts_of_a_model_stand_together(visit: Visit) -> None:
    page = visit("/?from=-14d&group=model")
    rows = page.locator("#rows tr").all_inner_texts()
    at = next(place for place, text in enumerate(rows) if text.startswith("mixtral"))
    assert {rows[at].split("\n")[1].split("\t")[0], rows[at + 1].split("\t")[0]} == {
        "sim-groq",
        "sim-together",
    }


def test_heads_sort_and_numbers_are_aligned(visit: Visit) -> None:
    page = visit("/?from=-14d")
    page.locator("#heads button", has_text="speed p50").click()
    page.wait_for_url("**sort=-speed_p50**")
    drawn(page)
    assert page.evaluate(NAMES)[0] == GROQ
    edges = page.evaluate(
        "() => [...document.querySelectorAll('#rows td:nth-child(5)')].map((cell) => {"
        " const range = document.createRange(); range.selectNodeContents(cell);"
        " return Math.round(range.getBoundingClientRect().right); })"
    )
    assert len(set(edges)) == 1


def test_few_samples_and_grades_are_said(visit: Visit) -> None:
    page = visit("/?from=-14d")
    chart = page.locator("#grades .grade-row .grade-name").all_inner_texts()
    assert GROQ in chart
    assert HOSTILE in chart
    few = visit("/?from=-15m&min_n=1")
    marks = few.locator("#rows td.mark").all_inner_texts()
    assert "n too small" in marks


def test_numbers_change_and_rows_stay(visit: Visit, site: Site) -> None:
    page = visit("/?from=-1h&sort=target")
    page.locator("#live", has_text="Live").wait_for()
    names, tops = page.evaluate(NAMES), page.evaluate(TOPS)
    before = page.locator("#totals .big").first.inner_text()
    page.keyboard.press("j")
    held = page.evaluate("() => document.activeElement.textContent")
    ask_the_gateway(site, site.model)
    page.wait_for_function(
        "(before) => document.querySelector('#totals .big').textContent !== before", arg=before
    )
    now = page.evaluate(NAMES)
    assert now[: len(names)] == names
    assert page.evaluate(TOPS)[: len(tops)] == tops
    assert page.evaluate("() => document.activeElement.textContent") == held == names[0]


def test_new_requests_wait_behind_a_button(visit: Visit, site: Site) -> None:
    page = visit("/requests?from=-1h")
    first = page.locator("#rows tr a").first.inner_text()
    ask_the_gateway(site, site.model)
    page.locator("#newer:not([hidden])").wait_for()
    assert page.locator("#rows tr a").first.inner_text() == first
    watch(page, "document.getElementById('newer').hidden")
    # What ends late stands below what began after it, so one press need not change the first row.
    pressed = """(first) => {
      if (document.querySelector('#rows tr a')?.textContent !== first) return true;
      const button = document.getElementById('newer');
      if (!button.hidden) button.click();
      return false;
    }"""
    page.wait_for_function(pressed, arg=first)
    assert was_seen(page)


def test_keys_walk_to_a_waterfall_and_back(visit: Visit) -> None:
    page = visit("/requests?from=-14d&limit=20")
    page.keyboard.press("/")
    assert page.evaluate("() => document.activeElement.name") == "from"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator(".waterfall").wait_for()
    drawn(page)
    assert page.locator("#rows tr.chosen").count() == 1
    assert "open=" in page.url
    shot(page, "waterfall")
    page.keyboard.press("Escape")
    page.locator("#one").wait_for(state="hidden")
    assert "open=" not in page.url


def test_every_step_of_an_attempt_is_told(visit: Visit) -> None:
    steps = visit(f"/requests?limit=5&open={2999:032x}").get_by_label("Steps of each attempt")
    heads = steps.locator("th").all_inner_texts()
    told = dict(zip(heads, steps.locator("tbody td").all_inner_texts(), strict=True))
    assert (told["pool"], told["DNS"], told["TCP"], told["TLS"]) == ("0.50", "·", "2.00", "6.00")
    assert told["to status line"] == "29"


def test_a_step_back_leaves_the_list(visit: Visit, site: Site) -> None:
    page = visit("/requests?from=-14d&limit=20")
    page.locator("#rows tr").nth(1).click()
    page.locator(".waterfall").wait_for()
    drawn(page)  # it scrolls to what was opened: a click on a row that moves is lost
    # The address has the id: two requests may have begun in one millisecond.
    opened = page.locator("#rows tr.chosen a").get_attribute("href")
    page.locator("#rows tr").nth(2).click()
    page.wait_for_function(
        "(before) => document.querySelector('#rows tr.chosen a')?.getAttribute('href') !== before",
        arg=opened,
    )
    ask_the_gateway(site, site.model)
    page.go_back()
    page.wait_for_function(
        "(before) => document.querySelector('#rows tr.chosen a')?.getAttribute('href') === before",
        arg=opened,
    )
    drawn(page)
    assert page.locator("#rows tr.chosen").count() == 1
    page.locator("#filters [name=open]").fill("")
    page.keyboard.press("Enter")
    page.locator("#one").wait_for(state="hidden")


def test_a_loser_of_a_race_is_no_failure(visit: Visit, site: Site) -> None:
    body = {"model": "mistral-7b", "messages": [{"role": "user", "content": "Hello."}],
            "max_tokens": 8, "stream": True}  # fmt: skip
    address = urlsplit(site.gateway)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    connection.request(
        "POST", f"{address.path}/chat/completions", json.dumps(body),
        {"content-type": "application/json", "x-lightgate-race": "3"},
    )  # fmt: skip
    answer = connection.getresponse()
    answer.read()
    connection.close()
    page = visit("/requests?limit=5")
    asked = f"{site.console}/api/requests/{answer.headers['x-lightgate-id']}"
    page.wait_for_function(
        "(asked) => fetch(asked).then((told) => told.ok)", arg=asked, polling=200
    )
    page = visit(f"/requests?limit=5&open={answer.headers['x-lightgate-id']}")
    outcomes = page.get_by_label("Attempts").locator("td:nth-child(4)").all_inner_texts()
    assert sorted(outcomes) == ["closed: another one was first"] * 2 + ["ok"]
    assert page.locator(".waterfall .cross").count() == 2
    assert page.locator(".waterfall .cross:not(.closed)").count() == 0


def test_a_phone_shows_numbers_before_filters(visit: Visit) -> None:
    page = visit("/?from=-14d&model=mixtral&least=1", width=390)
    fold = page.locator("button.fold")
    assert fold.inner_text() == "Filters, 1 set"
    assert page.get_by_label("period").is_visible()
    assert page.locator("#filters [name=model]").is_hidden()
    assert page.locator("#rows tr").first.bounding_box()["y"] < 844  # type: ignore[index]
    fold.click()
    assert fold.get_attribute("aria-expanded") == "true"
    assert page.locator("#filters [name=model]").is_visible()
    assert visit("/keys", width=390).locator("button.fold").count() == 0


def test_a_stream_that_is_refused_is_asked_for_again(visit: Visit, site: Site) -> None:
    refusals = [204]

    def once(route: Route) -> None:
        if "from=-1h" in route.request.url and refusals:
            route.fulfill(status=refusals.pop())
        else:
            route.continue_()

    # Before the page is opened: Chromium may let a request pass that follows at once.
    visit("/enter").context.route("**/api/live?**", once)
    page = visit("/requests?limit=5")
    page.get_by_label("period").select_option("-1h")
    page.locator("#live.stale").wait_for()
    page.locator("#live:not(.stale)").wait_for()
    assert refusals == []


def test_a_view_is_saved_as_it_is(visit: Visit, tmp_path: Path) -> None:
    page = visit("/?from=-14d&use=coding&model=mixtral&model=gpt-4-turbo")
    with page.expect_download() as page_file:
        page.locator("#html").click()
    kept = tmp_path / "view.html"
    page_file.value.save_as(kept)
    text = kept.read_text("utf-8")
    assert "<script" not in text
    assert "default-src 'none'" in text
    with page.expect_download() as picture:
        page.locator("#png").click()
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
    picture.value.save_as(Path(".shots") / "saved-board.png")
    with page.expect_download() as sheet:
        page.locator("#csv").click()
    lines = Path(sheet.value.path()).read_text("utf-8").splitlines()
    shown = page.evaluate(NAMES)
    assert len(lines) == len(shown) + 1
    alone = page.context.new_page()
    alone.goto(kept.as_uri())
    assert alone.locator("h1").inner_text() == "How fast is each target?"
    assert [alone.locator(f"#rows tr:nth-child({at + 1})").inner_text().find(name) >= 0
            for at, name in enumerate(shown)] == [True] * len(shown)  # fmt: skip
    said = alone.locator("p.soft").first.inner_text()
    assert "rank for coding" in said
    assert "model mixtral, gpt-4-turbo" in said
    assert "Live" not in alone.locator("main").inner_text()  # a file is not


def test_nothing_yet_shows_a_line_that_works(visit: Visit, site: Site) -> None:
    page = visit("/?from=2026-01-01&to=2026-01-02")
    line = page.locator("#empty pre").inner_text()
    assert line.startswith(f"curl {site.gateway}/chat/completions")
    page.locator("#empty button").click()
    page.locator("#empty button", has_text="Copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == line
    filtered = visit("/?model=nothing")
    assert filtered.locator("#empty a").get_attribute("href") == "/"
