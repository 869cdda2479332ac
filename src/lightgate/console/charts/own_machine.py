"""A machine of one's own against APIs: the report's formula, for prices and loads that are asked.

With a self-hosted provider in the ledger the machine is that one, and the requests are its own.
Without one it is a machine that was thought up, and the requests are those that APIs answered.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa

from lightgate.console.api.question import rfc3339
from lightgate.console.api.sums import named, spans
from lightgate.ledger.runs.break_even import break_even_row, month_cost, soonest_first
from lightgate.ledger.store.hourly import MachineUse, hourly_costs, hourly_rows, machine_uses
from lightgate.ledger.store.queries import SpeedRow
from lightgate.ledger.store.schema import rollups
from lightgate.price.cost import HOURS_PER_MONTH
from lightgate.report.money.machines import ApiPrice, api_cost, machine_cost, machine_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.console.api.question import Question
    from lightgate.ledger.runs.break_even import MachineCost, MonthCost
    from lightgate.ledger.store.store import Ledger
    from lightgate.price.rates import Rates

THOUGHT_UP: Final = "own machine"
EXAMPLE_USD: Final = Decimal("2.50")  # an hour of a machine with one large accelerator
EXAMPLE_TPS: Final = 1000.0
MOST_APIS: Final = 40
Cheaper = Literal["own", "api", "unknown"]
_MTOK: Final = Decimal(1_000_000)


class OwnMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine.

    `per_1k` and `per_mtok` are its cost when filled to `fill`, for 1,000 requests and for a million
    output tokens. `used` is how much the ledger's traffic filled, null for one thought up.
    """

    name: str
    in_ledger: bool
    usd_per_hour: Decimal
    tokens_per_s: float
    tokens_per_request: float
    per_1k: Decimal | None
    per_mtok: Decimal | None
    used: float | None


class OwnAgainstApi(msgspec.Struct, frozen=True, kw_only=True):
    """The machine against one API, for the same requests.

    `cheaper_from` is the share of its capacity from which one machine is cheaper, with the output
    tokens and requests that this comes to in a month; null where it never is, and `note` says why.
    The rest is the month that was asked for.
    """

    api: str
    other_model: bool
    own_per_1k: Decimal | None
    api_per_1k: Decimal | None
    cheaper_from: float | None
    tokens_per_month: Decimal | None
    requests_per_month: Decimal | None
    machines: int | None
    used: float | None
    own_month_usd: Decimal | None
    api_month_usd: Decimal | None
    cheaper: Cheaper
    note: str


