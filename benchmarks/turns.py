"""The longest turn of a worker's loop, for the worst bodies that the limits allow.

    python benchmarks/turns.py [--only TEXT] [--limit-ms 50] [--json]

A real worker serves clients of every dialect at targets of every dialect. Each body is the worst of
its kind: many parts, many messages, many tools, deep nesting, a long text full of escapes and
emoji, a large picture; answers likewise. While it is under way a bystander asks for /live again and
again. Printed are, for each pair of dialects, the longest turn as the worker's own loop saw it,
less the time in which the system gave the processor to others, and the bystander's longest wait.
Exit code 6 if a turn was longer than the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import uvloop

from lightgate.config.load import parse_config
from lightgate.gateway.process.worker import Worker, WorkerOptions
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.store.keys import KeyTerms, new_key

LIMIT_MS = 50.0
BEAT_S = 0.001
PING_S = 0.002
MB = 1 << 20
MOST = 32 * MB  # bytes of a body, by default
RECORDING, MARK = "recording", "mark-0d1f"
VALUES = 100_000  # objects and lists in it, by default
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
}
TARGETS = {"chat": "lab", "responses": "answers", "messages": "claude", "gemini": "google"}
CONFIG = """
[gateway.responses]
keep = true
[providers.lab]
base_url = "http://127.0.0.1:{port}/lab/v1"
api_key = "none"
kinds = ["chat", "embedding", "transcription"]
[providers.answers]
base_url = "http://127.0.0.1:{port}/answers/v1"
api_key = "none"
kinds = ["responses"]
[providers.claude]
base_url = "http://127.0.0.1:{port}/claude/v1"
dialect = "anthropic"
api_key = "none"
[providers.signed]
base_url = "http://127.0.0.1:{port}/signed/v1"
kinds = ["chat"]
auth = "sigv4"
[providers.google]
base_url = "http://127.0.0.1:{port}/google/v1beta"
dialect = "gemini"
api_key = "none"
"""
PRICE = '[prices."{}/m"]\ninput = 1\noutput = 2\n[prices."{}/large"]\ninput = 1\noutput = 2\n'


# For the target whose requests are signed: a key that opens nothing.
AWS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_REGION": "us-east-1"}


# Bodies


def filled(one: bytes, around: tuple[bytes, bytes], most: int = MOST, count: int = VALUES) -> bytes:
    """As many copies of a value as the limits allow."""
    copies = min((most - sum(map(len, around))) // (len(one) + 1), count)
    return around[0] + b",".join([one] * copies) + around[1]


class Shape:
    """How one dialect says the same things."""

    def __init__(self, client: str) -> None:
        self.client = client
        gemini = client == "gemini"
        head = b"{" if gemini else b'{"model":"%b",'
        if client == "messages":
            head += b'"max_tokens":64,'
        self.head = head
        turns = b"contents" if gemini else b"input" if client == "responses" else b"messages"
        parts = b"parts" if gemini else b"content"
        self.turns = head + b'"%b":[' % turns
        self.one_turn = self.turns + b'{"role":"user","%b":[' % parts
        kind = b'"type":"input_text",' if client == "responses" else b'"type":"text",'
        self.part = b'{%b"text":"%%b"}' % (b"" if gemini else kind)
        self.parts = parts

    def turn(self, text: bytes) -> bytes:
        """One message of the user."""
        if self.client == "gemini":
            return b'{"role":"user","parts":[{"text":"%b"}]}' % text
        return b'{"role":"user","content":"%b"}' % text

    def tool(self, number: int, schema: bytes) -> bytes:
        """A function that may be called."""
        name = b"t%d" % number
        if self.client == "gemini":
            return b'{"functionDeclarations":[{"name":"%b","parameters":%b}]}' % (name, schema)
        if self.client == "messages":
            return b'{"name":"%b","input_schema":%b}' % (name, schema)
        facts = b'"name":"%b","parameters":%b' % (name, schema)
        if self.client == "responses":
            return b'{"type":"function",%b}' % facts
        return b'{"type":"function","function":{%b}}' % facts

    def picture(self, data: bytes) -> bytes:
        """A picture by value."""
        if self.client == "gemini":
            return b'{"inlineData":{"mimeType":"image/png","data":"%b"}}' % data
        if self.client == "messages":
            source = b'{"type":"base64","media_type":"image/png","data":"%b"}' % data
            return b'{"type":"image","source":%b}' % source
        url = b"data:image/png;base64,%b" % data
        if self.client == "responses":
            return b'{"type":"input_image","image_url":"%b"}' % url
        return b'{"type":"image_url","image_url":{"url":"%b"}}' % url

    def asked(self, more: bytes) -> bytes:
        """A short request with one more field."""
        return self.turns + self.turn(b"hi") + b"]," + more + b"}"


SCHEMA = b'{"type":"object","properties":{"a":{"type":"string","enum":["x","y"]}},"required":["a"]}'


def bodies(client: str) -> dict[str, bytes]:
    """The worst bodies of a dialect, by name; `%b` stands for the model."""
    shape = Shape(client)
    part, end = shape.part % b"a", b"]}]}"
    escapes = '\\n\\"\\u00e9\\ud83d\\ude00 \U0001f600 text \u4e2d'.encode()
    tools = [shape.tool(number, SCHEMA) for number in range(VALUES // 9)]
    deep = b'{"type":"array","items":' * 400 + b'{"type":"string"}' + b"}" * 400
    many = b'{"type":"object","properties":{%b}}' % b",".join(
        [b'"p%d":{"type":"string"}' % n for n in range(VALUES - 100)]
    )
    long = MOST - 4096
    made = {
        "parts": filled(part, (shape.one_turn, end), count=VALUES - 100),
        "messages": filled(shape.turn(b"hi"), (shape.turns, b"]}"), count=VALUES // 3 - 100),
        "tools": shape.asked(b'"tools":[%b]' % b",".join(tools)),
        "one large tool": shape.asked(b'"tools":[%b]' % shape.tool(0, many)),
        "deep tool": shape.asked(b'"tools":[%b]' % shape.tool(0, deep)),
        "deep message": shape.turns + b"[" * 900 + b"]" * 900 + b"]}",
        "escapes": shape.one_turn + shape.part % (escapes * (long // len(escapes))) + end,
        "plain text": shape.one_turn + shape.part % (b"word " * (long // 5)) + end,
        "picture": shape.one_turn + part + b"," + shape.picture(b"iVBORw0K" * (long // 8)) + end,
        "numbers": shape.asked(b'"metadata":[%b1]' % (b"1," * (long // 2))),
        "too many parts": filled(part, (shape.one_turn, end), count=300_000),
        "all that the loop reads": filled(part, (shape.one_turn, end), most=256 * 1024, count=1480),
        "all of a small body": filled(part, (shape.one_turn, end), most=16 * 1024),
        "escapes that the loop reads": shape.one_turn
        + shape.part % (escapes * (250_000 // len(escapes)))
        + end,
    }
    return {name: body for name, body in made.items() if len(body) <= MOST}


def form(recording: bytes) -> bytes:
    """A recording that is to be written down."""
    model = f'--{MARK}\r\ncontent-disposition: form-data; name="model"\r\n\r\n%b\r\n'
    file = f'--{MARK}\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return (model + file).encode() + recording + f"\r\n--{MARK}--\r\n".encode()


# The provider


def answers() -> dict[str, tuple[bytes, bytes]]:
    """A small and a large answer of each kind of path."""
    text = '{"type":"text","text":"a"},' * 20_000
    items = '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},'
    usage = '"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}'
    chat = (
        '{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
        '"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],'
        '"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
    )
    messages = (
        '{"id":"x","type":"message","role":"assistant","model":"m","content":['
        '%s{"type":"text","text":"a"}],"stop_reason":"end_turn",' + usage + "}"
    )
    responses = (
        '{"id":"x","object":"response","status":"completed","model":"m","output":['
        '%s{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}],'
        + usage
        + "}"
    )
    gemini = (
        '{"candidates":[{"content":{"role":"model","parts":[%s{"text":"a"}]},'
        '"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,'
        '"candidatesTokenCount":1,"totalTokenCount":2}}'
    )
    vector = "[" + "0.123456789," * 1535 + "0.1]"
    vectors = (
        '{"object":"list","data":[%s],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}'
    )
    one = '{"object":"embedding","index":0,"embedding":' + vector + "}"
    several = '{"embeddings":[%s]}'
    values = '{"values":' + vector + "}"
    made = {
        "/chat/completions": (chat % "a", chat % ("a\\n\\u00e9" * 3_000_000)),
        "/messages": (messages % "", messages % text),
        "/responses": (responses % "", responses % (items * 10_000)),
        "enerateContent": (gemini % "", gemini % ('{"text":"a"},' * 30_000)),
        "/audio/transcriptions": ('{"text":"a"}', '{"text":"a"}'),
        "/embeddings": (vectors % one, vectors % ",".join([one] * 1500)),
        "mbedContents": (several % values, several % ",".join([values] * 1500)),
    }
    return {path: (small.encode(), large.encode()) for path, (small, large) in made.items()}


async def provide(listener: socket.socket) -> None:
    """Be the provider: read requests to their end, and answer."""
    known = answers()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line = head.partition(b"\r\n")[0].decode()
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                small, large = next(pair for path, pair in known.items() if path in line)
                named = b"/large" in line.encode() or b'"model":"large"' in body
                answer = large if named or "models/large" in line else small
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n%b" % (len(answer), answer)
                )
                await writer.drain()

    server = await asyncio.start_server(serve, sock=listener, limit=64 * MB)
    async with server:
        await server.serve_forever()


# The worker


def stolen_ns() -> int:
    """How long the loop's thread was ready and another had the processor, since its start."""
    return int(
        Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]
    )


