"""The usage of a key, for the key itself: requests, tokens, money, what is left of its budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError
from lightgate.gateway.request.refusal import Refusing, of_error
from lightgate.gateway.served.price import NANO
from lightgate.ledger.store.keys import period_start

if TYPE_CHECKING:
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.http.ledger_reads import LedgerReads
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

_DEFAULT: Final = timedelta(days=30)
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


async def usage_body(
    state: State, reads: LedgerReads, key: KeyRecord | None, target: bytes
) -> bytes:
    """What the caller's own key has used, by model; `?since=7d` asks for another time."""
    wall_ns = state.wall_ns()
    now = datetime.fromtimestamp(wall_ns / NANO, UTC)
    since = _since(target, key, wall_ns)
    owner = "" if key is None else key.id
    none: dict[str, dict[str, Any]] = {}
    rows = await reads.read(lambda ledger: _from_ledger(ledger, owner, since), none)
    total = {name: sum([row[name] for row in rows.values()]) for name in _SUMS}
    told: dict[str, Any] = {
        "object": "usage",
        "key": None if key is None else {"id": key.id, "name": key.name, "prefix": key.prefix},
        "since": None if since is None else _instant(since),
        "until": _instant(now),
        **total,
        "models": rows,
        **_standing(state, key),
    }
    return _encode(told)


_SUMS: Final = ("requests", "ok", "cached", "tokens_in", "tokens_out", "cost_usd")


def _since(target: bytes, key: KeyRecord | None, wall_ns: int) -> datetime | None:
    """The begin of the asked time: of the budget's period, else of the last 30 days."""
    asked = dict(parse_qsl(target.partition(b"?")[2].decode("latin-1"))).get("since")
    now = datetime.fromtimestamp(wall_ns / NANO, UTC)
    if asked is not None:
        try:
            return now - timedelta(microseconds=parse_duration(asked) / 1000)
        except (ValueError, OverflowError):
            error = UsageError("`since` is not a duration such as 24h or 7d.")
            raise Refusing(of_error(error, param="since")) from None
    if key is not None and key.budget_usd is not None:
        return period_start(key.budget_period, wall_ns)
    return now - _DEFAULT


def _from_ledger(ledger: Ledger, key_id: str, since: datetime | None) -> dict[str, dict[str, Any]]:
    from lightgate.ledger.store.queries import usage_of_key

    return {
        row.model: {name: getattr(row, name) for name in _SUMS} | {"cost_usd": float(row.cost_usd)}
        for row in usage_of_key(ledger, key_id, since)
    }


def _standing(state: State, key: KeyRecord | None) -> dict[str, Any]:
    """What counts against the key's limits now, running requests included."""
    standing = None if key is None or state.spend is None else state.spend.standing(key.id)
    if key is None or standing is None:
        return {"budget": None, "limits": None}
    budget = None
    if key.budget_usd is not None:
        spent, held = _dollars(standing.spent_nano), _dollars(standing.held_nano)
        budget = {
            "usd": key.budget_usd,
            "period": key.budget_period,
            "spent_usd": spent,
            "reserved_usd": held,
            "left_usd": max(Decimal(0), key.budget_usd - spent - held),
        }
    limits = {
        "rpm": key.rpm,
        "requests_last_minute": standing.requests,
        "tpm": key.tpm,
        "tokens_last_minute": standing.tokens + standing.held_tokens,
    }
    return {"budget": budget, "limits": limits}


def _dollars(nano_usd: int) -> Decimal:
    return Decimal(nano_usd).scaleb(-9)


def _instant(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
