"""Endpoints without words, requests that are cancelled, conversations of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.outcome import Outcome
from lightgate.ledger.runs.folder import RunFolder
from lightgate.report.pages.files import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from cli.conftest import Run

WORLD = """
name = "kinds"
title = "One provider"
source = "this test"
[providers.lab.models.m]
exact = { ttft_ms = 20, gap_ms = 1 }
[providers.other.models.m]
exact = { ttft_ms = 30, gap_ms = 1 }
"""
QUICK = ("--prompt-tokens", "64", "--max-tokens", "8", "--seed", "3", "--concurrency", "2")


@pytest.fixture
def world(tmp_path: Path) -> str:
    path = tmp_path / "kinds.toml"
    path.write_text(WORLD)
    return str(path)


async def test_embeddings_have_a_whole_time_and_a_rate(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("bench", "--world", world, "--endpoint", "embedding", *QUICK, "--requests", "60")
    ran = await run(*words, "--out", str(out), "--fail-if", "requests_per_s<1")
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    record = folder.run()
    lab = next(cell for cell in record.cells if cell.target == "lab/m")
    good = [a for a in folder.attempts() if a.outcome is Outcome.OK]
    assert {a.outcome for a in folder.attempts()} <= {Outcome.OK, Outcome.CUT}  # fillers are cut
    assert all(a.e2e_ms is not None and a.ttft_ms is None and not a.streamed for a in good)
    assert all(63 <= (a.tokens_in or 0) <= 65 for a in good)
    assert (lab.value("e2e_ms", 0.5) or 0) >= 20
    assert lab.value("ttft_ms", 0.5) is None
    assert lab.throughput_tps is None
    assert (lab.requests_per_s or 0) > 1
    assert lab.tokens_in_per_s == pytest.approx((lab.requests_per_s or 0) * 64, rel=0.03)
    assert {row.metric for row in record.versus} == {"e2e_ms"}
    assert (record.picks, record.answers, record.verdicts) == ((), (), ())
    assert record.workload["tokens_out"] == "none"
    assert not any("does not stream" in note for note in record.notes)
    assert "c=2, by e2e p50" in ran.out
    assert "req/s" in ran.out
    assert "tok in/s" in ran.out
    page = next(path for path in write_report(folder) if path.suffix == ".html").read_text()
    assert 'data-label="req/s"' in page
    assert 'data-label="grade"' not in page


async def test_speech_begins_with_its_first_byte(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("bench", "lab/m", "--world", world, "--endpoint", "speech", *QUICK, "--requests", "12")
    ran = await run(*words, "--out", str(out), "--body", '{"voice": "nova"}')
    assert ran.code == 0, ran.err
    attempts = RunFolder(out).attempts()
    assert {attempt.outcome for attempt in attempts} <= {Outcome.OK, Outcome.CUT}
    good = [attempt for attempt in attempts if attempt.outcome is Outcome.OK]
    assert len(good) >= 12
    assert any(attempt.bursts > 1 for attempt in good)
    for attempt in good:
        assert attempt.streamed
        assert attempt.tokens_out is None
        if attempt.bursts > 1:
            assert 0 < (attempt.ttft_ms or 0) < (attempt.e2e_ms or 0)
        else:  # on a busy machine the client may find a whole answer at once, and its bounds say so
            assert (attempt.first_bound_ms or 0) > 0
    assert "req/s" in ran.out


async def test_what_is_cancelled_is_no_failure_and_is_told(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("bench", "lab/m", "--world", world, *QUICK, "--requests", "60", "--cancel", "30%")
    ran = await run(*words, "--out", str(out))
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    (cell,) = folder.run().cells
    cancelled = cell.outcomes["cancelled"]
    assert 5 < cancelled < 35
    assert cell.outcomes == {"ok": 60 - cancelled, "cancelled": cancelled}
    found = cell.estimate("ttft_ms", 0.5)
    assert found is not None
    assert found.n == 60 - cancelled  # in no latency
    assert f"cancelled {cancelled} of 60 requests, as asked" in " ".join(ran.out.split())
    gone = [a for a in folder.attempts() if a.outcome is Outcome.CANCELLED]
    assert all(attempt.ttft_ms is not None and attempt.e2e_ms is None for attempt in gone)


async def test_conversations_of_a_file_are_held_whole(run: Run, world: str, tmp_path: Path) -> None:
    talks = tmp_path / "talks.jsonl"
    lines = [
        {"turns": ["a", {"content": "b", "think_s": 0.001}, {"content": "c", "max_tokens": 3}]},
        {"turns": ["d"]},
    ]
    talks.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "run"
    words = ("bench", "lab/m", "--world", world, *QUICK, "--requests", "12")
    ran = await run(*words, "--prompts", str(talks), "--out", str(out))
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    attempts = folder.attempts()
    assert len(attempts) == 12
    assert sorted(a.tokens_out or 0 for a in attempts) == [3] * 3 + [8] * 9
    record = folder.run()
    assert record.workload["prompts"] == "talks.jsonl"
    assert any("6 of 6 conversations of about 2 turns" in note for note in record.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--endpoint", "embedding", "--cancel", "10%"), "--cancel needs a time"),
        (("--no-stream", "--cancel", "10%"), "--cancel needs a time"),
        (("--cancel", "10%", "--turns", "2"), "to their end"),
        (("--endpoint", "speech", "--turns", "2"), "cannot hold a conversation"),
        (("--prompts", "talks.jsonl", "--turns", "2"), "have turns of their own"),
    ],
)
async def test_what_does_not_go_together_is_refused(
    run: Run, world: str, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    talks = tmp_path / "talks.jsonl"
    talks.write_text('{"turns": ["a", "b"]}\n')
    given = tuple(str(talks) if option == talks.name else option for option in options)
    ran = await run("bench", "lab/m", "--world", world, *QUICK, *given)
    assert ran.code == 2, ran.err
    assert said in ran.err
