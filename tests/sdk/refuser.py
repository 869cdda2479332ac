"""A server of all dialects that refuses as providers do, with their headers: stdlib alone.

The model names the answer: `long` (the prompt is too long), `limited` (429), anything else is
answered. Below /mistral, /cohere, /together and /deepseek a field outside of what these providers
take is refused with 422.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON = {"model", "messages", "stream", "max_tokens", "temperature", "tools", "response_format"}
TAKES = {
    "mistral": COMMON | {"random_seed"},
    "cohere": COMMON | {"seed"},
    "together": COMMON | {"seed", "stream_options", "user"},
    "deepseek": COMMON | {"seed", "stream_options", "user", "max_completion_tokens"},
}
ROLES = {"system", "user", "assistant", "tool"}
LONG: dict[str, Any] = {
    "openai": {"error": {"message": "This model's maximum context length is 8192 tokens.",
                         "type": "invalid_request_error", "param": "messages",
                         "code": "context_length_exceeded"}},
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error",
                                             "message": "prompt is too long: 9000 tokens > 8192"}},
    "gemini": {"error": {"code": 400, "status": "INVALID_ARGUMENT",
                         "message": "The input token count (9000) exceeds the maximum number of"
                                    " tokens allowed (8192)."}},
}  # fmt: skip
LIMITED: dict[str, Any] = {
    "openai": {"error": {"message": "Rate limit reached", "type": "tokens", "param": None,
                         "code": "rate_limit_exceeded"}},
    "anthropic": {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}},
    "gemini": {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota"}},
}  # fmt: skip
FINE: dict[str, Any] = {
    "openai": {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
               "choices": [{"index": 0, "finish_reason": "stop",
                            "message": {"role": "assistant", "content": "Hi"}}]},
    "anthropic": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                  "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn",
                  "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}},
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]},
                               "finishReason": "STOP"}]},
}  # fmt: skip
FIELDS = {
    "openai": {"x-request-id": "req_provider", "x-ratelimit-remaining-requests": "99"},
    "anthropic": {"request-id": "req_011", "anthropic-ratelimit-requests-remaining": "7"},
    "gemini": {},
}
STREAM = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}\n\n'
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


class Refuser(NamedTuple):
    """Where it listens, and what it heard: path, headers, body."""

    port: int
    heard: list[tuple[str, dict[str, str], dict[str, Any]]]


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: list[tuple[str, dict[str, str], dict[str, Any]]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        names = {name.lower(): value for name, value in self.headers.items()}
        self.heard.append((self.path, names, asked))
        provider = self.path.split("/")[1]
        family = provider if provider in FIELDS else "openai"
        model = asked.get("model") or self.path.rpartition("/")[2].partition(":")[0]
        wrong = self._wrong(provider, asked)
        if wrong:
            detail = [{"type": "extra_forbidden", "loc": ["body", wrong], "msg": "Extra inputs"}]
            self._say(422, {"detail": detail}, family)
        elif model == "long":
            self._say(400, LONG[family], family)
        elif model == "limited":
            self._say(429, LIMITED[family], family)
        elif asked.get("stream"):
            self._send(200, STREAM, "text/event-stream", family)
        else:
            self._say(200, FINE[family], family)

    def _wrong(self, provider: str, asked: dict[str, Any]) -> str:
        if provider not in TAKES:
            return ""
        unknown = [field for field in asked if field not in TAKES[provider]]
        roles = ROLES | ({"developer"} if provider == "cohere" else set())
        if not all(turn["role"] in roles for turn in asked["messages"]):
            unknown.append("messages.role")
        form = asked.get("response_format") or {}
        if provider == "deepseek" and form.get("type") == "json_schema":
            unknown.append("response_format")
        return unknown[0] if unknown else ""

    def _say(self, status: int, body: Any, family: str) -> None:
        self._send(status, json.dumps(body).encode(), "application/json", family)

    def _send(self, status: int, body: bytes, kind: str, family: str) -> None:
        self.send_response(status)
        for name, value in FIELDS[family].items():
            self.send_header(name, value)
        if status == 429:
            self.send_header("retry-after", "3")
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def refusing() -> Iterator[Refuser]:
    """Listen until the end of the block."""
    heard: list[tuple[str, dict[str, str], dict[str, Any]]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Door", (_Door,), {"heard": heard})) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Refuser(server.server_port, heard)
        server.shutdown()
