"""The orders of the console: sign-in, the life of a key, who is refused, and what is noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from console.conftest import asked
from ledger.notes import T0
from lightgate.config.load import parse_config
from lightgate.console.admin.guesses import MOST_WRONG, WINDOW_NS
from lightgate.console.admin.orders import MOST_BODY
from lightgate.console.admin.sign_in import SignIns
from lightgate.console.app import build_app
from lightgate.console.guard import ConsoleAccess
from lightgate.gateway.served.keys import Keyring
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot, read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Answer, Get
    from lightgate.clock.source import ManualClock
    from lightgate.console.app import ConsoleContext

SECRET = "open sesame, please"
SAME = {"sec-fetch-site": "same-origin"}
NAME = "lightgate-8081"


class Browser:
    """A browser at one console: it keeps the cookie, and says that its pages are the console's."""

    def __init__(self, console: ConsoleContext, access: ConsoleAccess | None = None) -> None:
        self.console = console
        self.app: Any = build_app(console, access or ConsoleAccess())
        self.cookie = ""

    async def __call__(self, method: str, path: str, body: Any = None, /, **headers: str) -> Answer:
        """Ask with the cookie."""
        fields = {"sec-fetch-site": "same-origin", "cookie": f"other=1; {NAME}={self.cookie}"}
        if body is not None:
            fields["content-type"] = "application/json"
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        fields = {name: value for name, value in fields.items() if value}
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        return await asked(self.app, path, method, fields, raw)

    async def sign_in(self) -> Answer:
        """Open a fresh link."""
        code = SignIns(self.console.data, self.console.clock).new_link("up")
        answer = await self("POST", "/api/session", authorization=f"Link {code}")
        self.cookie = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
        return answer


@pytest.fixture
async def browser(console: ConsoleContext) -> Browser:
    made = Browser(console)
    await made.sign_in()
    return made


async def log(browser: Browser) -> list[dict[str, Any]]:
    answer = await browser("GET", "/api/audit")
    rows: list[dict[str, Any]] = json.loads(answer.text)["rows"]
    return rows


# Sign-in


async def test_a_link_gives_a_cookie_that_scripts_and_sites_do_not_get(
    console: ConsoleContext,
) -> None:
    browser = Browser(console)
    before = json.loads((await browser("GET", "/api/session")).text)
    assert before["signed_in"] is False
    assert before["line"] == f"lightgate console link --data {console.data}"
    answer = await browser.sign_in()
    assert answer.status == 200
    flags = answer.headers["set-cookie"].lower().split("; ")[1:]
    assert {"httponly", "samesite=strict", "path=/"} <= set(flags)
    assert not any(flag.startswith(("domain", "max-age", "expires")) for flag in flags)
    assert browser.cookie not in answer.text
    told = json.loads((await browser("GET", "/api/session")).text)
    assert (told["signed_in"], told["via"]) == (True, "session")
    assert (await browser("GET", "/api/keys")).status == 200


async def test_behind_tls_the_cookie_is_secure(console: ConsoleContext) -> None:
    code = SignIns(console.data, console.clock).new_link("up")
    answer = await Browser(console)(
        "POST", "/api/session", authorization=f"Link {code}", x_forwarded_proto="https"
    )
    assert "; secure" in answer.headers["set-cookie"].lower()


async def test_a_link_is_good_once(console: ConsoleContext) -> None:
    code = SignIns(console.data, console.clock).new_link("up")
    browser = Browser(console)
    for status in (200, 401):
        answer = await browser("POST", "/api/session", authorization=f"Link {code}")
        assert answer.status == status
    assert "set-cookie" not in answer.headers


async def test_sign_out(browser: Browser) -> None:
    assert json.loads((await browser("DELETE", "/api/session")).text) == {"ended": 1}
    assert (await browser("GET", "/api/keys")).status == 401
    await browser.sign_in()
    other = Browser(browser.console)
    await other.sign_in()
    assert json.loads((await other("DELETE", "/api/sessions")).text) == {"ended": 2}
    assert (await browser("GET", "/api/keys")).status == 401
    assert (await other("GET", "/api/keys")).status == 401


