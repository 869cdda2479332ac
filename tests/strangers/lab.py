"""A simulator, and a gateway for each kind of provider: the address alone says who answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from sdk.gate import worker
from strangers.recorder import recording
from strangers.world import world_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Each gateway knows one provider. `openai` has the endpoint for responses, `openai-chat` has not.
KINDS = ("openai", "openai-chat", "anthropic", "gemini")
# The models that agents ask for, and the scripted model behind each.
OWN_MODELS = {
    "claude-opus-5-5": "agent",
    "claude-haiku-4-5-20251001": "agent",
    "claude-sonnet-4-5": "agent",
    "gpt-6.1-sol": "agent",
    "gpt-5.2-codex": "agent",
    "gemini-2.5-pro": "agent",
    "gemini-3.5-flash-lite": "router",
    "gemini-3.1-pro-preview": "agent",  # if the small model gives no judgement
    "gemini-3.1-pro-preview-customtools": "agent",
}
SCRIPTED = ("talk", "looker", "thing")


class StrangersLab(NamedTuple):
    """The addresses of the gateways by kind of provider, and the key that all of them take.

    `heard` are the paths and bodies of all requests that have reached the providers.
    """

    urls: dict[str, str]
    key: str
    heard: list[tuple[str, Any]]


def config_text(kind: str, port: int) -> str:
    """A gateway's configuration with one provider under the strangers' models."""
    provider, _, chat = kind.partition("-")
    version = "v1beta" if provider == "gemini" else "v1"
    name = "lab" if chat else provider  # a known name brings what the catalogue says of it
    lines = [
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:{port}/{provider}/{version}"',
        f'dialect = "{provider}"\napi_key = "none"',
    ]
    aliases = OWN_MODELS | {model: model for model in SCRIPTED}
    for alias, model in aliases.items():
        lines.append(
            f'[models."{alias}"]\ntargets = ["{name}/{model}"]\npolicy = "ordered"\nhedge = "off"'
        )
    return "\n".join(lines)


@contextlib.contextmanager
def strangers_lab(folder: Path) -> Iterator[StrangersLab]:
    """Serve until the end of the block."""
    world = folder / "strangers.toml"
    world.write_text(world_text(), "utf-8")
    secret, record = new_key(KeyTerms(name="stranger"))
    with contextlib.ExitStack() as stack:
        sim = stack.enter_context(SimProcess(SimOptions(world=str(world))))
        recorder = stack.enter_context(recording(sim.facts.port))
        urls = {}
        for kind in KINDS:
            data = folder / kind
            data.mkdir()
            config = parse_config(config_text(kind, recorder.port))
            put_snapshot(data, make_snapshot(config, [record], {}))
            urls[kind] = f"http://127.0.0.1:{stack.enter_context(worker(data))}"
        yield StrangersLab(urls, secret, recorder.heard)
