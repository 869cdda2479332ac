"""Answers against checks: what passes, what does not, and programs inside their walls."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lightgate.bench.checks import patterns
from lightgate.bench.checks.cases import CheckCase
from lightgate.bench.checks.judge import CaseAnswer, JudgedCase, judge
from lightgate.bench.checks.patterns import PatternFound, PatternSearch, search_all
from lightgate.bench.checks.programs import check_programs
from lightgate.bench.checks.spec import read_check
from lightgate.bench.workload.prompts import OwnPrompt
from lightgate.clock.marks import Marks
from lightgate.dialect.request import Message, Request
from lightgate.errors import UsageError
from lightgate.provider.answer import Answer, Kept
from lightgate.provider.call import Call
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare
from lightgate.provider.target import Target

PROMPT = OwnPrompt(messages=(Message(role="user", content="?"),))


def case(*checks: dict[str, Any], folder: Path = Path()) -> CheckCase:
    specs = tuple(read_check("here", one, folder) for one in checks)
    return CheckCase(id="one", prompt=PROMPT, checks=specs)


def judged(text: str, *checks: dict[str, Any], finish: Any = "stop", **more: Any) -> JudgedCase:
    answer = Answer(text=text, finish=finish, **more)
    return judge([CaseAnswer(case(*checks), answer)], os.environ)[0]


@pytest.mark.parametrize(
    ("text", "check", "passes"),
    [
        (" Paris\n", {"type": "exact", "value": "Paris"}, True),
        ("Paris.", {"type": "exact", "value": "Paris"}, False),
        ("PARIS", {"type": "exact", "value": ["London", "Paris"], "ignore_case": True}, True),
        ("in Paris", {"type": "contains", "value": ["Rome", "Paris"]}, True),
        ("in paris", {"type": "contains", "value": "Paris"}, False),
        ("a and b", {"type": "contains_all", "value": ["a", "b"]}, True),
        ("a and c", {"type": "contains_all", "value": ["a", "b"]}, False),
        ("yes, it is", {"type": "starts_with", "value": "yes"}, True),
        ("oh yes", {"type": "starts_with", "value": "yes"}, False),
        ("code 42", {"type": "regex", "value": r"\b\d{2}\b"}, True),
        ("code 421", {"type": "regex", "value": r"\b\d{2}\b"}, False),
        ("CODE", {"type": "regex", "value": "code", "ignore_case": True}, True),
        ("code", {"type": "regex", "value": "^$", "not": True}, True),
        ('{"a": 1}', {"type": "json"}, True),
        ('Sure: {"a": 1}', {"type": "json"}, False),
        ('Sure: {"a": 1}.', {"type": "contains_json"}, True),
        ('{x} {"a": "1"} or [1]', {"type": "contains_json", "value": {"type": "array"}}, True),
        ("none", {"type": "contains_json"}, False),
        ('{"a": 1}', {"type": "json_schema", "value": {"required": ["a"]}}, True),
        ('{"b": 1}', {"type": "json_schema", "value": {"required": ["a"]}}, False),
        ("so #### 42", {"type": "exact", "value": "42", "extract": r"#### (\d+)"}, True),
        ("so #### 43", {"type": "exact", "value": "42", "extract": r"#### (\d+)"}, False),
        ("so", {"type": "exact", "value": "42", "extract": r"#### (\d+)"}, False),
        ("so", {"type": "exact", "value": "42", "extract": r"#### (\d+)", "not": True}, False),
        ("a", {"type": "contains", "value": "a", "not": True}, False),
        ("x", {"type": "finish", "value": "stop"}, True),
        ("x", {"type": "finish", "value": ["tool", "length"]}, False),
    ],
)  # fmt: skip
def test_checks(text: str, check: dict[str, Any], passes: bool) -> None:
    found = judged(text, check)
    assert found.state == ("passed" if passes else "failed"), found.why
    assert bool(found.why) is not passes


def test_all_checks_have_to_pass_and_the_first_reason_is_told() -> None:
    found = judged("a b", {"type": "contains", "value": "a"}, {"type": "exact", "value": "b"})
    assert found == JudgedCase("failed", "exact: it is 'a b'")


def test_truncated_and_refused_are_told_apart() -> None:
    check = {"type": "contains", "value": "Paris"}
    assert judged("It is", check, finish="length").state == "truncated"
    assert judged("It is", check, finish="context").state == "truncated"
    assert judged("Paris is", check, finish="length").state == "passed"
    assert judged("", check, refusal="No.").state == "refused"
    assert judged("I'm sorry, but I can't help with that.", check).state == "refused"
    assert judged("", check, finish="filter").state == "refused"
    wanted = {"type": "contains", "value": "can't help"}
    assert judged("I'm sorry, but I can't help with that.", wanted).state == "passed"
    nothing = judge([CaseAnswer(case(check), None, "reset")], {})
    assert nothing == [JudgedCase("unanswered", "reset")]


def test_an_expression_without_an_end_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "TOGETHER_S", 0.3)
    monkeypatch.setattr(patterns, "ALONE_S", 0.3)
    endless = PatternSearch("(a+)+$", "a" * 40 + "b")
    assert search_all([PatternSearch("b+", "abb"), endless]) in (
        [PatternFound("bb"), PatternFound(slow=True)],
        [
            PatternFound(slow=True),
            PatternFound(slow=True),
        ],  # a very busy machine
    )
    check = {"type": "regex", "value": "(a+)+$", "not": True}
    assert judged("a" * 40 + "b", check).state == "failed"


def program(tmp_path: Path, text: str, **more: Any) -> JudgedCase:
    (tmp_path / "check.py").write_text(text)
    check = {"type": "program", "value": [sys.executable, "check.py"], **more}
    answer = CaseAnswer(case(check, folder=tmp_path), Answer(text="42 é"))
    return judge([answer], {**os.environ, "OPENAI_API_KEY": "sk-secret"})[0]


def test_a_program_reads_the_answer_and_sees_no_key(tmp_path: Path) -> None:
    text = (
        "import os, sys\n"
        "assert sys.stdin.buffer.read().decode() == '42 é'\n"
        "assert 'OPENAI_API_KEY' not in os.environ\n"
        "assert os.environ['LIGHTGATE_CASE'] == 'one'\n"
    )
    assert program(tmp_path, text) == JudgedCase("passed")


def test_a_program_says_no_by_its_exit_code(tmp_path: Path) -> None:
    found = program(tmp_path, "import sys; print('noise'); sys.exit('too short')")
    assert found == JudgedCase("failed", "program: the program exited with 1: too short")


def test_a_program_is_ended_with_its_children_at_its_time_limit(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    began = time.monotonic()
    found = program(tmp_path, text, time_limit_s=0.5)
    assert found.state == "failed"
    assert "took longer than 0.5 s" in found.why
    assert time.monotonic() - began < 60  # the child held standard error open, and is gone too


def test_programs_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    specs = case({"type": "program", "value": "no-such-program --x"}, folder=tmp_path).checks
    with pytest.raises(UsageError, match="was not allowed"):
        check_programs(specs, allowed=False)
    with pytest.raises(UsageError, match="is not found"):
        check_programs(specs, allowed=True)
    own = tmp_path / "own.sh"
    own.write_text("#!/bin/sh\nexit 0\n")
    own.chmod(0o755)
    specs = case({"type": "program", "value": "./own.sh"}, folder=tmp_path).checks
    check_programs(specs, allowed=True)
    asked = CaseAnswer(case({"type": "program", "value": "./own.sh"}, folder=tmp_path), Answer())
    assert judge([asked], os.environ) == [JudgedCase("passed")]


def test_an_answer_is_kept_whole_where_reads_end_inside_of_events() -> None:
    row = Provider(name="x", title="X", base_url="http://x/v1", auth="none", dialect="openai")
    target = Target(name="x/m", provider=row, model="m", base_url="http://x/v1")
    request = Request(model="m", messages=PROMPT.messages, max_tokens=5, stream=True)
    events = (
        b'data: {"choices":[{"delta":{"content":"Pa"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"ris"}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    for step in (3, 17, len(events)):
        kept = Kept()
        call = Call(prepare(target, request), Marks(), kept.keep)
        call.on_head(200, [(b"content-type", b"text/event-stream")], 1)
        for at in range(0, len(events), step):
            call.on_body(events[at : at + step], at + 2, at + 2)
        answer = kept.answer("openai-chat", streamed=True)
        assert answer is not None
        assert (answer.text, answer.finish) == ("Paris", "stop")
