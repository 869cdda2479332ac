"""A provider of all dialects that says golden answers, and keeps what it was asked.

The model names the answer: parallel.gemini is tests/fixtures/translate/answers/parallel/gemini.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS = Path(__file__).parents[1] / "fixtures" / "translate" / "answers"


class Reciter(NamedTuple):
    """Where it listens and what it heard, in order."""

    port: int
    heard: list[dict[str, Any]]

    def asked(self, word: str) -> dict[str, Any]:
        """The one body that has this word in it."""
        (found,) = [body for body in self.heard if f'"{word}"' in json.dumps(body)]
        return found


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: list[dict[str, Any]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.heard.append(asked)
        model, _, verb = self.path.rpartition("/")[2].partition("?")[0].partition(":")
        streamed = bool(asked.get("stream")) or verb.startswith("stream")
        case, _, dialect = asked.get("model", model).partition(".")
        body = (ANSWERS / case / f"{dialect}.{'sse' if streamed else 'json'}").read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def reciting() -> Iterator[Reciter]:
    heard: list[dict[str, Any]] = []
    door = type("Door", (_Door,), {"heard": heard})
    with ThreadingHTTPServer(("127.0.0.1", 0), door) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Reciter(server.server_port, heard)
        server.shutdown()
