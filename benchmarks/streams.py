"""The streaming half of overhead.py's load: so many streams at once, each first token clocked.

    python benchmarks/streams.py --port PORT [--streams 100] [--each 2] [--key VARIABLE]

Our own wire client with the kernel's stamps, so that this program's load does not enter the
figures. Every connection is warm before the first stream. Prints JSON: `ttft_ms` from the request's
first byte to the first token, `transit_ms`, the same without what the upstream held it back, and
`token_ms` from the write of each later token to its arrival, where the upstream stamps them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
from typing import TYPE_CHECKING

import uvloop

from lightgate.clock.marks import Marks
from lightgate.errors import AttemptError
from lightgate.wire.client.client import Client
from lightgate.wire.client.proxy import Proxies
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.link.stamper import best_source
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.wire.client.response import Headers

HOLD = re.compile(rb"hold-([0-9]{15})")
WRITTEN = re.compile(rb"at-([0-9]{15})")
SPREAD_S = 0.25  # the streams of one wave begin within this time, at drawn instants
DEADLINES = Deadlines(connect_s=5.0, first_byte_s=10.0, idle_s=10.0, total_s=60.0)


class Listener:
    """Takes one stream: the stamp of its first token, its events, its end."""

    def __init__(self) -> None:
        self.sent = 0
        self.status = 0
        self.first = 0
        self.held = 0
        self.events = 0
        self.tail = b""
        self.transits: list[int] = []  # of stamped tokens

    def on_sent(self, stamp: int) -> None:
        """The request leaves."""
        self.sent = stamp

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:  # noqa: ARG002 - the protocol's
        """The head came."""
        self.status = status

    def on_body(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - the protocol's
        """Count events; the first token has a number in it."""
        if not self.first:
            found = HOLD.search(self.tail + data)
            if found is not None:
                self.first, self.held = stamp, int(found[1])
        self.transits += [stamp - int(written) for written in WRITTEN.findall(data)]
        self.events += data.count(b"data: ")
        self.tail = (self.tail + data)[-256:]

    def on_end(self, stamp: int) -> None:
        """The answer is complete by its framing."""

    def good(self, tokens: int) -> bool:
        """Whether the whole stream came."""
        return self.status == 200 and self.events >= tokens and b"[DONE]" in self.tail


def request(port: int, key: str, model: str, prompt: str) -> bytes:
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 100,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\nauthorization: Bearer {key}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(options: argparse.Namespace) -> dict[str, object]:
    origin = Origin("http", "127.0.0.1", options.port)
    key = os.environ.get(options.key, "") or "none"
    payload = request(options.port, key, options.model, "Tell me something. " * 20)
    client = Client(stamp=best_source(), proxies=Proxies.from_env({}))
    await client.warm(origin, options.streams)
    heard: list[Listener] = []
    failed: list[str] = []
    draws = random.Random(options.seed)  # noqa: S311 - when a stream begins is no secret

    async def visitor(begin_s: float) -> None:
        await asyncio.sleep(begin_s)
        for _ in range(options.each):
            listener = Listener()
            try:
                await client.ask(origin, payload, listener, Marks(), DEADLINES)
            except AttemptError as error:
                failed.append(error.message)
                continue
            if listener.good(options.tokens):
                heard.append(listener)
            else:
                failed.append(f"status {listener.status}, {listener.events} events")

    begins = [draws.uniform(0.0, options.spread_s) for _ in range(options.streams)]
    await asyncio.gather(*(visitor(begin_s) for begin_s in begins))
    await client.close()
    return {
        "streams": len(heard),
        "failed": failed[:3],
        "failures": len(failed),
        "ttft_ms": ms([item.first - item.sent for item in heard]),
        "transit_ms": ms([item.first - item.sent - item.held for item in heard]),
        "token_ms": ms([transit for item in heard for transit in item.transits]),
    }


def ms(values_ns: Sequence[int]) -> list[float]:
    return [round(value / 1e6, 4) for value in values_ns]


def main() -> None:
    parser = argparse.ArgumentParser(description="Many streams at once, first tokens clocked.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--each", type=int, default=2, help="streams of every visitor")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--model", default="bench")
    parser.add_argument("--key", default="", metavar="VARIABLE", help="where the key is")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spread-s", type=float, default=SPREAD_S, help="they begin within it")
    print(json.dumps(uvloop.run(load(parser.parse_args()))))


if __name__ == "__main__":
    main()
