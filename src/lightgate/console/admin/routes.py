"""The endpoints that administer and are read: keys, spend, changes, configuration, health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate import __version__
from lightgate.console.admin import health, key_rows
from lightgate.console.api import sheet
from lightgate.console.api.endpoint import ApiRoute
from lightgate.console.api.question import Parameter, rfc3339
from lightgate.errors import LightgateError
from lightgate.ledger.audit import MOST_SHOWN, AuditEntry, read_audit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.console.admin.sources import AdminSources
    from lightgate.console.api.endpoint import ApiContext
    from lightgate.console.api.question import Question

_TIMES: Final = "RFC 3339, or an age like -24h or -14d, or now"


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Changes, the newest first; `next` is the cursor of older ones."""

    as_of: str
    rows: list[AuditEntry]
    next: str | None
    ignored: tuple[str, ...] = ()


def _sources(context: ApiContext) -> AdminSources:
    if context.admin is None:
        raise LightgateError("This console does not administer a gateway.")
    return context.admin


def _keys(context: ApiContext, question: Question, _: str) -> key_rows.KeyList:
    return key_rows.key_list(context.ledger, question, context.now_ns)


def _spend(context: ApiContext, question: Question, _: str) -> key_rows.SpendDays:
    return key_rows.spend_days(context.ledger, question, context.now_ns)


def _audit(context: ApiContext, question: Question, _: str) -> AuditPage:
    limit = question.count("limit") or MOST_SHOWN
    with context.ledger.reading() as connection:
        rows = read_audit(connection, before=question.text("before"), limit=limit)
    after = rows[-1].id if len(rows) == limit else None
    now = rfc3339(context.now_ns // 1_000_000_000)
    return AuditPage(as_of=now, rows=rows, next=after, ignored=question.ignored)


def _config(context: ApiContext, question: Question, _: str) -> health.ConfigInForce:
    data, only = _sources(context).data, question.text("only")
    return health.config_in_force(data, only, context.now_ns, question.ignored)


def _health(context: ApiContext, _: Question, __: str) -> health.GatewayHealth:
    return health.gateway_health(_sources(context), context.now_ns, __version__)


def _key_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _keys(context, question, id_).rows:
        plain = msgspec.structs.replace(row, tags={})
        cells = sheet.flat(plain)
        cells["tags"] = " ".join(f"{name}={value}" for name, value in row.tags.items())
        yield cells


def _spend_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    return key_rows.spend_rows(_spend(context, question, id_))


def _audit_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _audit(context, question, id_).rows:
        cells = msgspec.structs.asdict(row)
        for name in ("before", "after"):
            value = cells[name]
            cells[name] = None if value is None else msgspec.json.encode(value).decode()
        yield cells


def _config_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _config(context, question, id_).rows:
        yield msgspec.structs.asdict(row)


def _health_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _health(context, question, id_).targets:
        yield msgspec.structs.asdict(row)


ADMIN_READS: Final = (
    ApiRoute(
        "/api/keys",
        "Every virtual key: its terms, what it has spent, and its last 14 days. Never the key.",
        (Parameter("state", "choice", "only keys in this state", choices=("", *key_rows.STATES)),),
        key_rows.KeyList, _keys, _key_rows, "admin",
    ),
    ApiRoute(
        "/api/spend",
        "Dollars by day (UTC) and key, model or tag; those of losers of races are apart.",
        (
            Parameter("from", "time", f"start of the period: {_TIMES}", "-13d"),
            Parameter("to", "time", f"end of the period: {_TIMES}", "now"),
            Parameter("key", "names", "ids of virtual keys; may be repeated"),
            Parameter("by", "choice", "what a row is of", "key", key_rows.BY),
        ),
        key_rows.SpendDays, _spend, _spend_rows, "admin",
    ),
    ApiRoute(
        "/api/audit",
        "Changes of keys and sign-ins, the newest first: who, when, what, before and after.",
        (
            Parameter("before", "text", "cursor: `next` of the page before"),
            Parameter("limit", "count", "rows of a page", "50", most=MOST_SHOWN),
        ),
        AuditPage, _audit, _audit_rows, "admin",
    ),
    ApiRoute(
        "/api/config",
        "Every value of the configuration in force and its source; a secret by its variable.",
        (Parameter("only", "choice", "leave defaults out", choices=("", "changed")),),
        health.ConfigInForce, _config, _config_rows, "admin",
    ),
    ApiRoute(
        "/api/health",
        "Workers, processes, breakers, in flight, lag of the loops and of the journals.",
        (),
        health.GatewayHealth, _health, _health_rows, "admin",
    ),
)  # fmt: skip
