"""A race: one prompt to several targets at once, each token with the instant at which it came.

The lanes are ordinary requests through the gateway, booked in the ledger like any other. Instants
are of this machine's monotonic clock, by which the gateway's records go too; the last word is the
ledger's. Whoever stops reading the race ends it: what is under way is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.marks import Marks
from lightgate.clock.source import SYSTEM
from lightgate.clock.tokens import CHARS_PER_TOKEN
from lightgate.dialect.request import Message, Request
from lightgate.errors import LightgateError
from lightgate.ledger.store.queries import exchange_by_id
from lightgate.provider.call import Call
from lightgate.provider.catalogue import own_provider
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.clock.source import Clock
    from lightgate.console.work.own_gateway import ReachedGateway
    from lightgate.ledger.store.exchange import ExchangeRecord
    from lightgate.ledger.store.store import Ledger
    from lightgate.provider.call import Called
    from lightgate.wire.client.client import Client
    from lightgate.wire.sse import Event

FRAME_S: Final = 0.04  # between two looks at what the lanes said
TAG: Final = "race"
LEDGER_S: Final = 8.0  # that a race waits for its rows
LEDGER_LOOK_S: Final = 0.1
DEADLINES: Final = Deadlines(connect_s=5, first_byte_s=60, idle_s=30, total_s=180)
_MS: Final = 1_000_000


class RaceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A race that may begin."""

    prompt: str
    lanes: tuple[str, ...]
    max_tokens: int
    temperature: float | None = None


class LaneEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in a lane, `t_ms` milliseconds after the start of the race.

    A `burst` is one read that brought tokens; `tokens` counts all so far, by a quarter of the
    characters until the lane has ended.
    """

    kind: str  # sent | burst | end
    lane: int
    t_ms: float
    text: str = ""
    thought: str = ""
    tokens: int = 0
    outcome: str = ""
    error: str = ""
    tokens_source: str | None = None


class LaneResult(msgspec.Struct, frozen=True, kw_only=True):
    """A lane as the ledger has it; places are of those that gave a whole answer."""

    lane: int
    name: str
    target: str | None
    outcome: str
    error: str | None
    request_id: str
    t_sent_ms: float | None
    t_first_ms: float | None
    t_last_ms: float | None
    ttft_ms: float | None
    speed_tps: float | None
    speed_total_tps: float | None
    e2e_ms: float | None
    tokens_out: int | None
    tokens_source: str | None
    cost_usd: Decimal | None
    loser_cost_usd: Decimal | None
    first_place: int | None = None
    finish_place: int | None = None


class RaceFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent at once; `t_ms` is the time of the race when it was sent.

    The last frame has `results`; one that has none has in `missing` why the ledger has no numbers.
    """

    t_ms: float
    id: str = ""
    lanes: tuple[str, ...] = ()
    est_usd: Decimal | None = None
    events: tuple[LaneEvent, ...] = ()
    results: tuple[LaneResult, ...] = ()
    missing: str = ""
    over: bool = False


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_chunk: Final = msgspec.json.Decoder(_Chunk)


class _Lane:
    """One lane under way."""

    def __init__(self, number: int, name: str, race: RaceRun) -> None:
        self.number = number
        self.name = name
        self.request_id = f"{race.id}-{number + 1}"
        self.marks = Marks()
        self._race = race
        self._weight = 0
        self._told_sent = False

    async def run(self, client: Client) -> None:
        """Ask, and tell the race what comes."""
        race = self._race
        headers = (
            ("x-request-id", self.request_id),
            ("x-lightgate-tags", TAG),
            ("x-lightgate-cache", "off"),  # an answer of an hour ago is no racer
        )
        prepared = prepare(race.target(self.name), race.request(self.name), headers)
        self._ended(await Call(prepared, self.marks, self._heard).run(client, DEADLINES))

    def sent(self) -> tuple[LaneEvent, ...]:
        """Tell once when the request was sent."""
        if self._told_sent or self.marks.send is None:
            return ()
        self._told_sent = True
        return (LaneEvent(kind="sent", lane=self.number, t_ms=self._race.ms(self.marks.send)),)

    def _heard(self, data: bytes, events: list[Event], kinds: int) -> None:
        """Pass on the text of one read, with the stamp of that read."""
        del data
        if not kinds:
            return
        text, thought = _said(events)
        self._weight += len(text) + len(thought)
        self._race.tell(
            LaneEvent(
                kind="burst",
                lane=self.number,
                t_ms=self._race.ms(self.marks.burst_ns[-1]),
                text=text,
                thought=thought,
                tokens=max(1, round(self._weight / CHARS_PER_TOKEN)),
            )
        )

    def _ended(self, called: Called) -> None:
        marks, race = self.marks, self._race
        at = marks.last if marks.last is not None and called.error is None else marks.end
        race.tell(
            LaneEvent(
                kind="end",
                lane=self.number,
                t_ms=race.ms(race.clock.now_ns() if at is None else at),
                tokens=called.tokens.out or 0,
                tokens_source=called.tokens.source,
                outcome=called.outcome.value,
                error="" if called.error is None else called.error.message[:300],
            )
        )


