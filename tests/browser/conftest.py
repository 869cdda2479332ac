"""A real browser, and one gateway with its console in front of simulated providers."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from browser import traffic
from lightgate.clock.source import SYSTEM
from lightgate.console.admin.sign_in import SignIns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page, Response, Route

    Visit = Callable[..., "Page"]
    Change = Callable[[dict[str, Any]], None]

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / ".shots"  # pictures of every page, kept for a person to look at
AXE = ROOT / ".node-axe" / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE_MS = 120_000  # a busy machine is no defect, and 30 s, the default, were too few on one
# Count what a page still waits for, and note when it last changed, to know when it is drawn. An
# answer counts until what reads it has run: between its head and its text a busy machine may take
# any time. So does a timer that is about to fire.
WATCHED = """
(() => {
  window.asked = 0; window.due = new Set(); window.calm = 0; window.violations = [];
  window.changed = performance.now();
  const { fetch, setTimeout, clearTimeout } = window;
  const over = () => setTimeout(() => { window.asked -= 1; });
  window.fetch = async (...given) => {
    window.asked += 1;
    let answer;
    try { answer = await fetch(...given); } catch (error) { over(); throw error; }
    const kind = answer.headers.get("content-type") ?? "";
    if (answer.status === 204 || kind.startsWith("text/event-stream")) over();
    else for (const name of ["json", "text"]) {
      const read = answer[name].bind(answer);
      answer[name] = () => read().finally(over);
    }
    return answer;
  };
  window.setTimeout = (act, ms = 0, ...given) => {
    const id = setTimeout(() => { window.due.delete(id); act(...given); }, ms);
    if (ms <= 500) window.due.add(id);
    return id;
  };
  window.clearTimeout = (id) => { window.due.delete(id); clearTimeout(id); };
  document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  new MutationObserver(() => { window.changed = performance.now(); })
    .observe(document, { childList: true, subtree: true, characterData: true });
})();
"""
# Looked at once in each frame: in two of them observers of sizes have had their turn.
DRAWN = """() => {
  const waits = document.readyState !== "complete" || window.asked > 0 || window.due.size > 0;
  window.calm = waits || performance.now() - window.changed < 50 ? 0 : window.calm + 1;
  return window.calm > 2;
}"""
SERIOUS = """async (options) => {
  const told = await axe.run(document, { resultTypes: ["violations"], ...options });
  return told.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map(
    (one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).join(", ")}`);
}"""


class Site(NamedTuple):
    """Where the console and the gateway of the tests are."""

    console: str
    gateway: str
    model: str
    data: Path


@contextmanager
def running(home: Path, *words: str) -> Iterator[Site]:
    """`lightgate up` with the demo's providers on the ledger that lies in a folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTGATE")}
    up = ("up", "--demo", "--port", "0", "--console-port", "0", "--log", "json", *words)
    with subprocess.Popen(
        [sys.executable, "-m", "lightgate", *up],
        cwd=home, env=clean, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said: dict[str, Any] = {}
        try:
            for line in process.stderr:
                said = json.loads(line)
                if "gateway" in said:
                    break
            assert "gateway" in said, said
            console, gateway = said["console"].rstrip("/"), said["gateway"]
            yield Site(console, gateway, said["try_model"], home / "lightgate-data")
        finally:
            process.terminate()
            process.stderr.read()
            process.wait(60)


@pytest.fixture(scope="session")
def two_weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose ledger has two weeks of traffic, made by the first worker that asks."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = shared / "two-weeks"
    with (shared / "two-weeks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            begun = tmp_path_factory.mktemp("two-weeks")
            traffic.fill(begun, SYSTEM.wall_ns() // 10**9)
            begun.rename(made)
    return made


@pytest.fixture(scope="module")
def site(two_weeks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`lightgate up` with the demo's providers, on a ledger that has two weeks of traffic.

    It ends with the file of tests: the demo asks its providers all the time.
    """
    home = tmp_path_factory.mktemp("site")
    shutil.copytree(two_weeks, home / "lightgate-data")
    (home / "lightgate-data").chmod(0o700)
    with running(home) as found:
        yield found


@pytest.fixture(scope="module")
def browser(missing: Callable[[str], None]) -> Iterator[Browser]:
    """Debian's Chromium, for the tests of one file.

    Playwright keeps a loop of its own running in this thread: while it is there, no test of another
    file can run one.
    """
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        missing("There is no chromium here; make test installs it where it may.")
    SHOTS.mkdir(exist_ok=True)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield made
        made.close()


@pytest.fixture
def visit(site: Site, browser: Browser) -> Iterator[Visit]:
    """Open a page and wait until it is drawn; at the end nothing may have gone wrong in it."""
    wrong: list[str] = []
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, reduced_motion="reduce", locale="en-GB",
        timezone_id="UTC", accept_downloads=True,
    )  # fmt: skip
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(WATCHED)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    home = urlsplit(site.console).netloc
    context.on("request", lambda one: _stays(one.url, home, wrong))
    context.on("response", lambda one: _answers(one, wrong))
    opened: list[Page] = []

    def go(path: str, **size: int) -> Page:
        page = context.new_page()
        page.on("console", lambda said: wrong.extend([said.text] if said.type == "error" else []))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if size:
            page.set_viewport_size({"width": size["width"], "height": size.get("height", 844)})
        page.goto(site.console + path)
        drawn(page)
        opened.append(page)
        return page

    yield go
    for page in opened:
        if not page.is_closed():
            wrong += page.evaluate("() => window.violations ?? []")
            assert page.evaluate("() => window.hit === undefined"), "a name ran as a script"
    context.close()
    assert wrong == []


@pytest.fixture
def signed_in(visit: Visit, site: Site) -> Visit:
    """Visit pages after a sign-in with a link of the command line."""
    code = SignIns(site.data).new_link("the tests")
    page = visit(f"/enter#{code}")
    page.wait_for_url(f"{site.console}/")
    drawn(page)
    page.close()
    return visit


def changed(visit: Visit, pattern: str, change: Change) -> None:
    """Let pages that are opened from now on be told something else."""

    def tell(route: Route) -> None:
        told = route.fetch().json()
        change(told)
        route.fulfill(json=told)

    visit("/enter").context.route(pattern, tell)


def _stays(url: str, home: str, wrong: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"data", "blob", "about", "file"} and parts.netloc != home:
        wrong.append(f"a request left the console: {url}")


def _answers(answer: Response, wrong: list[str]) -> None:
    if answer.status >= 500:  # the browser's own word for it does not say of which address
        wrong.append(f"status {answer.status} from {answer.url}")


def drawn(page: Page) -> None:
    """Wait until every question was answered and the page has stopped to change."""
    page.wait_for_function(DRAWN, polling="raf")


def watch(page: Page, state: str) -> None:
    """Note from now on whether a page was ever in a state, which may be over before one looks."""
    page.evaluate(
        f"() => {{ const is = () => {state}; window.seen = is();"
        " new MutationObserver(() => { window.seen ||= is(); }).observe(document,"
        " { childList: true, subtree: true, attributes: true, characterData: true }); }"
    )


def was_seen(page: Page) -> bool:
    """Whether the page was in the state that is watched."""
    return bool(page.evaluate("() => window.seen"))


def findings(page: Page, *rules: str) -> list[str]:
    """What axe finds serious or critical, by all its rules or by some."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    found: list[str] = page.evaluate(SERIOUS, {"runOnly": list(rules)} if rules else {})
    return found


def shot(page: Page, name: str) -> None:
    """Keep a picture of the whole page."""
    page.screenshot(path=SHOTS / f"{re.sub(r'[^a-z0-9-]', '-', name)}.png", full_page=True)
