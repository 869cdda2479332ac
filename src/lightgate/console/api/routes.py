"""The endpoints of the board and the requests: what each is asked, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.console.api import board as boards
from lightgate.console.api import request, requests, sheet
from lightgate.console.api.endpoint import ApiRoute
from lightgate.console.api.parameters import NAMES, OWNERS, period
from lightgate.console.api.question import Parameter
from lightgate.console.api.uses import USES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.console.api.endpoint import ApiContext
    from lightgate.console.api.question import Question

MOST_EXPORTED: Final = 100_000  # requests in one CSV file


def _board(context: ApiContext, question: Question, _: str) -> boards.SpeedBoard:
    return boards.board(context.ledger, question, context.now_ns, context.hourly, context.try_line)


def _requests(context: ApiContext, question: Question, _: str) -> requests.RequestPage:
    return requests.request_page(context.ledger, question, context.now_ns, context.try_line)


def _request(context: ApiContext, _: Question, id_: str) -> request.OneRequest:
    return request.one_request(context, id_)


def _board_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _board(context, question, id_).rows:
        cells = sheet.flat(msgspec.structs.replace(row, last_error=None))
        error = row.last_error
        cells["last_error"] = None if error is None else error.outcome
        cells["last_error_at"] = None if error is None else error.at
        yield cells


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
            *period("-24h"), *NAMES, *OWNERS,
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
        "/api/requests",
        "Requests, newest first, a page at a time; never a prompt or an answer.",
        (
            *period("-24h"),
            Parameter("model", "names", "models as clients asked for them; may be repeated"),
            Parameter("provider", "names", "providers of the answers; may be repeated"),
            Parameter("target", "names", "targets that answered; may be repeated"),
            *OWNERS,
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
