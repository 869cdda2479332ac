"""The endpoints that read: what can be raced, runs, schedules, batches, advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.console.api import sheet
from lightgate.console.api.endpoint import ApiRoute
from lightgate.console.api.question import BadQuestion, Parameter
from lightgate.console.work.advice import ADVICE, PERIODS, AdvicePage
from lightgate.console.work.batches import STATES, BatchList, batch_list
from lightgate.console.work.race_desk import RaceTerms, race_terms
from lightgate.console.work.run_desk import RunAsked, RunEstimate, plan_run
from lightgate.console.work.runs import (
    OneRun,
    RunComparison,
    RunList,
    ScheduleList,
    compare,
    one_run,
    run_list,
    schedule_list,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.console.api.endpoint import ApiContext
    from lightgate.console.api.question import Question
    from lightgate.console.work.own_gateway import OwnGateway


def _own(context: ApiContext) -> OwnGateway:
    if context.own is None:
        raise ValueError("an answer about the gateway needs the gateway")
    return context.own


def _race(context: ApiContext, question: Question, id_: str) -> RaceTerms:
    del question, id_
    return race_terms(_own(context))


def _race_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for choice in _race(context, question, id_).choices:
        yield sheet.flat(choice)


def _runs(context: ApiContext, question: Question, id_: str) -> RunList:
    del question, id_
    return run_list(_own(context))


def _run_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _runs(context, question, id_).rows:
        yield sheet.flat(row)


def _run(context: ApiContext, _: Question, id_: str) -> OneRun:
    return one_run(_own(context).data, id_)


def _cell_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    run = _run(context, question, id_)
    for cell in (*run.cells, *run.regions):
        yield sheet.flat(cell)


def _compare(context: ApiContext, question: Question, _: str) -> RunComparison:
    return compare(_own(context).data, question.text("a"), question.text("b"))


def _change_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for change in _compare(context, question, id_).changes:
        yield sheet.flat(change)


def _estimate(context: ApiContext, question: Question, _: str) -> RunEstimate:
    asked = RunAsked(
        targets=question.names("target"),
        concurrency=tuple(map(_whole, question.names("concurrency"))),
        requests=question.count("requests"),
        prompt_tokens=question.count("prompt_tokens"),
        max_tokens=question.count("max_tokens"),
    )
    found = plan_run(_own(context), asked).estimate()
    return msgspec.structs.replace(found, ignored=question.ignored)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise BadQuestion("concurrency is a whole number; it may be given several times.")
    return int(text)


def _estimate_rows(
    context: ApiContext, question: Question, id_: str
) -> Iterator[dict[str, object]]:
    yield sheet.flat(_estimate(context, question, id_))


def _schedules(context: ApiContext, question: Question, id_: str) -> ScheduleList:
    del question, id_
    return schedule_list(_own(context))


def _schedule_rows(
    context: ApiContext, question: Question, id_: str
) -> Iterator[dict[str, object]]:
    for row in _schedules(context, question, id_).rows:
        yield sheet.flat(row)


def _batches(context: ApiContext, question: Question, _: str) -> BatchList:
    found = batch_list(_own(context), question.text("state"), context.now_ns // 1_000_000_000)
    return msgspec.structs.replace(found, ignored=question.ignored)


def _batch_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    for row in _batches(context, question, id_).rows:
        yield sheet.flat(row)


def _advice(context: ApiContext, question: Question, _: str) -> AdvicePage:
    found = ADVICE.page(_own(context).data, question.text("last"), context.now_ns)
    return msgspec.structs.replace(found, ignored=question.ignored)


def _advice_rows(context: ApiContext, question: Question, id_: str) -> Iterator[dict[str, object]]:
    found = _advice(context, question, id_)
    for row in (*found.rows, *found.others):
        yield sheet.flat(row)


WORK_ROUTES: Final = (
    ApiRoute(
        "/api/race",
        "What can be raced: names with their prices, the limits of a race, or why there is none.",
        (),
        RaceTerms, _race, _race_rows,
    ),
    ApiRoute(
        "/api/runs",
        "Benchmark runs of the data folder, the newest first.",
        (),
        RunList, _runs, _run_rows,
    ),
    ApiRoute(
        "/api/runs/{id}",
        "One run: each target under each load with intervals, and the verdicts with evidence.",
        (),
        OneRun, _run, _cell_rows,
    ),
    ApiRoute(
        "/api/compare",
        "Two runs against each other, as `lightgate compare` judges them.",
        (
            Parameter("a", "text", "id of the older run"),
            Parameter("b", "text", "id of the newer run"),
        ),
        RunComparison, _compare, _change_rows,
    ),
    ApiRoute(
        "/api/run-estimate",
        "What a benchmark from the console would come to: requests, dollars, its command.",
        (
            Parameter("target", "names", "names that the gateway serves; may be repeated"),
            Parameter("concurrency", "names", "requests in flight; may be repeated", "8"),
            Parameter("requests", "count", "requests of each target and load", "48"),
            Parameter("prompt_tokens", "count", "tokens of a prompt", "256"),
            Parameter("max_tokens", "count", "tokens of an answer, at most", "128"),
        ),
        RunEstimate, _estimate, _estimate_rows,
    ),
    ApiRoute(
        "/api/schedules",
        "Periodic benchmarks: when each is due, and how the last one ended.",
        (),
        ScheduleList, _schedules, _schedule_rows,
    ),
    ApiRoute(
        "/api/batches",
        "Batches of the gateway with their progress, the newest first.",
        (Parameter("state", "choice", "which batches", "all", STATES),),
        BatchList, _batches, _batch_rows,
    ),
    ApiRoute(
        "/api/advice",
        "What would make this traffic faster or cheaper, as `lightgate advise` finds it.",
        (Parameter("last", "choice", "how far back", "14d", PERIODS),),
        AdvicePage, _advice, _advice_rows,
    ),
)  # fmt: skip
