"""The guard in front of every page: which paths exist, and which requests may see them.

A path that is not in the registry is answered with 404. The Host must be a name of the console, so
that a web site cannot reach it through a name of its own that points here; a request that another
site makes is refused; and where there is a secret, everything but the open routes needs it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import compile_path

from lightgate.gateway.process.port import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Access = Literal["open", "reader"]
METHODS: Final = ("GET", "HEAD")
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

    def admits(self, shown: str | None) -> bool:
        """Whether an Authorization header carries the secret, as a bearer or as a password."""
        if not self.secret:
            return True
        kind, _, value = (shown or "").partition(" ")
        if kind.lower() == "basic":
            value = _password(value)
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(value.strip().encode(), self.secret.encode())


class Guard:
    """An ASGI layer that lets a request through to the routes, or refuses it."""

    def __init__(
        self, app: ASGIApp, *, registry: Mapping[str, Access], access: ConsoleAccess
    ) -> None:
        self._app = app
        self._registry = registry
        self._patterns = [
            (compile_path(path)[0], access) for path, access in registry.items() if "{" in path
        ]
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            with_headers = _adding_headers(send)
            refusal = self._refusal(scope)
            await (self._app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if not self._access.knows(headers.get("host", "")):
            return _say(403, "This name is not one of the console's. Use 127.0.0.1 or localhost.")
        origin = headers.get("origin")
        if origin is not None and not self._access.knows(urlsplit(origin).netloc):
            return _say(403, "Another site may not ask the console.")
        access = self._access_to(scope["path"])
        if access is None:
            return _say(404, "There is no such page. GET / has the board.")
        if scope["method"] not in METHODS:
            return _say(405, "The console only answers GET.", allow=", ".join(METHODS))
        if access != "open" and not self._access.admits(headers.get("authorization")):
            challenge = 'Basic realm="lightgate", charset="UTF-8"'
            return _say(401, "The console needs its secret.", **{"www-authenticate": challenge})
        return None

    def _access_to(self, path: str) -> Access | None:
        """Who may see a path: one that is named, or one of a pattern; None where there is none."""
        named = self._registry.get(path)
        if named is not None:
            return named
        return next((access for shape, access in self._patterns if shape.match(path)), None)


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
