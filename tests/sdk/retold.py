"""Serves the golden answers to an SDK, from inside its own environment: the standard library alone.

The model that is asked for names the golden: CASE.SOURCE--TARGET.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers = Path()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model, _, verb = self.path.rpartition("/")[2].partition("?")[0].partition(":")
        stream = asked.get("stream") or verb.startswith("stream")
        case, _, name = asked.get("model", model).partition(".")
        body = (self.answers / case / f"{name}.{'sse' if stream else 'json'}").read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def served(answers: str) -> Iterator[str]:
    door = type("Door", (_Door,), {"answers": Path(answers)})
    with ThreadingHTTPServer(("127.0.0.1", 0), door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def goldens(answers: str, target: str) -> list[str]:
    files = Path(answers).glob(f"*/*--{target}.sse")
    return sorted(f"{file.parent.name}.{file.stem}" for file in files)


def invalid(
    answers: str, model: str, check: Callable[[Any], Any], whole: Callable[[Any], Any]
) -> list[str]:
    """Hold every event, and the body, against the SDK's own types, which it trusts unchecked."""
    case, _, name = model.partition(".")
    lines = (Path(answers) / case / f"{name}.sse").read_text("utf-8").split("\n")
    said = [line[6:] for line in lines if line.startswith("data: ")]
    body = (Path(answers) / case / f"{name}.json").read_text("utf-8")
    found = []
    for test, data in [*((check, data) for data in said if data != "[DONE]"), (whole, body)]:
        try:
            test(json.loads(data))
        except ValueError as problem:
            found.append(str(problem))
    return found
