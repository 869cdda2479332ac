"""The guard in front of every page: which paths exist, and which requests may see them.

A path that is not in the registry is answered with 404. The Host must be a name of the console, so
that a web site cannot reach it through a name of its own that points here; a request that another
site makes is refused; where there is a secret, everything but the open routes needs it or a
session; and what administers needs one of them always, on loopback too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import compile_path

from lightgate.gateway.process.port import is_loopback
from lightgate.ledger.audit import Author

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lightgate.console.admin.guesses import WrongGuesses
    from lightgate.console.admin.sign_in import SignIns

# open: to all. reader: on loopback to all, unless there is a secret. admin: to sessions and to
# holders of the secret alone.
Access = Literal["open", "reader", "admin"]
METHODS: Final = ("GET", "HEAD")
AUTHOR: Final = "lightgate.author"  # in the scope: the Author of a request, or None
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
# The report brings a stricter policy of its own, which seals its one script and its style.
REPORT_POLICY: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_ANY_ADDRESS: Final = frozenset(("0.0.0.0", "::", ""))  # noqa: S104 - recognised, not bound


class ConsoleAccess(msgspec.Struct, frozen=True):
    """Where the console listens and the secret it asks for; empty where it asks for none."""

    host: str = "127.0.0.1"
    secret: str = ""

    def knows(self, host: str) -> bool:
        """Whether a Host header names the console.

        A secret guards the wildcard address: there every name is as good as another, and a site
        that borrows one has no secret to show.
        """
        name = _host_name(host)
        if name is None:
            return False
        wildcard = self.host in _ANY_ADDRESS and bool(self.secret)
        return wildcard or is_loopback(name) or name == self.host.lower().strip("[]")

    def admits(self, kind: str, value: str) -> bool:
        """Whether an Authorization header carries the secret, as a bearer or as a password."""
        if kind == "basic":
            value = _password(value)
        elif kind != "bearer":
            return False
        shown, secret = value.strip().encode(), self.secret.encode()
        return bool(secret) and hmac.compare_digest(shown, secret)


class Credentials(NamedTuple):
    """What the guard knows people by: sessions, and who has shown wrong secrets."""

    sign_ins: SignIns
    guesses: WrongGuesses


class Guard:
    """An ASGI layer that lets a request through to the routes, or refuses it.

    `registry` has the access of every path and method. `refused` counts by status.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        registry: Mapping[str, Mapping[str, Access]],
        access: ConsoleAccess,
        credentials: Credentials,
    ) -> None:
        self._app = app
        self._registry = registry
        self._patterns = [
            (compile_path(path)[0], methods) for path, methods in registry.items() if "{" in path
        ]
        self._access = access
        self._credentials = credentials
        self.refused: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            with_headers = _adding_headers(send)
            refusal = self._refusal(scope)
            if refusal is not None:
                self.refused[refusal.status_code] += 1
            await (self._app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if not self._access.knows(headers.get("host", "")):
            return _say(403, "This name is not one of the console's. Use 127.0.0.1 or localhost.")
        origin = headers.get("origin")
        if origin is not None and not self._access.knows(_netloc(origin)):
            return _say(403, "Another site may not ask the console.")
        methods = self._methods_of(scope["path"])
        if methods is None:
            return _say(404, "There is no such page. GET / has the board.")
        access = methods.get(scope["method"])
        if access is None:
            allowed = ", ".join(sorted(methods))
            return _say(405, f"This path answers to {allowed}.", allow=allowed)
        return self._unproven(scope, headers, access)

    def _unproven(self, scope: Scope, headers: Headers, access: Access) -> PlainTextResponse | None:
        """Refuse a request that lacks a credential, or whose page is another one's."""
        wait_s = self._wait_s(scope, headers)
        if wait_s:
            said = f"Too many wrong secrets came from this address; wait {wait_s} s."
            return _say(429, said, **{"retry-after": str(wait_s)})
        author = scope[AUTHOR] = self._author(scope, headers)
        if author is None and access == "reader" and self._access.secret:
            challenge = 'Basic realm="lightgate", charset="UTF-8"'
            return _say(401, "The console needs its secret.", **{"www-authenticate": challenge})
        if author is None and access == "admin":
            said = "This needs a session: `lightgate console link` prints a link that begins one."
            return _say(401, said, **{"www-authenticate": 'Bearer realm="lightgate"'})
        writes = scope["method"] not in METHODS
        same = _same_site(headers)
        if same is False and (writes or access == "admin"):
            return _say(403, "Another site may not ask the console for this.")
        if same is None and writes and author is not None and author.via != "bearer":
            # A browser sends cookies and passwords by itself: it has to say for which page.
            return _say(403, "A change needs the header Origin or Sec-Fetch-Site.")
        return None

    def _wait_s(self, scope: Scope, headers: Headers) -> int:
        shown = "authorization" in headers
        return self._credentials.guesses.wait_s(address_of(scope)) if shown else 0

    def _author(self, scope: Scope, headers: Headers) -> Author | None:
        """Who asks: the holder of the secret or of a session, or nobody in particular."""
        kind, _, value = headers.get("authorization", "").partition(" ")
        kind, address = kind.lower(), address_of(scope)
        if self._access.secret and kind in {"basic", "bearer"}:
            if self._access.admits(kind, value):
                who: Literal["bearer", "password"] = "bearer" if kind == "bearer" else "password"
                return Author(who, "holder of the secret", address)
            self._credentials.guesses.note(address)
            return None
        cookie = cookie_of(scope, headers)
        session = self._credentials.sign_ins.session_of(cookie) if cookie else None
        if session is None:
            return None
        return Author("session", f"session {session.id}, link by {session.by}", address)

    def _methods_of(self, path: str) -> Mapping[str, Access] | None:
        """The methods of a path: one that is named, or one of a pattern; None: there is none."""
        named = self._registry.get(path)
        if named is not None:
            return named
        return next((methods for shape, methods in self._patterns if shape.match(path)), None)


def reads(access: Access) -> dict[str, Access]:
    """The methods of a path that is only read."""
    return dict.fromkeys(METHODS, access)


def cookie_name(scope: Scope) -> str:
    """The name of the session's cookie: cookies do not know ports, so the port is in it."""
    server = scope.get("server")
    return f"lightgate-{server[1] if server else 0}"


def cookie_of(scope: Scope, headers: Headers) -> str:
    """The session's cookie in a request; empty where there is none."""
    wanted = cookie_name(scope)
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return ""


def address_of(scope: Scope) -> str:
    """The address that a request came from, without its port."""
    client = scope.get("client")
    return client[0] if client else ""


def _same_site(headers: Headers) -> bool | None:
    """Whether a page of the console itself asks; None where the request does not say."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("origin")
    return None if origin is None else _netloc(origin).lower() == headers["host"].lower()


def _adding_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("content-security-policy", PAGE_POLICY)
        await send(message)

    return sending


def _say(status: int, sentence: str, **headers: str) -> PlainTextResponse:
    return PlainTextResponse(f"{sentence}\n", status_code=status, headers=headers)


def _netloc(origin: str) -> str:
    """The host and port of an origin; empty for what is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host_name(authority: str) -> str | None:
    """The host of an authority, in lower case and without its port; None for anything else."""
    try:
        parts = urlsplit(f"//{authority}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    strange = parts.path or parts.query or parts.fragment or parts.username is not None
    return None if strange or not name else name


def _password(value: str) -> str:
    """The password of Basic credentials; the user's name does not matter."""
    try:
        text = base64.b64decode(value.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text.partition(":")[2]
