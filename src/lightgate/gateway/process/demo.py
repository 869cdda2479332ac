"""Run the demo: simulated providers as a configuration, and light traffic through the gateway.

`python -m lightgate.gateway.process.demo FACTS` is the traffic: an open loop of short streamed
requests over loopback, sent by the client that calls providers and tagged `demo` in the ledger.
They show the secret of the console, so that they go on where the gateway has keys.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.marks import Marks
from lightgate.dialect.request import Message, Request
from lightgate.gateway.process.child import end_with_parent
from lightgate.gateway.served.inner import CONSOLE_ENV, console_credential
from lightgate.provider.call import Call
from lightgate.provider.catalogue import own_provider
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target
from lightgate.wire.client.client import Client
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.config.model import Config
    from lightgate.sim.server.serve import SimFacts
    from lightgate.sim.world import World, WorldModel

PREFIX: Final = "sim-"  # a simulated provider never goes by the name of a real one
ALIAS: Final = "demo"
RATE_PER_S: Final = 5.0
TOKENS: Final = 32
AT_ONCE: Final = 64  # requests under way at most, so that a gateway that hangs gets no more
HEADERS: Final = (("x-lightgate-tags", "demo"),)
DEADLINES: Final = Deadlines(connect_s=5, first_byte_s=60, idle_s=30, total_s=120)


class DemoTraffic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the demo's requests go, and the models that they ask for in turn."""

    base_url: str
    models: tuple[str, ...]
    rate_per_s: float = RATE_PER_S
    seed: int = 1


def with_simulated(config: Config, facts: SimFacts, world: World) -> Config:
    """The configuration with every provider of a running simulator, and aliases for their models.

    A model that several providers have is an alias of its own name; the alias `demo` has one
    target of each provider.
    """
    from lightgate.config.model import Config as Checked

    providers: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    homes: dict[str, list[str]] = defaultdict(list)
    for name, maker in world.providers.items():
        ours = f"{PREFIX}{name}"
        providers[ours] = {"base_url": facts.providers[name], "dialect": maker.dialect,
                           "api_key": "none", "hourly_cost": maker.hourly_cost}  # fmt: skip
        for title, model in maker.models.items():
            homes[title].append(f"{ours}/{title}")
            prices |= _price(f"{ours}/{title}", model)
    aliases = {title: targets for title, targets in homes.items() if len(targets) > 1}
    aliases[ALIAS] = first_targets(world)
    models = {name: {"targets": targets, "policy": "chat"} for name, targets in aliases.items()}
    added = Checked.model_validate({"providers": providers, "models": models, "prices": prices})
    return config.model_copy(
        update={
            "providers": {**added.providers, **config.providers},
            "models": {**added.models, **config.models},
            "prices": {**added.prices, **config.prices},
        }
    )


def first_targets(world: World) -> list[str]:
    """One target of each simulated provider: its first model."""
    return [f"{PREFIX}{name}/{next(iter(maker.models))}" for name, maker in world.providers.items()]


def _price(target: str, model: WorldModel) -> dict[str, Any]:
    if model.price is None:
        return {}
    return {target: {"input": model.price.input, "output": model.price.output}}


async def send(
    traffic: DemoTraffic,
    client: Client,
    *,
    key: Secret | None = None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Send requests at the given rate until cancelled, without waiting for answers."""
    gateway = own_provider("gateway", traffic.base_url)
    chance = random.Random(traffic.seed)  # noqa: S311 - demo traffic, not cryptography
    under_way: set[asyncio.Task[None]] = set()
    try:
        for model in itertools.cycle(traffic.models):
            await pause(chance.expovariate(traffic.rate_per_s))
            if len(under_way) < AT_ONCE:
                target = Target(
                    name=gateway.name,
                    provider=gateway,
                    model=model,
                    base_url=traffic.base_url,
                    api_key=key,
                )
                task = asyncio.ensure_future(_one(target, client, chance.getrandbits(32)))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _one(gateway: Target, client: Client, number: int) -> None:
    said = Message(role="user", content=f"Visitor {number:08x} asks how fast you are.")
    request = Request(model=gateway.model, messages=(said,), max_tokens=TOKENS)
    marks = Marks(plan=time.monotonic_ns())
    # The gateway records how it ended.
    await Call(prepare(gateway, request, HEADERS), marks).run(client, DEADLINES)


async def _run(traffic: DemoTraffic, key: Secret | None) -> None:
    client = Client()
    sending = asyncio.ensure_future(send(traffic, client, key=key))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, sending.cancel)
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    try:
        await asyncio.wait({sending})
        if not sending.cancelled():
            sending.result()
    finally:
        await client.close()


def main() -> int:
    """Read the facts from the command line, send until told to stop."""
    import uvloop

    end_with_parent(os.environ)
    secret = os.environ.pop(CONSOLE_ENV, "")
    key = Secret(console_credential(secret)) if secret else None
    uvloop.run(_run(msgspec.json.decode(sys.argv[1], type=DemoTraffic), key))
    return 0


if __name__ == "__main__":
    sys.exit(main())
