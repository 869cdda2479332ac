"""The guard by itself, around an application of two lines: each of its rules, and its edges."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from starlette.datastructures import Headers

from lightgate.clock.source import ManualClock
from lightgate.console.admin.guesses import MOST_WRONG, WrongGuesses
from lightgate.console.admin.sign_in import SignIns
from lightgate.console.guard import (
    AUTHOR,
    HEADERS,
    PAGE_POLICY,
    Access,
    ConsoleAccess,
    Credentials,
    Guard,
    cookie_name,
    cookie_of,
    reads,
)
from lightgate.ledger.audit import Author

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send

REGISTRY: dict[str, dict[str, Access]] = {
    "/open": {"GET": "open", "POST": "open"},
    "/read": {**reads("reader"), "POST": "reader"},
    "/admin": {"GET": "admin", "DELETE": "admin"},
    "/things/{id}": reads("reader"),
}
LOCAL = ConsoleAccess("127.0.0.1")
SECRET = ConsoleAccess("127.0.0.1", "open sesame")
PEER = ("10.0.0.9", 4711)


class Seen:
    """What the application was given, and what came out."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.own: list[tuple[bytes, bytes]] = []

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        self.scopes.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": list(self.own)})
            await send({"type": "http.response.body", "body": b"inside"})

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]


class Door:
    """A guard with sign-ins of its own."""

    def __init__(self, data: Path, access: ConsoleAccess) -> None:
        self.clock = ManualClock(wall_ns=1_700_000_000_000_000_000)
        self.sign_ins = SignIns(data, self.clock)
        self.seen = Seen()
        credentials = Credentials(self.sign_ins, WrongGuesses(self.clock))
        self.guard = Guard(self.seen.app, registry=REGISTRY, access=access, credentials=credentials)

    async def ask(
        self, path: str = "/read", method: str = "GET", *, host: str = "127.0.0.1:8081",
        peer: tuple[str, int] | None = PEER, **headers: str,
    ) -> Seen:  # fmt: skip
        named = {"host": host, **{name.replace("_", "-"): text for name, text in headers.items()}}
        scope: dict[str, Any] = {
            "type": "http", "method": method, "path": path, "client": peer,
            "server": ("127.0.0.1", 8081),
            "headers": [(name.encode(), text.encode()) for name, text in named.items()],
        }  # fmt: skip
        seen = self.seen
        seen.scopes, seen.status, seen.headers, seen.body = [], 0, {}, b""
        await self.guard(scope, _nothing, seen.send)
        return seen

    async def status(self, *given: str, **more: Any) -> int:
        return (await self.ask(*given, **more)).status

    def session(self) -> str:
        """The cookie of a browser that has opened a link."""
        entered = self.sign_ins.redeem(self.sign_ins.new_link("test"), "10.0.0.9")
        assert entered is not None
        return f"lightgate-8081={entered[0]}"


async def _nothing() -> Message:
    return {"type": "http.request"}


@pytest.fixture
def local(tmp_path: Path) -> Door:
    return Door(tmp_path, LOCAL)


@pytest.fixture
def secret(tmp_path: Path) -> Door:
    return Door(tmp_path, SECRET)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("kind", "value", "answer"),
    [
        ("bearer", "open sesame", True), ("bearer", "  open sesame ", True),
        ("bearer", "open sesam", False), ("bearer", "open sesame!", False), ("bearer", "", False),
        ("link", "open sesame", False), ("", "open sesame", False),
        ("basic", basic("anybody:open sesame")[6:], True), ("basic", "open sesame", False),
        ("basic", basic("open sesame")[6:], False), ("basic", basic(":open sesame")[6:], True),
        ("basic", basic("a:b:open sesame")[6:], False), ("basic", "/w==", False),
        ("basic", f" {basic('x:open sesame')[6:]} ", True),
        ("basic", basic("x:open sesame")[6:].replace("G", "\nG"), False),
    ],
)  # fmt: skip
def test_the_secret_is_shown_as_a_bearer_or_as_a_password(
    kind: str, value: str, answer: bool
) -> None:
    assert SECRET.admits(kind, value) is answer
    assert LOCAL.admits(kind, "") is False  # no secret is not an empty secret


@pytest.mark.parametrize("value", ["!!", "/w==", "XX"])
def test_what_is_no_password_is_no_word_that_could_be_the_secret(value: str) -> None:
    assert not ConsoleAccess("127.0.0.1", "XX").admits("basic", value)


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True), ("127.0.0.1:1", True), ("localhost:8081", True), ("[::1]:8081", True),
        ("", False), (":8081", False), ("127.0.0.1/x", False), ("127.0.0.1?x", False),
        ("127.0.0.1#x", False), ("user@127.0.0.1", False), ("@127.0.0.1", False),
        ("127.0.0.1:99999", False), ("127.0.0.1:x", False), ("[::1", False), ("gate", False),
    ],
)  # fmt: skip
def test_a_host_that_says_more_than_a_name_and_a_port_is_none(host: str, answer: bool) -> None:
    assert LOCAL.knows(host) is answer


