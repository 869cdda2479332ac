"""The cheapest provider there can be, for overhead.py: one fixed answer, or a paced stream.

    python benchmarks/upstream.py [--port 0] [--tokens 100] [--gap-ms 20] [--hold-ms 50] [--stamped]

Every POST is answered: with a fixed JSON answer or, if its body asks for a stream, with the role
at once, the first token after the hold, the others so far apart, then usage and `[DONE]`. The first
token says how many nanoseconds lay between the request's last byte and the token's write, so that
a client on the same machine can take our share out of what it measured; with --stamped every later
token says when it was written, by the machine's monotonic clock. Ends when standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import sys
import time

import uvloop

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)")
STREAM = re.compile(rb'"stream": ?true')
MODEL = "bench"
USAGE = {"prompt_tokens": 96, "completion_tokens": 100, "total_tokens": 196}


def answer(kind: str, length: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n%b" % (kind.encode(), length, body)


def whole() -> bytes:
    """An answer that is not streamed."""
    message = {"role": "assistant", "content": "All work and no play makes a dull answer. " * 6}
    body = json.dumps(
        {
            "id": "chatcmpl-overhead",
            "object": "chat.completion",
            "created": 1700000000,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": USAGE,
        }
    ).encode()
    return answer("application/json", b"content-length: %d" % len(body), body)


def chunked(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(delta: dict[str, str] | None, finish: str | None = None) -> bytes:
    """One SSE event of OpenAI's dialect; without a delta the one that carries usage."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}] if delta is not None else []
    chunk: dict[str, object] = {
        "id": "chatcmpl-overhead",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": MODEL,
        "choices": choices,
    }
    if delta is None:
        chunk["usage"] = USAGE
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


class Pace:
    """What a stream is made of, made once."""

    def __init__(self, tokens: int, gap_s: float, hold_s: float, *, stamped: bool) -> None:
        self.tokens = tokens
        self.gap_s = gap_s
        self.hold_s = hold_s
        role = chunked(event({"role": "assistant", "content": ""}))
        self.head = answer("text/event-stream", b"transfer-encoding: chunked", role)
        self.first = event({"content": "hold-%015d"})
        self.token = chunked(event({"content": " token"}))
        self.stamped = event({"content": "at-%015d"}) if stamped else b""
        end = event({}, "stop") + event(None) + b"data: [DONE]\n\n"
        self.end = chunked(end) + b"0\r\n\r\n"
        self.whole = whole()


class Provider(asyncio.Protocol):
    """One connection."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.sent = 0
        self.due = 0.0
        self.received_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy or a client came."""
        self.transport = transport  # type: ignore[assignment]  # a stream's transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        """It left; its stream ends with it."""
        self.transport = None
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self.buffer += data
        while self.buffer:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            found = LENGTH.search(self.buffer, 0, end)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self.buffer) < size:
                return
            body, self.buffer = self.buffer[end + 4 : size], self.buffer[size:]
            self.reply(body)

    def reply(self, body: bytes) -> None:
        """Answer one request."""
        if self.transport is None:
            return
        if STREAM.search(body) is None:
            self.transport.write(self.pace.whole)
            return
        self.received_ns = time.monotonic_ns()
        self.transport.write(self.pace.head)
        self.sent = 0
        self.due = self.loop.time() + self.pace.hold_s
        self.timer = self.loop.call_at(self.due, self.tick)

    def tick(self) -> None:
        """Write the next token, on a schedule that does not drift."""
        if self.transport is None:
            return
        pace = self.pace
        if self.sent == 0:
            held_ns = time.monotonic_ns() - self.received_ns
            self.transport.write(chunked(pace.first % held_ns))
        elif self.sent < pace.tokens:
            stamped = pace.stamped and chunked(pace.stamped % time.monotonic_ns())
            self.transport.write(stamped or pace.token)
        else:
            self.transport.write(pace.end)
            return
        self.sent += 1
        self.due += pace.gap_s
        self.timer = self.loop.call_at(self.due, self.tick)


async def serve(port: int, pace: Pace) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(pace), "127.0.0.1", port, backlog=1024)
    print(json.dumps({"ready": True, "port": server.sockets[0].getsockname()[1]}), flush=True)
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)  # never written to: readable at its end
    await over.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The cheapest provider.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--hold-ms", type=float, default=50.0)
    parser.add_argument("--stamped", action="store_true")
    options = parser.parse_args()
    hold_s, stamped = options.hold_ms / 1e3, options.stamped
    pace = Pace(options.tokens, options.gap_ms / 1e3, hold_s, stamped=stamped)
    uvloop.run(serve(options.port, pace))


if __name__ == "__main__":
    main()
