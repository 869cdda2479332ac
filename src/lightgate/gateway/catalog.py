"""The list of models, in the shape that the client's own provider would give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from lightgate.gateway.house import House
    from lightgate.ledger.keys import KeyRecord

_encode: Final = msgspec.json.Encoder().encode


def models_body(house: House, key: KeyRecord | None, shape: str) -> bytes:
    """Every model that this key may ask for."""
    names = [name for name in house.models() if key is None or not key.models or name in key.models]
    created = house.snapshot.made_ns // 1_000_000_000
    if shape == "gemini":
        listed: dict[str, Any] = {"models": [_gemini(name) for name in names]}
    elif shape == "anthropic-messages":
        listed = {
            "data": [
                {"type": "model", "id": name, "display_name": name, "created_at": _day(house)}
                for name in names
            ],
            "has_more": False,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
    else:
        listed = {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": created, "owned_by": _owner(house, name)}
                for name in names
            ],
        }
    return _encode(listed)


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
