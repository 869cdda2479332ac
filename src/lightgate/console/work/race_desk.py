"""Who may race what: the names on offer, the limits of a race, and how many run at once."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.run.budget import ASK_ABOVE
from lightgate.clock.source import SYSTEM
from lightgate.console.site.live import LiveStreams
from lightgate.console.work.lanes import LaneChoice, choice_of, offered, other_names
from lightgate.console.work.race import RaceOrder, RaceRun
from lightgate.errors import LightgateError, UsageError
from lightgate.wire.client.client import Client
from lightgate.wire.client.proxy import Proxies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lightgate.clock.source import Clock
    from lightgate.console.work.own_gateway import OwnGateway
    from lightgate.ledger.store.store import Ledger

MOST_LANES: Final = 8
MOST_TOKENS: Final = 2_048
MOST_PROMPT: Final = 16_000  # characters
MOST_RACES: Final = 3  # at once
USUAL_TOKENS: Final = 256


class Crowded(LightgateError):  # noqa: N818 - names the event
    """As much is under way as may be at once."""

    label = "crowded"


class RaceAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is posted to start a race; `agreed_usd` is needed above a dollar."""

    prompt: str
    lanes: tuple[str, ...]
    max_tokens: int = USUAL_TOKENS
    temperature: float | None = 0.0
    agreed_usd: Decimal | None = None


class RaceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a race may be: the names on offer with dollars per million tokens, and the limits.

    Names are found among `choices` and `others`, or typed as provider/model. `problem` says why
    there can be no race now; `ask_above_usd` are dollars from which on somebody has to agree.
    """

    choices: list[LaneChoice]
    others: list[str]
    most_lanes: int = MOST_LANES
    most_tokens: int = MOST_TOKENS
    most_prompt: int = MOST_PROMPT
    most_races: int = MOST_RACES
    ask_above_usd: Decimal = ASK_ABOVE
    problem: str = ""


def race_terms(gateway: OwnGateway) -> RaceTerms:
    """What may be raced, and within which limits."""
    problem = gateway.problem()
    if problem:
        return RaceTerms(choices=[], others=[], problem=problem)
    snapshot = gateway.snapshot()
    choices = offered(snapshot)
    others = other_names(snapshot, (choice.name for choice in choices))
    problem = "" if choices or others else "No provider is configured: set a provider's key."
    return RaceTerms(choices=choices, others=others, problem=problem)


class RaceDesk:
    """Starts races, a few at once."""

    def __init__(self, gateway: OwnGateway, ledger: Ledger, clock: Clock = SYSTEM) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._clock = clock
        self._client: Client | None = None
        self.live = LiveStreams(MOST_RACES)

    def check(self, asked: RaceAsked) -> tuple[RaceOrder, Decimal | None]:
        """The race that was asked for and the most that it may cost; UsageError says what is wrong.

        The dollars are None where the price of a lane is not known.
        """
        lanes = tuple(name.strip() for name in asked.lanes)
        if not asked.prompt.strip():
            raise UsageError("Type a prompt.")
        if len(asked.prompt) > MOST_PROMPT:
            raise UsageError(f"A prompt has at most {MOST_PROMPT:,} characters.")
        if not 1 <= len(lanes) <= MOST_LANES or len(set(lanes)) < len(lanes):
            raise UsageError(f"A race has 1 to {MOST_LANES} lanes, each with a name of its own.")
        if not 1 <= asked.max_tokens <= MOST_TOKENS:
            raise UsageError(f"An answer has 1 to {MOST_TOKENS:,} tokens.")
        if asked.temperature is not None and not 0 <= asked.temperature <= 2:
            raise UsageError("The temperature is a number from 0 to 2.")
        cost = self._most_usd(lanes, asked)
        if cost is not None and cost > max(ASK_ABOVE, asked.agreed_usd or Decimal(0)):
            raise UsageError(
                f"This race may cost {cost:.2f} dollars: that is more than was agreed to."
            )
        order = RaceOrder(
            prompt=asked.prompt,
            lanes=lanes,
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
        )
        return order, cost

    def _most_usd(self, lanes: tuple[str, ...], asked: RaceAsked) -> Decimal | None:
        snapshot, size = self._gateway.snapshot(), len(asked.prompt.encode())
        costs = []
        for name in lanes:
            choice = choice_of(snapshot, name)
            if choice is None:
                raise UsageError(f"The gateway does not serve {name[:128]!r}.")
            costs.append(choice.most_usd(size, asked.max_tokens))
        known = [cost for cost in costs if cost is not None]
        total = sum(known, Decimal(0))
        return total if len(known) == len(costs) or total > ASK_ABOVE else None

    async def frames(
        self, order: RaceOrder, est_usd: Decimal | None, gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        """Run a race: one event of a stream for each of its frames."""
        gateway = self._gateway.reached()
        if self._client is None:
            self._client = Client(proxies=Proxies(), watch_lag=False)
        race = RaceRun(order, gateway, self._client, ledger=self._ledger, clock=self._clock)
        async for frame in race.frames(est_usd, gone):
            yield b"data: %b\n\n" % _encode(frame)

    async def close(self) -> None:
        """Close the connections to the gateway."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def take_place(self) -> None:
        """Take the place of a race; Crowded where as many run as may."""
        if not self.live.take():
            raise Crowded(f"{MOST_RACES} races are under way; wait for one of them to end.")


_encode: Final = msgspec.json.Encoder(decimal_format="string").encode
