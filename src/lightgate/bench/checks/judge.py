"""Answers held against the checks of their cases.

A case passes if all of its checks do. One that does not is `refused` where the model declined,
`truncated` where a limit on tokens cut its answer off, else `failed`. No model judges another.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.bench.checks.patterns import TOO_SLOW, PatternSearch, search_all
from lightgate.bench.checks.programs import ProgramRun, run_programs
from lightgate.bench.checks.spec import SCHEMAS
from lightgate.route.cascade.features import Wants
from lightgate.route.cascade.json_schema import check as check_schema
from lightgate.route.cascade.verify import not_refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.bench.checks.cases import CheckCase
    from lightgate.bench.checks.spec import CheckSpec
    from lightgate.ledger.runs.checked import CaseState
    from lightgate.provider.answer import Answer

_SHOWN: Final = 80  # characters of an answer in a reason
_CUT_OFF: Final = frozenset(("length", "context"))
_FINISHES: Final = {"sequence": "stop", "context": "length"}  # told apart nowhere else
_decoder: Final = msgspec.json.Decoder()
_RAW: Final = json.JSONDecoder()
_OPENING: Final = re.compile(r"[\[{]")
MOST_STARTS: Final = 1_000  # brackets in an answer that are tried as the start of JSON


class CaseAnswer(NamedTuple):
    """The answer to one case; None: there is none, and `error` says why."""

    case: CheckCase
    answer: Answer | None
    error: str = ""


class JudgedCase(NamedTuple):
    """The finding about one answer, and why it did not pass."""

    state: CaseState
    why: str = ""


class _Look(NamedTuple):
    """One check with the text that it looks at; None: there is nothing to be extracted."""

    at: int  # of the answer
    spec: CheckSpec
    text: str | None
    slow: bool = False


def judge(answers: Sequence[CaseAnswer], environ: Mapping[str, str]) -> list[JudgedCase]:
    """Judge all answers, in their order; programs get a plain part of the environment."""
    looks = _looks(answers)
    reasons = _reasons(looks, answers, environ)
    first: dict[int, str] = {}
    for look, why in zip(looks, reasons, strict=True):
        lost = (
            look.text is None or why == TOO_SLOW
        )  # nothing was looked at: that is no pass either way
        passed = bool(why) if look.spec.negated and not lost else not why
        if not passed:
            said = why or "it does, and must not"
            first.setdefault(look.at, f"{look.spec.name}: {said}")
    return [_state(one, first.get(at)) for at, one in enumerate(answers)]


def _state(one: CaseAnswer, why: str | None) -> JudgedCase:
    if one.answer is None:
        return JudgedCase("unanswered", one.error or "the answer could not be read")
    if why is None:
        return JudgedCase("passed")
    refused = not_refused(one.answer, Wants())
    if refused.state == "failed":
        return JudgedCase("refused", refused.why)
    if one.answer.finish in _CUT_OFF:
        return JudgedCase("truncated", f"a limit on tokens cut the answer off; {why}")
    return JudgedCase("failed", why)


def _looks(answers: Sequence[CaseAnswer]) -> list[_Look]:
    """Find the text that every check looks at: all of an answer, or what is extracted from it."""
    whole = [
        _Look(at, spec, one.answer.text)
        for at, one in enumerate(answers)
        if one.answer is not None
        for spec in one.case.checks
    ]
    wanted = [at for at, look in enumerate(whole) if look.spec.extract is not None]
    searches = [
        PatternSearch(
            whole[at].spec.extract or "", whole[at].text or "", whole[at].spec.ignore_case
        )
        for at in wanted
    ]
    for at, found in zip(wanted, search_all(searches), strict=True):
        whole[at] = whole[at]._replace(text=found.text, slow=found.slow)
    return whole


def _reasons(
    looks: Sequence[_Look], answers: Sequence[CaseAnswer], environ: Mapping[str, str]
) -> list[str]:
    """Say of every check why it does not hold, before any `not`; empty where it does."""
    reasons = ["" if look.text is not None else "there is nothing to extract" for look in looks]
    for at, look in enumerate(looks):
        if look.slow:
            reasons[at] = TOO_SLOW
        elif look.text is not None and look.spec.type not in {"regex", "program"}:
            answer = answers[look.at].answer
            finish = "stop" if answer is None else answer.finish
            reasons[at] = _plain(look.spec, look.text, _FINISHES.get(finish, finish))
    open_ = [(at, look) for at, look in enumerate(looks) if not reasons[at]]
    by_regex = [(at, look) for at, look in open_ if look.spec.type == "regex"]
    found = search_all(
        [PatternSearch(k.spec.values[0], k.text or "", k.spec.ignore_case) for _, k in by_regex]
    )
    for (at, look), one in zip(by_regex, found, strict=True):
        missing = "" if one.text is not None else f"it is not in {shown(look.text or '')}"
        reasons[at] = TOO_SLOW if one.slow else missing
    by_program = [(at, look) for at, look in open_ if look.spec.type == "program"]
    runs = [
        ProgramRun(look.spec, look.text or "", answers[look.at].case.id) for _, look in by_program
    ]
    for (at, _), why in zip(by_program, run_programs(runs, environ) if runs else [], strict=True):
        reasons[at] = why
    return reasons


def _plain(spec: CheckSpec, text: str, finish: str) -> str:
    """Hold a text against a check that needs no other process."""
    if spec.type == "finish":
        return "" if finish in spec.values else f"it finished by {finish}"
    if spec.type in SCHEMAS:
        return _json(spec, text)
    said, wanted = text.strip(), spec.values
    if spec.ignore_case:
        said, wanted = said.casefold(), tuple(one.casefold() for one in wanted)
    if spec.type == "contains_all":
        missing = [one for one, low in zip(spec.values, wanted, strict=True) if low not in said]
        return f"{shown(missing[0])} is not in it" if missing else ""
    holds = {
        "exact": lambda one: said == one.strip(),
        "contains": lambda one: one in said,
        "starts_with": said.startswith,
    }[spec.type]
    return "" if any(map(holds, wanted)) else f"it is {shown(text)}"


def _json(spec: CheckSpec, text: str) -> str:
    if spec.type == "contains_json":
        found = _documents(text)
    else:
        try:
            found = [_decoder.decode(text.strip())]
        except (ValueError, RecursionError):
            found = []
    if not found:
        return f"there is no JSON: {shown(text)}"
    if spec.schema is None:
        return ""
    checked = [check_schema(spec.schema, value) for value in found]
    if any(not one.errors and not one.unchecked for one in checked):
        return ""
    first = checked[0]
    return "; ".join((first.errors or tuple(f"unchecked: {u}" for u in first.unchecked))[:3])


def _documents(text: str) -> list[Any]:
    """Find the objects and lists of JSON in a text, those inside of others not counted."""
    found, at, tries = list[Any](), 0, 0
    while tries < MOST_STARTS and (start := _OPENING.search(text, at)) is not None:
        tries += 1
        at = start.start() + 1
        try:
            value, at = _RAW.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        found.append(value)
    return found


def shown(text: str) -> str:
    """The beginning of a text, in quotes, on one line."""
    line = " ".join(text.split())
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…")
