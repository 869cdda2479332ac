"""All that is known about one request, for the key that made it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.ledger.locate import LedgerPlace

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.exchange.state import State
    from lightgate.ledger.store.keys import KeyRecord

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode

_PREFIXES: Final = ("chatcmpl-", "resp_", "msg_")  # what translated answers put before an id


async def look_up(state: State, data: Path, id_: str, key: KeyRecord | None) -> bytes:
    """The exchange and its attempts as JSON: from this worker's memory, else from the ledger.

    Another key's request is as unknown as one that never was.
    """
    owner = None if key is None else key.id
    for prefix in _PREFIXES:
        id_ = id_.removeprefix(prefix)
    settled = state.journal.recent.get(id_)
    if settled is None:
        mine = (s for s in reversed(state.journal.recent.values()) if s.exchange.key_id == owner)
        settled = next((s for s in mine if s.exchange.request_id == id_), None)
    if settled is not None:
        exchange: Any = settled.exchange.record(len(settled.attempts))
        attempts: list[Any] = [note.attempt() for note in settled.attempts]
    else:
        exchange, attempts = await asyncio.to_thread(_from_ledger, data, id_)
    if exchange is None or exchange.key_id != owner:
        raise Refusing(
            Refusal(
                status=404,
                message="No request with this id is known. A running one is known when it ends.",
                code="unknown_request",
            )
        )
    return _encode({"exchange": exchange, "attempts": attempts})


def _from_ledger(data: Path, id_: str) -> tuple[Any, list[Any]]:
    place = LedgerPlace.of_process(os.environ, data)
    if place.missing:
        return None, []
    from lightgate.ledger.store.queries import exchange_by_id

    with place.open() as ledger:
        return exchange_by_id(ledger, id_) or (None, [])