def test_the_address_that_is_listened_on_is_a_name_of_the_console() -> None:
    for own in ("Gate.Example", "gate.example"):
        assert ConsoleAccess(own).knows("GATE.example:8081")
    assert ConsoleAccess("[fd00::1]").knows("[fd00::1]:8081")
    assert not ConsoleAccess("gate.example").knows("gate.example.evil")
    for anywhere in ("0.0.0.0", "::", ""):
        assert ConsoleAccess(anywhere, "s").knows("any.name")
        assert not ConsoleAccess(anywhere).knows("any.name")
    assert (ConsoleAccess().host, ConsoleAccess().secret) == ("127.0.0.1", "")


async def test_where_every_name_is_good_a_request_still_needs_one(tmp_path: Path) -> None:
    door = Door(tmp_path, ConsoleAccess("0.0.0.0", "open sesame"))
    shown = {"authorization": "Bearer open sesame"}
    assert await door.status(host="gate.example", **shown) == 200
    assert await door.status(host="gate.example", origin="http://[", **shown) == 403
    assert await door.status(host="gate.example", origin="null", **shown) == 403
    assert await door.status(host="", **shown) == 403
    scope = {"type": "http", "method": "GET", "path": "/open", "headers": []}
    await door.guard(scope, _nothing, door.seen.send)
    assert door.seen.status == 403


async def test_what_is_no_request_is_passed_on_or_left(local: Door) -> None:
    await local.guard({"type": "lifespan"}, _nothing, local.seen.send)
    assert local.seen.scopes == [{"type": "lifespan"}]
    await local.guard({"type": "websocket"}, _nothing, local.seen.send)
    assert len(local.seen.scopes) == 1
    assert local.seen.status == 0


def test_what_is_only_read_has_two_methods() -> None:
    assert reads("admin") == {"GET": "admin", "HEAD": "admin"}


async def test_a_refusal_is_counted_and_the_application_never_asked(local: Door) -> None:
    refusals: list[tuple[dict[str, Any], int]] = [
        ({"host": "evil.example"}, 403), ({"origin": "http://evil.example"}, 403),
        ({"path": "/nothing"}, 404), ({"path": "/things/"}, 404), ({"path": "/things/a/b"}, 404),
        ({"path": "/open", "method": "PUT"}, 405), ({"path": "/admin"}, 401),
    ]  # fmt: skip
    for given, status in refusals:
        seen = await local.ask(**given)
        assert (seen.status, seen.scopes) == (status, []), given
        assert seen.headers["content-type"].startswith("text/plain")
        assert seen.body.endswith(b".\n")
    assert local.guard.refused == {403: 2, 404: 3, 405: 1, 401: 1}
    assert (await local.ask("/open", "PUT")).headers["allow"] == "GET, POST"
    for path in ("/open", "/read", "/things/x"):
        seen = await local.ask(path)
        assert (seen.status, seen.body, len(seen.scopes)) == (200, b"inside", 1)
        assert seen.scopes[0][AUTHOR] is None
    assert local.guard.refused.total() == 8
    assert await local.status("/read", "HEAD") == 200


async def test_a_secret_guards_what_is_read_and_a_session_what_administers(
    local: Door, secret: Door
) -> None:
    seen = await secret.ask("/read")
    assert seen.status == 401
    assert seen.headers["www-authenticate"] == 'Basic realm="lightgate", charset="UTF-8"'
    assert await secret.status("/open") == 200
    assert await secret.status("/read", authorization="Bearer open sesame") == 200
    for door in (local, secret):
        seen = await door.ask("/admin")
        assert seen.status == 401
        assert seen.headers["www-authenticate"] == 'Bearer realm="lightgate"'
        assert await door.status("/admin", cookie=door.session()) == 200
    assert await local.status("/read") == 200
    assert await local.status("/admin", authorization="Bearer ") == 401


async def test_who_asks_is_known_inside(secret: Door) -> None:
    async def author(**shown: Any) -> Author | None:
        seen = await secret.ask("/admin", **shown)
        found: Author | None = seen.scopes[0][AUTHOR]
        return found

    assert await author(authorization="BEARER open sesame") == Author(
        "bearer", "holder of the secret", "10.0.0.9"
    )
    assert await author(authorization=basic("x:open sesame")) == Author(
        "password", "holder of the secret", "10.0.0.9"
    )
    cookie = secret.session()
    known = secret.sign_ins.session_of(cookie.partition("=")[2])
    assert known is not None
    wanted = Author("session", f"session {known.id}, link by test", "10.0.0.9")
    for shown in (cookie, f"a=b; {cookie}", f"{cookie};x=y", f"lightgate-808=x;  {cookie} ; z"):
        assert await author(cookie=shown) == wanted
    # A cookie counts beside words that are no credential of ours, as those of a proxy are.
    assert await author(cookie=cookie, authorization="Negotiate abc") == wanted
    seen = await secret.ask("/admin", peer=None, cookie=cookie)
    assert seen.scopes[0][AUTHOR].address == ""


