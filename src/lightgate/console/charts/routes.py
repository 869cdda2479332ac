"""The endpoints of the charts: what each is asked, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.console.api import sheet
from lightgate.console.api.endpoint import ApiRoute
from lightgate.console.api.parameters import NAMES, OWNERS, period
from lightgate.console.api.question import Parameter
from lightgate.console.charts import cost_map, hedges, history, own_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.console.api.endpoint import ApiContext
    from lightgate.console.api.question import Question

_METRIC: Final = Parameter("metric", "choice", "what is shown", "ttft", tuple(history.MEASURES))


def _series(context: ApiContext, question: Question, _: str) -> history.Series:
    return history.series(context.ledger, question, context.now_ns, context.data, context.try_line)


def _heat(context: ApiContext, question: Question, _: str) -> history.Heat:
    return history.heat(context.ledger, question, context.now_ns)


def _map(context: ApiContext, question: Question, _: str) -> cost_map.CostMap:
    return cost_map.cost_map(
        context.ledger, question, context.now_ns, context.hourly, context.rates, context.try_line
    )


def _break_even(context: ApiContext, question: Question, _: str) -> own_machine.OwnOrApi:
    return own_machine.own_or_api(
        context.ledger, question, context.now_ns, context.hourly, context.rates
    )


def _hedges(context: ApiContext, question: Question, _: str) -> hedges.HedgeBill:
    return hedges.hedge_bill(context.ledger, question, context.now_ns, context.hourly)


def _series_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for one in _series(context, question, id_).rows:
        for point in one.points:
            yield {"target": one.target, **sheet.flat(point)}


def _heat_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    found = _heat(context, question, id_)
    for cell in found.rows:
        yield {"tz": found.tz, **sheet.flat(cell)}


def _map_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for point in _map(context, question, id_).rows:
        yield sheet.flat(point)


def _break_even_rows(
    context: ApiContext, question: Question, id_: str
) -> Iterator[dict[str, object]]:
    found = _break_even(context, question, id_)
    machine = found.machine
    for row in found.rows:
        own = {} if machine is None else {"own": machine.name, "usd_per_hour": machine.usd_per_hour}
        yield {**own, "fill": found.fill, "mtok": found.mtok, **sheet.flat(row)}


def _hedge_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    """Days and targets one below the other; a column says which."""
    found = _hedges(context, question, id_)
    for by, rows in (("target", found.rows), ("day", found.days)):
        for row in rows:
            cells = sheet.flat(row)
            cells["winners"] = " ".join(f"{one.target}={one.won}" for one in row.winners)
            yield {"by": by, **cells}


CHART_ROUTES: Final = (
    ApiRoute(
        "/api/series",
        "One metric over time, with percentile bands, marks and scheduled benchmarks; the 12"
        " targets with most attempts.",
        (
            *period("-7d"), *NAMES, _METRIC,
            Parameter("bucket", "choice", "width of a point", "auto",
                      ("auto", *history.BUCKETS)),
        ),
        history.Series, _series, _series_rows,
    ),
    ApiRoute(
        "/api/heat",
        "One metric by hour of the day and day of the week.",
        (*period("-14d"), *NAMES, _METRIC,
         Parameter("tz", "text", "time zone of the hours", "UTC")),
        history.Heat, _heat, _heat_rows,
    ),
    ApiRoute(
        "/api/map",
        "Cost against speed: every target as a point, and which of them no other one beats.",
        (
            *period("-14d"), *NAMES, *OWNERS,
            Parameter("min_n", "count", "fewest attempts of a target that is shown"),
            Parameter("y", "choice", "what cost is held against", "speed_total",
                      tuple(cost_map.AXES)),
        ),
        cost_map.CostMap, _map, _map_rows,
    ),
    ApiRoute(
        "/api/break-even",
        "A machine of one's own against the APIs of a period, for a price, a use and a month.",
        (
            *period("-14d"), *NAMES,
            Parameter("machine", "text", "a self-hosted provider of the ledger, or `own machine`"
                      " for one that is thought up"),
            Parameter("gpu_hour", "amount", "dollars for an hour of the machine", most=10_000),
            Parameter("tps", "amount", "output tokens per second that it can serve"),
            Parameter("busy", "count", "percent of its capacity to which it is filled at most",
                      "70", most=100),
            Parameter("mtok", "amount", "millions of output tokens in a month"),
        ),
        own_machine.OwnOrApi, _break_even, _break_even_rows,
    ),
    ApiRoute(
        "/api/hedges",
        "The bill of races and hedges: who won, seconds bought, dollars paid, by target and day.",
        (*period("-14d"), *NAMES),
        hedges.HedgeBill, _hedges, _hedge_rows,
    ),
)  # fmt: skip