class Meter:
    """The longest turn of the loop that it runs on since it was last asked."""

    def __init__(self) -> None:
        self.worst_ns = self.worst_wall_ns = 0

    async def run(self) -> None:
        """Look at the loop again and again."""
        while True:
            began, stolen = time.monotonic_ns(), stolen_ns()
            await asyncio.sleep(BEAT_S)
            took = time.monotonic_ns() - began - int(BEAT_S * 1e9)
            self.worst_wall_ns = max(self.worst_wall_ns, took)
            self.worst_ns = max(self.worst_ns, took - (stolen_ns() - stolen))

    def told(self, more: dict[str, object]) -> str:
        """Say the longest turns, and begin anew."""
        facts = {"turn_ms": self.worst_ns / 1e6, "wall_ms": self.worst_wall_ns / 1e6, **more}
        self.worst_ns = self.worst_wall_ns = 0
        return json.dumps(facts)


async def work(data: Path) -> None:
    """Be the worker; each line on standard input is answered with the longest turn so far."""
    worker = Worker(WorkerOptions(data=data, index=0, host="127.0.0.1", port=0))
    meter, loop = Meter(), asyncio.get_running_loop()
    running = [loop.create_task(meter.run()), loop.create_task(worker.run())]

    def asked() -> None:
        if not os.read(0, 4096):
            os._exit(0)
        turns = worker.state.turns
        told = {"long": dict(turns.long), "jobs": worker.state.aside.jobs}
        print(meter.told(told), flush=True)

    loop.add_reader(0, asked)
    await asyncio.gather(*running)