async def test_a_session_reads_where_a_secret_is_asked_for(console: ConsoleContext) -> None:
    browser = Browser(console, ConsoleAccess("127.0.0.1", SECRET))
    assert (await browser("GET", "/api/board")).status == 401
    await browser.sign_in()
    assert (await browser("GET", "/api/board")).status == 200
    assert json.loads((await browser("GET", "/api/session")).text)["needed"] is True


# Who is refused


FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "", "origin": "http://evil.example"},
    {"sec-fetch-site": "", "origin": "http://localhost:3000"},  # another program of this machine
    {"sec-fetch-site": "", "origin": "null"},
    {"sec-fetch-site": ""},  # a browser without either header
    {"sec-fetch-site": "same-origin", "host": "evil.example:8081"},  # rebinding
    {"sec-fetch-site": "same-origin", "host": "evil.example", "origin": "http://evil.example"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_another_site_changes_nothing(browser: Browser, headers: dict[str, str]) -> None:
    for method, path, body in (
        ("POST", "/api/keys", {"name": "evil"}),
        ("PATCH", "/api/keys/x", {"rpm": 1}),
        ("POST", "/api/keys/x/revoke", None),
        ("DELETE", "/api/session", None),
        ("DELETE", "/api/sessions", None),
    ):
        fields = {name.replace("-", "_"): value for name, value in headers.items()}
        answer = await browser(method, path, body, **fields)
        assert answer.status == 403, path
    assert json.loads((await browser("GET", "/api/keys")).text)["rows"] == []


async def test_another_site_reads_no_keys(browser: Browser) -> None:
    for site in ("cross-site", "same-site"):
        assert (await browser("GET", "/api/keys", sec_fetch_site=site)).status == 403
    assert (await browser("GET", "/", sec_fetch_site="cross-site")).status == 200  # a link there
    assert (await browser("GET", "/api/keys", sec_fetch_site="none")).status == 200


async def test_a_password_that_a_browser_remembers_is_as_a_cookie(console: ConsoleContext) -> None:
    import base64

    browser = Browser(console, ConsoleAccess("127.0.0.1", SECRET))
    shown = "Basic " + base64.b64encode(f":{SECRET}".encode()).decode()
    for headers in FOREIGN:
        fields = {name.replace("-", "_"): value for name, value in headers.items()}
        answer = await browser("POST", "/api/keys", {"name": "x"}, authorization=shown, **fields)
        assert answer.status == 403
    answer = await browser("POST", "/api/keys", {"name": "x"}, authorization=shown)
    assert answer.status == 201


async def test_a_program_shows_the_secret(console: ConsoleContext) -> None:
    program = Browser(console, ConsoleAccess("127.0.0.1", SECRET))
    shown = {"authorization": f"Bearer {SECRET}", "sec_fetch_site": ""}
    answer = await program("POST", "/api/keys", {"name": "ci"}, **shown)
    assert answer.status == 201
    foreign = await program(
        "POST", "/api/keys", {"name": "y"}, **shown, origin="http://evil.example"
    )
    assert foreign.status == 403
    (entry,) = json.loads((await program("GET", "/api/audit", **shown)).text)["rows"]
    assert (entry["via"], entry["who"]) == ("bearer", "holder of the secret")


@pytest.mark.parametrize("shown", ["Bearer wrong", "Basic d3Jvbmc6d3Jvbmc=", "Link wrong"])
async def test_guessing_is_limited(console: ConsoleContext, shown: str) -> None:
    browser = Browser(console, ConsoleAccess("127.0.0.1", SECRET))
    path, method = ("/api/session", "POST") if shown.startswith("Link") else ("/metrics", "GET")
    for _ in range(MOST_WRONG):
        assert (await browser(method, path, authorization=shown)).status == 401
    refused = await browser(method, path, authorization=shown)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) > 0
    # Right ones are refused as well: else the limit would be none.
    right = await browser("GET", "/metrics", authorization=f"Bearer {SECRET}")
    assert right.status == 429
    clock: ManualClock = console.clock  # type: ignore[assignment]  # the fixture's
    clock.advance(WINDOW_NS)
    right = await browser("GET", "/metrics", authorization=f"Bearer {SECRET}")
    assert right.status == 200


