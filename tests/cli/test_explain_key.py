"""The key of `lightgate explain`: it goes to the gateway and to nobody else."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

from lightgate.cli.explain import _TRIES, _from_gateway

if TYPE_CHECKING:
    import pytest


def test_a_redirect_and_a_proxy_get_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []

    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["authorization"]))
            self.send_response(302)
            self.send_header("location", f"http://127.0.0.1:{port}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        try:
            assert _from_gateway("x", f"http://127.0.0.1:{port}", "secret") is None
        finally:
            server.shutdown()
            thread.join()
    assert seen == [("/v1/requests/x", "Bearer secret")] * _TRIES
