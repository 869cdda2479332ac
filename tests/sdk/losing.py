"""A proxy that loses answers: the standard library alone, for every environment."""

from __future__ import annotations

import contextlib
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Loser(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind: str
    lost: list[str]

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        kept = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in {"host", "content-length", "connection", "accept-encoding"}
        }
        there = http.client.HTTPConnection(self.behind, timeout=60)
        there.request(self.command, self.path, body, kept)
        answer = there.getresponse()
        content = answer.read()
        there.close()
        if self.command == "POST" and self.path not in self.lost:
            self.lost.append(self.path)  # it was carried out, and nobody hears of it
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("content-type", answer.getheader("content-type", ""))
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _pass_on  # noqa: N815 - names of the standard library

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def losing(url: str) -> Iterator[tuple[str, list[str]]]:
    """An address that loses the first answer to a POST of each path, and what it has lost."""
    lost: list[str] = []
    loser = type("Loser", (_Loser,), {"behind": urlsplit(url).netloc, "lost": lost})
    with ThreadingHTTPServer(("127.0.0.1", 0), loser) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", lost
        server.shutdown()
