"""Requests and answers changed at random, through the gateway, for each pair of dialects.

A client of each dialect asks a provider of each dialect, over sockets. First the requests are
changed and the answers are sound, then the other way round. What must hold:

    no 5xx of our own: a changed request gets an answer or a 4xx; a changed answer may be a 502
    no hang: every request is answered within the limit
    nothing dropped in silence: a marked value of a request is in what the provider got, or its
        field is named in x-lightgate-dropped, or the request was refused
    a translated stream is whole events of JSON, and its end is marked or is an error

    python benchmarks/fuzz.py [--each 5000] [--seed 1] [--pairs gemini:openai-chat,...]

Exit code 6 if one of them does not hold; the first cases of each kind are printed with their
number, which `--only PAIR:HALF:NUMBER` repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from lightgate.config.load import parse_config
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.gateway.exchange.state import State
from lightgate.gateway.http.app import Gateway
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served
from lightgate.ledger.journal.journal import Journal
from lightgate.wire.client.client import Client
from lightgate.wire.door.door import Door, DoorLimits

FIXTURES: Final = Path(__file__).parents[1] / "tests" / "fixtures" / "translate"
DIALECTS: Final = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
PROVIDERS: Final = {
    "openai-chat": "chat",
    "openai-responses": "resp",
    "anthropic-messages": "mess",
    "gemini": "gem",
}
CONFIG: Final = """
[gateway.breaker]
streak = 1000000000
[providers.chat]
base_url = "http://127.0.0.1:{port}/chat/v1"
api_key = "none"
[providers.resp]
base_url = "http://127.0.0.1:{port}/resp/v1"
kinds = ["responses"]
api_key = "none"
[providers.mess]
base_url = "http://127.0.0.1:{port}/mess/v1"
dialect = "anthropic"
api_key = "none"
[providers.gem]
base_url = "http://127.0.0.1:{port}/gem/v1beta"
dialect = "gemini"
api_key = "none"
"""
PATHS: Final = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
}
LIMIT_S: Final = 20.0  # for one answer; on a busy machine, too
FRESH: Final = 25  # requests to one target, before a breaker has an opinion
SHOWN: Final = 12  # failures of one kind that are printed
# Fields that say which thing is meant, not what: they are told by order, or by other ids.
ENVELOPE: Final = re.compile(
    r"(?i)(^|\.)(id|call_id|tool_call_id|tool_use_id|status|phase|index|model|object|success)$"
    r"|property_?ordering"  # which is said by the order itself
    r"|file_?data\.mime_?type"  # which a file has itself
    r"|function_?response\.name"  # beside the id of its call
)
POOL: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2, 7.5, 1e308, 2**53, 2**70, -(2**63), ""),
    *("auto", "none", "x" * 300, "\u2028\x00", "\N{SNOWMAN}", [], {}, [[]], [None]),
    *({"type": "text"}, {"a": {"b": [1, {"c": None}]}}, [1, "two", {}], "data:,x", "0"),
)


class Case(NamedTuple):
    """One exchange: what the client sends, what the provider answers, and what is looked for."""

    body: bytes
    answer: bytes  # empty: a sound one, streamed or whole as the provider is asked
    sounds: tuple[bytes, bytes]
    streamed: bool
    marker: str  # a value that must not be lost in silence; empty where there is none
    path: str  # of the marker
    sound: bool  # the answer was not changed


class Got(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


# Changing JSON


def places(value: Any, path: str = "") -> list[tuple[Any, Any, str]]:
    """Every place of a tree: its holder, its key, and its path as errors and headers name it."""
    found: list[tuple[Any, Any, str]] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else str(key)
            found += [(value, key, here), *places(inner, here)]
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            here = f"{path}[{number}]"
            found += [(value, number, here), *places(inner, here)]
    return found


def change(tree: Any, chance: random.Random, others: list[Any]) -> None:  # noqa: C901 - a list of changes
    """Change one place of a tree."""
    found = places(tree)
    if not found:
        return
    holder, key, _ = chance.choice(found)
    kind = chance.randrange(9)
    value = holder[key]
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = copy.deepcopy(chance.choice(POOL))
    elif kind == 2 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif kind == 3:
        other = chance.choice(places(chance.choice(others)) or found)
        holder[key] = copy.deepcopy(other[0][other[1]])
    elif kind == 4:
        holder[key] = [copy.deepcopy(value)]
    elif kind == 5 and isinstance(value, int | float):
        holder[key] = chance.choice((-value, value * 1000, float(value) + 0.5, str(value)))
    elif kind == 6 and isinstance(holder, dict):
        holder[chance.choice(("extra", "type", "role", "content", str(key).upper()))] = value
    elif kind == 7:
        for _ in range(60):
            value = {"a": value}
        holder[key] = value
    else:
        holder[key] = copy.deepcopy(chance.choice(POOL))


def mark(tree: Any, chance: random.Random) -> tuple[str, str]:
    """Put a marked value somewhere: into a text that is there, or under a name that is new."""
    marker = f"zq{chance.randrange(10**9):09d}zq"
    found = places(tree)
    objects = [("", tree)] if isinstance(tree, dict) else []
    objects += [(path, h[k]) for h, k, path in found if isinstance(h[k], dict)]
    texts = [(h, k, path) for h, k, path in found if isinstance(h[k], str)]
    if objects and (chance.random() < 0.5 or not texts):
        path, holder = chance.choice(objects)
        name = f"new{chance.randrange(1000)}"
        holder[name] = chance.choice((marker, [marker], {"a": marker}))
        return marker, f"{path}.{name}" if path else name
    if texts:
        holder, key, path = chance.choice(texts)
        holder[key] = marker
        return marker, path
    return "", ""


def bend(data: bytes, chance: random.Random) -> bytes:
    """Change bytes: cut, flipped, repeated, or foreign."""
    if not data:
        return data
    at = chance.randrange(len(data))
    kind = chance.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[max(0, at - 40) :]
    return data[:at] + chance.choice((b"\xff\xfe", b"\x00", b"}", b'"', b"\r\n\r\n")) + data[at:]


# Cases


class Corpus:
    """Sound requests and answers, from the golden files of the translation."""

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = {name: [] for name in DIALECTS}
        self.streams: dict[str, list[bytes]] = {name: [] for name in DIALECTS}
        self.wholes: dict[str, list[bytes]] = {name: [] for name in DIALECTS}
        for name in DIALECTS:
            for file in sorted((FIXTURES / "requests").glob(f"*.{name}.json")):
                if ".to." not in file.name:
                    self.requests[name].append(json.loads(file.read_text("utf-8")))
            # What agents send has much more in it than a golden file: it comes a third of the time.
            for file in sorted((FIXTURES / "agents").glob(f"*.{name}.json")):
                whole = json.loads(file.read_text("utf-8"))
                self.requests[name] += [whole] * (len(self.requests[name]) // 2)
            for file in sorted((FIXTURES / "answers").glob(f"*/{name}.sse")):
                self.streams[name].append(file.read_bytes())
                self.wholes[name].append(file.with_suffix(".json").read_bytes())

    def case(self, client: str, provider: str, changed: str, chance: random.Random) -> Case:
        """One case; `changed` is which half is not sound."""
        body = copy.deepcopy(chance.choice(self.requests[client]))
        streamed = chance.random() < 0.5
        marker = path = ""
        raw = b""
        if changed == "request":
            if chance.random() < 0.4:
                marker, path = mark(body, chance)
            else:
                for _ in range(chance.randint(1, 4)):
                    change(body, chance, self.requests[client])
        if client != "gemini" and isinstance(body, dict):
            body |= {"model": "MODEL", "stream": streamed}
            if client == "openai-responses":
                body.setdefault("store", False)
        raw = dumped(body)
        if changed == "request" and not marker and chance.random() < 0.1:
            raw = bend(raw, chance)
        place = chance.randrange(len(self.streams[provider]))
        sounds = self.streams[provider][place], self.wholes[provider][place]
        answer = b""
        if changed == "answer":
            sound = sounds[0] if streamed else sounds[1]
            answer = self.spoilt(sound, chance, streamed=streamed, provider=provider)
        return Case(raw, answer, sounds, streamed, marker, path, changed == "request")

    def spoilt(
        self, sound: bytes, chance: random.Random, *, streamed: bool, provider: str
    ) -> bytes:
        """An answer that is not as it should be."""
        kind = chance.random()
        status = 200
        if kind < 0.15:
            status = chance.choice((400, 401, 404, 422, 429, 500, 503, 529))
            sound = dumped({"error": {"message": "No.", "type": "t", "code": "c"}})
            streamed = False
        if streamed:
            data = self._events(sound, chance, provider)
        else:
            tree = json.loads(sound)
            for _ in range(chance.randint(1, 4)):
                change(tree, chance, [json.loads(one) for one in self.wholes[provider][:3]])
            data = dumped(tree)
        if chance.random() < 0.25:
            data = bend(data, chance)
        whole = reply(status, data, streamed)
        if chance.random() < 0.05:
            return whole[: chance.randrange(len(whole))]  # the connection breaks
        return whole

    def _events(self, stream: bytes, chance: random.Random, provider: str) -> bytes:
        parts = [part for part in stream.replace(b"\r\n", b"\n").split(b"\n\n") if part]
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(parts))
            kind = chance.randrange(5)
            if kind == 0 and len(parts) > 1:
                del parts[at]
            elif kind == 1:
                parts.insert(at, parts[chance.randrange(len(parts))])
            elif kind == 2:
                foreign = chance.choice([one for one in DIALECTS if one != provider])
                parts[at] = chance.choice(self.streams[foreign]).split(b"\n\n")[0]
            else:
                parts[at] = _bent_event(parts[at], chance)
        return b"\n\n".join(parts) + chance.choice((b"\n\n", b"\n\n", b"\n", b""))


def _bent_event(part: bytes, chance: random.Random) -> bytes:
    lines = part.split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(b"data: {"):
            tree = json.loads(line[6:])
            change(tree, chance, [tree])
            lines[number] = b"data: " + dumped(tree)
    return b"\n".join(lines)


def dumped(tree: Any) -> bytes:
    """Write JSON; numbers that JSON lacks stay as Python writes them."""
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")


def reply(status: int, body: bytes, streamed: bool) -> bytes:
    """A provider's answer as bytes."""
    kind = b"text/event-stream" if streamed else b"application/json"
    head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, kind, len(body)) + body


