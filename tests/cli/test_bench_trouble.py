"""Endpoints in trouble: a sentence, an exit code, and whatever was measured is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.ledger.runs.folder import RunFolder
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from pathlib import Path

    from cli.conftest import Run, Serve
    from lightgate.ledger.runs.run import CellSummary

WORLD = """
name = "trouble"
title = "One trouble each"
source = "this test"

[providers.plain.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }

[providers.once.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "status", arg = "503", every = 1000 }]

[providers.dead.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "status", arg = "500", every = 1 }]

[providers.full.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "rate-limited-ms", arg = "1", every = 1 }]

[providers.fickle.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "status", arg = "404", every = 4, phase = 3 }]

[providers.patchy.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "status", arg = "404", every = 4, phase = 3 }]

[providers.lump.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
shape = { first = 100 }

[providers.sleepy.models.m]
exact = { ttft_ms = 60000, gap_ms = 1 }

[providers.mute.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "empty", every = 1 }]
"""
LOAD = ("--concurrency", "1", "--requests", "12", "--prompt-tokens", "64", "--max-tokens", "8")


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    path = tmp_path_factory.mktemp("world") / "trouble.toml"
    path.write_text(WORLD)
    with SimProcess(SimOptions(world=str(path))) as process:
        yield process


def value(cell: CellSummary, name: str) -> float | None:
    """The median of a metric; None where there is none, or no such metric."""
    metric = next((metric for metric in cell.metrics if metric.name == name), None)
    return None if metric is None else metric.quantiles[0].value


async def test_no_such_model(run: Run, sim: SimProcess, tmp_path: Path) -> None:
    url = sim.facts.providers["plain"]
    ran = await run("bench", f"lab={url}#nobody", *LOAD, "--out", str(tmp_path / "run"))
    assert ran.code == 1
    assert ran.sentence.startswith(f"lightgate: lab: no model 'nobody' at {url}: ")
    assert "404" in ran.sentence
    assert "  It has m" in ran.err  # what the server lists
    assert ".." not in ran.sentence
    assert ran.out == ""


async def test_a_base_url_without_its_version(run: Run, sim: SimProcess) -> None:
    url = sim.facts.providers["plain"].removesuffix("/v1")
    ran = await run("bench", f"lab={url}#m", *LOAD)
    assert ran.code == 1
    assert ran.sentence == f"lightgate: lab: {url} is no base URL."
    assert f"  Did you mean {url}/v1?\n" in ran.err
    examined = await run("doctor", f"lab={url}#m")
    assert f"  Did you mean {url}/v1?\n" in examined.err
    alone = await run("bench", url)
    assert f"Try: lightgate bench 'mine={url}/v1#m'" in alone.err


async def test_one_of_several_targets_is_no_model(run: Run, sim: SimProcess) -> None:
    url = sim.facts.providers["plain"]
    ran = await run("bench", f"good={url}#m", f"bad={url}#nobody", *LOAD)
    assert ran.code == 1
    assert "bad: no model 'nobody'" in ran.sentence


async def test_a_model_that_is_sometimes_refused(run: Run, sim: SimProcess, tmp_path: Path) -> None:
    out = tmp_path / "run"
    url = sim.facts.providers["fickle"]
    ran = await run("bench", f"lab={url}#m", *LOAD, "--out", str(out))
    assert ran.code == 0, ran.err
    attempts = RunFolder(out).attempts()
    refused = [attempt for attempt in attempts if attempt.outcome == "http_error"]
    assert {attempt.status for attempt in refused} == {404}
    assert 2 <= len(refused) <= len(attempts) / 3
    outcomes = RunFolder(out).run().cells[0].outcomes
    assert outcomes["http_error"] >= 2
    assert outcomes["ok"] >= 6


async def test_one_failure_does_not_end_a_run_before_it_begins(
    run: Run, sim: SimProcess, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ran = await run("bench", f"lab={sim.facts.providers['once']}#m", *LOAD, "--out", str(out))
    assert ran.code == 0, ran.err
    assert RunFolder(out).run().workload["calibrated lab"] == "true"


@pytest.mark.parametrize(
    ("provider", "outcome", "status"),
    [("dead", "http_error", 500), ("full", "rate_limited", 429), ("mute", "empty", 200)],
)
async def test_nothing_but_failures(
    run: Run, sim: SimProcess, tmp_path: Path, provider: str, outcome: str, status: int
) -> None:
    out = tmp_path / "run"
    url = sim.facts.providers[provider]
    ran = await run("bench", f"lab={url}#m", *LOAD, "--out", str(out))
    assert ran.code == 1
    assert f"Not one request succeeded ({outcome})" in ran.sentence
    attempts = RunFolder(out).attempts()
    assert {(attempt.outcome, attempt.status) for attempt in attempts} == {(outcome, status)}
    cell = RunFolder(out).run().cells[0]
    assert sum(cell.outcomes.values()) >= 12
    assert value(cell, "ttft_ms") is None
    assert (out / "report.html").exists()


async def test_answers_of_one_chunk(run: Run, sim: SimProcess, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ran = await run("bench", f"lab={sim.facts.providers['lump']}#m", *LOAD, "--out", str(out))
    assert ran.code == 0, ran.err
    for attempt in RunFolder(out).attempts():
        assert attempt.outcome == "ok"
        assert attempt.bursts == 1
        assert attempt.speed_tps is None
        assert attempt.stall_ms is None
        assert attempt.tokens_out == 8
        assert attempt.e2e_ms == attempt.ttft_ms
        assert (attempt.e2e_ms or 0) > 4
        assert (attempt.speed_total_tps or 0) > 0
    cell = RunFolder(out).run().cells[0]
    assert value(cell, "speed_tps") is None
    # On a busy machine ten samples may depend on each other too much for a median.
    names = [metric.name for metric in cell.metrics]
    assert {"e2e_ms", "speed_total_tps"} <= set(names)


async def test_a_limit_on_what_was_never_measured_cannot_be_judged(
    run: Run, sim: SimProcess
) -> None:
    target = f"lab={sim.facts.providers['lump']}#m"
    ran = await run("bench", target, *LOAD, "--fail-if", "speed_p50<10")
    assert ran.code == 7, ran.err
    assert "n too small" in ran.err
    other = f"other={sim.facts.providers['patchy']}#m"
    both = ("--fail-if", "speed_p50<10", "--fail-if", "error_rate>1%")
    # The rate of failures needs no independent samples, of which a busy machine gives few.
    ran = await run("bench", target, other, *LOAD, "--requests", "48", *both)
    assert ran.code == 6, ran.err  # one that is surely missed decides
    assert "error_rate>1%: it is" in ran.err


async def test_a_slow_target_is_left_out_where_that_is_asked_for(
    run: Run, sim: SimProcess, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    good, slow = sim.facts.providers["plain"], sim.facts.providers["sleepy"]
    skip = ("--skip-slow", "1s", "--out", str(out))
    ran = await run("bench", f"good={good}#m", f"slow={slow}#m", *LOAD, *skip)
    assert ran.code == 0, ran.err
    record = RunFolder(out).run()
    assert {cell.target for cell in record.cells} == {"good", "good (twin)"}
    assert "slow was left out: its probes took longer than 1 s." in record.notes


async def test_an_endpoint_that_does_not_stream_is_told_so(
    run: Run, serving: Serve, tmp_path: Path
) -> None:
    body = (
        b'{"id":"1","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop",'
        b'"message":{"role":"assistant","content":"four words of it"}}]}'
    )
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await reader.readuntil(b"\r\n\r\n")
            length = int(asked.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(head % len(body) + body)
            await writer.drain()

    out = tmp_path / "run"
    async with serving(script) as port:
        ran = await run("bench", f"lab=http://127.0.0.1:{port}/v1#m", *LOAD, "--out", str(out))
    assert ran.code == 0, ran.err
    assert any(note.startswith("lab does not stream: ") for note in RunFolder(out).run().notes)
    assert "lab does not stream" in ran.out
    assert "~ = from" in ran.out  # nobody counted the tokens
