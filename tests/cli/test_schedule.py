from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from bench.test_rules import worked
from lightgate.bench.run.schedule import Schedules
from lightgate.cli import schedule as verb
from lightgate.errors import UsageError
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "watch-over-time.md"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*args: str) -> Any:
    return verb.command.main(args=list(args), standalone_mode=False)


def add(*more: str) -> None:
    run("add", "nightly", "--every", "6h", *more, "--", "lab/s1", "--requests", "6")


def test_add_list_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add("--webhook", "https://x.example/secret", "--jitter", "10m", "--tolerance", "10")
    (kept,) = Schedules(tmp_path / "lightgate-data").all()
    assert kept.arguments == ("lab/s1", "--requests", "6")
    assert (kept.tolerance, kept.jitter) == (0.1, "10m")
    run("list")
    shown = capsys.readouterr().out
    assert "nightly" in shown
    assert "https://x.example" in shown
    assert "secret" not in shown
    run("list", "--json")
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["webhook"]) == ("nightly", "https://x.example")
    run("remove", "nightly")
    capsys.readouterr()
    run("list")
    assert capsys.readouterr().out == "There is no schedule. `lightgate schedule add` makes one.\n"


def test_the_data_folder_is_the_flags_or_the_configurations(tmp_path: Path) -> None:
    add("--data", str(tmp_path / "mine"))
    assert len(Schedules(tmp_path / "mine").all()) == 1
    (tmp_path / "lightgate.toml").write_text('[gateway]\ndata = "theirs"\n')
    add()
    assert len(Schedules(tmp_path / "theirs").all()) == 1


def test_wrong_words() -> None:
    with pytest.raises(UsageError, match="too often"):
        run("add", "x", "--every", "1s", "--", "a/b")
    with pytest.raises(UsageError, match="no schedule"):
        run("remove", "x")
    with pytest.raises(click.UsageError):
        run("add", "x", "--every", "6h")


class Bench:
    """Stands in for the benchmark: writes a run, a little slower each time it is told to."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.code = 0
        self.runs = 0

    async def __call__(self, arguments: Sequence[str], folder: Path) -> int:
        self.runs += 1
        files = RunFolder.create(folder)
        for at in range(8):
            files.append(*worked(f"{self.runs}-{at}", scale=self.scale))
        files.write_run(Run(id=f"r-{self.runs:03}", started=f"2026-01-{self.runs:02}T00:00:00Z"))
        return self.code


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(verb, "bench", made)
    return made


def once(tmp_path: Path) -> Any:
    """Make the schedule due again, and run it."""
    path = tmp_path / "lightgate-data" / "schedules.json"
    book = json.loads(path.read_text())
    book["schedules"][0]["due"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps(book))
    return run("run", "--once", "--json")


def test_once_ends_with_six_on_drift(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add()
    assert [once(tmp_path) for _ in range(7)] == [0] * 7
    capsys.readouterr()
    bench.scale = 2.0
    assert once(tmp_path) == 6
    shown = capsys.readouterr()
    alerts = json.loads(shown.out)
    assert {alert["metric"] for alert in alerts} == {"ttft_ms", "speed_tps", "e2e_ms"}
    assert "ALERT nightly: lab/s1 c=1: ttft_ms is slower" in shown.err


def test_once_gives_the_code_of_a_failed_benchmark(bench: Bench, tmp_path: Path) -> None:
    add()
    bench.code = 5
    assert once(tmp_path) == 5


def test_nothing_due_is_nothing_done(bench: Bench) -> None:
    assert run("run", "--once") == 0
    assert bench.runs == 0


async def test_the_benchmark_is_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nexit 4\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    assert await verb.bench(("lab/s1", "--requests", "6"), tmp_path / "out") == 4
    words = (tmp_path / "words").read_text().split()
    assert words == f"-m lightgate bench lab/s1 --requests 6 --out {tmp_path}/out --yes".split()


async def test_stop_ends_the_work() -> None:
    import asyncio
    import os

    began = asyncio.Event()

    async def work() -> None:
        began.set()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    await verb._until_stopped(work())
    assert began.is_set()


def option_rows(name: str) -> list[str]:
    command = verb.command.commands[name]
    return [
        f"| `{param.opts[0]}` | {param.help} |"
        for param in command.params
        if isinstance(param, click.Option)
    ]


@pytest.mark.parametrize("name", ["add", "list", "remove", "run"])
def test_every_option_has_its_row_in_the_guide(name: str) -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    begin = lines.index(f"### `lightgate schedule {name}`")
    ends = [at for at, line in enumerate(lines) if line.startswith("##") and at > begin]
    section = lines[begin : ends[0] if ends else None]
    assert [line for line in section if line.startswith("| `--")] == option_rows(name)
    assert "Example: lightgate schedule" in (verb.command.commands[name].epilog or "")
