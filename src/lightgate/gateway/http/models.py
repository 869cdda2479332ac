"""The list of models, in the shape that the client's own provider would give it.

Beside the fields of that provider a model has `context_window` (tokens), `pricing` (dollars per
million tokens), `measured` (what this worker has seen of it lately) and, where it has several
targets, these facts for each of them under `targets`. A fact that is not known is left out.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.gateway.served.asked import ModelUnknown, not_for_key
from lightgate.route.form.target import NEVER

if TYPE_CHECKING:
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.served.served import Served
    from lightgate.ledger.store.keys import KeyRecord

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_AT_ONCE: Final = 50  # models that are written before other work of the worker gets its turn


class ModelPages:
    """The lists of models of one worker; what does not change with a measurement is kept."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._served: Served | None = None
        self._kept: dict[tuple[str, str], bytes] = {}  # by shape and name

    async def all(self, key: KeyRecord | None, shape: str) -> bytes:
        """Every model that this key may ask for: aliases, bare names, targets."""
        served = self._state.served
        names = _names(served, key)
        told: list[bytes] = []
        for place, name in enumerate(names):
            if place % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            told.append(self._told(served, shape, name))
        inside = b",".join(told)
        if shape == "gemini":
            return b'{"models":[%b]}' % inside
        if shape == "anthropic-messages":
            ends = (names[0], names[-1]) if names else (None, None)
            tail = _encode({"has_more": False, "first_id": ends[0], "last_id": ends[1]})
            return b'{"data":[%b],%b' % (inside, tail[1:])
        return b'{"object":"list","data":[%b]}' % inside

    def one(self, key: KeyRecord | None, shape: str, name: str) -> bytes:
        """One model; ModelUnknown where there is none that this key may ask for."""
        served = self._state.served
        if key is not None and key.models and name not in key.models:
            raise not_for_key(name)
        if name not in served.aliases:
            try:
                served.names.targets(name)
            except ModelUnknown:
                if key is not None and key.models:
                    raise not_for_key(name) from None
                raise
        return self._told(served, shape, name)

    def _told(self, served: Served, shape: str, name: str) -> bytes:
        if served is not self._served:
            self._served = served
            self._kept.clear()
        targets = _targets(served, name)
        measured = {target: seen for target in targets if (seen := self._measured(target))}
        kept = None if measured else self._kept.get((shape, name))
        if kept is None:
            kept = _encode(_shaped(served, shape, name) | _facts(served, targets, measured))
            if not measured:
                self._kept[shape, name] = kept
        return kept

    def _measured(self, target: str) -> dict[str, Any] | None:
        """What the workers have seen of a target lately: medians, as the router knows them."""
        state = self._state
        forms = state.learned.forms
        form = forms.by_target.get(target)
        if form is None or form.last_ns == NEVER:
            return None
        now = state.now_ns()
        seen = forms.predict(target, 0, now)
        found: dict[str, Any] = {"ttft_ms": round(seen.ttft_ns / 1e6, 1)}
        if form.speed_seen:
            found["speed_tps"] = round(seen.speed_tps, 1)
        return found | {"age_s": max(0, (now - form.last_ns) // 1_000_000_000)}


def _names(served: Served, key: KeyRecord | None) -> list[str]:
    if key is not None and key.models:
        return [name for name in key.models if _targets(served, name)]
    targets = [target for alias in served.aliases.values() for target in alias.targets]
    return list(dict.fromkeys((*served.aliases, *targets, *served.names.shown())))


def _targets(served: Served, name: str) -> tuple[str, ...]:
    alias = served.aliases.get(name)
    return alias.targets if alias is not None else served.names.meant(name)


def _shaped(served: Served, shape: str, name: str) -> dict[str, Any]:
    """The fields that the client's own provider would give."""
    made_s = served.snapshot.made_ns // 1_000_000_000
    if shape == "gemini":
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": ["generateContent"],
        }
    if shape == "anthropic-messages":
        day = datetime.fromtimestamp(made_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "model", "id": name, "display_name": name, "created_at": day}
    targets = _targets(served, name)
    owner = "lightgate"
    if name not in served.aliases and len(targets) == 1:
        owner = targets[0].partition("/")[0]
    return {"id": name, "object": "model", "created": made_s, "owned_by": owner}


def _facts(
    served: Served, targets: tuple[str, ...], measured: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What is known of a model: of its one target, or of each of them."""
    each = [_target_facts(served, target, measured.get(target)) for target in targets]
    if len(each) == 1:
        return each[0]
    windows = [facts["context_window"] for facts in each if "context_window" in facts]
    found: dict[str, Any] = {"context_window": min(windows)} if windows else {}
    return found | {
        "targets": [{"id": name} | facts for name, facts in zip(targets, each, strict=True)]
    }


def _target_facts(served: Served, target: str, measured: dict[str, Any] | None) -> dict[str, Any]:
    provider, _, model = target.partition("/")
    reach = served.snapshot.providers[provider]
    found: dict[str, Any] = {}
    known = reach.models.get(model)
    if known is not None and known.context_window is not None:
        found["context_window"] = known.context_window
    rates = reach.prices.get(model)
    if reach.hourly_cost is not None:
        found["pricing"] = {"usd_per_hour": reach.hourly_cost}
    elif rates is not None and rates.input is not None:
        prices = {"input": rates.input, "output": rates.output, "cached_input": rates.cached}
        told = {name: rate for name, rate in prices.items() if rate is not None}
        found["pricing"] = {"unit": "usd_per_million_tokens", **told, "as_of": rates.as_of}
    if measured is not None:
        found["measured"] = measured
    return found
