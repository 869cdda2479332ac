from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.run.explore import requests_for
from lightgate.bench.run.findings import LoadFacts, Measured, cells
from lightgate.cli.bench import command as bench
from lightgate.cli.bench_quick import as_quick
from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cli.conftest import Run, Serve

WORLD = """
name = "quick"
title = "Two fast providers and a broken one"
source = "this test"

[providers.swift.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
price = { input = "1.0", output = "2.0" }

[providers.slow.models.m]
exact = { ttft_ms = 12, gap_ms = 2 }

[providers.narrow]
slots = 2
[providers.narrow.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }

[providers.broad.models.m]
curve = [{ load = 1, ttft_ms = [8, 16], tps = [2000, 1900] }]

[providers.keeping]
cache = { block = 4, saves = 0.8 }
[providers.keeping.models.m]
exact = { ttft_ms = 60, gap_ms = 0 }

[providers.broken.models.m]
exact = { ttft_ms = 4, gap_ms = 1 }
faults = [{ name = "empty", every = 1 }]
"""
QUICK = ("--prompt-tokens", "64", "--max-tokens", "8", "--seed", "3", "--requests", "12")


@pytest.fixture
def world(tmp_path: Path) -> str:
    path = tmp_path / "quick.toml"
    path.write_text(WORLD)
    return str(path)


