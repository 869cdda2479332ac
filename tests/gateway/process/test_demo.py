from __future__ import annotations

import asyncio
import json
import os
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.config.load import parse_config
from lightgate.gateway.process import demo
from lightgate.gateway.process.demo import (
    ALIAS,
    AT_ONCE,
    DemoTraffic,
    first_targets,
    send,
    with_simulated,
)
from lightgate.gateway.served.inner import CONSOLE_ENV, console_credential
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.provider.catalogue import own_provider
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target
from lightgate.sim.server.serve import SimFacts
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import load, shipped
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from lightgate.sim.world import World


def facts(world: World) -> SimFacts:
    return SimFacts(
        port=1, host="127.0.0.1", pid=1, world=world.name, seed=1, trouble_ports={},
        providers={name: f"http://127.0.0.1:1/{name}/v1" for name in world.providers},
    )  # fmt: skip


@pytest.mark.parametrize("name", shipped())
def test_every_world_becomes_a_configuration_that_can_be_served(name: str) -> None:
    world = load(name)
    config = with_simulated(parse_config(""), facts(world), world)
    snapshot = make_snapshot(config, (), {})
    assert set(snapshot.providers) == {f"sim-{provider}" for provider in world.providers}
    assert all(reach.key_env is None for reach in snapshot.providers.values())
    aliases = {alias.name: alias for alias in snapshot.aliases}
    assert list(aliases[ALIAS].targets) == first_targets(world)
    assert len(aliases[ALIAS].targets) == len(world.providers)


def test_prices_dialects_and_shared_models_come_along() -> None:
    world = load("providers-2026")
    config = with_simulated(parse_config(""), facts(world), world)
    assert config.models["mixtral"].targets == ("sim-groq/mixtral", "sim-together/mixtral")
    assert config.providers["sim-anthropic"].dialect == "anthropic"
    assert config.providers["sim-runpod-h100"].hourly_cost == Decimal("2.69")
    assert config.prices["sim-openai/gpt-4-turbo"].output == Decimal("19.5")
    assert "sim-openai/gpt-4o" not in config.prices  # unknown stays unknown


def test_what_is_configured_stands_above_the_demo() -> None:
    world = load("providers-2026")
    own = parse_config('[models.demo]\ntargets = ["groq/x"]\npolicy = "ordered"\n')
    assert with_simulated(own, facts(world), world).models["demo"].targets == ("groq/x",)


async def test_traffic_goes_round_and_does_not_wait_for_answers() -> None:
    sim = SimServer(load("selftest"), seed=1)
    port = await sim.start("127.0.0.1", 0)
    client = Client()
    traffic = DemoTraffic(base_url=f"http://127.0.0.1:{port}/lab/v1", models=("s1", "s2"))
    pauses = 0

    async def pause(seconds: float) -> None:
        nonlocal pauses
        assert seconds >= 0
        pauses += 1
        if pauses > AT_ONCE + 20:
            await asyncio.Event().wait()

    try:
        sending = asyncio.ensure_future(send(traffic, client, pause=pause))
        while len(sim.log.entries) < AT_ONCE:
            await asyncio.sleep(0.01)
        models = [entry.model for entry in sim.log.entries]
        # Nobody paused, so all that may be under way at once is; the rest was not sent.
        assert len(models) == AT_ONCE
        assert abs(models.count("s1") - models.count("s2")) <= 1
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await client.close()
        await sim.close()


async def test_every_visitor_asks_in_a_message_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    class Asked:
        def __init__(self, prepared: Any, _marks: object) -> None:
            sent.append(prepared.payload)

        async def run(self, _client: object, deadlines: object) -> None:
            sent.append(deadlines)

    monkeypatch.setattr(demo, "Call", Asked)
    address = "http://127.0.0.1:1/v1"
    gateway = Target(
        name="gateway",
        provider=own_provider("gateway", address),
        model="m",
        base_url=address,
        api_key=Secret(console_credential("of-the-console")),
    )
    await demo._one(gateway, None, 0xABC)  # type: ignore[arg-type]
    head, _, body = sent[0].partition(b"\r\n\r\n")
    assert b"Bearer lightgate-console.of-the-console" in head
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    asked = json.loads(body)
    said = "Visitor 00000abc asks how fast you are."
    assert asked["messages"] == [{"role": "user", "content": said}]
    assert asked["model"] == "m"
    assert demo.TOKENS in asked.values()
    assert sent[1] is demo.DEADLINES


@pytest.mark.parametrize("secret", ["", "of-the-console"])
def test_the_traffic_has_the_credential_of_the_console_where_there_is_one(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic, given = DemoTraffic(base_url="http://127.0.0.1:1/v1", models=("m",)), []

    async def noted(asked: DemoTraffic, key: Secret | None) -> None:
        given.append((asked, key and key.reveal()))

    monkeypatch.setattr(demo, "_run", noted)
    monkeypatch.setattr(sys, "argv", ["demo", msgspec.json.encode(traffic).decode()])
    if secret:
        monkeypatch.setenv(CONSOLE_ENV, secret)
    else:
        monkeypatch.delenv(CONSOLE_ENV, raising=False)
    assert demo.main() == 0
    assert given == [(traffic, console_credential(secret) if secret else None)]
    assert CONSOLE_ENV not in os.environ  # no child of its own gets it
