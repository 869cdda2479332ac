"""`bench --checks` from the file of cases to the exit code, against the simulator."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from lightgate.cli.bench import command as bench
from lightgate.cli.config import command as config
from lightgate.errors import LightgateError, UsageError
from lightgate.ledger.runs.checked import CaseState, ChecksRecord, pass_rate
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.run import CellSummary
from lightgate.ledger.runs.run import Run as RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Run

WORLD = """
name = "quality"
title = "One that repeats what it is asked, one that always says the same"
source = "this test"

[providers.echo.models.m]
exact = { ttft_ms = 2, gap_ms = 0.5 }
price = { input = "1.0", output = "2.0" }
turns = [{ echo = true }]

[providers.paris.models.m]
exact = { ttft_ms = 2, gap_ms = 0.5 }
price = { input = "0.1", output = "0.2" }
turns = [{ say = "It is Paris." }]
"""


@pytest.fixture
def world(tmp_path: Path) -> str:
    path = tmp_path / "quality.toml"
    path.write_text(WORLD)
    return str(path)


@pytest.fixture
def cases(tmp_path: Path) -> str:
    records: list[dict[str, object]] = [
        {"id": f"copy {at}", "prompt": f"word {at}", "tags": ["copy"],
         "check": [{"type": "exact", "value": f"word {at}"}]}
        for at in range(8)
    ]  # fmt: skip
    records += [
        {"id": "capital", "prompt": "France?", "check": [{"type": "regex", "value": "Paris"}]},
        {"id": "program", "prompt": "run", "check": [{"type": "program", "value": "grep -q run"}]},
        {"id": "cut", "prompt": "a longer text than that", "max_tokens": 1,
         "check": [{"type": "contains", "value": "than that"}]},
    ]  # fmt: skip
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


async def test_cases_give_pass_rates_beside_speed_and_cost(
    run: Run, world: str, cases: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("bench", "--world", world, "--checks", cases, "--allow-programs", "--seed", "1")
    ran = await run(*words, "--out", str(out), "--fail-if", "pass<90%")
    assert ran.code == 6, ran.err
    assert "pass<90%" in ran.sentence
    record = RunFolder(out).run()
    echo, paris = record.pass_rate("echo/m"), record.pass_rate("paris/m")
    assert echo is not None
    assert paris is not None
    assert (echo.passed, echo.rest) == (9, {"capital": "failed", "cut": "truncated"})
    assert (paris.passed, paris.count("truncated"), paris.count("failed")) == (1, 1, 9)
    assert echo.tags == {"copy": (8, 8)}
    assert record.checks is not None
    assert record.checks.pairs[0].verdict == "a passes more"
    for cell in record.cells:
        assert cell.requests == 11
        assert cell.cost.per_1k is not None
        whole = cell.estimate("e2e_ms", 0.5)  # without a value where the samples hang together
        assert whole is not None
        assert whole.n == 11
    lines = [json.loads(line) for line in (out / "checks.jsonl").read_text().splitlines()]
    assert len(lines) == 33  # the first target was asked twice
    assert {line["answer"] for line in lines if line["target"] == "paris/m"} == {
        "It is Paris.",
        "It i",
    }
    for shown in (ran.out, (out / "report.html").read_text()):
        assert "81.8 %" in shown
        assert "passed" in shown
        assert "asked twice: 0 of 11 cases came out differently" in shown
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [row["check_passed"] for row in rows] == ["9", "1", "9"]
    compared = await run("compare", str(out), str(out), "--json")
    assert compared.code == 0, compared.err
    changes = [
        one for one in json.loads(compared.out)["comparison"]["changes"] if one["metric"] == "pass"
    ]
    assert [(one["target"], one["worse"]) for one in changes] == [("echo/m", 0.0), ("paris/m", 0.0)]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "was not allowed"),
        (("--allow-programs", "--requests", "5"), "--requests does not go with --checks"),
        (("--allow-programs", "--endpoint", "embedding"), "closed loop"),
        (("--allow-programs", "--max-tokens", "uniform:1..9"), "one number"),
    ],
)
def test_what_does_not_go_together_is_said_before_a_request(
    world: str, cases: str, more: tuple[str, ...], said: str
) -> None:
    ran = CliRunner().invoke(bench, ["--world", world, "--checks", cases, *more])
    assert isinstance(ran.exception, UsageError)
    assert said in ran.exception.message


def test_a_limit_on_the_pass_rate_needs_cases(world: str) -> None:
    ran = CliRunner().invoke(bench, ["--world", world, "--fail-if", "pass<90%"])
    assert isinstance(ran.exception, UsageError)
    assert "needs cases" in ran.exception.message


CASCADE = """
[models.smart]
policy = "cascade"
tiers = [{ upto = "simple", targets = ["groq/small"] }, { targets = ["openai/large"] }]
[providers.groq]
api_key = "env:GROQ_API_KEY"
[providers.openai]
api_key = "env:OPENAI_API_KEY"
"""


@pytest.mark.parametrize(
    ("target", "least", "code", "said"),
    [
        ("groq/small", "75%", 0, ""),
        ("groq/small", "90%", 6, "smart: groq/small passes 80.0 % (58.4 to 91.9 %) of 20 cases"),
        ("openai/large", "75%", 7, "smart: groq/small has no answer to own.jsonl"),
        ("groq/small", "many", 2, "no percentage"),
        (None, "75%", 2, "has no checks"),
    ],
)
def test_a_cascade_can_be_held_against_a_run(
    tmp_path: Path, target: str | None, least: str, code: int, said: str
) -> None:
    (tmp_path / "lightgate.toml").write_text(CASCADE)
    record = RunRecord(id="r", started="2026-11-16T08:00:00Z")
    if target is not None:
        states: dict[str, CaseState] = {
            str(at): "passed" if at < 16 else "failed" for at in range(20)
        }
        cell = CellSummary(target=target, load="c=1", checks=pass_rate(states, {}))
        checks = ChecksRecord(file="own.jsonl", sha256="0" * 64, ids=tuple(states))
        record = msgspec.structs.replace(record, cells=(cell,), checks=checks)
    RunFolder.create(tmp_path / "run").write_run(record)
    words = ["check", "--config", str(tmp_path / "lightgate.toml"), "--least-pass", least]
    ran = CliRunner().invoke(config, [*words, "--checks", str(tmp_path / "run")])
    assert "lightgate.toml is valid" in ran.output
    if code:
        assert isinstance(ran.exception, LightgateError)
        assert ran.exception.exit_code == code
        assert said in ran.exception.message
    else:
        assert ran.exception is None
        assert "smart: groq/small passes 80.0 %" in ran.output
