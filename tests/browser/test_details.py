"""Long names, lanes without instants, answers of the cache, filters that go along, and a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from browser.conftest import changed, drawn

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.conftest import Change, Visit


LONG = "accounts/fireworks/models/qwen3-235b-a22b-instruct-2507-with-a-longer-context"
OPENED = f"/requests?limit=3&open={2999:032x}"
CUT = "(cell) => cell.scrollWidth > cell.clientWidth"
HIDDEN_WIDTH = "(box) => box.scrollWidth - box.clientWidth"


def opened(visit: Visit, change: Change) -> Page:
    """The waterfall of a request of which something else is told."""
    changed(visit, f"**/api/requests/{2999:032x}", change)
    page = visit(OPENED)
    page.locator(".waterfall").wait_for()
    return page


def test_long_names_and_keys_leave_every_column_in_sight(visit: Visit) -> None:
    def longer(told: dict[str, Any]) -> None:
        for row in told["rows"]:
            row.update(model_asked=LONG, winner=f"fireworks/{LONG}", key=f"key-of-{LONG}")

    changed(visit, "**/api/requests?**", longer)
    page = visit("/requests?limit=5&from=-14d")
    assert page.locator("#table").evaluate(HIDDEN_WIDTH) <= 0
    key = page.locator("#rows td.key").first
    assert key.evaluate(CUT)
    assert key.get_attribute("title") == f"key-of-{LONG}"


def test_a_long_model_above_its_hosts_is_cut_with_a_sign(visit: Visit) -> None:
    def longer(told: dict[str, Any]) -> None:
        for row in told["rows"]:
            row["model"] = LONG

    changed(visit, "**/api/board?**", longer)
    visit("/enter").context.route("**/api/live?**", lambda route: route.fulfill(status=204))
    page = visit("/?from=-14d&group=model&sort=target")
    group = page.locator("#rows .group").first
    assert group.evaluate(CUT)
    assert group.evaluate("(one) => getComputedStyle(one).textOverflow") == "ellipsis"


def test_an_attempt_that_found_no_connection_has_its_cross(visit: Visit) -> None:
    def refused(told: dict[str, Any]) -> None:
        lost = dict(told["attempts"][0], role="primary", won=False, outcome="reset")
        lost.update(error="It refused the connection.", ticks_ms=None, bursts=0)
        lost["t_ms"] = dict.fromkeys(lost["t_ms"]) | {"plan": 0.0}
        told["attempts"].insert(0, lost)

    page = opened(visit, refused)
    assert page.locator(".waterfall .cross:not(.closed)").count() == 1
    said = page.locator(".waterfall .cross title").inner_html()
    assert said.startswith("reset: It refused the connection.")


def test_an_answer_of_the_cache_is_told_as_one(visit: Visit) -> None:
    def kept(told: dict[str, Any]) -> None:
        told["attempts"] = []
        told["exchange"].update(cache="hit", attempts=0, plan="", key_id="key-app")

    page = opened(visit, kept)
    facts = page.locator("#one .facts").inner_text()
    assert "cache\nhit" in facts
    assert "key\nkey-app" in facts
    assert page.locator("#one table").count() == 0  # no heads above nothing
    assert "ticks" not in page.locator("#one").inner_text()
    legend = page.locator("#one .legend span").all_inner_texts()
    assert "handed to the client" in legend
    assert "a stall" not in legend


def test_the_plan_and_the_losers_are_told(visit: Visit) -> None:
    plan = "groq/mixtral > home/7b (medium: asks for an explanation; tier 2 of 3)"

    def planned(told: dict[str, Any]) -> None:
        told["exchange"].update(plan=plan, loser_cost_usd="0.0012", tags="search, <b>mail</b>")

    page = opened(visit, planned)
    assert page.locator("#one .plan").inner_text() == f"Plan: {plan}"
    facts = page.locator("#one .facts").inner_text()
    assert "losers\n$0.0012" in facts
    assert "tags\nsearch, <b>mail</b>" in facts


@pytest.mark.parametrize("end", [3.0, 26.0, 240.0, 61_000.0])
def test_marks_of_the_axis_have_no_idle_digits(visit: Visit, end: float) -> None:
    def scaled(told: dict[str, Any]) -> None:
        told["attempts"] = []
        told["t_ms"].update(
            dict.fromkeys(("sent", "first_in", "last_in")),
            first_byte=0.0, received=0.0, routed=0.0, first_out=end / 2, last_out=end, closed=end,
        )  # fmt: skip

    marks = opened(visit, scaled).locator("#one .axis span").all_text_contents()
    assert marks[0] == "0 ms"
    assert len(marks) >= 4
    assert not any("." in mark and mark.endswith("0") for mark in marks)


def test_filters_go_along_to_other_pages(visit: Visit) -> None:
    page = visit("/?from=-14d&provider=sim-groq&use=voice")
    links = page.locator("#pages a")
    href = "(one) => one.getAttribute('href')"
    assert links.get_by_text("Cost").evaluate(href) == "/map?from=-14d&provider=sim-groq"
    assert links.get_by_text("Requests").evaluate(href) == "/requests?from=-14d"
    assert links.get_by_text("Runs").evaluate(href) == "/runs"
    page.get_by_label("period").select_option("-90d")
    there = page.locator('#pages a[href="/time?provider=sim-groq&from=-90d"]')
    there.wait_for()  # what was set last comes last
    there.click()
    page.locator("h1", has_text="Was it always so fast?").wait_for()
    filled = "() => document.querySelector('#filters [name=provider]')?.value === 'sim-groq'"
    page.wait_for_function(filled)  # by the script of the page
    assert page.locator("#filters [name=from]").input_value() == "-90d"
    page.go_back()
    page.locator("h1", has_text="How fast").wait_for()
    page.go_back()  # one step for one change
    page.locator('#pages a[href="/map?from=-14d&provider=sim-groq"]').wait_for()


def test_a_phone_sorts_too(visit: Visit) -> None:
    page = visit("/?from=-14d", width=390)
    field = page.locator("#filters [name=sort]")
    assert page.locator("#heads").is_hidden()
    assert field.is_visible()
    field.select_option("-speed_p50")
    page.wait_for_url("**sort=-speed_p50**")
    drawn(page)
    assert page.locator("#rows tr a").first.inner_text() == "sim-groq/mixtral"
    assert page.locator("button.fold").inner_text() == "Filters"
    page.set_viewport_size({"width": 1440, "height": 900})
    assert field.is_hidden()


def test_a_list_says_where_it_ends_and_what_else_it_is_of(visit: Visit) -> None:
    page = visit("/requests?limit=3&from=-14d&to=-1d&provider=sim-groq")
    said = page.locator("#state").inner_text()
    assert " to 20" in said
    assert said.endswith("UTC, provider sim-groq.")


def test_a_lane_that_failed_says_why(signed_in: Visit) -> None:
    page = signed_in("/race?lane=sim-groq/mixtral&lane=sim-groq/no-such-model")
    page.get_by_label("most tokens").fill("20")
    assert "for 1 of 2 lanes" in page.locator("#estimate").inner_text()
    page.locator("#go").click()
    page.locator("#result:not([hidden])").wait_for()
    drawn(page)
    lost = page.locator(".answer", has_text="no-such-model")
    assert len(lost.locator(".said .worse").inner_text()) > 10
    track = page.locator(".course.lost .moment").inner_text()
    assert track == page.locator("#rows td.worse").inner_text()
