from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cli.conftest import Ran, Run

    Start = Callable[..., Awaitable[asyncio.subprocess.Process]]

TARGETS = {"generalcompute", "groq", "fireworks", "together", "replicate"}


def port_of(banner: str) -> int:
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", banner)
    assert found is not None, banner
    return int(found[1])


def is_gone(banner: str) -> bool:
    """Whether the simulator of this banner no longer listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port_of(banner))) != 0


async def was_visited(banner: str) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(banner))
    writer.write(b"GET /sim/log?limit=1 HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return b"request_id" in answer


async def test_a_moment_of_it(run: Run) -> None:
    done: Ran = await run("up", "--for", "1.5", "--json")
    assert done.code == 0
    rows = json.loads(done.out)
    assert {row["target"].partition("/")[0] for row in rows} == TARGETS
    for row in rows:
        assert row["failures"] == 0
        assert row["ttft_p95_ms"] is None  # nobody has 72 samples after a moment
        assert row["n"] >= 0
    assert sum(row["n"] for row in rows) > 0
    assert is_gone(done.err)


async def test_nothing_goes_to_stdout_without_json(run: Run) -> None:
    done: Ran = await run("up", "--for", "0.3")
    assert (done.code, done.out) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_cleanly(start: Start, number: signal.Signals) -> None:
    process = await start("up", "--json")
    assert process.stderr is not None
    async with asyncio.timeout(60):
        banner = (await process.stderr.readline()).decode()
        # The banner comes before the loop has its handlers; the first request comes after.
        while not await was_visited(banner):
            await asyncio.sleep(0.02)
        process.send_signal(number)
        out, err = await process.communicate()
    assert process.returncode == 0
    assert {row["target"].partition("/")[0] for row in json.loads(out)} == TARGETS
    assert b"Traceback" not in err
    assert is_gone(banner)


async def test_a_killed_parent_leaves_no_child(start: Start) -> None:
    process = await start("up")
    assert process.stderr is not None
    async with asyncio.timeout(60):
        banner = (await process.stderr.readline()).decode()
        process.kill()
        # The simulator has the same stderr: its end is the end of them both.
        await process.communicate()
    assert is_gone(banner)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--world", "nowhere"], "There is no world 'nowhere'."),
        (["--port", "65536"], "65536"),
        (["--visitors", "0"], "--visitors"),
        (["--for", "0"], "--for 0"),
        (["--for", "nan"], "--for nan"),
        (["--for", "soon"], "--for"),
        (["--seed", "x"], "--seed"),
    ],
)
async def test_wrong_words(run: Run, args: list[str], said: str) -> None:
    done: Ran = await run("up", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[providers\n", "is not TOML"),
        ('name = "x"\n', "is not valid"),
        ('name = "x"\ntitle = "x"\nsource = "x"\n[providers.a.models.m]\nfoo = 1\n', "foo"),
        ('extends = "nowhere"\n', "nowhere"),
    ],
)
async def test_a_world_that_is_wrong(run: Run, tmp_path: Path, text: str, said: str) -> None:
    world = tmp_path / "w.toml"
    world.write_text(text)
    for verb in ("up", "sim"):
        done: Ran = await run(verb, "--world", str(world))
        assert (done.code, done.out) == (3, "")
        assert said in done.sentence
