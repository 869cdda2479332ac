"""The documents about the simulator itself: its models, its world, its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.json import encode

from lightgate.sim.server.routes import VERSION

if TYPE_CHECKING:
    from lightgate.sim.world import World, WorldProvider

_CREATED = 1_750_000_000  # June 2025; model lists need a date that does not change
_CREATED_TEXT = "2025-06-15T15:06:40Z"


def models_document(provider: WorldProvider) -> bytes:
    """The list of a provider's models, in its dialect."""
    items = [_model(provider, name) for name in provider.models]
    tree: dict[str, Any] = {"object": "list", "data": items}
    if provider.dialect == "anthropic":
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]}
        tree = {"data": items, "has_more": False, **ends}
    elif provider.dialect == "gemini":
        tree = {"models": items}
    return encode(tree)


def model_document(provider: WorldProvider, name: str) -> bytes | None:
    """The document of one model; None if there is none of that name."""
    return encode(_model(provider, name)) if name in provider.models else None


def _model(provider: WorldProvider, name: str) -> dict[str, object]:
    if provider.dialect == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED_TEXT}
    if provider.dialect == "gemini":
        methods = ["generateContent", "streamGenerateContent"]
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": methods,
        }
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "lightgate-sim"}


def base_urls(world: World, host: str, port: int, ports: dict[str, int]) -> dict[str, str]:
    """The base URL of every provider: on its own port where it has one."""
    out = {}
    for name, provider in world.providers.items():
        root = f"{host}:{ports[name]}" if name in ports else f"{host}:{port}/{name}"
        out[name] = f"http://{root}/{VERSION[provider.dialect]}"
    return out


def world_document(
    world: World, seed: int, ports: dict[str, int], trouble_ports: dict[str, int]
) -> bytes:
    """The world as it is being simulated, keys left out."""
    tree = msgspec.to_builtins(world)
    for provider in tree["providers"].values():
        provider["key"] = None if provider["key"] is None else "required"
    facts = {"world": tree, "seed": seed, "ports": ports, "trouble_ports": trouble_ports}
    return msgspec.json.encode(facts)