@pytest.mark.parametrize(
    "cookie", ["", "lightgate-8081", "lightgate-8081=", "lightgate-8081=x", "x=lightgate-8081"]
)
async def test_another_cookie_opens_nothing(local: Door, cookie: str) -> None:
    assert await local.status("/admin", cookie=cookie) == 401


async def test_the_cookie_of_another_port_is_another_one(local: Door) -> None:
    cookie = local.session().replace("8081", "8082")
    assert await local.status("/admin", cookie=cookie) == 401
    assert cookie_name({"server": ("127.0.0.1", 8082)}) == "lightgate-8082"
    assert cookie_name({"server": None}) == cookie_name({}) == "lightgate-0"
    assert cookie_of({}, Headers({"cookie": "lightgate-1=x"})) == cookie_of({}, Headers()) == ""


async def test_a_wrong_secret_hides_the_session_beside_it(secret: Door) -> None:
    shown = {"cookie": secret.session(), "authorization": "Bearer wrong"}
    assert await secret.status("/admin", **shown) == 401


OWN = "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("headers", "reading", "admin", "changing"),
    [
        ({"sec_fetch_site": "same-origin"}, 200, 200, 200),
        ({"sec_fetch_site": "none"}, 200, 200, 200),
        ({"sec_fetch_site": "same-site"}, 200, 403, 403),
        ({"sec_fetch_site": "cross-site"}, 200, 403, 403),
        ({"sec_fetch_site": "cross-site", "origin": OWN}, 200, 403, 403),
        ({"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:9"}, 200, 200, 200),
        ({"origin": OWN}, 200, 200, 200),
        ({"origin": "HTTP://127.0.0.1:8081"}, 200, 200, 200),
        ({"origin": "http://127.0.0.1:9"}, 200, 403, 403),  # another program of this machine
        ({"origin": "http://localhost:8081"}, 200, 403, 403),
        ({"origin": "http://evil.example"}, 403, 403, 403),
        ({"origin": "null"}, 403, 403, 403),
        ({"origin": "http://["}, 403, 403, 403),
        ({}, 200, 200, 403),  # a browser says where a change comes from
    ],
)
async def test_a_session_is_good_for_the_console_s_own_pages(
    local: Door, headers: dict[str, str], reading: int, admin: int, changing: int
) -> None:
    shown: dict[str, Any] = {**headers, "cookie": local.session()}
    assert await local.status("/read", **shown) == reading
    assert await local.status("/admin", **shown) == admin
    assert await local.status("/admin", "DELETE", **shown) == changing


async def test_a_host_in_capitals_is_the_same_site(local: Door) -> None:
    shown = {"host": "LocalHost:8081", "origin": "http://localhost:8081"}
    assert await local.status("/admin", "DELETE", cookie=local.session(), **shown) == 200


async def test_a_program_with_the_secret_need_not_say_for_which_page(secret: Door) -> None:
    assert await secret.status("/admin", "DELETE", authorization="Bearer open sesame") == 200
    password = basic("x:open sesame")
    assert await secret.status("/admin", "DELETE", authorization=password) == 403
    assert await secret.status("/admin", "DELETE", authorization=password, origin=OWN) == 200
    # What nobody in particular may change needs no page either.
    assert await secret.status("/open", "POST") == 200
    assert await secret.status("/open", "POST", origin="http://127.0.0.1:9") == 403


async def test_who_guesses_waits_and_nobody_else_does(secret: Door) -> None:
    for _ in range(MOST_WRONG):
        assert await secret.status(authorization="Bearer wrong") == 401
    for right in ("Bearer open sesame", "Digest x"):
        seen = await secret.ask(authorization=right)
        assert (seen.status, seen.headers["retry-after"]) == (429, "60")
    assert secret.guard.refused[429] == 2
    assert await secret.status(cookie=secret.session()) == 200
    assert await secret.status("/open") == 200
    other = ("10.0.0.8", 1)
    assert await secret.status(authorization="Bearer open sesame", peer=other) == 200
    secret.clock.advance(60_000_000_000)
    assert await secret.status(authorization="Bearer open sesame") == 200


async def test_words_that_are_no_credential_of_ours_are_no_guess(local: Door, secret: Door) -> None:
    for _ in range(2 * MOST_WRONG):
        assert await secret.status(authorization="Digest wrong") == 401
        assert await local.status(authorization="Bearer wrong") == 200
    assert await secret.status(authorization="Bearer open sesame") == 200


async def test_an_answer_may_bring_headers_of_its_own(local: Door) -> None:
    seen = await local.ask()
    assert seen.headers == {**HEADERS, "content-security-policy": PAGE_POLICY}
    local.seen.own = [(b"content-security-policy", b"own"), (b"cache-control", b"max-age=1")]
    seen = await local.ask()
    assert seen.headers["content-security-policy"] == "own"
    assert seen.headers["cache-control"] == "max-age=1"
    assert seen.headers["x-frame-options"] == "DENY"
    assert len(seen.headers) == len(HEADERS) + 1
