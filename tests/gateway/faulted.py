"""The fault catalogue as the gateway meets it, and what must hold once a request is over."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from lightgate.ledger.store.keys import KeyTerms
from lightgate.sim.faults import FAULTS, parse_fault

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from lightgate.ledger.journal.notes import Settled
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.dns import SocketAddress
    from sim.conftest import Answer

TIMEOUT_S = 2.0
GRACE_S = 1.0  # a request that is not over so long after its deadline hangs
TERMS = {"key": KeyTerms(name="key", budget_usd=Decimal(1), may_race=True)}
SHORT = "200ms"  # for a first token; shorter than the silences of the catalogue
LONG = "1500ms"  # where the fault is another: a busy machine is not late
TIMES = 'timeout = "2s"\nidle_timeout = "500ms"\nhedge = "off"\n'


NOWHERE = """
[providers.nowhere]
base_url = "http://nowhere.invalid/v1"
dialect = "openai"
api_key = "none"
"""


class Row(NamedTuple):
    """One fault; `late` when a stream has its first token before it, `status` what a client gets.

    Outcomes are those of the simulator's own catalogue unless they are named here.
    """

    id: str
    fault: str
    late: bool = False
    status: int = 502
    final: bool = False  # the client's own mistake: nobody else is asked
    streamed: str | None = None
    whole: str | None = None

    def outcome(self, *, stream: bool) -> str:
        named = self.streamed if stream else self.whole
        if named is not None:
            return named
        call = parse_fault(self.fault)
        assert call is not None, self.fault
        return call.outcome(streamed=stream)

    @property
    def ttft(self) -> str:
        """How long a first token may take where another target is left."""
        return SHORT if self.id in {"F4", "F25", "F26"} or self.fault == "stall:0" else LONG

    @property
    def target(self) -> str:
        """The target that has it: a model of the lab, or a port of its own."""
        port = FAULTS.get(self.fault.partition(":")[0])
        return (
            "broken/plain"
            if port is not None and not port.on_request
            else f"lab/plain!{self.fault}"
        )


def _ports() -> list[Row]:
    rows = [row for row in FAULTS.values() if not row.on_request]
    return [Row(row.id, row.name, streamed=row.outcome, whole=row.outcome) for row in rows]


ROWS = [
    *_ports(),
    Row("F4", "hang", status=504),
    Row("F5", "rate-limited:2", status=429),
    Row("F6", "rate-limited-date:30", status=429),
    Row("F6", "rate-limited-date:-30", status=429),
    Row("F6", "rate-limited-ms:1500", status=429),
    Row("F6", "rate-limited-epoch:30", status=429),
    Row("F7", "rate-limited-silent:20", status=429),
    *(Row("F8", f"status:{code}") for code in (500, 502, 504, 520, 524, 401, 402, 403, 408, 409)),
    *(Row("F8", f"status:{code}", status=503) for code in (503, 529, 498)),
    Row("F8", "status:429", status=429),
    *(Row("F8", f"status:{code}", status=code, final=True) for code in (400, 422)),
    Row("F8", "status:413", status=413),  # another target may take more
    Row("F9", "error-200", status=429),
    Row("F9", "error-200:503", status=503),
    Row("F9", "choices-null", streamed="stream_error", whole="stream_error"),
    Row("F9", "empty"),
    Row("F10", "stream-error:0", status=503),
    Row("F10", "stream-error:1", late=True, status=503),
    Row("F10", "stream-error:9", late=True, status=503),
    Row("F11", "truncated:0"),
    Row("F11", "truncated:5", late=True),
    Row("F11", "no-last-chunk"),
    Row("F12", "reset:0"),
    Row("F12", "reset:5", late=True),
    Row("F13", "garbage", streamed="truncated"),  # noise has no events: a stream without an end
    Row("F13", "html"),
    Row("F14", "utf8-split"),
    *(Row("F15", fault) for fault in ("crlf", "cr", "bom", "no-space")),
    Row("F16", "comments"),
    Row("F16", "blank-lines"),
    *(Row("F18", f"huge-event:{size}") for size in (65_536, 600_000, 1_048_576, 4_100_000)),
    Row("F18", "huge-event:5000000"),
    Row("F19", "drip:0.05"),
    Row("F20", "stall:0", status=504),
    Row("F20", "stall:5", late=True, status=504),
    Row("F20", "stall:5,0.1"),
    Row("F21", "early-close"),
    *(Row("F22", fault) for fault in ("double-done", "after-done", "no-finish")),
    *(
        Row("F23", f"usage-{where}")
        for where in ("absent", "finish", "separate", "late", "every", "fused")
    ),
    *(Row("F24", f"finish:{word}") for word in ("null", "length", "content_filter")),
    Row("F24", "finish-every"),
    *(
        Row("F24", f"finish:{word}", late=True, streamed="stream_error", whole="stream_error")
        for word in ("abort", "error")
    ),
    Row("F25", "silence:0.4"),
    Row("F26", "early-role:0.4"),
    Row("F36", "ignore-cancel"),
    Row("F37", "stale"),
    Row("F38", "long-length", late=True),
    Row("F38", "bad-chunk:0"),
    Row("F38", "bad-chunk:1", late=True),
]


def model(name: str, targets: list[str], more: str = "", *, ttft: str = LONG) -> str:
    """An alias with short deadlines; every target has a price."""
    quoted = ", ".join(f'"{target}"' for target in targets)
    prices = "".join(
        f'[prices."{target}"]\ninput = 1\noutput = 2\n'
        for target in dict.fromkeys(targets)
        if target != "lab/plain"  # the rig has its price
    )
    return (
        f'[models.{name}]\ntargets = [{quoted}]\npolicy = "ordered"\n{TIMES}'
        f'ttft_timeout = "{ttft}"\n{more}\n{prices}'
    )


def port_of(row: Row) -> str:
    """The provider behind a port that is a fault."""
    if row.target != "broken/plain":
        return ""
    name = row.fault.replace("-", "_")
    scheme = "https" if name.startswith("tls") else "http"
    return (
        f'[providers.broken]\nbase_url = "{scheme}://127.0.0.1:{{trouble_{name}}}/v1"\n'
        'dialect = "openai"\napi_key = "none"\n'
    )


class Names:
    """A resolver's lookup that fails, or takes its time."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[SocketAddress]:
        self.asked += 1
        await asyncio.sleep(self._wait_s)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class Flown(NamedTuple):
    """A request that is over: the answer, its record, and the seconds it took."""

    answer: Answer
    settled: Settled
    took_s: float