# Both ends


class Provider:
    """A provider that answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = b""
        self.sounds = (b"", b"")
        self.asked = b""
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            self.asked = await reader.readexactly(int(length[1]) if length else 0)
            streamed = b'"stream":true' in self.asked or b":stream" in head.split(b"\r\n")[0]
            sound = reply(200, self.sounds[0 if streamed else 1], streamed)
            writer.write(self.answer or sound)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def ask(port: int, path: str, body: bytes) -> Got:
    """Send one request on a connection of its own; read the answer to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        raw = await reader.read(-1)
    finally:
        writer.close()
    top, _, rest = raw.partition(b"\r\n\r\n")
    lines = top.split(b"\r\n")
    pairs = [line.partition(b": ") for line in lines[1:]]
    headers = {name.decode().lower(): value.decode("latin-1") for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        rest = _unchunked(rest)
    return Got(int(lines[0].split()[1]) if lines[0] else 0, headers, rest)


def _unchunked(raw: bytes) -> bytes:
    out = []
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        if length == 0:
            break
        out.append(raw[:length])
        raw = raw[length + 2 :]
    return b"".join(out)


# What must hold


def verdict(case: Case, got: Got, asked: bytes, translated: bool) -> str:
    """Say what is wrong; empty where nothing is."""
    if got.status == 0:
        return "no answer at all"
    if got.status == 500 or (case.sound and got.status > 500):
        return f"status {got.status}"
    if got.status == 200 and case.marker and not _is_told(case, got, asked):
        return "dropped in silence"
    if translated and got.status == 200:
        return _stream_fault(got) if case.streamed else _body_fault(got)
    return "" if got.status == 200 or _is_json(got.body) else "an error that is no JSON"


def _is_told(case: Case, got: Got, asked: bytes) -> bool:
    if case.marker.encode() in asked or ENVELOPE.search(case.path):
        return True
    if case.path.startswith("tools[") and re.search(
        rb"allowed_?(tools|function)", case.body, re.IGNORECASE
    ):
        return True  # tools that may not be called are taken off the list
    named = got.headers.get("x-lightgate-dropped", "").split(", ")
    path = _snake(case.path)
    forms = {_snake(one) for one in named}
    plain = re.sub(r"\[\d+\]", "[*]", path)
    return any(
        whole == form or _is_inside(whole, form) or _is_inside(form, whole)
        for form in forms
        if form
        for whole in (path, plain)
    )


def _is_inside(path: str, other: str) -> bool:
    return path.startswith((f"{other}.", f"{other}["))


def _snake(path: str) -> str:
    """Gemini's fields have two spellings."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m[1].lower(), path)


def _stream_fault(got: Got) -> str:
    if got.headers.get("content-type", "").startswith("application/json"):
        return "" if _is_json(got.body) else "a body that is no JSON"
    for part in got.body.split(b"\n\n"):
        for line in part.split(b"\n"):
            data = line.removeprefix(b"data: ")
            if line.startswith(b"data: ") and data != b"[DONE]" and not _is_json(data):
                return "an event that is no JSON"
    return ""


def _body_fault(got: Got) -> str:
    return "" if _is_json(got.body) else "a body that is no JSON"


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


class Fuzz:
    """One gateway, one provider, and a tally of what happened."""

    def __init__(self, seed: int, each: int) -> None:
        self.seed = seed
        self.each = each
        self.corpus = Corpus()
        self.provider = Provider()
        self.tally: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.port = 0

    async def pair(self, client: str, provider: str, only: tuple[str, int] | None = None) -> None:
        """Try one pair, both halves."""
        for half in ("request", "answer"):
            for number in range(self.each):
                if only is None or only == (half, number):
                    await self._one(client, provider, half, number)

    async def _one(self, client: str, provider: str, half: str, number: int) -> None:
        name = f"{client}:{provider}:{half}:{number}"
        chance = random.Random(f"{self.seed}:{name}")  # noqa: S311 - no secret
        case = self.corpus.case(client, provider, half, chance)
        model = f"{PROVIDERS[provider]}/m{number // FRESH}"
        body = case.body.replace(b'"MODEL"', b'"%b"' % model.encode())
        path = PATHS.get(client)
        if path is None:
            verb = "streamGenerateContent?alt=sse" if case.streamed else "generateContent"
            path = f"/v1beta/models/{model}:{verb}"
        self.provider.answer, self.provider.asked = case.answer, b""
        self.provider.sounds = case.sounds
        try:
            async with asyncio.timeout(LIMIT_S):
                got = await ask(self.port, path, body)
        except TimeoutError:
            self._fault("a hang", name, case, None)
            return
        self.tally[f"{half} {got.status}"] += 1
        self.tally[f"{half} reached"] += bool(self.provider.asked)
        self.tally[f"{half} named"] += "x-lightgate-dropped" in got.headers
        wrong = verdict(case, got, self.provider.asked, client != provider)
        if wrong:
            self._fault(wrong, name, case, got)

    def _fault(self, what: str, name: str, case: Case, got: Got | None) -> None:
        self.faults[what] += 1
        if self.faults[what] <= SHOWN:
            seen = "" if got is None else f" -> {got.status} {got.body[:160]!r}"
            print(f"{what}: {name} {case.path} {case.marker}{seen}", flush=True)


async def run(fuzz: Fuzz, pairs: list[tuple[str, str]], only: tuple[str, int] | None) -> None:
    """Start both ends, and try every pair."""
    await fuzz.provider.start()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        config = parse_config(CONFIG.format(port=fuzz.provider.port))
        state = State(
            Served(make_snapshot(config, (), {}), {}),
            client=Client(watch_lag=False),
            journal=JournalWriter(Journal(data / "journal", 0)),
            spend=None,
            worker=0,
        )
        gateway = Gateway(state, data)
        door = Door(gateway.handle, limits=DoorLimits(), gate=gateway.gate)
        fuzz.port = await door.listen("127.0.0.1", 0)
        try:
            for client, provider in pairs:
                await fuzz.pair(client, provider, only)
        finally:
            await door.close()
            gateway.close()
            await state.aside.close()
            await state.client.close()
            state.journal.close()
            await fuzz.provider.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=5000, help="changed requests, and answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", default="", help="CLIENT:PROVIDER, with commas between them")
    parser.add_argument("--only", default="", help="CLIENT:PROVIDER:HALF:NUMBER of one case")
    args = parser.parse_args()
    only = None
    if args.only:
        client, provider, half, number = args.only.split(":")
        args.pairs, only = f"{client}:{provider}", (half, int(number))
        args.each = int(number) + 1
    pairs = [(client, provider) for client in DIALECTS for provider in DIALECTS]
    if args.pairs:
        wanted = set(args.pairs.split(","))
        pairs = [pair for pair in pairs if ":".join(pair) in wanted]
    fuzz = Fuzz(args.seed, args.each)
    began = time.monotonic()
    asyncio.run(run(fuzz, pairs, only))
    spent = time.monotonic() - began
    count = sum(n for what, n in fuzz.tally.items() if what.split()[1].isdigit())
    print(f"{count} exchanges of {len(pairs)} pairs in {spent:.0f} s, seed {args.seed}")
    for what, number in sorted(fuzz.tally.items()):
        print(f"  {what}: {number}")
    print("faults:", dict(fuzz.faults) or "none")
    return 6 if fuzz.faults else 0


if __name__ == "__main__":
    sys.exit(main())