async def test_a_run_keeps_everything(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    two = ("swift/m", "slow/m")
    ran = await run(
        "bench", *two, "--world", world, "--concurrency", "1,2", *QUICK, "--out", str(out)
    )
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    record, attempts, recordings = folder.run(), folder.attempts(), folder.recordings()
    assert record.finished is not None
    assert {target.name: target.twin_of for target in record.targets} == {
        "swift/m": None,
        "slow/m": None,
        "swift/m (twin)": "swift/m",
    }
    for load in ("c=1", "c=2"):
        for target in record.targets:
            counted = [
                attempt
                for attempt in attempts
                if attempt.target == target.name
                and recordings[attempt.id].load == load
                and not recordings[attempt.id].warmup
            ]
            assert len(counted) >= 12
            assert {attempt.outcome for attempt in counted} == {"ok"}
            assert {attempt.tokens_out for attempt in counted} == {8}
    assert {cell.load for cell in record.cells} == {"c=1", "c=2"}
    assert record.workload["tokens_in"] == "64"
    spent = [a.cost_usd for a in attempts if a.target == "swift/m" and a.tokens_in]
    assert all(cost is not None and cost > 0 for cost in spent)
    for name in ("report.html", "summary.csv"):
        assert (out / name).stat().st_size > 500
    assert "swift" in ran.out
    assert "slow" in ran.out


async def test_json_is_the_record(run: Run, world: str) -> None:
    ran = await run("bench", "swift/m", "--world", world, "--concurrency", "1", *QUICK, "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert [cell["target"] for cell in record["cells"]] == ["swift/m"]
    assert record["options"]["seed"] == "3"


async def test_a_limit_that_is_missed_is_exit_6(run: Run, world: str) -> None:
    words = ("bench", "slow/m", "--world", world, "--concurrency", "1", *QUICK)
    ran = await run(*words, "--fail-if", "ttft_p50>60s", "--fail-if", "ttft_p50>1ms")
    assert ran.code == 6
    assert "ttft_p50>1ms" in ran.sentence


async def test_nothing_but_failures_is_exit_1_and_kept(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ran = await run(
        "bench", "broken/m", "--world", world, "--concurrency", "1", *QUICK, "--out", str(out)
    )
    assert ran.code == 1
    assert "Not one request succeeded (empty)" in ran.sentence
    assert {attempt.outcome for attempt in RunFolder(out).attempts()} == {"empty"}


async def test_cold_and_cached_prompts_are_told_apart(run: Run, world: str, tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    load = ("bench", "keeping/m", "--world", world, "--concurrency", "1", *QUICK)
    assert (await run(*load, "--prompt-tokens", "256", "--cached", "--out", str(shared))).code == 0
    assert (await run(*load, "--prompt-tokens", "256", "--out", str(own))).code == 0
    reused = RunFolder(shared).attempts()[1:]
    assert all(0.5 < (a.tokens_cached or 0) / (a.tokens_in or 1) < 1 for a in reused)
    cell = RunFolder(shared).run().cells[0]
    assert cell.cached_ttft_p50_ms is not None
    assert cell.cached_ttft_p50_ms < 0.6 * 60
    assert {a.tokens_cached for a in RunFolder(own).attempts()} == {0}
    cell = RunFolder(own).run().cells[0]
    assert cell.cold_ttft_p50_ms is not None
    assert cell.cold_ttft_p50_ms > 60
    assert cell.cached_ttft_p50_ms is None


async def test_a_quick_look_is_short(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--quick", "--prompt-tokens", "64", "--requests", "12", "--out", str(out))
    ran = await run("bench", "--world", world, "swift/m", *words)
    assert ran.code == 0, ran.err
    kept = RunFolder(out).run()
    assert [cell.load for cell in kept.cells] == ["c=1", "c=8"]
    assert (kept.options["concurrency"], kept.options["max_tokens"]) == ("1,8", "64")
    assert "duration" not in kept.options  # --requests goes before the time


@pytest.mark.parametrize(
    ("words", "short"),
    [
        ((), ("1,8", "30s", "64")),
        (("--max-tokens", "512"), ("1,8", "30s", "512")),
        (("--concurrency", "2", "--duration", "5s"), ("2", "5s", "64")),
        (("--requests", "12"), ("1,8", None, "64")),
    ],
)
def test_what_is_given_goes_before_a_quick_look(
    words: tuple[str, ...], short: tuple[str | None, ...]
) -> None:
    context = bench.make_context("bench", ["--quick", *words])
    as_quick(context, context.params)
    assert (
        tuple(context.params[name] for name in ("concurrency", "duration", "max_tokens")) == short
    )


async def test_a_wished_precision_makes_more_requests(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    load = ("--concurrency", "1", "--prompt-tokens", "64", "--max-tokens", "4", "--seed", "3")
    wish = ("--requests", "40", "--precision", "6%", "--out", str(out))
    ran = await run("bench", "broad/m", "--world", world, *load, *wish)
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    made = [a for a in folder.attempts() if not folder.recordings()[a.id].warmup]
    most = 16 * 40
    assert 40 < len(made) <= most
    blocks = sorted({folder.recordings()[a.id].block or 0 for a in made})
    assert blocks == list(range(len(blocks)))  # one row of them, none twice
    record = folder.run()
    assert any(f"{len(made)} requests instead of 40" in note for note in record.notes)
    metric = next(m for m in record.cells[0].metrics if m.name == "ttft_ms")
    assert metric.quantiles[0].n == len(made)
    # Nothing but what the first 40 scattered decides how many more there are.
    early = [a for a in folder.attempts() if a not in made[40:]]
    measured = Measured(attempts=early, recordings=folder.recordings())
    known = cells(record.targets, measured, [LoadFacts(label="c=1", concurrency=1)], None)
    assert len(made) == min(requests_for(0.06, known, 40), most)


async def test_a_planned_load_has_planned_instants(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shape = ("--shape", "constant", "--rate", "50/s", "--requests", "20")
    ran = await run("bench", "swift/m", "--world", world, *QUICK, *shape, "--out", str(out))
    assert ran.code == 0, ran.err
    attempts = sorted(RunFolder(out).attempts(), key=lambda attempt: attempt.t_plan_ns or 0)
    plans = [attempt.t_plan_ns or 0 for attempt in attempts]
    assert [later - earlier for earlier, later in itertools.pairwise(plans)] == [20_000_000] * 19
    assert RunFolder(out).run().cells[0].load == "50/s constant"


async def test_an_interrupted_run_can_be_taken_up(
    start: Callable[..., Awaitable[asyncio.subprocess.Process]],
    run: Run,
    world: str,
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    words = ("bench", "slow/m", "--world", world, "--concurrency", "1", *QUICK, "--out", str(out))
    many = (*words, "--requests", "400")
    process = await start(*many)
    folder = RunFolder(out)
    while len(folder.attempts()) < 30:
        assert process.returncode is None
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(100):
        await process.communicate()
    assert process.returncode == 130
    before = {attempt.id for attempt in folder.attempts()}
    assert folder.run().finished is None
    assert folder.run().cells
    again = await run(*words, "--requests", str(len(before) + 20), "--resume")
    assert again.code == 0, again.err
    after = {attempt.id for attempt in folder.attempts()}
    assert before < after
    assert folder.run().finished is not None


async def test_a_run_is_only_taken_up_as_it_was_begun(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("bench", "swift/m", "--world", world, *QUICK, "--concurrency", "1", "--out", str(out))
    assert (await run(*words)).code == 0
    for other, named in (
        (("--seed", "4"), "--seed 3, not with 4"),
        (("--concurrency", "2"), "--concurrency 1, not with 2"),
        (("--max-tokens", "9"), "--max-tokens 8, not with 9"),
    ):
        again = await run(*words, "--resume", *other)
        assert again.code == 2, again.err
        assert named in again.sentence
    before = len(RunFolder(out).attempts())
    assert (await run(*words, "--resume")).code == 0  # all of it is measured already
    assert len(RunFolder(out).attempts()) == before


async def test_a_folder_with_a_run_is_not_overwritten(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("bench", "swift/m", "--world", world, "--concurrency", "1", *QUICK, "--out", str(out))
    assert (await run(*words)).code == 0
    again = await run(*words)
    assert again.code == 2
    assert "holds a run already" in again.sentence


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Name a target"),
        (("nobody/m",), 2, "not a known provider"),
        (("groq/m",), 5, "GROQ_API_KEY"),
        (("x=http://127.0.0.1:1/v1#m",), 4, "refused the connection"),
        (("x=http://127.0.0.1:1/v1#m", "--concurrency", "0"), 2, "no list of numbers"),
        (("x=http://127.0.0.1:1/v1#m", "--precision", "0"), 2, "no percentage"),
        (("x=http://127.0.0.1:1/v1#m", "--precision", "4%", "--duration", "9s"), 2, "closed loop"),
        (("x=http://127.0.0.1:1/v1#m", "--duration", "soon"), 2, "--duration"),
        (("x=http://127.0.0.1:1/v1#m", "--shape", "poisson"), 2, "needs a rate"),
        (("x=http://127.0.0.1:1/v1#m", "--shape", "constant", "--rate", "5/s"), 2, "needs an end"),
        (("x=http://127.0.0.1:1/v1#m", "--fail-if", "ttft"), 2, "is no limit"),
        (("x=http://127.0.0.1:1/v1#m", "--max-cost", "much"), 2, "no number of dollars"),
        (("x=http://127.0.0.1:1/v1#m", "--hourly-cost", "y=2"), 2, "names no target"),
        (("x=http://127.0.0.1:1/v1#m", "--resume"), 2, "needs --out"),
        (("x=http://127.0.0.1:1/v1#m", "--prompts", "none.jsonl"), 2, "none.jsonl"),
        (("--world", "selftest", "lab/none"), 2, "has no target 'lab/none'"),
        (("x=http://127.0.0.1:1/v1#m", "--max-inflight", "9"), 2, "a load with a rate"),
        (("http://127.0.0.1:1/v1",), 2, "needs a name before it and a model after it"),
        (("http://127.0.0.1:1/v1#m",), 2, "needs a name before it: NAME=URL#MODEL"),
        (("http://u:secret@h/v1",), 2, "credentials do not belong in a URL"),
        (("x=http://h/v1/chat/completions#m",), 2, "which is 'http://h/v1' here"),
        (("x=http://127.0.0.1:1/v1#m", "--rate", "5"), 2, "needs an end"),
        (("x=http://127.0.0.1:1/v1#m", "--duration", "60"), 4, "refused the connection"),
        (("x=http://127.0.0.1:1/v1#m", "--rate", "5", "--shape", "posson"), 2, "mean poisson?"),
        (("x=http://127.0.0.1:1/v1#m", "--rate", "5", "--shape", "closed"), 2, "takes no --rate"),
        (("x=http://127.0.0.1:1/v1#m", "--tools"), 2, "--tools needs --turns"),
        (("x=http://127.0.0.1:1/v1#m", "--think", "2s"), 2, "--think needs --turns"),
        (("x=http://127.0.0.1:1/v1#m", "--find-rate"), 2, "needs a limit"),
        (("x=http://127.0.0.1:1/v1#m", "--sweep", "--find-rate"), 2, "take one target"),
        (("x=http://127.0.0.1:1/v1#m", "--quick", "--rate", "5"), 2, "--rate does not go with"),
        (("x=http://127.0.0.1:1/v1#m", "--quick", "--sweep"), 2, "--sweep does not go with"),
    ],
)
async def test_bad_input_is_one_sentence(
    run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = await run("bench", *words)
    assert ran.code == code, ran.err
    assert said in ran.sentence
    assert "secret" not in ran.err


@pytest.mark.parametrize("verb", ["bench", "doctor"])
async def test_a_url_alone_is_answered_with_the_command_that_works(
    run: Run, serving: Serve, verb: str
) -> None:
    body = b'{"object":"list","data":[{"id":"llama-3.2-1b"},{"id":"b\'ad"},{"id":"other"}]}'

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()

    async with serving(script) as port:
        ran = await run(verb, f"http://127.0.0.1:{port}/v1/")
    assert ran.code == 2
    wanted = f"Try: lightgate {verb} 'mine=http://127.0.0.1:{port}/v1#llama-3.2-1b'"
    assert f"  {wanted} It also has other.\n" in ran.err


async def test_requests_above_the_cap_are_dropped_and_counted(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    burst = ("--shape", "burst:12 every 60s", "--max-inflight", "4")
    ran = await run("bench", "swift/m", "--world", world, *burst, *QUICK, "--out", str(out))
    assert ran.code == 0, ran.err
    (cell,) = RunFolder(out).run().cells
    assert (cell.requests, cell.offered_share) == (4, 4 / 12)
    assert "only 33% of the asked load was offered" in cell.steady_note


async def test_a_rate_without_a_unit_or_a_shape_is_per_second_at_random(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("swift", "--world", world, "--rate", "50", *QUICK, "--out", str(out))
    ran = await run("bench", *words)
    assert ran.code == 0, ran.err
    assert {cell.load for cell in RunFolder(out).run().cells} == {"50/s poisson"}


async def test_a_key_that_is_refused_is_exit_5(run: Run, serving: Serve) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()

    async with serving(script) as port:
        ran = await run("bench", f"x=http://127.0.0.1:{port}/v1#m", "--key-env", "K", K="canary-77")
    assert ran.code == 5
    assert "401" in ran.sentence
    assert "canary-77" not in ran.err + ran.out


async def test_several_processes_make_one_run(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("bench", "swift/m", "--world", world, "--concurrency", "4", *QUICK)
    ran = await run(*words, "--requests", "40", "--processes", "2", "--out", str(out))
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    attempts, recordings = folder.attempts(), folder.recordings()
    assert len({attempt.id for attempt in attempts}) == len(attempts)
    counted = [attempt for attempt in attempts if not recordings[attempt.id].warmup]
    assert len(counted) == 40
    assert {attempt.outcome for attempt in counted} == {"ok"}


async def test_what_is_asked_for_is_counted_and_no_more_is_sent_than_announced(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    load = ("--concurrency", "1,4", "--out", str(out))
    ran = await run("bench", "swift/m", "slow/m", "--world", world, *QUICK, *load)
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    cells, sent = folder.run().cells, len(folder.attempts())
    assert {cell.requests for cell in cells} == {12}
    assert len(cells) == 6  # two targets and the second half of the A/A pair, at two loads
    probes = 2 * 3  # of each target; the second half has the first one's
    said = re.search(r"At most (\d+) requests", ran.err)
    assert said is not None
    assert sent + probes <= int(said[1]) <= 2 * (sent + probes)


async def test_a_sweep_ends_where_nothing_is_gained(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ran = await run("bench", "narrow/m", "--world", world, *QUICK, "--sweep", "--out", str(out))
    assert ran.code == 0, ran.err
    record = RunFolder(out).run()
    tried = [cell.concurrency for cell in record.cells]
    assert tried == [1, 2, 4, 8, 16, 32, 64][: len(tried)]
    assert len(tried) >= 2  # where it ends depends on how busy this machine is
    assert any(note.startswith("Sweep: ") for note in record.notes)


async def test_the_highest_rate_is_searched(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    limit = ("--find-rate", "--rate", "100/s", "--fail-if", "error_rate>50%", "--requests", "60")
    ran = await run("bench", "swift/m", "--world", world, *QUICK, *limit, "--out", str(out))
    assert ran.code == 0, ran.err
    record = RunFolder(out).run()
    # Where it ends depends on how busy this machine is: at a late client the search stops.
    assert record.cells[0].rate == 100
    found = [note for note in record.notes if note.startswith("Highest rate without")]
    assert len(found) == 1


async def test_a_rate_that_is_never_kept_is_not_found(run: Run, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    limit = ("--find-rate", "--rate", "900/s", "--fail-if", "error_rate>50%", "--duration", "20ms")
    ran = await run("bench", "broken/m", "--world", world, *QUICK[:6], *limit, "--out", str(out))
    assert ran.code == 1, ran.err  # it never succeeds, and says so
    notes = RunFolder(out).run().notes
    assert any("error_rate>50%: none was found" in note for note in notes)


@pytest.mark.parametrize("tools", [(), ("--tools",)])
async def test_conversations_are_attempts_too(
    run: Run, world: str, tmp_path: Path, tools: tuple[str, ...]
) -> None:
    out = tmp_path / "run"
    words = ("bench", "swift/m", "--world", world, "--concurrency", "2", *QUICK)
    ran = await run(*words, "--turns", "3", *tools, "--out", str(out))
    assert ran.code == 0, ran.err
    attempts = RunFolder(out).attempts()
    assert len(attempts) == 12
    assert {attempt.outcome for attempt in attempts} == {"ok"}
    sizes = sorted(attempt.tokens_in or 0 for attempt in attempts)
    assert sizes[0] < sizes[-1]  # a later turn carries the history
    assert any("of 3 turns" in note for note in RunFolder(out).run().notes)


async def test_an_endpoint_that_goes_away_is_exit_4_and_what_it_gave_is_kept(
    run: Run, tmp_path: Path
) -> None:
    served = 0
    body = (
        b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":20,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
    )
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await reader.readuntil(b"\r\n\r\n")
        served += 1
        if served == 15:
            server.close()
        writer.write(head + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    out = tmp_path / "run"
    words = ("--concurrency", "1", "--requests", "80", "--prompt-tokens", "64", "--out", str(out))
    ran = await run("bench", f"gone={url}#m", *words)
    assert ran.code == 4, ran.err
    assert "was given up" in ran.sentence
    outcomes = [str(attempt.outcome) for attempt in RunFolder(out).attempts()]
    assert outcomes.count("ok") >= 8
    assert 0 < outcomes.count("reset") < 40


async def test_a_key_that_is_taken_away_halfway_is_exit_5(run: Run, tmp_path: Path) -> None:
    served = 0
    good = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":20,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
    )
    refused = b"HTTP/1.1 401 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        served += 1
        writer.write(good if served <= 15 else refused)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    out = tmp_path / "run"
    words = ("--concurrency", "1", "--requests", "80", "--prompt-tokens", "64", "--out", str(out))
    ran = await run("bench", f"gone={url}#m", *words)
    server.close()
    assert ran.code == 5, ran.err
    assert "was given up" in ran.sentence
    assert "401" in ran.sentence
    outcomes = [str(attempt.outcome) for attempt in RunFolder(out).attempts()]
    assert outcomes.count("ok") >= 8
    assert 0 < outcomes.count("http_error") < 40


async def test_a_full_disk_is_said_and_what_is_there_stays(
    world: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    out = tmp_path / "run"
    words = ("bench", "swift/m", "--world", world, "--concurrency", "1", *QUICK, "--out", str(out))
    command = f'ulimit -f 16; exec "{sys.executable}" -m lightgate "$@"'
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, "bash", *words, "--requests", "60",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    async with asyncio.timeout(100):
        _, said = await process.communicate()
    assert process.returncode == 1, said.decode()
    assert "cannot be written" in said.decode()
    assert "Traceback" not in said.decode()
    assert 0 < len(RunFolder(out).attempts()) < 60


async def test_no_load_finds_the_prompts_of_another_in_the_providers_cache(
    run: Run, world: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("bench", "keeping/m", "--world", world, "--concurrency", "1,2,3", *QUICK)
    ran = await run(*words, "--out", str(out))
    assert ran.code == 0, ran.err
    folder = RunFolder(out)
    assert {cell.load for cell in folder.run().cells} == {"c=1", "c=2", "c=3"}
    assert not any(attempt.tokens_cached for attempt in folder.attempts())
