"""From answers to pass rates: what counts, what is apart, targets compared case by case."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from bench.statistics.test_regress import side
from lightgate.bench.checks.cases import CaseSet, CheckCase
from lightgate.bench.checks.rates import MOST_FAILURES, NEVER_ASKED, AskedCase, with_checks
from lightgate.bench.checks.spec import CheckSpec
from lightgate.bench.judge.slo import missed, parse
from lightgate.bench.statistics.regress import PASSED, compare_runs
from lightgate.bench.workload.prompts import OwnPrompt
from lightgate.dialect.request import Message
from lightgate.ledger.runs.checked import pass_rate
from lightgate.ledger.runs.run import CellSummary, Run, TargetFacts
from lightgate.provider.answer import Answer
from lightgate.report.tables.passes import pass_sentences, rate_rows

PROMPT = OwnPrompt(messages=(Message(role="user", content="?"),))
YES = CheckSpec(type="exact", values=("yes",))


def cases(count: int) -> CaseSet:
    made = tuple(
        CheckCase(
            id=f"case {at}", prompt=PROMPT, checks=(YES,), tags=("even",) if at % 2 == 0 else ()
        )
        for at in range(count)
    )
    return CaseSet(source="own.jsonl", sha256="f" * 64, cases=made)


def made(said: dict[str, str], *, twin: str = "") -> Run:
    """A run in which each target said y (yes), n (no) or nothing (-) to every case."""
    targets = tuple(
        TargetFacts(
            name=name,
            provider=name,
            model="m",
            base_url="http://x",
            dialect="openai",
            twin_of=twin if name == "twin" else None,
        )
        for name in said
    )
    cells = tuple(CellSummary(target=name, load="c=1", concurrency=1) for name in said)
    run = Run(id="r", started="2026-11-16T08:00:00Z", targets=targets, cells=cells)
    words = {"y": "yes", "n": "no"}
    asked = [
        AskedCase(name, "c=1", f"{name}/{at}", at, None, "reset")
        if letter == "-"
        else AskedCase(name, "c=1", f"{name}/{at}", at, Answer(text=words[letter]))
        for name, letters in said.items()
        for at, letter in enumerate(letters)
    ]
    return with_checks(run, cases(len(max(said.values(), key=len))), asked, {}).run


def test_the_rate_is_that_of_the_answered_cases() -> None:
    run = made({"a": "yyyn-"})
    rate = run.pass_rate("a")
    assert rate is not None
    assert (rate.cases, rate.passed, rate.answered, rate.rate) == (5, 3, 4, 0.75)
    assert rate.rest == {"case 3": "failed", "case 4": "unanswered"}
    assert rate.tags == {"even": (2, 2)}
    assert (rate.lowest, rate.highest) == (0.6, 0.8)
    assert run.pass_rate("b") is None


def test_cases_that_were_never_asked_have_no_answer() -> None:
    run = made({"a": "yy", "b": "yyyy"})
    assert run.checks is not None
    assert [one.why for one in run.checks.failures] == [NEVER_ASKED, NEVER_ASKED]
    assert {one.state for one in run.checks.failures} == {"unanswered"}


def test_targets_are_compared_by_the_cases_on_which_they_differ() -> None:
    run = made({"a": "y" * 12 + "n" * 8, "b": "n" * 10 + "y" * 2 + "n" * 8})
    assert run.checks is not None
    (pair,) = run.checks.pairs
    assert (pair.both, pair.only_a, pair.only_b, pair.neither) == (2, 10, 0, 8)
    assert pair.p_value == pytest.approx(2 / 1024)
    assert (pair.verdict, pair.difference) == ("a passes more", 0.5)
    few = made({"a": "yyyyy", "b": "nnnnn"}).checks
    assert few is not None
    assert few.pairs[0].verdict == "too few differ"  # five disagreements prove nothing
    apart = made({"a": "yyyyyyyn-", "b": "nnnnnnn-n"}).checks
    assert apart is not None
    found = apart.pairs[0]  # a case without an answer on one side is in no pair
    assert found.both + found.only_a + found.only_b + found.neither == 7


def test_many_pairs_make_a_difference_harder_to_claim() -> None:
    letters = {"a": "y" * 6, "b": "n" * 6}
    alone = made(letters).checks
    among = made({**letters, "c": "y" * 6, "d": "y" * 6}).checks
    assert alone is not None
    assert among is not None
    assert alone.pairs[0].verdict == "a passes more"
    assert among.pairs[0].p_adjusted > alone.pairs[0].p_adjusted
    assert among.pairs[0].verdict == "too few differ"


def test_a_target_that_was_asked_twice_is_told_and_not_ranked() -> None:
    run = made({"a": "yyyyyy", "b": "nnnnnn", "twin": "yyyynn"}, twin="a")
    assert run.checks is not None
    assert [(pair.a, pair.b) for pair in run.checks.pairs] == [("a", "b"), ("a", "twin")]
    assert not [one for one in run.checks.failures if one.target == "twin"]
    told = pass_sentences(run)
    assert "c=1: a asked twice: 2 of 6 cases came out differently" in told
    assert "a at c=1 passes 100.0 % (61.0 to 100.0 %) of 6 cases." in told
    assert [row[0] for row in rate_rows(run)] == ["a", "b"]


def test_long_lists_of_failures_are_counted() -> None:
    run = made({"a": "n" * (MOST_FAILURES + 7)})
    assert run.checks is not None
    assert (len(run.checks.failures), run.checks.left_out) == (MOST_FAILURES, 7)
    assert pass_sentences(run)[-1] == f"  - and {MOST_FAILURES + 7 - 10} more, in checks.jsonl"


def test_the_bar_is_met_by_the_interval() -> None:
    many = pass_rate({str(at): "passed" for at in range(200)}, {})
    few = pass_rate({str(at): "passed" for at in range(5)}, {})
    none = pass_rate({"a": "unanswered"}, {})
    bad = pass_rate({str(at): "failed" for at in range(50)}, {})
    assert [one.bar(0.9) for one in (many, few, none, bad)] == ["met", "unsure", "unsure", "missed"]
    assert none.says() == "none of 1 case: no answer came"
    assert msgspec.json.decode(msgspec.json.encode(many), type=type(many)) == many


def test_limits_on_the_pass_rate() -> None:
    def judged(letters: str, limit: str) -> list[tuple[str, bool]]:
        found = missed([parse(limit)], made({"a": letters}).cells)
        return [(one.reason, one.judged) for one in found]

    assert judged("yyyy", "pass<90%") == []
    assert judged("yyyn", "pass<90%") == [("it is 75.0%", True)]
    assert judged("yyyyyyyyy-", "pass<95%") == [
        ("could not be judged: 1 of 10 cases have no answer", False)
    ]
    assert judged("yyyyyyyyy-", "pass<85%") == []  # whatever the last one would have been
    assert judged("nnnnnnnnn-", "pass<85%") == [("it is 0.0%", True)]
    assert judged("--", "pass<85%") == [("unknown", False)]
    assert judged("yyyy", "pass_low<60%") == [("it is 51.0%", True)]


def test_runs_are_compared_case_by_case() -> None:
    def change(old: str, new: str, sha256: str = "f" * 64) -> tuple[float, str]:
        sides = []
        for letters, file in ((old, "f" * 64), (new, sha256)):
            asked, timed = made({"a": letters}), side([100.0] * 40)
            assert asked.checks is not None
            record = msgspec.structs.replace(asked.checks, sha256=file)
            cell = CellSummary(target="lab/s1", load="c=8", checks=asked.pass_rate("a"))
            run = msgspec.structs.replace(timed.run, cells=(cell,), checks=record)
            sides.append(timed._replace(run=run))
        compared = compare_runs(*sides, rng=np.random.default_rng(1))
        (found,) = [one for one in compared.changes if one.metric == PASSED]
        return found.worse or 0.0, found.call

    worse, call = change("y" * 40, "n" * 8 + "y" * 32)
    assert (round(worse, 9), call) == (0.2, "regression")
    assert change("n" * 8 + "y" * 32, "y" * 40)[1] == "better"
    assert change("y" * 300, "y" * 300)[1] in {"tie", "same"}
    assert change("yyyyy", "yyyyy")[1] == "unclear"  # five cases leave too much open
    # Other cases cannot be paired.
    assert change("y" * 40, "n" * 8 + "y" * 32, sha256="0" * 64)[1] == "regression"
    assert change("yn" * 20, "ny" * 20, sha256="0" * 64)[1] != "regression"
