from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.console.app import build_app
from lightgate.console.guard import HEADERS, PAGE_POLICY, ConsoleAccess
from lightgate.console.site.pages import FILES, PAGES

if TYPE_CHECKING:
    from console.conftest import Get
    from lightgate.console.app import ConsoleContext

STATIC_PATHS = [f"/static/{name}" for name in FILES]
SECRET = ConsoleAccess("0.0.0.0", "open sesame")
# What needs no credential, whatever the console's secret: all of it, by name.
OPEN = {
    ("GET", "/health/live"), ("GET", "/health/ready"), ("GET", "/enter"),
    ("GET", "/static/enter.js"), ("GET", "/static/console.css"), ("GET", "/static/icon.svg"),
    ("POST", "/api/session"),
}  # fmt: skip
# What needs a session or the secret on loopback too, though it is only read.
ADMIN_READS = {"/api/keys", "/api/spend", "/api/audit", "/api/config", "/api/health"}


def every(
    console: ConsoleContext, access: ConsoleAccess | None = None
) -> list[tuple[str, str, str]]:
    """Each method and path of the console with its access, as the guard has them."""
    guard: Any = build_app(console, access or ConsoleAccess())
    return [
        (method, re.sub(r"{id(:path)?}", "some-id", path), allowed)
        for path, methods in guard._registry.items()
        for method, allowed in methods.items()
        if method != "HEAD"
    ]


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


async def test_with_a_secret_every_route_but_the_named_ones_needs_it(
    get: Get, console: ConsoleContext
) -> None:
    found = every(console)
    assert len(found) > 40
    for method, path, allowed in found:
        refused = await get(path, method=method, access=SECRET)
        open_ = (method, path) in OPEN
        if (method, path) == ("POST", "/api/session"):
            assert "link" in refused.text  # it looks at the link alone
            continue
        assert (refused.status == 401) is not open_, path
        assert (allowed == "open") is open_, path
        if not open_:
            wanted = "Bearer " if allowed == "admin" else "Basic "
            assert refused.headers["www-authenticate"].startswith(wanted)
            for wrong in ("Bearer open", "Bearer ", basic("sesame"), "Basic !!", "open sesame",
                          "Basic", "Link open sesame"):  # fmt: skip
                answer = await get(path, method=method, access=SECRET, authorization=wrong)
                assert answer.status == 401, path


async def test_on_loopback_what_administers_needs_a_credential(
    get: Get, console: ConsoleContext
) -> None:
    admin = set()
    for method, path, allowed in every(console):
        if allowed == "admin":
            admin.add((method, path))
            for shown in ({}, {"authorization": "Bearer "}, {"cookie": "lightgate-8081=x"}):
                answer = await get(path, method=method, **shown)
                assert answer.status == 401, path
                assert "lightgate console link" in answer.text
    reads = {path.removesuffix(".csv") for method, path in admin if method == "GET"}
    assert reads == ADMIN_READS
    # And whatever is no reading administers; the sign-in alone is open.
    others = {(method, path) for method, path, _ in every(console) if method != "GET"} - admin
    assert others == {("POST", "/api/session")}


@pytest.mark.parametrize("path", ["/", "/api/board", "/metrics", "/static/board.js"])
@pytest.mark.parametrize("shown", ["Bearer open sesame", basic("open sesame")])
async def test_the_secret_opens(get: Get, path: str, shown: str) -> None:
    assert (await get(path, access=SECRET, authorization=shown)).status == 200


@pytest.mark.parametrize(
    "path", ["/admin", "/api", "/static/", "/static/../app.py", "/static/board.html", "//", "/docs"]
)
async def test_what_is_not_in_the_registry_does_not_exist(get: Get, path: str) -> None:
    assert (await get(path)).status == 404


@given(st.text(), st.sampled_from(["", "127.0.0.1", "localhost", "[::1]"]))
def test_only_loopback_names_are_ours(text: str, start: str) -> None:
    host = start + text
    if ConsoleAccess().knows(host):
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.rstrip(":").lower()
        assert name.startswith(("127.", "localhost", "[::1]", "[0"))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_no_other_method_is_answered(get: Get, console: ConsoleContext, method: str) -> None:
    found = every(console)
    known = {(one, path) for one, path, _ in found}
    for path in {path for _, path, _ in found}:
        if (method, path) not in known:
            answer = await get(path, method=method)
            assert answer.status == 405, path
            assert method not in answer.headers["allow"].split(", ")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8081", 200), ("localhost:8081", 200), ("LOCALHOST", 200), ("[::1]:8081", 200),
        ("127.0.0.1", 200), ("evil.example", 403), ("evil.example:8081", 403), ("", 403),
        ("127.0.0.1.evil.example", 403), ("localhost@evil.example", 403), ("192.168.0.7", 403),
        ("127.0.0.1:8081/x", 403), ("127.0.0.1:port", 403), ("[::1", 403), ("0.0.0.0:8081", 403),
    ],
)  # fmt: skip
async def test_a_borrowed_name_is_refused(get: Get, host: str, status: int) -> None:
    assert (await get("/", host=host)).status == status


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1.evil.example", "http://["]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_site_is_refused(get: Get, origin: str, method: str) -> None:
    assert (await get("/api/board", method=method, origin=origin)).status == 403
    assert (await get("/api/board", origin="http://127.0.0.1:8081")).status == 200


@pytest.mark.parametrize(
    ("access", "host", "answer"),
    [
        (ConsoleAccess("0.0.0.0", "s"), "gate.example", True),
        (ConsoleAccess("0.0.0.0"), "gate.example", False),
        (ConsoleAccess("10.0.0.1", "s"), "10.0.0.1:8081", True),
        (ConsoleAccess("10.0.0.1", "s"), "x.y", False),
        (ConsoleAccess("fd00::1", "s"), "[fd00::1]:8081", True),
    ],
)  # fmt: skip
def test_names_beside_loopback(access: ConsoleAccess, host: str, answer: bool) -> None:
    assert access.knows(host) is answer


async def test_every_answer_has_the_headers(get: Get, console: ConsoleContext) -> None:
    for path in (*(path for method, path, _ in every(console) if method == "GET"), "/nothing"):
        answer = await get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert path == "/report" or policy == PAGE_POLICY


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_the_pages_have_nothing_inline(get: Get, path: str) -> None:
    page = (await get(path)).text
    assert "<script>" not in page
    assert "style=" not in page
    assert "onclick" not in page
    for linked in re.findall(r'(?:href|src)="(/[^"]*)"', page):  # no link leads nowhere
        admin = linked.removesuffix(".csv") in ADMIN_READS
        assert (await get(linked)).status == (401 if admin else 200), linked


async def test_the_scripts_make_no_markup_of_text(get: Get) -> None:
    for path in STATIC_PATHS:
        if path.endswith(".js"):
            script = (await get(path)).text
            for risky in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ):
                assert risky not in script, path
            for imported in re.findall(r'from "\./([^"]*)"', script):
                assert f"/static/{imported}" in STATIC_PATHS


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/static/board.js", "text/javascript"),
     ("/static/console.css", "text/css"), ("/static/icon.svg", "image/svg+xml")],
)  # fmt: skip
async def test_kinds_of_files(get: Get, path: str, kind: str) -> None:
    assert (await get(path)).headers["content-type"].startswith(kind)
