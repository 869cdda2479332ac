from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bench.statistics.test_regress import noisy, side
from lightgate.cli.compare import command
from lightgate.errors import NotJudged, ThresholdMissed, UsageError
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
    old = write(tmp_path / "old", side(noisy(1, 100)))
    same = write(tmp_path / "same", side(noisy(2, 100)))
    slow = write(tmp_path / "slow", side(noisy(3, 100, 1.5)), workload={"prompts": "x"})
    return str(old), str(same), str(slow)


def run(*args: str) -> Any:
    return command.main(args=list(args), standalone_mode=False)


def test_a_tie_passes(runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(runs[0], runs[1], "--fail-on-regression", "5%") is None
    shown = capsys.readouterr()
    assert "No regression." in shown.err
    assert shown.out.count("tie") == 7
    assert "ttft_ms p95" in shown.out
    assert "speed_tps slow 5 %" in shown.out
    assert "ttft_ms" in shown.out


def test_a_regression_ends_with_six(
    runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ThresholdMissed,
        match=r"lab/s1 c=8: ttft_ms p50 is worse by 1\..*more than 5 % \(and 5 more",
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
    assert (found["regressions"], found["unjudged"]) == (6, 0)
    first = found["comparison"]["changes"][0]
    assert (first["metric"], first["call"]) == ("ttft_ms", "regression")
    assert first["interval"]["low"] > 1.05


def test_a_wide_tolerance_lets_it_pass(runs: tuple[str, str, str]) -> None:
    assert run(runs[0], runs[2], "--fail-on-regression", "80%") is None


def test_one_metric(runs: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run(runs[0], runs[1], "--metric", "e2e_ms", "--json")
    changes = json.loads(capsys.readouterr().out)["comparison"]["changes"]
    assert [change["metric"] for change in changes] == ["e2e_ms", "e2e_ms", "failed"]


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
    other = write(tmp_path / "other", side(noisy(1, 100), target="x/y"))
    with pytest.raises(UsageError, match="Nothing could be compared"):
        run(runs[0], str(other))


def test_what_could_not_be_judged_ends_with_seven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = str(write(tmp_path / "few", side(noisy(1, 60))))
    with pytest.raises(NotJudged, match=r"ttft_ms p95 could not be judged: n too small \(60") as no:
        run(few, few, "--fail-on-regression", "5%")
    assert no.value.exit_code == 7
    assert "requests a side would do" in no.value.hint
    assert "n too small" in capsys.readouterr().out
    assert run(few, few) is None


def test_requests_in_waves_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = [300.0, 160.0, 290.0]
    made = side([level for level in levels for _ in range(32)], wave=32)
    waves = str(write(tmp_path / "waves", made))
    with pytest.raises(NotJudged, match="96 in 3 waves"):
        run(waves, waves, "--fail-on-regression", "5%")
    assert "96 in 3 waves" in capsys.readouterr().out


def test_more_failures_are_counted_in_points(tmp_path: Path, runs: tuple[str, str, str]) -> None:
    worse = str(write(tmp_path / "worse", side(noisy(2, 91), failures=9)))
    with pytest.raises(ThresholdMissed, match=r"failed is worse by \+9\.0%.*more than 1 points"):
        run(runs[0], worse, "--fail-on-regression", "10%")
    assert run(runs[0], worse, "--fail-on-regression", "10%", "--failure-points", "20") is None


def test_a_load_that_only_the_old_run_has_is_not_judged(
    tmp_path: Path, runs: tuple[str, str, str]
) -> None:
    one, other = side(noisy(1, 100)), side(noisy(2, 100), load="c=32")
    more = [msgspec.structs.replace(attempt, id=f"b{attempt.id}") for attempt in other.attempts]
    rows = {f"b{key}": row for key, row in other.recordings.items()}
    rows = {key: msgspec.structs.replace(row, id=key) for key, row in rows.items()}
    both = one._replace(attempts=[*one.attempts, *more], recordings={**one.recordings, **rows})
    old = str(write(tmp_path / "both", both))
    with pytest.raises(NotJudged, match="lab/s1 at c=32 could not be judged"):
        run(old, runs[1], "--fail-on-regression", "5%")


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    assert "Example: lightgate compare" in capsys.readouterr().out
