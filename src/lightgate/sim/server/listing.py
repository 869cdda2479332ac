"""What the simulator says about itself: its models, its world, its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.json import encode

from lightgate.sim.server.routes import VERSION

if TYPE_CHECKING:
    from lightgate.sim.world import World, WorldProvider

_CREATED = 1_750_000_000  # June 2025; model lists need some date, and it must not change
_CREATED_TEXT = "2025-06-15T15:06:40Z"


def models_document(maker: WorldProvider) -> bytes:
    """The list of a provider's models, in its dialect."""
    items = [_model(maker, name) for name in maker.models]
    tree: dict[str, Any] = {"object": "list", "data": items}
    if maker.dialect == "anthropic":
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]}
        tree = {"data": items, "has_more": False, **ends}
    elif maker.dialect == "gemini":
        tree = {"models": items}
    return encode(tree)


def model_document(maker: WorldProvider, name: str) -> bytes | None:
    """One model; None if there is none of that name."""
    return encode(_model(maker, name)) if name in maker.models else None


def _model(maker: WorldProvider, name: str) -> dict[str, object]:
    if maker.dialect == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED_TEXT}
    if maker.dialect == "gemini":
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
    for name, maker in world.providers.items():
        root = f"{host}:{ports[name]}" if name in ports else f"{host}:{port}/{name}"
        out[name] = f"http://{root}/{VERSION[maker.dialect]}"
    return out


def world_document(
    world: World, seed: int, ports: dict[str, int], trouble_ports: dict[str, int]
) -> bytes:
    """The world as it is being simulated, keys left out."""
    tree = msgspec.to_builtins(world)
    for maker in tree["providers"].values():
        maker["key"] = None if maker["key"] is None else "required"
    facts = {"world": tree, "seed": seed, "ports": ports, "trouble_ports": trouble_ports}
    return msgspec.json.encode(facts)
