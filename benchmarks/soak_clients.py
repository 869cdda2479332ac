"""The clients of soak.py: good ones, slow ones, half ones and ones that leave.

Every request has an id of its own and a prompt that is made of it; the models say their prompt
back. Each client writes down what it asked for and what it got, and judges nothing but that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from soak_dialects import DIALECTS, error_in, read

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 20.0  # `timeout` of every model
# A worker that stands still is replaced after 5 s, one that died may pause 10 s before its next
# life: a connection that waits in its socket's queue waits that long.
HUNG_S = TIMEOUT_S + 20.0
HALF_S = 30.0  # a head has 10 s, and the same on top
PLAIN = ("plain", "claude", "gem")
TROUBLED = ("pair", "raced")  # models whose providers fail on purpose
MODELS = (*PLAIN, *TROUBLED, "hedged", "cached", "extra")


@dataclass
class Asked:
    """One request as its client saw it; times are of the monotonic clock, in seconds.

    `how`: whole (a complete answer), refused (an error status), event (an error inside a stream),
    broken (the connection ended before the answer), connect (no connection), left (the client went
    away on purpose), hung (no end in time), wrong (an answer that is not its own, or not whole).
    """

    id: str
    kind: str
    model: str
    dialect: str
    key: str
    streamed: bool
    began: float
    ended: float = 0.0
    how: str = "hung"
    status: int = 0
    code: str = ""
    retry_after: bool = False
    gate_id: str = ""
    usage: tuple[int, int] | None = None
    detail: str = ""
    first_s: float | None = None


@dataclass
class Head:
    """The head of an answer."""

    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)


class Traffic:
    """What all clients share: the address, the keys, the dice, and the book of what happened."""

    def __init__(self, port: int, keys: dict[str, str], seed: int) -> None:
        self.port = port
        self.keys = keys  # secrets by name
        self.dice = random.Random(seed)  # noqa: S311 - mixes of requests, no secrets
        self.book: list[Asked] = []
        self.over = False
        self.budgeted = "budget-0"  # the newest key with a small budget
        self._seed = seed
        self._next = 0

    def new(self, kind: str, model: str, dialect: str, key: str, *, streamed: bool) -> Asked:
        """Open the record of a request."""
        self._next += 1
        made = f"s{self._seed}-{self._next:07d}"
        asked = Asked(made, kind, model, dialect, key, streamed, time.monotonic())
        self.book.append(asked)
        return asked

    def drawn(self, kind: str) -> Asked:
        """A request with a drawn model, dialect and way."""
        dice = self.dice
        model = dice.choice(MODELS)
        key = self.budgeted if dice.random() < 0.1 else dice.choice(("main", "racer"))
        dialect = dice.choice(tuple(DIALECTS))
        return self.new(kind, model, dialect, key, streamed=dice.random() < 0.6)

    def prompt(self, asked: Asked, times: int = 0) -> str:
        """The text of a request, which is its answer's too."""
        return "-".join([asked.id] * (times or self.dice.randint(3, 60)))

    def request(self, asked: Asked, prompt: str, **headers: str) -> bytes:
        """The bytes of a request."""
        path, body = DIALECTS[asked.dialect].ask(asked.model, prompt, asked.streamed)
        if asked.model == "cached":
            body["temperature"] = 0
        payload = json.dumps(body).encode()
        lines = {
            "host": "soak",
            "content-type": "application/json",
            "authorization": f"Bearer {self.keys[asked.key]}",
            "x-request-id": asked.id,
            "content-length": str(len(payload)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + payload

    async def open(self, *, small: bool = False) -> tuple[asyncio.StreamReader, Any]:
        """A connection; a small one has hardly any room for what it does not read."""
        sock = socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        except BaseException:
            sock.close()
            raise
        return await asyncio.open_connection(sock=sock, limit=4096 if small else 65536)


@contextlib.asynccontextmanager
async def told(asked: Asked, limit_s: float = HUNG_S) -> Any:
    """Write down how a request ended, whatever happens inside."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        asked.how = "hung"
    except ConnectionRefusedError as error:
        asked.how, asked.detail = "connect", str(error)
    except (OSError, EOFError) as error:
        asked.how, asked.detail = "broken", f"{type(error).__name__}: {error}"[:120]
    except RuntimeError as error:  # uvloop's word for a write to a connection that was lost
        asked.how, asked.detail = "broken", str(error)[-120:]
    except Exception as error:  # noqa: BLE001 - an answer that cannot be read is what we look for
        asked.how, asked.detail = "wrong", f"{type(error).__name__}: {error}"[:200]
    finally:
        asked.ended = time.monotonic()


async def read_head(reader: asyncio.StreamReader) -> Head:
    """The head of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = (line.partition(": ") for line in lines[1:] if line)
    return Head(int(lines[0].split(" ")[1]), {name.lower(): value for name, _, value in fields})


async def read_body(
    reader: asyncio.StreamReader, head: Head, each: Callable[[int], Any] | None = None
) -> bytes:
    """A whole body by its framing; IncompleteReadError where the connection ends before it."""
    if "content-length" in head.fields:
        return await reader.readexactly(int(head.fields["content-length"]))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
        if each is not None:
            await each(size)
    await reader.readexactly(2)
    return b"".join(pieces)


def judge(asked: Asked, head: Head, body: bytes, prompt: str) -> None:
    """Write down what an answer that is complete by its framing says."""
    if head.status != 200:
        asked.how = "refused"
        asked.code = error_in(json.loads(body))
        return
    said = read(DIALECTS[asked.dialect], body, streamed=asked.streamed)
    if said.error:
        asked.how, asked.code = "event", said.error
    elif said.text == prompt and said.ended:
        asked.how, asked.usage = "whole", said.usage
    elif said.ended:
        asked.how, asked.detail = "wrong", f"{len(said.text)} of {len(prompt)} letters"
    else:
        asked.how, asked.detail = "wrong", "an end without a reason, and no error"


def take_head(asked: Asked, head: Head) -> None:
    """Write down the head."""
    asked.status = head.status
    asked.gate_id = head.fields.get("x-lightgate-id", "")
    asked.retry_after = "retry-after" in head.fields
    if asked.first_s is None:
        asked.first_s = time.monotonic() - asked.began
    echoed = head.fields.get("x-request-id")
    if echoed not in (None, asked.id):
        raise ValueError(f"the answer is for {echoed}")


# The clients


async def good(traffic: Traffic, *, keeps: bool) -> None:
    """Ask again and again; a client that keeps its connection does so until it is told."""
    while not traffic.over:
        reader: asyncio.StreamReader | None = None
        writer: Any = None
        more = True
        while more and not traffic.over:
            asked = traffic.drawn("kept" if keeps else "new")
            prompt = traffic.prompt(asked)
            headers = _wishes(traffic, asked)
            async with told(asked):
                if reader is None or gone(reader):
                    await shut(writer)
                    reader, writer = await traffic.open()
                writer.write(traffic.request(asked, prompt, **headers))
                head = await read_head(reader)
                take_head(asked, head)
                judge(asked, head, await read_body(reader, head), prompt)
                more = keeps and head.fields.get("connection") != "close"
            more = more and asked.how in ("whole", "refused", "event")
            await _breathe(traffic, asked)
        await shut(writer)


def gone(reader: asyncio.StreamReader) -> bool:
    """Whether a kept connection was closed meanwhile, as every client looks before it asks."""
    return reader.at_eof() or reader.exception() is not None


def _wishes(traffic: Traffic, asked: Asked) -> dict[str, str]:
    """Headers that a client may add."""
    drawn = traffic.dice.random()
    if asked.key != "racer":  # the others have no right to it
        return {}
    return {"x_lightgate_race": "2"} if drawn < 0.3 else {"x_lightgate_hedge": "50ms"}


async def _breathe(traffic: Traffic, asked: Asked) -> None:
    """Wait as a person would; longer after a failure, so that nothing is hammered."""
    await asyncio.sleep(traffic.dice.uniform(0.0, 0.3) if asked.how == "whole" else 0.5)


async def twins(traffic: Traffic) -> None:
    """Ask the same at the same time: one answer for two, from the cache or from one call."""
    while not traffic.over:
        two = [traffic.new("twin", "cached", "chat", "main", streamed=False) for _ in range(2)]
        prompt = traffic.prompt(two[0])
        await asyncio.gather(*(_once(traffic, asked, prompt) for asked in two))
        await asyncio.sleep(1.0)


async def _once(traffic: Traffic, asked: Asked, prompt: str) -> None:
    writer = None
    async with told(asked):
        reader, writer = await traffic.open()
        writer.write(traffic.request(asked, prompt))
        head = await read_head(reader)
        take_head(asked, head)
        judge(asked, head, await read_body(reader, head), prompt)
    await shut(writer)


async def slow_reader(traffic: Traffic) -> None:
    """Read a long stream so slowly that the gateway has to wait, then leave or read the rest."""
    asked = traffic.new("slow reader", "plain", "chat", "main", streamed=True)
    prompt, writer = traffic.prompt(asked, times=400), None
    leaves = traffic.dice.random() < 0.5
    until = time.monotonic() + traffic.dice.uniform(3.0, 8.0)

    async def wait(size: int) -> None:
        del size
        if time.monotonic() < until:
            await asyncio.sleep(0.5)
        elif leaves:
            raise asyncio.CancelledError

    async with told(asked):
        try:
            reader, writer = await traffic.open(small=True)
            writer.write(traffic.request(asked, prompt))
            head = await read_head(reader)
            take_head(asked, head)
            judge(asked, head, await read_body(reader, head, wait), prompt)
        except asyncio.CancelledError:
            asked.how = "left"
    await shut(writer)


async def slow_sender(traffic: Traffic) -> None:
    """Send a request in pieces over some seconds, then read the answer."""
    asked = traffic.drawn("slow sender")
    prompt, writer = traffic.prompt(asked), None
    async with told(asked):
        reader, writer = await traffic.open()
        request = traffic.request(asked, prompt)
        step = max(1, len(request) // 12)
        for at in range(0, len(request), step):
            writer.write(request[at : at + step])
            await writer.drain()
            await asyncio.sleep(traffic.dice.uniform(0.1, 0.6))
        head = await read_head(reader)
        take_head(asked, head)
        judge(asked, head, await read_body(reader, head), prompt)
    await shut(writer)


async def half_head(traffic: Traffic) -> None:
    """Send half a head and wait for the gateway to end it."""
    asked = traffic.new("half head", "plain", "chat", "main", streamed=False)
    writer = None
    async with told(asked, HALF_S):
        reader, writer = await traffic.open()
        writer.write(traffic.request(asked, "never")[:60])
        head = await read_head(reader)
        asked.status, asked.retry_after = head.status, "retry-after" in head.fields
        asked.how = {408: "left", 503: "refused"}.get(head.status, "wrong")
    await shut(writer)


async def idler(traffic: Traffic) -> None:
    """Connect, say nothing, leave."""
    asked = traffic.new("idle", "plain", "chat", "main", streamed=False)
    writer = None
    async with told(asked):
        _, writer = await traffic.open()
        await asyncio.sleep(traffic.dice.uniform(1.0, 15.0))
        asked.how = "left"
    await shut(writer)


async def leaver(traffic: Traffic) -> None:
    """Ask, and leave: before the answer, at its head, or inside it."""
    asked = traffic.drawn("leaver")
    writer, stay = None, traffic.dice.random()
    async with told(asked):
        reader, writer = await traffic.open()
        writer.write(traffic.request(asked, traffic.prompt(asked)))
        if stay < 0.3:
            await asyncio.sleep(stay / 3)
        else:
            head = await read_head(reader)
            take_head(asked, head)
            if head.status != 200:
                judge(asked, head, await read_body(reader, head), "")
            elif stay > 0.6 and asked.streamed:
                await reader.readuntil(b"data: ")
        asked.how = "left" if asked.how == "hung" else asked.how
    await shut(writer)


SLOW = (slow_reader, slow_sender, half_head, idler, leaver)


async def mixed(traffic: Traffic) -> None:
    """One client after the other that is not a good one."""
    while not traffic.over:
        await traffic.dice.choice(SLOW)(traffic)
        await asyncio.sleep(0.2)


async def shut(writer: Any) -> None:
    """Close a connection, whatever state it is in."""
    if writer is not None:
        writer.transport.abort()


def clients(traffic: Traffic, number: int) -> list[asyncio.Task[None]]:
    """All of them: half good ones that open connections, a quarter that keep them, and others."""
    loop = asyncio.get_running_loop()
    made = [good(traffic, keeps=n % 3 == 0) for n in range(number * 3 // 4)]
    others = [mixed(traffic) for _ in range(number - len(made) - 1)]
    return [loop.create_task(work) for work in (*made, *others, twins(traffic))]