async def test_guesses_do_not_lock_a_session_out(browser: Browser) -> None:
    for _ in range(MOST_WRONG + 1):
        await browser("POST", "/api/session", authorization="Link wrong")
    assert (await browser("GET", "/api/keys")).status == 200


# The life of a key


def serve(data: Path) -> None:
    """A snapshot, as a running gateway has one."""
    config = parse_config('[providers.lab]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "none"\n')
    put_snapshot(data, make_snapshot(config, (), {}))


async def test_a_key_from_its_making_to_its_end(browser: Browser, tmp_path: Path) -> None:
    serve(tmp_path)
    made = await browser(
        "POST", "/api/keys",
        {"name": "ci", "budget_usd": "5.50", "budget_period": "day", "rpm": 60, "models": ["a/b"],
         "expires": "90d", "tags": {"team": "search"}},
    )  # fmt: skip
    assert made.status == 201
    told = json.loads(made.text)
    secret, key = told["secret"], told["key"]
    assert secret.startswith("lg-")
    assert (key["budget_usd"], key["rpm"], key["tags"]) == ("5.50", 60, {"team": "search"})

    def found() -> Any:
        return Keyring(read_snapshot(tmp_path).keys).find(secret.encode(), T0)

    assert found().budget_usd == 5.5
    changed = await browser(
        "PATCH", f"/api/keys/{key['id']}", {"budget_usd": 9, "rpm": None}, if_match=key["version"]
    )
    assert changed.status == 200
    after = json.loads(changed.text)
    assert (after["budget_usd"], after["rpm"], after["models"]) == ("9", None, ["a/b"])
    assert (after["budget_period"], after["expires"]) == ("day", key["expires"])
    assert (found().budget_usd, found().rpm) == (9, None)
    stale = await browser(
        "PATCH", f"/api/keys/{key['id']}", {"rpm": 1}, if_match=f'"{key["version"]}"'
    )
    assert stale.status == 409
    revoked = await browser("POST", f"/api/keys/{key['id']}/revoke")
    assert json.loads(revoked.text)["state"] == "revoked"
    assert found() is None
    assert (await browser("POST", f"/api/keys/{key['id']}/revoke")).status == 409
    assert (await browser("PATCH", f"/api/keys/{key['id']}", {"rpm": 1})).status == 409
    (row,) = json.loads((await browser("GET", "/api/keys")).text)["rows"]
    assert (row["state"], row["prefix"]) == ("revoked", secret[:8])
    entries = await log(browser)
    assert [entry["action"] for entry in entries] == [
        "key.revoke", "key.change", "key.create", "session.begin",
    ]  # fmt: skip
    change = entries[1]
    assert change["before"] == {"budget_usd": "5.50", "rpm": 60}
    assert change["after"] == {"budget_usd": "9", "rpm": None}
    assert change["who"].startswith("session ")
    assert change["address"] == "127.0.0.1"


def written(data: Path) -> list[bytes]:
    return [path.read_bytes() for path in data.rglob("*") if path.is_file()]


