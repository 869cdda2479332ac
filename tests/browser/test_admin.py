"""Sign-in, the life of a key, and every page on a ledger whose names would be scripts.

On a gateway of its own: the first key closes it to requests without one.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from browser import traffic
from browser.conftest import drawn, findings, running, shot
from console.corpus import CORPUS, fill, id_of
from lightgate.clock.source import SYSTEM
from lightgate.console.admin.sign_in import SignIns
from lightgate.console.site.pages import PAGES
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, Route

    from browser.conftest import Site, Visit

OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
SPILT = """(cells) => cells.filter((cell) => {
  const inner = document.createRange();
  inner.selectNodeContents(cell);
  return inner.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1;
}).map((cell) => cell.textContent)"""
SECRET = "dialog .secret"
NAME = "<b>app</b>"
VIEWS = (
    (1440, "light", "label", "button-name", "scrollable-region-focusable", "aria-valid-attr-value"),
    (1440, "dark", "color-contrast"),
    (390, "light", "target-size", "list"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gateway with keys, and with texts in its ledger that pages must not run."""
    home = tmp_path_factory.mktemp("keyed")
    data = home / "lightgate-data"
    data.mkdir(mode=0o700)
    now_ns = SYSTEM.wall_ns()
    traffic.fill(data, now_ns // 10**9, 200)
    with Ledger.open("sqlite", data) as ledger:
        fill(ledger, data, SYSTEM, now_ns - 3 * 10**9)
        Shipper(ledger, data / "journal").drain()
    with running(home) as found:
        yield found


def test_a_link_signs_in_once_and_leaves_no_trace(visit: Visit, site: Site) -> None:
    code = SignIns(site.data).new_link("the tests")
    page = visit("/keys")
    assert "lightgate console link" in page.locator("#signin").inner_text()
    assert not page.locator("#new").is_visible()
    page.goto(f"{site.console}/enter#{code}")
    page.wait_for_url(f"{site.console}/")
    assert page.evaluate("() => document.cookie") == ""  # no script can read it
    page.go_back()
    assert code not in page.url
    page.goto(f"{site.console}/keys")
    drawn(page)
    assert page.locator("#new").is_visible()
    page.get_by_role("button", name="Sign out").click()
    page.locator("#signin pre").wait_for()
    drawn(page)


def asks(site: Site, key: str) -> int:
    """The status that a request with this key gets at the gateway."""
    headers = {"authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{site.gateway}/models", headers=headers)  # noqa: S310 - own
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - our own gateway
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def within_a_moment(site: Site, secret: str, status: int) -> None:
    """The gateway looks twice a second whether the keys have changed."""
    until = time.monotonic() + 20
    while asks(site, secret) != status:
        assert time.monotonic() < until
        time.sleep(0.05)


def make_key(page: Page) -> str:
    """Fill the form of a new key, once wrongly; the key that is shown."""
    page.keyboard.press("n")
    page.get_by_label("name", exact=True).fill(NAME)
    page.get_by_label("budget in dollars").fill("a lot")
    page.get_by_role("button", name="Make the key").click()
    page.locator("#wrong-budget_usd:not(:empty)").wait_for()
    assert page.evaluate("() => document.activeElement.name") == "budget_usd"
    assert findings(page) == []
    shot(page, "keys-form")
    page.get_by_label("budget in dollars").fill("5")
    page.get_by_label("requests in a minute").fill("60")
    page.get_by_label("tags").fill("team=search, stage=test")
    page.get_by_role("button", name="Make the key").click()
    page.locator(SECRET).wait_for()
    secret = page.locator(SECRET).inner_text()
    assert secret.startswith("lg-")
    page.keyboard.press("Escape")  # a stray key does not lose it
    assert page.locator(SECRET).is_visible()
    shot(page, "keys-secret")
    page.get_by_role("button", name="I have stored it").click()
    drawn(page)
    assert secret not in page.content()
    return secret


def test_the_life_of_a_key(signed_in: Visit, site: Site) -> None:
    page = signed_in("/keys")
    secret = make_key(page)
    row = page.locator("#rows tr", has_text=NAME)
    assert "0.0000 / 5.00" in row.inner_text()
    assert row.locator("td").evaluate_all(SPILT) == []
    assert page.locator("#spend .tick.end").first.text_content() == "$0.00"
    within_a_moment(site, secret, 200)
    row.get_by_role("button", name="Change").click()
    page.get_by_label("budget in dollars").fill("9.50")
    page.get_by_label("requests in a minute").fill("")
    page.get_by_role("button", name="Save").click()
    page.locator("#rows tr", has_text="9.50").wait_for()
    page.get_by_role("button", name=f"Revoke {NAME}").click()
    end = page.get_by_role("button", name="Revoke for good")
    page.get_by_label("The name of the key").fill("app")
    assert end.is_disabled()
    page.get_by_label("The name of the key").fill(NAME)
    end.click()
    page.locator("#rows tr", has_text=NAME).filter(has_text="revoked").wait_for()
    within_a_moment(site, secret, 401)
    health = signed_in("/health-view")
    log = health.locator("#audit").inner_text()
    for words in ("key.create", "key.change", "budget_usd 5 → 9.50", "key.revoke"):
        assert words in log
    assert secret not in health.content()


def test_keys_and_health_are_drawn(signed_in: Visit) -> None:
    for name, path in (("keys", "/keys?state=revoked"), ("health", "/health-view")):
        shown = signed_in(path)
        for width, scheme, *rules in VIEWS:
            shown.set_viewport_size({"width": width, "height": 900})
            shown.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the two
            drawn(shown)
            assert shown.evaluate(OVERFLOW) <= 0, (name, width)
            assert findings(shown, *rules) == [], (name, width, scheme)
            shot(shown, f"{name}-in-{width}-{scheme}")
    page = signed_in("/keys")
    page.locator("[name=by]").select_option("tag")
    drawn(page)
    assert "by=tag" in page.url
    assert "team=search" in page.locator("#spend").inner_text()
    page.locator("[name=state]").select_option("revoked")
    drawn(page)
    assert page.locator("#rows tr").count() <= 1
    config = signed_in("/health-view").locator("#config").inner_text()
    assert "flag --port" in config
    assert "default" not in config
    every = signed_in("/health-view?only=all").locator("#config").inner_text()
    assert "default" in every


def test_a_configuration_of_defaults_is_said_to_be_one(signed_in: Visit) -> None:
    """That of the demo: no row is left where defaults are left out."""
    page = signed_in("/health-view")
    told: dict[str, object] = {"as_of": "2026-11-18T20:39:26Z", "file": None, "ignored": []}
    row = {"key": "gateway.port", "value": "8080", "source": "default"}
    kept: list[dict[str, str]] = [row]

    def tell(route: Route) -> None:
        shown = [] if "only=changed" in route.request.url else kept
        route.fulfill(json={**told, "rows": shown})

    page.context.route(re.compile(r"/api/config(\?|$)"), tell)
    note = page.locator("#config-note")
    page.goto(page.url)
    drawn(page)
    expected = "No file: flags and defaults, taken over at .* UTC. Every value is its default."
    assert re.fullmatch(expected, note.inner_text())
    kept.clear()
    page.goto(page.url)
    drawn(page)
    assert note.inner_text() == "The gateway has not written its configuration down."


def test_recorded_texts_stay_texts(signed_in: Visit) -> None:
    """A script that ran would set `window.hit`; `visit` looks for that, and for other requests."""
    for page in PAGES:
        shown = signed_in(page.path)
        assert shown.evaluate("() => window.hit === undefined && !window.violations.length")
        shown.close()
    keys = signed_in("/keys").locator("#rows").inner_text()
    # Of these models only: the demo's own requests go on, and would fill the page before long.
    models = urlencode([("model", text) for text in CORPUS[:6]])
    requests = signed_in(f"/requests?{models}").locator("#rows").inner_text()
    for text in CORPUS[:6]:
        assert text in keys
        assert text in requests
    for number in (1, 3):
        one = signed_in(f"/requests?limit=5&open={id_of(number)}")
        assert CORPUS[number] in one.locator("#one").inner_text()
    report = signed_in("/report")
    assert CORPUS[0] in report.locator("body").inner_text()
