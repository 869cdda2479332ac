"""Serves golden answers on a free port: the standard library alone, for every environment.

The model that is asked for names the answer: CASE.NAME is the file CASE/NAME.sse, or .json.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: Path
    heard: list[dict[str, Any]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.heard.append(asked)
        model, _, verb = self.path.rpartition("/")[2].partition("?")[0].partition(":")
        streamed = bool(asked.get("stream")) or verb.startswith("stream")
        case, _, name = asked.get("model", model).partition(".")
        body = (self.answers / case / f"{name}.{'sse' if streamed else 'json'}").read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def opened(answers: Path, heard: list[dict[str, Any]]) -> Iterator[int]:
    """Listen until the end of the block, and keep what was asked; yields the port."""
    door = type("Door", (_Door,), {"answers": answers, "heard": heard})
    with ThreadingHTTPServer(("127.0.0.1", 0), door) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
