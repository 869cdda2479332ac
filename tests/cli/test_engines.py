"""Engines that nobody here wrote, behind `bench` and behind the gateway: every sample counts.

llama.cpp's server closes its connection after each stream without saying so. MLX's server speaks
HTTP/1.0, ends a stream by closing, and sends comments while it reads the prompt.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cli.engines import MODELS, engine, installed
from cli.test_up import Up, http, serve  # noqa: F401 - a fixture
from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cli.conftest import Run
    from cli.test_up import Serve

pytestmark = [pytest.mark.sdk, pytest.mark.parametrize("name", MODELS)]
TOKENS_IN, TOKENS_OUT, REQUESTS = 200, 12, 24
LOAD = ("--concurrency", "1,6", "--requests", str(REQUESTS))
SIZES = ("--prompt-tokens", str(TOKENS_IN), "--max-tokens", str(TOKENS_OUT))
PATHS = ("/v1/chat/completions", "/v1/messages")  # of both dialects that the gateway is asked in


@pytest.fixture(autouse=True)
def _installed(missing: Callable[[str], None], name: str) -> None:
    if not installed(name):
        missing(f"the engine's environment is missing: make .venv-engine-{name}/stamp")


def every_sample_counts(folder: Path) -> None:
    """All requests ended well, and each is in the figures of its cell."""
    record, recordings = RunFolder(folder).run(), RunFolder(folder).recordings()
    everything = RunFolder(folder).attempts()
    # Fillers keep the load up until the last one that counts has ended; then they are cut.
    fillers = [attempt for attempt in everything if recordings[attempt.id].part == "filler"]
    assert {attempt.outcome for attempt in fillers} <= {"ok", "cut"}
    attempts = [attempt for attempt in everything if recordings[attempt.id].part != "filler"]
    assert {attempt.outcome for attempt in attempts} == {"ok"}
    assert {attempt.end for attempt in attempts} == {"marker"}
    assert {attempt.tokens_out for attempt in attempts} == {TOKENS_OUT}
    assert {attempt.tokens_source for attempt in attempts} == {"usage"}
    counted = [attempt for attempt in attempts if not recordings[attempt.id].warmup]
    assert Counter(attempt.concurrency for attempt in counted) == {1: REQUESTS, 6: REQUESTS}
    for cell in record.cells:
        found = [cell.estimate(metric, 0.5) for metric in ("ttft_ms", "e2e_ms")]
        assert {one.n for one in found if one is not None} == {cell.requests}


async def test_behind_the_harness(run: Run, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    async with engine(name, tmp_path) as url:
        ran = await run("bench", f"lab={url}#{MODELS[name]}", *LOAD, *SIZES, "--out", str(out))
        examined = await run("doctor", f"lab={url}#{MODELS[name]}", "--json")
    assert ran.code == 0, ran.err
    every_sample_counts(out)
    assert examined.code == 0, examined.err
    assert json.loads(examined.out)["providers"][0]["state"] == "ok"


async def test_behind_the_gateway(run: Run, serve: Serve, tmp_path: Path, name: str) -> None:  # noqa: F811 - the fixture
    out = tmp_path / "run"
    async with engine(name, tmp_path) as url:
        (tmp_path / "lightgate.toml").write_text(
            f"""
            [providers.lab]
            base_url = "{url}"
            api_key = "none"
            hourly_cost = 1
            [models.local]
            targets = ["lab/{MODELS[name]}"]
            """
        )
        async with serve("--no-demo") as up:
            port = up.state.port
            gate = f"gate=http://127.0.0.1:{port}/v1#local"
            ran = await run("bench", gate, *LOAD, *SIZES, "--out", str(out))
            said = [{"role": "user", "content": "say it"}]
            body = json.dumps({"model": "local", "max_tokens": TOKENS_OUT, "messages": said})
            whole = [await http(port, "POST", path, body.encode()) for path in PATHS]
            up.process.terminate()
            assert await up.end() == 0
    assert ran.code == 0, ran.err
    every_sample_counts(out)
    assert [status for status, _ in whole] == [200, 200]
    assert json.loads(whole[0][1])["usage"]["completion_tokens"] == TOKENS_OUT
    assert json.loads(whole[1][1])["stop_reason"] == "max_tokens"
    with sqlite3.connect(up.data / "ledger.sqlite") as ledger:
        tried = ledger.execute('SELECT outcome, streamed, "end" FROM attempts').fetchall()
        bad = ledger.execute("SELECT count(*) FROM exchanges WHERE attempts <> 1").fetchone()
    # Fillers are cut by the client: some before their first byte, when nothing was streamed yet.
    kept = [(outcome, streamed, end) for outcome, streamed, end in tried if outcome != "cancelled"]
    assert {(outcome, end) for outcome, streamed, end in kept if streamed} == {("ok", "marker")}
    whole_ends = [(outcome, end) for outcome, streamed, end in kept if not streamed]
    assert whole_ends == [("ok", "finish")] * 2
    assert bad == (0,)
