"""The endpoints of the board, the history and the requests: what each is asked, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.console.api import board as boards
from lightgate.console.api import history, request, requests, sheet
from lightgate.console.api.endpoint import ApiRoute
from lightgate.console.api.question import Parameter
from lightgate.console.api.sums import SIZES
from lightgate.console.api.uses import USES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.console.api.endpoint import ApiContext
    from lightgate.console.api.question import Question

MOST_EXPORTED: Final = 100_000  # requests in one CSV file


def _period(default: str) -> tuple[Parameter, ...]:
    times = "RFC 3339, or an age like -15m, -24h or -14d, or now"
    return (
        Parameter("from", "time", f"start of the period: {times}", default),
        Parameter("to", "time", f"end of the period: {times}", "now"),
    )


_NAMES: Final = (
    Parameter("model", "names", "models of targets; may be repeated"),
    Parameter("provider", "names", "providers; may be repeated"),
    Parameter("target", "names", "targets, provider/model; may be repeated"),
)
_OWNERS: Final = (
    Parameter("key", "names", "virtual keys, by name or id; may be repeated"),
    Parameter("tag", "names", "tags, one of which a request has; may be repeated"),
    Parameter(
        "size", "choice",
        "tokens of the prompt: s up to 300, m up to 3,000, l up to 30,000, xl above",
        choices=("", *SIZES),
    ),
)  # fmt: skip
_METRIC: Final = Parameter("metric", "choice", "what is shown", "ttft", tuple(history.MEASURES))


def _board(context: ApiContext, question: Question, _: str) -> boards.SpeedBoard:
    return boards.board(context.ledger, question, context.now_ns, context.hourly, context.try_line)


def _series(context: ApiContext, question: Question, _: str) -> history.Series:
    return history.series(context.ledger, question, context.now_ns)


def _heat(context: ApiContext, question: Question, _: str) -> history.Heat:
    return history.heat(context.ledger, question, context.now_ns)


def _requests(context: ApiContext, question: Question, _: str) -> requests.RequestPage:
    return requests.request_page(context.ledger, question, context.now_ns, context.try_line)


def _request(context: ApiContext, _: Question, id_: str) -> request.OneRequest:
    return request.one_request(context.ledger, id_, context.gateway, context.ticks)


def _board_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _board(context, question, id_).rows:
        cells = sheet.flat(msgspec.structs.replace(row, last_error=None))
        error = row.last_error
        cells["last_error"] = None if error is None else error.outcome
        cells["last_error_at"] = None if error is None else error.at
        yield cells


def _series_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for one in _series(context, question, id_).rows:
        for point in one.points:
            yield {"target": one.target, **sheet.flat(point)}


def _heat_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    found = _heat(context, question, id_)
    for cell in found.rows:
        yield {"tz": found.tz, **sheet.flat(cell)}


def _request_rows(context: ApiContext, question: Question, _: str) -> Iterator[dict[str, object]]:
    """All rows of the period, a page at a time: a long read would hold the ledger's file up."""
    left, before = MOST_EXPORTED, question.text("before")
    while left:
        values = {**question.values, "before": before, "limit": requests.MOST}
        asked = msgspec.structs.replace(question, values=values)
        page = requests.request_page(context.ledger, asked, context.now_ns)
        yield from (sheet.flat(row) for row in page.rows[:left])
        left -= min(left, len(page.rows))
        if page.next is None:
            return
        before = page.next


def _attempt_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for lane in _request(context, question, id_).attempts:
        yield sheet.flat(lane)


API_ROUTES: Final = (
    ApiRoute(
        "/api/board",
        "Every target over a period: quantiles with intervals, success, cost, 24 hours, ranking.",
        (
            *_period("-24h"), *_NAMES, *_OWNERS,
            Parameter("use", "choice", "rank for a use", choices=("", *USES)),
            Parameter("group", "choice", "hosts of one model side by side",
                      choices=("", "model")),
            Parameter("min_n", "count", "fewest attempts of a target that is shown"),
            Parameter("sort", "text", f"a column, with - before it for the largest first:"
                      f" {', '.join(boards.SORTS)}"),
        ),
        boards.SpeedBoard, _board, _board_rows,
    ),
    ApiRoute(
        "/api/series",
        "One metric over time, with percentile bands; the 12 targets with most attempts.",
        (
            *_period("-24h"), *_NAMES, _METRIC,
            Parameter("bucket", "choice", "width of a point", "auto",
                      ("auto", *history.BUCKETS)),
        ),
        history.Series, _series, _series_rows,
    ),
    ApiRoute(
        "/api/heat",
        "One metric by hour of the day and day of the week.",
        (*_period("-14d"), *_NAMES, _METRIC,
         Parameter("tz", "text", "time zone of the hours", "UTC")),
        history.Heat, _heat, _heat_rows,
    ),
    ApiRoute(
        "/api/requests",
        "Requests, newest first, a page at a time; never a prompt or an answer.",
        (
            *_period("-24h"),
            Parameter("model", "names", "models as clients asked for them; may be repeated"),
            Parameter("provider", "names", "providers of the answers; may be repeated"),
            Parameter("target", "names", "targets that answered; may be repeated"),
            *_OWNERS,
            Parameter("outcome", "choice", "how requests ended; bad are all but ok", "all",
                      requests.OUTCOME_CHOICES),
            Parameter("ttft_min", "count", "fewest milliseconds to the first token"),
            Parameter("before", "text", "cursor: `next` of the page before"),
            Parameter("limit", "count", "rows of a page", "100", most=requests.MOST),
        ),
        requests.RequestPage, _requests, _request_rows,
    ),
    ApiRoute(
        "/api/requests/{id}",
        "One request, by its own id or its client's: attempts with their instants, candidates.",
        (),
        request.OneRequest, _request, _attempt_rows,
    ),
)  # fmt: skip
