"""From the answers of a run to its pass rates, and the targets compared case by case.

All targets of a run were asked the same cases, so two of them are compared by the cases on which
they disagree (McNemar's exact test); Holm's method answers for having looked at several pairs.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.bench.checks.judge import CaseAnswer, JudgedCase, judge
from lightgate.clock.compare import ALPHA, holm
from lightgate.clock.share import Paired
from lightgate.ledger.runs.checked import (
    CaseState,
    ChecksRecord,
    FailedCase,
    PassPair,
    PassRate,
    paired,
    pass_rate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.bench.checks.cases import CaseSet
    from lightgate.ledger.runs.run import Run
    from lightgate.provider.answer import Answer

MOST_FAILURES: Final = 200  # that run.json lists
NEVER_ASKED: Final = "the case was not asked: the run ended before"


class AskedCase(NamedTuple):
    """One case as it was asked of one target; `answer` is None where none came."""

    target: str
    load: str
    attempt: str  # its id
    case: int  # its place in the file
    answer: Answer | None
    error: str = ""


class CaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of checks.jsonl: an answer and the finding about it."""

    target: str
    load: str
    case: str
    state: CaseState
    why: str
    attempt: str | None
    finish: str | None
    answer: str | None


class CheckedRun(NamedTuple):
    """A run with its pass rates, and the answers behind them."""

    run: Run
    lines: list[CaseLine]


def with_checks(
    run: Run, cases: CaseSet, asked: Sequence[AskedCase], environ: Mapping[str, str]
) -> CheckedRun:
    """Judge every answer and put the rates into the run's cells."""
    first = {(one.target, one.load, one.case): one for one in reversed(asked)}
    places = [(cell.target, cell.load) for cell in run.cells]
    keys = [(*place, at) for place in places for at in range(len(cases.cases))]
    found = judge([_answer(cases, key[2], first.get(key)) for key in keys], environ)
    lines = [
        _line(key, cases, first.get(key), judged) for key, judged in zip(keys, found, strict=True)
    ]
    tags = {case.id: case.tags for case in cases.cases}
    rates = {
        place: pass_rate(
            {line.case: line.state for line in lines if (line.target, line.load) == place},
            tags,
        )
        for place in places
    }
    twins = {target.name for target in run.targets if target.twin_of is not None}
    bad = [line for line in lines if line.state != "passed" and line.target not in twins]
    ids = tuple(case.id for case in cases.cases)
    record = ChecksRecord(
        file=cases.source,
        sha256=cases.sha256,
        ids=ids,
        pairs=tuple(_pairs(run, rates, ids)),
        failures=tuple(
            FailedCase(
                target=line.target, load=line.load, case=line.case, state=line.state, why=line.why
            )
            for line in bad[:MOST_FAILURES]
        ),
        left_out=max(0, len(bad) - MOST_FAILURES),
    )
    cells = tuple(
        msgspec.structs.replace(cell, checks=rates[cell.target, cell.load]) for cell in run.cells
    )
    return CheckedRun(msgspec.structs.replace(run, cells=cells, checks=record), lines)


def _answer(cases: CaseSet, at: int, asked: AskedCase | None) -> CaseAnswer:
    case = cases.cases[at]
    if asked is None:
        return CaseAnswer(case, None, NEVER_ASKED)
    return CaseAnswer(case, asked.answer, asked.error)


def _line(
    key: tuple[str, str, int], cases: CaseSet, asked: AskedCase | None, judged: JudgedCase
) -> CaseLine:
    target, load, at = key
    answer = None if asked is None else asked.answer
    return CaseLine(
        target=target,
        load=load,
        case=cases.cases[at].id,
        state=judged.state,
        why=judged.why,
        attempt=None if asked is None else asked.attempt,
        finish=None if answer is None else answer.finish,
        answer=None if answer is None else answer.refusal or answer.text,
    )


def _pairs(
    run: Run, rates: Mapping[tuple[str, str], PassRate], ids: Sequence[str]
) -> list[PassPair]:
    """Compare the targets of every load, and a target with itself where it was asked twice."""
    twins = {target.name: target.twin_of for target in run.targets if target.twin_of is not None}
    made: list[PassPair] = []
    for load in dict.fromkeys(cell.load for cell in run.cells):
        here = [cell.target for cell in run.cells if cell.load == load]
        pairs = list(combinations([target for target in here if target not in twins], 2))
        found = [paired(rates[a, load], rates[b, load], ids) for a, b in pairs]
        adjusted = holm([one.p_value for one in found])
        made += [
            _pair(load, pair, one, (p, len(pairs)))
            for pair, one, p in zip(pairs, found, adjusted, strict=True)
        ]
        for twin in (target for target in here if target in twins):
            own = (twins[twin] or "", twin)
            if own[0] in here:
                one = paired(rates[own[0], load], rates[twin, load], ids)
                made.append(_pair(load, own, one, (one.p_value, 1)))
    return made


def _pair(load: str, pair: tuple[str, str], found: Paired, looked: tuple[float, int]) -> PassPair:
    p_adjusted, among = looked
    return PassPair(
        load=load,
        a=pair[0],
        b=pair[1],
        **found._asdict(),
        difference=found.difference,
        interval=found.interval,
        p_value=found.p_value,
        p_adjusted=p_adjusted,
        verdict=_verdict(found, p_adjusted, among),
    )


def _verdict(found: Paired, p_adjusted: float, among: int) -> str:
    if p_adjusted <= ALPHA:
        return "a passes more" if found.only_a > found.only_b else "b passes more"
    differ = found.only_a + found.only_b
    surest = Paired(0, differ, 0, 0).p_value  # had all of them gone one way
    return "too few differ" if differ and surest * among > ALPHA else "no difference shown"