class RaceRun:
    """One race; `frames` runs it, and ends it when nobody asks for the next frame any more."""

    def __init__(
        self,
        order: RaceOrder,
        gateway: ReachedGateway,
        client: Client,
        *,
        ledger: Ledger,
        clock: Clock = SYSTEM,
    ) -> None:
        self.id = f"race-{secrets.token_hex(6)}"
        self.order = order
        self.clock = clock
        self._gateway = gateway
        self._client = client
        self._ledger = ledger
        self._news: list[LaneEvent] = []
        self._heard = asyncio.Event()
        self._zero_ns = 0
        self._lanes = [_Lane(number, name, self) for number, name in enumerate(order.lanes)]

    def ms(self, instant_ns: int) -> float:
        """Milliseconds from the start of the race to an instant."""
        return round((instant_ns - self._zero_ns) / _MS, 3)

    def tell(self, event: LaneEvent) -> None:
        """Take in what happened in a lane."""
        self._news.append(event)
        self._heard.set()

    def target(self, model: str) -> Target:
        """The gateway as the target of a lane."""
        base_url, credential = self._gateway.base_url, self._gateway.credential
        return Target(
            name="gateway",
            provider=own_provider("gateway", base_url),
            model=model,
            base_url=base_url,
            api_key=Secret(credential) if credential else None,
        )

    def request(self, model: str) -> Request:
        """The question, the same for all."""
        said = Message(role="user", content=self.order.prompt)
        return Request(
            model=model,
            messages=(said,),
            max_tokens=self.order.max_tokens,
            temperature=self.order.temperature,
        )

    async def frames(
        self, est_usd: Decimal | None, gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[RaceFrame]:
        """Run the race; `gone` is awaited for whether its reader has left."""
        origin, _ = split_url(self._gateway.base_url)
        await self._client.warm(origin, len(self._lanes), DEADLINES.connect_s)
        self._zero_ns = self.clock.now_ns()
        yield RaceFrame(t_ms=0.0, id=self.id, lanes=self.order.lanes, est_usd=est_usd)
        self._zero_ns = self.clock.now_ns()
        running = [asyncio.ensure_future(lane.run(self._client)) for lane in self._lanes]
        try:
            while not all(task.done() for task in running):
                await self._pause(running)
                if await gone():
                    return
                yield self._frame()
            for task in running:
                task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        yield self._frame()
        yield await self._last_frame(gone)

    async def _pause(self, running: Sequence[asyncio.Future[None]]) -> None:
        """Wait for news, a second at most: who has left is seen then, too."""
        self._heard.clear()
        hearing = asyncio.ensure_future(self._heard.wait())
        either: set[asyncio.Future[Any]] = {hearing, *(t for t in running if not t.done())}
        await asyncio.wait(either, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        hearing.cancel()
        await asyncio.sleep(FRAME_S)

    def _frame(self) -> RaceFrame:
        events, self._news = tuple(self._news), []
        sent = [event for lane in self._lanes for event in lane.sent()]
        return RaceFrame(t_ms=self.ms(self.clock.now_ns()), events=(*sent, *events))

    async def _last_frame(self, gone: Callable[[], Awaitable[bool]]) -> RaceFrame:
        """The ledger's numbers, as soon as all rows are there."""
        found: dict[int, LaneResult] = {}
        missing = ""
        until_ns = self.clock.now_ns() + int(LEDGER_S * 1e9)
        while len(found) < len(self._lanes) and self.clock.now_ns() < until_ns:
            for lane in self._lanes:
                if lane.number not in found:
                    with contextlib.suppress(LightgateError):
                        row = await asyncio.to_thread(exchange_by_id, self._ledger, lane.request_id)
                        if row is not None:
                            found[lane.number] = self._result(lane, *row)
            if await gone():
                break
            await asyncio.sleep(LEDGER_LOOK_S)
        if len(found) < len(self._lanes):
            missing = "Some rows are not in the ledger yet; the list of requests will have them."
        results = placed([found[number] for number in sorted(found)])
        return RaceFrame(
            t_ms=self.ms(self.clock.now_ns()), results=tuple(results), missing=missing, over=True
        )

    def _result(
        self, lane: _Lane, exchange: ExchangeRecord, attempts: list[AttemptRecord]
    ) -> LaneResult:
        won = next((one for one in attempts if one.won), attempts[-1] if attempts else None)

        def instant(name: str) -> float | None:
            found = None if won is None else getattr(won, name)
            return None if found is None else self.ms(found)

        def fact(name: str) -> Any:
            return None if won is None else getattr(won, name)

        return LaneResult(
            lane=lane.number,
            name=lane.name,
            target=exchange.winner or fact("target"),
            outcome=exchange.outcome,
            error=exchange.error,
            request_id=exchange.id,
            t_sent_ms=instant("t_send_ns"),
            t_first_ms=instant("t_first_ns"),
            t_last_ms=instant("t_last_ns"),
            ttft_ms=fact("ttft_ms"),
            speed_tps=fact("speed_tps"),
            speed_total_tps=fact("speed_total_tps"),
            e2e_ms=fact("e2e_ms"),
            tokens_out=exchange.tokens_out,
            tokens_source=fact("tokens_source"),
            cost_usd=exchange.cost_usd,
            loser_cost_usd=exchange.loser_cost_usd,
        )


def placed(results: list[LaneResult]) -> list[LaneResult]:
    """Give each whole answer its places: by its first token, and by its last."""
    for field, instant in (("first_place", "t_first_ms"), ("finish_place", "t_last_ms")):
        order = sorted(
            (getattr(one, instant), one.lane)
            for one in results
            if one.outcome == "ok" and getattr(one, instant) is not None
        )
        places = {lane: place for place, (_, lane) in enumerate(order, 1)}
        results = [msgspec.structs.replace(one, **{field: places.get(one.lane)}) for one in results]
    return results


def _said(events: list[Event]) -> tuple[str, str]:
    """The text and the thoughts of the events of one read."""
    text, thought = [], []
    for _, data in events:
        try:
            chunk = _chunk.decode(data)
        except msgspec.DecodeError:
            continue
        for choice in chunk.choices:
            text.append(choice.delta.content or "")
            thought.append(choice.delta.reasoning_content or choice.delta.reasoning or "")
    return "".join(text), "".join(thought)
