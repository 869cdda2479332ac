"""Whatever was recorded stays a text: in JSON, in CSV, in metrics, in pages and in refusals."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from console.admin.test_orders import Browser
from console.corpus import CORPUS, RUN_ID, fill, id_of

if TYPE_CHECKING:
    from console.conftest import Answer
    from lightgate.console.app import ConsoleContext

MARKUP = [text for text in CORPUS if "<" in text]
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@pytest.fixture
async def browser(console: ConsoleContext) -> Browser:
    fill(console.ledger, console.data, console.clock)
    assert console.ship_loop.work()
    made = Browser(console)
    await made.sign_in()
    return made


def reads(browser: Browser) -> list[str]:
    """Every path that is read, those of one request or run with the id of one."""
    return [
        path.replace("{id:path}", RUN_ID if "/runs/" in path else id_of(3))
        for path, methods in browser.app._registry.items()
        if "GET" in methods and path != "/api/live"
    ]


def check_csv(answer: Answer) -> None:
    for row in csv.reader(io.StringIO(answer.text)):
        for cell in row:
            assert not cell.startswith(FORMULA) or _is_number(cell), cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


async def test_every_answer_is_what_it_says_it_is(browser: Browser) -> None:
    shown: set[str] = set()
    for path in reads(browser):
        answer = await browser("GET", path)
        if answer.status in {400, 404, 503}:  # a path that asks for more than this
            assert not path.startswith(f"/api/requests/{id_of(3)}")
            assert answer.headers["content-type"].startswith(("text/plain", "application/json"))
            continue
        assert answer.status == 200, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        kind = answer.headers["content-type"].partition(";")[0]
        if kind == "application/json":
            shown |= texts(json.loads(answer.text))
        elif kind == "text/csv":
            check_csv(answer)
        elif kind == "text/html":
            assert not [text for text in MARKUP if text in answer.text], path
        elif path == "/metrics":
            assert list(text_string_to_metric_families(answer.text))
        else:
            assert path.startswith("/static/"), path
    # The API tells each of them as it is: what is cut or changed would not be tested here.
    assert set(CORPUS) <= shown


def texts(told: Any) -> set[str]:
    if isinstance(told, dict):
        return set().union(*(texts(one) for pair in told.items() for one in pair))
    if isinstance(told, list):
        return set().union(*map(texts, told))
    return {told} if isinstance(told, str) else set()


async def test_what_is_asked_for_is_not_run(browser: Browser) -> None:
    for text in CORPUS:
        await _asked(browser, text)


async def _asked(browser: Browser, text: str) -> None:
    for path in (
        f"/{quote(text)}", f"/static/{quote(text)}", f"/api/requests/{text}",
        f"/api/board?model={quote(text)}&{quote(text)}=1", f"/api/board?sort={quote(text)}",
        f"/api/spend?by={quote(text)}", f"/api/keys?state={quote(text)}",
        f"/api/audit?before={quote(text)}", f"/report?by={quote(text)}",
    ):  # fmt: skip
        answer = await browser("GET", path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in {"text/plain", "application/json"}, path
    wish = {"name": text[:100], "models": [text], "tags": {text[:60]: text[:60]}}
    made = await browser("POST", "/api/keys", wish)
    assert made.status == 409  # there is a key of this name
    assert json.loads(made.text)["message"]
    assert made.headers["content-type"] == "application/json"
    wrong = await browser("POST", "/api/keys", {"name": "a", text: 1})
    assert (wrong.status, wrong.headers["content-type"]) == (400, "application/json")