class Field:
    """A rig whose client has a key with a budget, watched for what it leaves behind."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._tasks = set(asyncio.all_tasks())

    @classmethod
    async def open(cls, start: Start, models: str, **more: Any) -> Field:
        return cls(await start(models, terms=TERMS, **more))

    def expects(self, task: asyncio.Task[None]) -> None:
        """This task lives longer than any request."""
        self._tasks.add(task)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.rig.keys['key']}"}

    async def fly(self, model: str, **fields: Any) -> Flown:
        """Ask, within the deadline and its grace; then look for what is left over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(TIMEOUT_S + GRACE_S):
            answer = await self.rig.chat(model, headers=self.headers, **fields)
        took_s = loop.time() - began
        await self.at_peace()
        return Flown(answer, self.rig.settled()[-1], took_s)

    async def at_peace(self) -> None:
        """Nothing is left: no upstream, no task, no reservation."""
        rig = self.rig
        client = rig.state.client
        key_id = rig.state.served.snapshot.keys[0].id
        spend = rig.state.spend
        assert spend is not None
        await rig.until(lambda: rig.upstream == 0, within_s=GRACE_S)
        await rig.until(lambda: rig.door.connections == 0, within_s=GRACE_S)
        await rig.until(lambda: client.open_connections == _idle(client), within_s=GRACE_S)
        await rig.until(self._only_the_first_tasks, within_s=GRACE_S)
        await rig.until(lambda: not rig.exchanges, within_s=GRACE_S)
        announced = Counter(note.exchange_id for note in rig.reserved())
        paid_for = [note for note in rig.settled() if note.exchange.cache not in {"hit", "join"}]
        assert announced == Counter(note.exchange.id for note in paid_for)
        assert set(announced.values()) <= {1}
        standing = spend.standing(key_id)
        assert standing is not None
        assert (standing.held_nano, standing.held_tokens) == (0, 0)
        spent = [note.exchange for note in rig.settled() if note.exchange.key_id == key_id]
        paid = sum((note.cost_nano or 0) + (note.loser_cost_nano or 0) for note in spent)
        assert standing.spent_nano == paid

    def _only_the_first_tasks(self) -> bool:
        # The simulator's own handlers end when they see the close; they are tasks of this loop too.
        return asyncio.all_tasks() <= self._tasks | {asyncio.current_task()}


def _idle(client: Client) -> int:
    pools = client._pools.values()
    return sum(len(pool.idle) + (pool.watched is not None) for pool in pools)


def last_error(answer: Answer) -> dict[str, Any]:
    """The error with which a stream ended, in OpenAI's shape."""
    error: dict[str, Any] = json.loads(answer.events[-1][1])["error"]
    return error


def said(answer: Answer, *, stream: bool) -> str:
    """The text of an answer in OpenAI's shape."""
    if not stream:
        text: str = answer.json["choices"][0]["message"]["content"]
        return text
    return "".join(
        chunk["choices"][0]["delta"].get("content") or ""
        for chunk in answer.chunks
        if chunk.get("choices")
    )
