"""`bench` and `doctor` against the recorded answer of an engine that sends no terminal marker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lightgate.ledger.runs.folder import RunFolder
from recorded import recorded

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from cli.conftest import Run, Serve

# An answer of a model that thinks, cut off before its first word.
THOUGHT = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens"'
    b':9,"completion_tokens":16,"completion_tokens_details":{"reasoning_tokens":16}}}\n\n'
    b"data: [DONE]\n\n"
)


async def test_every_request_of_a_bench_is_ok(run: Run, serving: Serve, tmp_path: Path) -> None:
    out = tmp_path / "run"
    async with serving(recorded().play) as port:
        url = f"http://127.0.0.1:{port}/v1"
        load = ("--concurrency", "4", "--requests", "24", "--max-tokens", "4")
        ran = await run("bench", f"lab={url}#m", *load, "--out", str(out))
    assert ran.code == 0, ran.err
    # Requests that only keep the load up while the last ones end are cut with the run.
    attempts = [a for a in RunFolder(out).attempts() if a.outcome != "cut"]
    assert len(attempts) >= 24
    assert {(a.outcome, a.end, a.finish_reason) for a in attempts} == {("ok", "finish", "length")}
    assert all(a.ttft_ms is not None and a.e2e_ms is not None for a in attempts)


async def test_a_doctor_finds_it_well(run: Run, serving: Serve) -> None:
    async with serving(recorded().play) as port:
        ran = await run("doctor", f"lab=http://127.0.0.1:{port}/v1#m", "--json")
    assert ran.code == 0, ran.err
    (finding,) = json.loads(ran.out)["providers"]
    assert (finding["state"], finding["says"]) == ("ok", "")
    assert finding["ttft_ms"] > 0


async def test_a_doctor_knows_a_model_that_thinks(run: Run, serving: Serve) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(THOUGHT)
        await writer.drain()

    async with serving(script) as port:
        ran = await run("doctor", f"lab=http://127.0.0.1:{port}/v1#m", "--json")
    assert ran.code == 0, ran.err
    (finding,) = json.loads(ran.out)["providers"]
    assert finding["state"] == "ok"
    assert finding["ttft_ms"] is None
    assert "without text: the answer ended with 'length'" in finding["says"]
