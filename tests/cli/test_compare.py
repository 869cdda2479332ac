from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bench.statistics.test_regress import noisy, side
from lightgate.cli.compare import command
from lightgate.errors import ThresholdMissed, UsageError
from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.bench.statistics.regress import Side


def write(path: Path, made: Side, **changes: Any) -> Path:
    folder = RunFolder.create(path)
    for attempt in made.attempts:
        folder.append(attempt, made.recordings[attempt.id])
    folder.write_run(msgspec.structs.replace(made.run, **changes))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str, str]:
    old = write(tmp_path / "old", side(noisy(1, 60)))
    same = write(tmp_path / "same", side(noisy(2, 60)))
    slow = write(tmp_path / "slow", side(noisy(3, 60, 1.5)), workload={"prompts": "x"})
    return str(old), str(same), str(slow)


def run(*args: str) -> Any:
    return command.main(args=list(args), standalone_mode=False)


def test_a_tie_passes(runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(runs[0], runs[1], "--fail-on-regression", "5%") is None
    shown = capsys.readouterr()
    assert "No regression." in shown.err
    assert shown.out.count("tie") == 4
    assert "ttft_ms" in shown.out


def test_a_regression_ends_with_six(
    runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ThresholdMissed, match=r"lab/s1 c=8: ttft_ms is worse.*and 2 more"
    ) as caught:
        run(runs[0], runs[2], "--fail-on-regression", "5")
    assert caught.value.exit_code == 6
    shown = capsys.readouterr()
    assert "regression" in shown.out
    assert "different workloads: prompts" in shown.err


def test_without_the_flag_a_regression_is_only_shown(
    runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(runs[0], runs[2], "--json") is None
    found = json.loads(capsys.readouterr().out)
    assert found["regressions"] == 3
    first = found["comparison"]["changes"][0]
    assert (first["metric"], first["call"]) == ("ttft_ms", "regression")
    assert first["interval"]["low"] > 1.05


def test_a_wide_tolerance_lets_it_pass(runs: tuple[str, str, str]) -> None:
    assert run(runs[0], runs[2], "--fail-on-regression", "80%") is None


def test_one_metric(runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run(runs[0], runs[1], "--metric", "e2e_ms", "--json")
    changes = json.loads(capsys.readouterr().out)["comparison"]["changes"]
    assert [change["metric"] for change in changes] == ["e2e_ms", "failed"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--metric", "tokens"), "no metric 'tokens'"),
        (("--fail-on-regression", "lots"), "no percentage"),
        (("--fail-on-regression", "100%"), "no percentage"),
    ],
)
def test_wrong_words(runs: tuple[str, str, str], more: tuple[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(runs[0], runs[1], *more)


def test_no_run_and_nothing_in_common(tmp_path: Path, runs: tuple[str, str, str]) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        run(runs[0], str(tmp_path / "gone"))
    other = write(tmp_path / "other", side(noisy(1, 60), target="x/y"))
    with pytest.raises(UsageError, match="Nothing could be compared"):
        run(runs[0], str(other))


def test_too_few_samples_are_dots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = str(write(tmp_path / "few", side(noisy(1, 5))))
    run(few, few, "--fail-on-regression", "5%")
    shown = capsys.readouterr()
    assert "n too small" in shown.out
    assert "3 comparisons had too few samples" in shown.err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    assert "Example: lightgate compare" in capsys.readouterr().out
