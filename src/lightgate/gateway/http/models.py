"""The list of models, in the shape that the client's own provider would give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from lightgate.gateway.served.served import House
    from lightgate.ledger.store.keys import KeyRecord

_encode: Final = msgspec.json.Encoder().encode


def models_body(house: House, key: KeyRecord | None, shape: str) -> bytes:
    """Every model that this key may ask for."""
    names = _names(house, key)
    told = [_told(house, shape, name) for name in names]
    if shape == "gemini":
        return _encode({"models": told})
    if shape == "anthropic-messages":
        first, last = (names[0], names[-1]) if names else (None, None)
        return _encode({"data": told, "has_more": False, "first_id": first, "last_id": last})
    return _encode({"object": "list", "data": told})


def model_body(house: House, key: KeyRecord | None, shape: str, name: str) -> bytes | None:
    """One model; None where there is none that this key may ask for."""
    return _encode(_told(house, shape, name)) if name in _names(house, key) else None


def _names(house: House, key: KeyRecord | None) -> list[str]:
    return [name for name in house.models() if key is None or not key.models or name in key.models]


def _told(house: House, shape: str, name: str) -> dict[str, Any]:
    if shape == "gemini":
        return _gemini(name)
    if shape == "anthropic-messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": _day(house)}
    created = house.snapshot.made_ns // 1_000_000_000
    return {"id": name, "object": "model", "created": created, "owned_by": _owner(house, name)}


def _gemini(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent"],
    }


def _owner(house: House, name: str) -> str:
    return "lightgate" if name in house.aliases else name.partition("/")[0]


def _day(house: House) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(house.snapshot.made_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
