"""`lightgate batch run --via`: by a provider's batch API, in parallel, or by price and deadline."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.batch.via import ProviderJobs
from lightgate.cli.main import main
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORLD = """
name = "jobs"
title = "Batch APIs: one whose jobs are done at once, one whose jobs take hours"
source = "the tests"
[providers.quick]
batch = { finish_s = [0.001, 0.001] }
[providers.quick.models.m]
exact = { ttft_ms = 1, gap_ms = 0 }
shape = { tokens = 5 }
[providers.slow]
like = "quick"
batch = { finish_s = [36000, 36000] }
"""
CONFIG = """
[providers.quick]
like = "openai"
base_url = "{quick}"
api_key = "none"
[providers.slow]
like = "openai"
base_url = "{slow}"
api_key = "none"
[prices."quick/m"]
input = 2
output = 8
batch_input = 1
batch_output = 4
[prices."slow/m"]
input = 2
output = 8
batch_input = 1
batch_output = 4
"""


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    world = tmp_path_factory.mktemp("world") / "jobs.toml"
    world.write_text(WORLD, "utf-8")
    with SimProcess(SimOptions(world=str(world))) as running:
        yield running


@pytest.fixture
def folder(sim: SimProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lightgate.toml").write_text(CONFIG.format(**sim.facts.providers), "utf-8")
    rows = [
        {
            "custom_id": f"id-{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "m",
                "max_tokens": 5,
                "messages": [{"role": "user", "content": f"say {n % 9}"}],
            },
        }
        for n in range(12)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return tmp_path


def results(folder: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in (folder / "in.results.jsonl").read_bytes().splitlines()]
    found = {row["custom_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def jobs(folder: Path) -> list[str]:
    path = folder / "in.results.jsonl.jobs"
    return [json.loads(line)[0] for line in path.read_bytes().splitlines()] if path.exists() else []


def test_lines_go_by_batch_at_the_price_of_a_batch(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "run", "in.jsonl", "quick/m", "--via", "auto", "--data", "d"]) == 0
    said = capsys.readouterr()
    assert "by batch at quick/m: a batch costs 50% of the usual price" in said.err
    assert "9 lines were answered by batch jobs" in said.out  # the other three are twins
    assert len(results(folder)) == 12
    assert jobs(folder) == ["p", "s", "j", "o", "c"]
    usage = [row["response"]["body"]["usage"] for row in results(folder).values()]
    each = [one["prompt_tokens"] + 4 * one["completion_tokens"] for one in usage]
    ledger = sqlite3.connect(next((folder / "d").glob("ledger.*sqlite*")))
    count, dollars, sources = ledger.execute(
        "select count(*), sum(cost_usd), group_concat(distinct source) from attempts"
    ).fetchone()
    assert (count, sources) == (9, "batch")
    assert dollars == pytest.approx(sum(each[:9]) / 1e6)


def test_a_deadline_that_is_near_sends_lines_in_parallel(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["batch", "run", "in.jsonl", "slow/m", "--via", "auto", "--deadline", "60s"]
    assert main([*words, "--data", "d"]) == 0
    assert "in parallel: " in capsys.readouterr().err
    assert len(results(folder)) == 12
    assert jobs(folder) == []


def test_jobs_go_on_after_an_interrupt_and_are_given_up_for_parallel(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["batch", "run", "in.jsonl", "slow/m", "--data", "d", "--via"]

    async def interrupted(jobs: ProviderJobs) -> None:
        raise asyncio.CancelledError  # what Ctrl-C does to the work

    with monkeypatch.context() as patch:
        patch.setattr(ProviderJobs, "_watch", interrupted)
        assert main([*words, "batch"]) == 130
    assert "batch jobs go on at" in capsys.readouterr().err
    assert jobs(folder) == ["p", "s", "j"]
    assert main([*words, "parallel"]) == 0
    assert "taken up again" in capsys.readouterr().err
    assert len(results(folder)) == 12
    assert jobs(folder) == ["p", "s", "j", "o", "c"]


def test_a_target_without_a_batch_api_is_asked_in_parallel(
    folder: Path, sim: SimProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    url = sim.facts.providers["quick"]
    words = ["batch", "run", "in.jsonl", f"own={url}#m", "--via", "batch", "--data", "d"]
    assert main(words) == 0
    assert "in parallel: own has no batch API" in capsys.readouterr().err
    assert len(results(folder)) == 12