async def test_the_secret_is_nowhere_else(
    browser: Browser, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serve(tmp_path)
    made = json.loads((await browser("POST", "/api/keys", {"name": "ci"})).text)
    secret = made["secret"].encode()
    kept = written(tmp_path)
    assert len(kept) > 2
    assert not any(secret in text or browser.cookie.encode() in text for text in kept)
    assert made["secret"] not in caplog.text
    for path in ("/api/keys", "/api/keys.csv", "/api/audit", "/api/audit.csv", "/api/spend"):
        text = (await browser("GET", path)).text
        assert made["secret"] not in text
        assert "hash" not in text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"), ({"name": ""}, "name"), ({"name": "a\nb"}, "name"), ({"name": 1}, "name"),
        ({"name": "x" * 101}, "name"), ({"name": "a", "rpm": 0}, "rpm"),
        ({"name": "a", "rpm": 2**31}, "rpm"), ({"name": "a", "rpm": 1.5}, "rpm"),
        ({"name": "a", "tpm": True}, "tpm"), ({"name": "a", "budget_usd": "-1"}, "budget_usd"),
        ({"name": "a", "budget_usd": "NaN"}, "budget_usd"),
        ({"name": "a", "budget_usd": "1e-12"}, "budget_usd"),
        ({"name": "a", "budget_usd": "x"}, "budget_usd"),
        ({"name": "a", "budget_period": "day"}, "budget_period"),
        ({"name": "a", "budget_period": "year"}, "budget_period"),
        ({"name": "a", "models": [""]}, "models"), ({"name": "a", "models": "x"}, "models"),
        ({"name": "a", "models": [" "]}, "models"), ({"name": "a", "max_fanout": 9}, "max_fanout"),
        ({"name": "a", "expires": "soon"}, "expires"),
        ({"name": "a", "expires": "2020-01-01"}, "expires"),
        ({"name": "a", "tags": {"": "x"}}, "tags"), ({"name": "a", "may_race": 1}, "may_race"),
        ({"name": "a", "hash": "x"}, None), ([], None), (b"{", None), (b"\xff", None),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named(browser: Browser, body: Any, field: str | None) -> None:
    answer = await browser("POST", "/api/keys", body)
    assert answer.status == 400, answer.text
    told = json.loads(answer.text)
    assert told["field"] == field
    assert told["message"].endswith(".")
    assert json.loads((await browser("GET", "/api/keys")).text)["rows"] == []


async def test_other_refusals(browser: Browser) -> None:
    assert (await browser("POST", "/api/keys", b"{}", content_type="text/plain")).status == 415
    assert (await browser("POST", "/api/keys", b" " * (MOST_BODY + 1))).status == 413
    assert (await browser("PATCH", "/api/keys/none", {"rpm": 1})).status == 404
    assert (await browser("POST", "/api/keys/none/revoke")).status == 404
    assert (await browser("POST", "/api/keys", {"name": "a"})).status == 201
    assert (await browser("POST", "/api/keys", {"name": "a"})).status == 409


async def test_taking_the_budget_takes_its_period(browser: Browser) -> None:
    made = await browser(
        "POST", "/api/keys", {"name": "a", "budget_usd": 1, "budget_period": "month"}
    )
    id_ = json.loads(made.text)["key"]["id"]
    after = json.loads((await browser("PATCH", f"/api/keys/{id_}", {"budget_usd": None})).text)
    assert (after["budget_usd"], after["budget_period"]) == (None, "total")


async def test_the_log_goes_back_page_by_page(browser: Browser) -> None:
    for number in range(5):
        await browser("POST", "/api/keys", {"name": f"key {number}"})
    first = json.loads((await browser("GET", "/api/audit?limit=4")).text)
    second = json.loads((await browser("GET", f"/api/audit?limit=4&before={first['next']}")).text)
    names = [row["name"] for row in (*first["rows"], *second["rows"])]
    assert names == ["key 4", "key 3", "key 2", "key 1", "key 0", "up"]
    assert second["next"] is None


async def test_the_document_has_every_route(get: Get, console: ConsoleContext) -> None:
    guard: Any = build_app(console, ConsoleAccess())
    told = json.loads((await get("/api/openapi.json")).text)["paths"]
    for path, methods in guard._registry.items():
        if path.startswith("/api/"):
            for method in methods:
                if method != "HEAD":
                    assert method.lower() in told[path.replace("{id:path}", "{id}")], path
    assert set(told) <= {path.replace("{id:path}", "{id}") for path in guard._registry}