class Process:
    """A child process that prints lines of JSON."""

    def __init__(self, *arguments: str, env: dict[str, str]) -> None:
        command, pipe = [sys.executable, __file__, *arguments], subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env)

    def line(self) -> dict[str, Any]:
        """Read the next line."""
        return dict(json.loads(cast("IO[bytes]", self.popen.stdout).readline()))

    def ask(self) -> dict[str, Any]:
        """Ask for a line."""
        pipe = cast("IO[bytes]", self.popen.stdin)
        pipe.write(b"?\n")
        pipe.flush()
        return self.line()

    def end(self) -> None:
        """End the process."""
        self.popen.kill()
        self.popen.wait()


# The clients


class Bystander(threading.Thread):
    """A client that asks for something small again and again; the longest wait since last asked."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.worst_s, self.count = port, 0.0, 0
        self.over = threading.Event()

    def run(self) -> None:
        """Ask until it is over; a worker that ends meanwhile ends it too."""
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", self.port)) as sock,
        ):
            while not self.over.wait(PING_S):
                began = time.monotonic()
                sock.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
                sock.recv(65536)
                self.worst_s = max(self.worst_s, time.monotonic() - began)
                self.count += 1


def post(port: int, path: str, key: str, body: bytes, name: str) -> tuple[int, bytes]:
    """Send one request; its status, and the beginning of its answer."""
    length = f"content-length: {len(body)}"
    if "chunked" in name:
        length = "transfer-encoding: chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    kind = "application/json" if name != RECORDING else f"multipart/form-data; boundary={MARK}"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\n"
        f"authorization: Bearer {key}\r\nconnection: close\r\n{length}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        sock.sendall(head.encode() + body)
        got = first = sock.recv(65536)
        while got:
            got = sock.recv(1 << 20)
            first = first if len(first) > 2000 else first + got[:2000]
    return int(first.split(b" ")[1]), first


def cases(only: str) -> list[tuple[str, str, str, str, bytes]]:
    """What is asked: a title, the pair, the path, the body."""
    found = []
    for client, path in PATHS.items():
        made = bodies(client)
        for target, provider in TARGETS.items():
            model = f"{provider}/m"
            for name, body in made.items():
                found.append((name, f"{client} to {target}", path.format(model=model), model, body))
            large = f"{provider}/large"
            asked = Shape(client).asked(b'"metadata":null')
            found.append(
                ("large answer", f"{client} to {target}", path.format(model=large), large, asked)
            )
    texts = filled(b'"a text"', (b'{"model":"%b","input":[', b"]}"), count=2000)
    for provider in ("lab", "google"):
        for name in ("m", "large"):
            pair, model = f"embeddings to {provider}", f"{provider}/{name}"
            found.append((f"vectors, {name}", pair, "/v1/embeddings", model, texts))
    plain = bodies("chat")["plain text"]
    for name, model in (("plain text, chunked", "lab/m"), ("plain text, signed", "signed/m")):
        provider = model.partition("/")[0]
        found.append((name, f"chat to {provider}", PATHS["chat"], model, plain))
    recording = form(b"\r\n-" * ((MOST - 4096) // 3))
    found.append((RECORDING, "recording", "/v1/audio/transcriptions", "lab/m", recording))
    return [case for case in found if only in f"{case[1]}: {case[0]}"]


def measure(port: int, worker: Process, key: str, only: str) -> list[dict[str, Any]]:
    bystander = Bystander(port)
    bystander.start()
    rows = []
    for name, pair, path, model, body in cases(only):
        # A model's name stands in the body or in the path.
        said = body.replace(b"%b", model.encode(), 1) if b"%b" in body[:128] else body
        worker.ask()
        bystander.worst_s, bystander.count = 0.0, 0
        began = time.monotonic()
        status, first = post(port, path, key, said, name)
        took = time.monotonic() - began
        time.sleep(0.05)
        row = worker.ask()
        row |= {
            "pair": pair, "body": name, "bytes": len(said), "status": status, "took_s": took,
            "bystander_ms": bystander.worst_s * 1e3, "pings": bystander.count,
            "said": first[-300:].decode("utf-8", "replace") if status != 200 else "",
        }  # fmt: skip
        rows.append(row)
    bystander.over.set()
    return rows


def show(rows: list[dict[str, Any]], limit_ms: float) -> None:
    print(
        "| pair | longest turn, ms | bystander's longest wait, ms | worst body | requests | pings |"
    )
    print("|---|---|---|---|---|---|")
    for pair in dict.fromkeys(row["pair"] for row in rows):
        own = [row for row in rows if row["pair"] == pair]
        worst = max(own, key=lambda row: row["turn_ms"])
        waited = max(row["bystander_ms"] for row in own)
        print(
            f"| {pair} | {worst['turn_ms']:.1f} | {waited:.1f} | {worst['body']} |"
            f" {len(own)} | {sum(row['pings'] for row in own)} |"
        )
    over = [row for row in rows if row["turn_ms"] > limit_ms]
    for row in over:
        print(f"over the limit: {row['pair']}, {row['body']}: {row['turn_ms']:.1f} ms")
    worst = max(row["turn_ms"] for row in rows)
    print(f"the longest turn of {len(rows)} requests: {worst:.1f} ms (limit {limit_ms:g})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--limit-ms", type=float, default=LIMIT_MS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--provide", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        uvloop.run(work(Path(given.work)))
        return 0
    if given.provide is not None:
        uvloop.run(provide(socket.socket(fileno=given.provide)))
        return 0
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as door:
        os.set_inheritable(door.fileno(), True)
        provider = subprocess.Popen(
            [sys.executable, __file__, "--provide", str(door.fileno())], pass_fds=[door.fileno()]
        )
        text = CONFIG.format(port=door.getsockname()[1])
        text += "".join(PRICE.format(name, name) for name in (*TARGETS.values(), "signed"))
        key, record = new_key(KeyTerms(name="bench", budget_usd=Decimal(1_000_000)))
        put_snapshot(Path(folder), make_snapshot(parse_config(text), (record,), AWS))
        worker = Process("--work", folder, env=os.environ | AWS)
        try:
            port = worker.line()["port"]
            rows = measure(port, worker, key, given.only)
        finally:
            worker.end()
            provider.kill()
            provider.wait()
    if given.json:
        print(json.dumps(rows))
    else:
        show(rows, given.limit_ms)
    return 6 if any(row["turn_ms"] > given.limit_ms for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
