"""`lightgate bench` against a real engine: llama.cpp's server with a model of random weights."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from cli.engines import engine, installed
from lightgate.clock.load import counting
from lightgate.ledger.runs.folder import RunFolder
from lightgate.wire.client.pool import CLOSES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cli.conftest import Run

TOKENS_IN, TOKENS_OUT = 400, 24

pytestmark = pytest.mark.sdk


@pytest.fixture(autouse=True)
def _installed(missing: Callable[[str], None]) -> None:
    if not installed("llama"):
        missing("the engine's environment is missing: make .venv-engine-llama/stamp")


def ask(url: str, prompt: str) -> dict[str, Any]:
    """One answer of the engine by another client than ours."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS_OUT,
        "temperature": 0,
    }
    request = urllib.request.Request(  # noqa: S310 - our own
        f"{url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
        return dict(json.load(answer))


async def test_a_real_engine_is_measured(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    load = ("--concurrency", "1,4", "--requests", "24")
    sizes = ("--prompt-tokens", str(TOKENS_IN), "--max-tokens", str(TOKENS_OUT))
    async with engine("llama", tmp_path) as url:
        said = await asyncio.to_thread(ask, url, "say it")
        ran = await run("bench", f"lab={url}#tiny", *load, *sizes, "--out", str(out))
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    attempts, record = [a for a in folder.attempts() if a.outcome != "cut"], folder.run()
    assert {attempt.outcome for attempt in attempts} == {"ok"}
    assert {attempt.finish_reason for attempt in attempts} == {"length"}
    assert {cell.concurrency for cell in record.cells} == {1, 4}

    # Tokens are the engine's own count, and prompts have the wished size by it.
    assert said["usage"]["completion_tokens"] == TOKENS_OUT
    assert {attempt.tokens_source for attempt in attempts} == {"usage"}
    assert {attempt.tokens_out for attempt in attempts} == {TOKENS_OUT}
    assert record.workload["calibrated lab"] == "true"
    sizes_in = [attempt.tokens_in for attempt in attempts if attempt.tokens_in is not None]
    assert len(sizes_in) == len(attempts)
    assert all(abs(tokens - TOKENS_IN) <= 0.05 * TOKENS_IN for tokens in sizes_in), sizes_in

    for attempt in attempts:
        assert attempt.tte_ms is not None
        assert attempt.ttft_ms is not None
        assert attempt.e2e_ms is not None
        assert attempt.bursts is not None
        assert 0 < attempt.tte_ms <= attempt.ttft_ms <= attempt.e2e_ms
        if attempt.bursts == 1:  # a busy machine may read the whole of an answer at once
            continue
        assert attempt.ttft_ms < attempt.e2e_ms
        assert attempt.speed_tps is not None
        assert attempt.speed_tps > 0
    assert max(attempt.bursts or 0 for attempt in attempts) > 1


async def test_every_request_is_a_sample(run: Run, tmp_path: Path) -> None:
    """llama.cpp closes the connection after each stream without saying so."""
    out = tmp_path / "run"
    load = ("--concurrency", "1,8,32", "--requests", "64", "--max-tokens", "16")
    sizes = ("--prompt-tokens", "200", "--out", str(out))
    async with engine("llama", tmp_path) as url:
        ran = await run("bench", f"lab={url}#tiny", *load, *sizes)
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    attempts, record, recordings = folder.attempts(), folder.run(), folder.recordings()
    counted = [attempt for attempt in counting(attempts) if not recordings[attempt.id].warmup]
    assert Counter(attempt.concurrency for attempt in counted) == {1: 64, 8: 64, 32: 64}
    assert sum(attempt.resent for attempt in attempts) <= CLOSES
    for cell in record.cells:
        figures = [cell.estimate(name, 0.5) for name in ("ttft_ms", "ttfa_ms", "e2e_ms", "tth_ms")]
        assert {figure.n for figure in figures if figure is not None} == {cell.requests}
        assert cell.requests == 64
    table = ran.out[ran.out.index("c=1, by") : ran.out.index("c=8, by")].split()
    assert "64" in table[-3:], ran.out  # and what they are worth, where they hang together


async def test_the_engine_says_what_it_reused(run: Run, tmp_path: Path) -> None:
    """With --cached all prompts share their beginning, and llama.cpp keeps it."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    load = ("--concurrency", "1", "--requests", "10", "--prompt-tokens", "1000")
    more = ("--max-tokens", str(TOKENS_OUT))
    async with engine("llama", tmp_path) as url:
        assert (await run("bench", f"lab={url}#tiny", *load, *more, "--out", str(own))).code == 0
        args = (*load, *more, "--cached", "--out", str(shared))
        assert (await run("bench", f"lab={url}#tiny", *args)).code == 0
    reused = [attempt.tokens_cached or 0 for attempt in RunFolder(shared).attempts()[1:]]
    fresh = [attempt.tokens_cached or 0 for attempt in RunFolder(own).attempts()[1:]]
    assert min(reused) > 500
    assert max(fresh) < 100


async def test_a_wrong_path_and_a_prompt_that_is_too_long(run: Run, tmp_path: Path) -> None:
    async with engine("llama", tmp_path) as url:
        lost = await run("bench", f"lab={url}/nowhere#tiny", "--requests", "2")
        long = await run("bench", f"lab={url}#tiny", "--prompt-tokens", "4000", "--requests", "2")
    assert lost.code == long.code == 1
    assert "no model 'tiny' at" in lost.sentence
    assert "404: File Not Found" in lost.sentence
    assert "answered 400" in long.sentence
    assert "exceeds the available context size" in long.sentence
