"""The list of models, in the shape that the client's own provider would give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from lightgate.gateway.served.served import Served
    from lightgate.ledger.store.keys import KeyRecord

_encode: Final = msgspec.json.Encoder().encode


def models_body(served: Served, key: KeyRecord | None, shape: str) -> bytes:
    """Every model that this key may ask for."""
    names = _names(served, key)
    told = [_told(served, shape, name) for name in names]
    if shape == "gemini":
        return _encode({"models": told})
    if shape == "anthropic-messages":
        first, last = (names[0], names[-1]) if names else (None, None)
        return _encode({"data": told, "has_more": False, "first_id": first, "last_id": last})
    return _encode({"object": "list", "data": told})


def model_body(served: Served, key: KeyRecord | None, shape: str, name: str) -> bytes | None:
    """One model; None where there is none that this key may ask for."""
    return _encode(_told(served, shape, name)) if name in _names(served, key) else None


def _names(served: Served, key: KeyRecord | None) -> list[str]:
    return [name for name in served.models() if key is None or not key.models or name in key.models]


def _told(served: Served, shape: str, name: str) -> dict[str, Any]:
    if shape == "gemini":
        return _gemini(name)
    if shape == "anthropic-messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": _day(served)}
    created = served.snapshot.made_ns // 1_000_000_000
    return {"id": name, "object": "model", "created": created, "owned_by": _owner(served, name)}


def _gemini(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent"],
    }


def _owner(served: Served, name: str) -> str:
    return "lightgate" if name in served.aliases else name.partition("/")[0]


def _day(served: Served) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(served.snapshot.made_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
