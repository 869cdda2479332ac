from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from bench.test_rules import worked
from lightgate.bench.interop.rules import RULES
from lightgate.cli.reread import command
from lightgate.errors import UsageError
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.run import Run

LLMPERF = Path(__file__).parent.parent / "fixtures" / "llmperf" / "groq_70b.individual.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rereads.md"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    made = RunFolder.create(tmp_path / "run")
    for at in range(8):
        made.append(*worked(f"a-{at}"))
    made.write_run(Run(id="r-1", started="2026-01-01T00:00:00Z"))
    return str(tmp_path / "run")


def run(*args: str) -> Any:
    return command.main(args=list(args), standalone_mode=False)


def test_the_table_says_why(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, "--as", "vllm")
    lines = capsys.readouterr().out.splitlines()
    ttft = next(line for line in lines if "ttft_ms" in line and "p50" in line)
    assert "100.0" in ttft
    assert "300.0" in ttft
    assert "role" in ttft
    p99 = next(line for line in lines if "ttft_ms" in line and "p99" in line)
    assert "n too small" in p99
    assert "100.0" not in p99


def test_as_printed_shows_what_the_other_tool_prints(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, "--as", "vllm", "--as-printed")
    lines = capsys.readouterr().out.splitlines()
    assert "100.0" in next(line for line in lines if "ttft_ms" in line and "p99" in line)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_from_the_command_line(
    folder: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, "--as", rule, "--json")
    (cell,) = json.loads(capsys.readouterr().out)
    assert (cell["rule"], cell["target"], cell["requests"]) == (rule, "lab/s1", 8)
    assert cell["lines"]


def test_the_choices_are_the_rules() -> None:
    option = next(param for param in command.params if param.name == "rule")
    assert isinstance(option.type, click.Choice)
    assert set(option.type.choices) == set(RULES)


def test_a_result_file_of_another_tool(capsys: pytest.CaptureFixture[str]) -> None:
    run(str(LLMPERF), "--as", "llmperf", "--json")
    shown = capsys.readouterr()
    (cell,) = json.loads(shown.out)
    ttft = next(line for line in cell["lines"] if line["metric"] == "ttft_ms")
    assert ttft["theirs"] == pytest.approx(221.8883791938424)
    assert "A result of llmperf: 150 requests." in shown.err


def test_exports(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, "--export", "vllm")
    assert json.loads(capsys.readouterr().out)["median_ttft_ms"] == 100
    out = tmp_path / "otel.json"
    run(folder, "--export", "otel", "--out", str(out))
    assert "gen_ai.client.operation.duration" in out.read_text()
    assert capsys.readouterr().out == ""


def test_a_result_file_becomes_a_run_folder(tmp_path: Path) -> None:
    made = tmp_path / "imported"
    run(str(LLMPERF), "--export", "run", "--out", str(made))
    files = RunFolder(made)
    assert len(files.attempts()) == 150
    assert files.run().workload == {"imported_from": "llmperf"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "either --as or --export"),
        (("--as", "vllm", "--export", "vllm"), "either --as or --export"),
        (("--export", "run"), "needs --out"),
        (("--export", "otel", "--out", "/no/such/folder/x"), "cannot be written"),
    ],
)
def test_wrong_words(folder: str, more: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(folder, *more)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        run(str(tmp_path / "gone"), "--as", "vllm")


def test_every_rule_and_every_reason_has_its_row() -> None:
    rows = [row for row in PAGE.read_text("utf-8").splitlines() if row.startswith("| `")]
    expected = [
        f"| `{name}` | {rule.title} | `{metric}` | {why} |"
        for name, rule in RULES.items()
        for metric, why in rule.reasons.items()
    ]
    assert [row for row in rows if row.count("|") == 5] == expected
