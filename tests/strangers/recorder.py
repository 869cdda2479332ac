"""A recorder in front of the simulated providers: passes everything on and keeps what was asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOPS = {"host", "connection", "transfer-encoding", "content-length"}


class Recorder(NamedTuple):
    """Where it listens, and the path and body of every request, in order."""

    port: int
    heard: list[tuple[str, Any]]


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind: int
    heard: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        behind = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        headers = {name: text for name, text in self.headers.items() if name.lower() not in _HOPS}
        with contextlib.closing(behind):
            behind.request(self.command, self.path, body, headers)
            answer = behind.getresponse()
            data = answer.read()
        if body:
            self.heard.append((self.path, json.loads(body)))
        self.send_response(answer.status)
        for name, text in answer.getheaders():
            if name.lower() not in _HOPS:
                self.send_header(name, text)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST  # noqa: N815 - the library's name

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def recording(behind: int) -> Iterator[Recorder]:
    """Pass requests on to a port until the end of the block."""
    heard: list[tuple[str, Any]] = []
    relay = type("Relay", (_Relay,), {"behind": behind, "heard": heard})
    with ThreadingHTTPServer(("127.0.0.1", 0), relay) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Recorder(server.server_port, heard)
        server.shutdown()