class OwnOrApi(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the machine, and every API beside it, the soonest break-even first.

    `machines` are the self-hosted providers of the ledger; `missing` says what is needed where
    there are no rows.
    """

    as_of: str
    since: str
    until: str
    machines: tuple[str, ...]
    machine: OwnMachine | None
    fill: float
    mtok: float
    rows: tuple[OwnAgainstApi, ...]
    missing: str
    ignored: tuple[str, ...]


class _ApiSums(NamedTuple):
    """What an API answered in the period."""

    row: SpeedRow
    model: str
    answered: int


def own_or_api(
    ledger: Ledger,
    question: Question,
    now_ns: int,
    prices: Mapping[str, Decimal],
    rates: Mapping[str, Mapping[str, Rates]],
) -> OwnOrApi:
    """Hold a machine against every API of the period."""
    period = question.period
    until = datetime.fromtimestamp(period.stop_s, UTC)
    last = timedelta(seconds=max(period.stop_s - period.start_s, 1))
    with ledger.reading() as connection:
        own = set(hourly_costs(connection, (period.start_s, period.stop_s), prices))
        apis = _apis(connection, question, own)
    uses = []
    if own:  # reading every five minutes of a period takes a while
        uses = machine_uses(ledger, hourly_rows(ledger, last, until, prices), last, until)
    use = _asked(_chosen(uses, question) or _thought_up(apis), question)
    mtok = question.amount("mtok") or _month_mtok(use, last)
    fill = (question.count("busy") or 100) / 100
    cost = machine_cost(use)
    rows = _rows(use, cost, _priced(apis, rates), (mtok * _MTOK, fill))
    since, stop = period.texts()
    return OwnOrApi(
        as_of=rfc3339(now_ns // 1_000_000_000),
        since=since,
        until=stop,
        machines=tuple(one.provider for one in uses),
        machine=_machine(use, cost, fill) if use.tokens_out else None,
        fill=fill,
        mtok=float(mtok),
        rows=rows,
        missing="" if rows else _missing(apis),
        ignored=question.ignored,
    )


def _apis(connection: sa.Connection, question: Question, own: set[str]) -> list[_ApiSums]:
    """The targets of the period that are paid by the token and have cost something."""
    table = rollups.c
    plain = (table.attempts, table.measured, table.tokens_in, table.tokens_out)
    found: dict[str, list[Any]] = {}
    for width, first, stop in spans(question.period):
        query = sa.select(table.target, table.provider, table.model, table.cost_usd, *plain).where(
            table.width_s == width, table.bucket_s >= first, table.bucket_s < stop,
            *named(question, table),
        )  # fmt: skip
        for row in connection.execute(query):
            if row.provider not in own:
                found.setdefault(row.target, []).append(row)
    made = [_api_sums(target, rows) for target, rows in found.items()]
    paid = [one for one in made if one.row.cost_usd and one.row.tokens_out]
    return sorted(paid, key=lambda one: (-one.answered, one.row.name))[:MOST_APIS]


def _api_sums(target: str, rows: Sequence[Any]) -> _ApiSums:
    row = SpeedRow(
        name=target,
        attempts=sum(row.attempts for row in rows),
        successes=sum(row.measured for row in rows),
        speed_total_p50=None,
        speed_total_interval=None,
        ttft_p50_ms=None,
        ttft_p95_ms=None,
        tokens_in=sum(row.tokens_in for row in rows),
        tokens_out=sum(row.tokens_out for row in rows),
        cost_usd=sum((row.cost_usd for row in rows), Decimal(0)),
        exact=False,
    )
    return _ApiSums(row, rows[-1].model, row.successes)


def _chosen(uses: Sequence[MachineUse], question: Question) -> MachineUse | None:
    """The self-hosted provider that is asked for, else the one with most tokens; None: none is."""
    wanted = question.text("machine")
    if wanted == THOUGHT_UP:
        return None
    named_so = [use for use in uses if use.provider == wanted]
    return max(named_so or uses, key=lambda use: use.tokens_out, default=None)


def _thought_up(apis: Sequence[_ApiSums]) -> MachineUse:
    """A machine that nobody has, with the traffic of all APIs."""
    return MachineUse(
        provider=THOUGHT_UP,
        models=(),
        usd_per_hour=EXAMPLE_USD,
        hours=0.0,
        answered=sum(one.answered for one in apis),
        tokens_in=sum(one.row.tokens_in for one in apis),
        tokens_out=sum(one.row.tokens_out for one in apis),
        peak_tps=EXAMPLE_TPS,
        mean_tps=0.0,
        utilisation=0.0,
        by_hour_tps=(),
        hourly_tps=(),
    )


def _asked(use: MachineUse, question: Question) -> MachineUse:
    """The machine at the price and with the capacity that are asked for."""
    usd, tps = question.amount("gpu_hour"), question.amount("tps")
    return msgspec.structs.replace(
        use,
        usd_per_hour=use.usd_per_hour if usd is None else usd,
        peak_tps=use.peak_tps if tps is None else float(tps),
    )


def _month_mtok(use: MachineUse, last: timedelta) -> Decimal:
    """The tokens of a month that goes on as the period went, in millions."""
    hours = Decimal(str(max(last.total_seconds() / 3600, 1.0)))
    return round(use.tokens_out * HOURS_PER_MONTH / hours / _MTOK, 3)


def _priced(
    apis: Sequence[_ApiSums], rates: Mapping[str, Mapping[str, Rates]]
) -> list[tuple[str, ApiPrice]]:
    found = []
    for one in apis:
        provider = one.row.name.partition("/")[0]
        found.append((one.model, ApiPrice(one.row, rates.get(provider, {}).get(one.model))))
    return found


def _rows(
    use: MachineUse,
    cost: MachineCost,
    apis: Sequence[tuple[str, ApiPrice]],
    month: tuple[Decimal, float],
) -> tuple[OwnAgainstApi, ...]:
    made = {}
    for model, api in apis:
        # A machine that was thought up runs whatever model the API has.
        mine = use if use.models else msgspec.structs.replace(use, models=(model,))
        made[api.row.name] = api_cost(mine, api)
    rows = soonest_first(break_even_row(cost, api) for api in made.values())
    found = []
    for row in rows:
        bills = month_cost(cost, made[row.api], *month)
        found.append(
            OwnAgainstApi(
                api=row.api,
                other_model=bool(row.models),
                own_per_1k=_short(row.hosted_per_1k),
                api_per_1k=_short(row.api_per_1k),
                cheaper_from=row.utilisation,
                tokens_per_month=row.tokens_per_month,
                requests_per_month=row.requests_per_month,
                machines=None if bills is None else bills.machines,
                used=None if bills is None else round(bills.used, 6),
                own_month_usd=None if bills is None else round(bills.own_usd, 2),
                api_month_usd=None if bills is None else round(bills.api_usd, 2),
                cheaper=_cheaper(bills),
                note=row.note,
            )
        )
    return tuple(found)


def _cheaper(bills: MonthCost | None) -> Cheaper:
    if bills is None:
        return "unknown"
    return "own" if bills.own_usd < bills.api_usd else "api"


def _machine(use: MachineUse, cost: MachineCost, fill: float) -> OwnMachine:
    share = Decimal(str(fill))
    return OwnMachine(
        name=machine_name(use),
        in_ledger=bool(use.models),
        usd_per_hour=use.usd_per_hour,
        tokens_per_s=round(use.peak_tps, 3),
        tokens_per_request=round(float(cost.tokens_out or 0), 3),
        per_1k=_short(None if cost.per_1k is None else cost.per_1k / share),
        per_mtok=_short(None if cost.per_mtok is None else cost.per_mtok / share),
        used=round(use.utilisation, 6) if use.models else None,
    )


def _short(dollars: Decimal | None) -> Decimal | None:
    return None if dollars is None else round(dollars, 6)


def _missing(apis: Sequence[_ApiSums]) -> str:
    if apis:
        return "What these requests would cost at the APIs of this period is not known."
    return (
        "No API that is paid by the token has answered in this period: there is no bill that a"
        " machine could be held against."
    )
