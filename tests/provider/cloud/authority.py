"""A token endpoint on loopback, in a thread: it answers as Google's and Entra ID's do."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from lightgate.clock.source import SYSTEM
from lightgate.provider.cloud.tokens import TokenKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

CANARY = "canary-9f3a-secret-of-the-authority"


class Authority:
    """What is asked of it, and what it says: `life_s` of its tokens, or a failure that repeats."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.life_s = 3600
        self.broken = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The last token that was given."""
        return f"ya29.token-{len(self.asked)}"

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(asked)
        if self.broken:
            said = f"no: {asked['form'].get('assertion', [CANARY])[0]} {CANARY}"
            return 400, {"error": "invalid_grant", "error_description": said}
        until = SYSTEM.wall_ns() // 1_000_000_000 + self.life_s
        found = {"access_token": self.token, "token_type": "Bearer", "expires_in": self.life_s}
        return 200, found | {"expires_on": str(until), "resource": "x"}


class _Handler(BaseHTTPRequestHandler):
    authority: Authority

    def _do(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        parts = urlsplit(self.path)
        asked = {
            "path": parts.path,
            "query": parse_qs(parts.query),
            "form": parse_qs(self.rfile.read(size).decode()),
            "headers": {name.lower(): value for name, value in self.headers.items()},
        }
        metadata = parts.path.startswith("/computeMetadata") or parts.path == "/"
        if metadata and not parts.path.endswith("/token"):
            self._say(200, {"email": "machine@example", "scopes": [], "aliases": ["default"]})
            return
        self._say(*self.authority.answer(asked))

    do_GET = do_POST = _do  # noqa: N815 - the library's names

    def _say(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("metadata-flavor", "Google")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@contextmanager
def authority() -> Iterator[Authority]:
    """A token endpoint that lives as long as the block."""
    found = Authority()
    handler = type("Handler", (_Handler,), {"authority": found})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def service_account(folder: Path, found: Authority) -> tuple[Path, Any]:
    """The file of a service account whose tokens come from here, and its public key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "account.json"
    facts = {
        "type": "service_account",
        "project_id": "proj",
        "private_key_id": "k1",
        "private_key": pem.decode(),
        "client_email": "sa@proj.example",
        "client_id": "1",
        "token_uri": f"{found.url}/token",
    }
    file.write_text(json.dumps(facts))
    return file, key.public_key()


@contextmanager
def keepers_ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread of a keeper outlives the block: it would go on renewing, and tell other tests."""
    begun: list[TokenKeeper] = []
    begin = TokenKeeper.start

    def start(self: TokenKeeper) -> None:
        begun.append(self)
        begin(self)

    monkeypatch.setattr(TokenKeeper, "start", start)
    try:
        yield
    finally:
        for keeper in begun:
            keeper.close()
