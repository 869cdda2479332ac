from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest

from full_disk import no_room
from lightgate.gateway.process.lock import LAST, ROOM_BYTES, read_state
from lightgate.gateway.served.snapshot import read_snapshot
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from cli.conftest import Ran, Run
    from lightgate.gateway.process.lock import ChildState, SupervisorState

    Start = Callable[..., Awaitable[asyncio.subprocess.Process]]
    Serve = Callable[..., AbstractAsyncContextManager["Up"]]

CHAT = "/v1/chat/completions"
CANARY = "sk-CANARY-do-not-tell-0123456789"


class Up:
    """A running `lightgate up` whose log is JSON."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path) -> None:
        self.process = process
        self.data = data
        self.lines: list[dict[str, Any]] = []
        self.raw = b""

    @property
    def state(self) -> SupervisorState:
        found = read_state(self.data)
        assert found is not None
        return found

    @property
    def children(self) -> dict[str, ChildState]:
        return {child.name: child for child in self.state.children}

    def pid(self, name: str) -> int:
        pid = self.children[name].pid
        assert pid is not None
        return pid

    async def said(self, part: str) -> dict[str, Any]:
        """The first line of the log from here on that says this."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.raw += line
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))
                if part in self.lines[-1]["message"]:
                    return self.lines[-1]
        raise AssertionError(f"{part!r} was never said: {self.raw.decode()}")

    async def end(self) -> int:
        """Wait for its end and keep what it said."""
        _, rest = await self.process.communicate()
        self.raw += rest
        assert self.process.returncode is not None
        return self.process.returncode

    async def get(self, path: str, *, console: bool = False) -> tuple[int, bytes]:
        state = self.state
        return await http(state.console_port if console else state.port, "GET", path)

    async def aliases(self) -> set[str]:
        status, body = await self.get("/v1/models")
        assert status == 200
        rows = json.loads(body)["data"]
        return {row["id"] for row in rows if row["owned_by"] == "lightgate"}


async def http(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    begun: asyncio.Event | None = None,
    *,
    header: str = "",
) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{header}"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read(1)
        if begun is not None:
            begun.set()
        answer += await reader.read()
    finally:
        writer.close()
    first, _, content = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), content


def ask(model: str = "fast", tokens: int = 5) -> bytes:
    said = [{"role": "user", "content": "hello"}]
    asked = {"model": model, "stream": True, "max_tokens": tokens, "messages": said}
    return json.dumps(asked).encode()


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Path]:
    """A configuration whose one provider is a simulator in this process."""
    sim = SimServer(load("selftest"), seed=1)
    port = await sim.start("127.0.0.1", 0)
    path = tmp_path / "lightgate.toml"
    path.write_text(
        f"""
        [providers.lab]
        base_url = "http://127.0.0.1:{port}/lab/v1"
        api_key = "none"
        [models.fast]
        targets = ["lab/s1"]
        policy = "ordered"
        """
    )
    yield path
    await sim.close()


@pytest.fixture
def serve(start: Start, tmp_path: Path) -> Serve:
    """`lightgate up` on free ports; it is gone afterwards."""

    @asynccontextmanager
    async def serving(*args: str, **more: str) -> AsyncIterator[Up]:
        where = ("--port", "0", "--console-port", "0", "--data", "data", "--log", "json")
        process = await start("up", *where, *args, **more)
        up = Up(process, tmp_path / "data")
        try:
            async with asyncio.timeout(200):
                await up.said("Serving")
                yield up
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    return serving


def change(path: Path, how: Callable[[str], str]) -> str:
    """Write a file anew; what was in it."""
    old = path.read_text()
    path.write_text(how(old))
    return old


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


# What it serves


async def test_it_serves_drains_and_keeps_the_books(serve: Serve, config: Path) -> None:
    async with serve("--no-demo", "--workers", "2") as up:
        assert await up.aliases() == {"fast"}
        assert (await up.get("/health/ready"))[0] == 200
        status, body = await http(up.state.port, "POST", "/v1/chat/completions", ask())
        assert (status, body.count(b"[DONE]")) == (200, 1)
        assert set(up.children) == {"batches", "console", "worker-0", "worker-1"}
        # A stream that is under way when the signal comes is finished.
        begun = asyncio.Event()
        slow = asyncio.ensure_future(
            http(up.state.port, "POST", "/v1/chat/completions", ask(tokens=40), begun=begun)
        )
        children = [child.pid or 0 for child in up.state.children]
        await begun.wait()
        up.process.send_signal(signal.SIGTERM)
        status, body = await slow
        assert (status, body.count(b"[DONE]")) == (200, 1)
        assert await up.end() == 0
    assert gone(children)
    assert not (up.data / "supervisor.json").exists()
    assert list((up.data / "journal").iterdir()) == []
    with sqlite3.connect(up.data / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT outcome FROM exchanges").fetchall()
    assert rows == [("ok",), ("ok",)]
    assert b"Traceback" not in up.raw


async def test_with_nothing_at_all_it_is_alive(serve: Serve) -> None:
    async with serve() as up:
        assert {"console", "simulator", "worker-0"} <= set(up.children)
        models = await up.aliases()
        assert {"demo", "mixtral"} <= models
        while True:  # the page shows traffic that nobody sent
            status, body = await up.get("/api/board", console=True)
            assert status == 200
            if json.loads(body)["totals"]["n"] >= 3:
                break
            await asyncio.sleep(0.05)
        targets = {row["target"] for row in json.loads(body)["rows"]}
        assert all(target.startswith("sim-") for target in targets)
        assert "sim-groq" in (await up.get("/metrics", console=True))[1].decode()
        while b" is the fastest: " not in (await up.get("/report", console=True))[1]:
            await asyncio.sleep(0.2)  # until a model has had its six first answers
        assert b"First figures: no model has 500" in (await up.get("/report", console=True))[1]
        up.process.send_signal(signal.SIGINT)
        assert await up.end() == 0
    with sqlite3.connect(up.data / "ledger.sqlite") as ledger:
        tags = ledger.execute(
            "SELECT DISTINCT tags FROM exchanges WHERE policy != 'probe'"
        ).fetchall()
    assert ["demo" in (tag or "") for (tag,) in tags] == [True]


async def test_the_demo_goes_on_where_clients_need_a_key(serve: Serve, run: Run) -> None:
    made = await run("keys", "create", "--name", "me", "--data", "data")
    assert made.code == 0
    async with serve() as up:
        assert up.lines[-1]["keys"] == "a key is needed"
        assert (await up.get("/v1/models"))[0] == 401
        while json.loads((await up.get("/api/board", console=True))[1])["totals"]["n"] < 3:
            await asyncio.sleep(0.05)
        up.process.send_signal(signal.SIGINT)
        assert await up.end() == 0


async def test_a_key_in_the_environment_is_served_and_never_told(serve: Serve) -> None:
    async with serve(OPENAI_API_KEY=CANARY) as up:
        assert set(up.children) == {"batches", "console", "worker-0"}
        assert up.lines[-1]["providers"] == ["openai"]
        everybody = [psutil.Process(up.process.pid), *psutil.Process(up.process.pid).children()]
        assert not any(CANARY in word for one in everybody for word in one.cmdline())
        for path in ("/", "/metrics", "/api/board", "/requests", "/health/ready"):
            assert CANARY.encode() not in (await up.get(path, console=True))[1]
        up.process.send_signal(signal.SIGTERM)
        assert await up.end() == 0
    files = [path for path in up.data.rglob("*") if path.is_file()]
    assert files
    assert not any(CANARY.encode() in path.read_bytes() for path in files)
    assert CANARY.encode() not in up.raw


async def test_the_banner_is_for_people(start: Start, tmp_path: Path) -> None:
    process = await start("up", "--no-demo", "--port", "0", "--console-port", "0", "--log", "text")
    assert process.stderr is not None
    async with asyncio.timeout(100):
        said = ""
        while "Ctrl-C" not in said:
            said += (await process.stderr.readline()).decode()
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert re.search(
        r"Gateway +http://127\.0\.0\.1:\d+/v1 +\(1 worker; no key: loopback only\)", said
    )
    assert re.search(r"Console +http://127\.0\.0\.1:\d+/", said)
    assert "/enter#" not in said  # a pipe may be kept as a log
    assert "no provider key is in the environment" in said
    assert process.returncode == 0


# Who dies, and who comes back


async def test_a_killed_worker_comes_back(serve: Serve, config: Path) -> None:
    async with serve("--no-demo") as up:
        first = up.pid("worker-0")
        os.kill(first, signal.SIGKILL)
        told = await up.said("worker-0 ended by itself")
        assert (told["code"], told["level"]) == (-signal.SIGKILL, "error")
        while not up.children["worker-0"].ready or up.children["worker-0"].pid == first:
            await asyncio.sleep(0.01)
        assert up.children["worker-0"].restarts == 1
        assert await up.aliases() == {"fast"}


async def test_a_killed_console_comes_back(serve: Serve, config: Path) -> None:
    async with serve("--no-demo") as up:
        first = up.pid("console")
        os.kill(first, signal.SIGKILL)
        await up.said("console ended by itself")
        while not up.children["console"].ready or up.children["console"].pid == first:
            await asyncio.sleep(0.01)
        assert (await up.get("/health/live", console=True))[0] == 200


async def test_orders_that_reach_every_process_end_none(serve: Serve) -> None:
    """`pkill -HUP -f lightgate` ended the console, the simulator, and so the whole demo."""
    async with serve() as up:
        while len(up.children) < 5 or not all(child.ready for child in up.children.values()):
            await asyncio.sleep(0.05)
        before = {name: child.pid for name, child in up.children.items()}
        assert set(before) == {"worker-0", "console", "batches", "simulator", "traffic"}
        for number in (signal.SIGHUP, signal.SIGUSR2):
            for pid in before.values():
                assert pid is not None
                os.kill(pid, number)
        assert (await up.get("/health/live"))[0] == 200
        assert (await up.get("/health/live", console=True))[0] == 200
        os.kill(up.process.pid, signal.SIGHUP)
        await up.said("The configuration was taken over")
        assert {name: child.pid for name, child in up.children.items()} == before


async def test_a_killed_parent_leaves_no_child(serve: Serve, config: Path) -> None:
    async with serve("--demo", "--workers", "2") as up:
        children = [child.pid or 0 for child in up.state.children]
        assert len(children) >= 4
        up.process.kill()
        await up.process.communicate()  # their stderr is the parent's: its end is the end of all
        while not gone(children):
            await asyncio.sleep(0.01)
    # The folder is free again, and so is the port.
    async with serve("--no-demo") as up:
        assert await up.aliases() == {"fast"}


async def kept(port: int, rounds: int, stop: asyncio.Event) -> tuple[int, int]:
    """Ask on kept connections until told to stop; the answers, and the connections that it took."""
    done = opened = 0
    body = ask(tokens=2)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n"
    while not stop.is_set():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened += 1
        for _ in range(rounds):
            writer.write(head % len(body) + body)
            answer = await reader.readuntil(b"0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            assert b"[DONE]" in answer
            done += 1
            if b"connection: close" in answer.lower() or stop.is_set():
                break
        writer.close()
    return done, opened


def inode_of(name: str, pid: int) -> int:
    """The inode of a memory that a process has mapped; there is exactly one of that name."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    (inode,) = {int(line.split()[4]) for line in maps if name in line}
    return inode


@pytest.mark.parametrize(("workers", "upgrade"), [("1", ()), ("2", ("--upgrade",))])
async def test_a_reload_under_load_fails_no_request(
    serve: Serve, config: Path, run: Run, workers: str, upgrade: tuple[str, ...]
) -> None:
    async with serve("--no-demo", "--workers", workers, "--drain", "5s") as up:
        names = [f"worker-{n}" for n in range(int(workers))]
        before, stop = {name: up.pid(name) for name in names}, asyncio.Event()
        memory = inode_of("memfd:lightgate-flying", before["worker-0"])
        load = [
            asyncio.ensure_future(kept(up.state.port, rounds, stop))
            for rounds in (1, 1, 10**6, 10**6)
        ]
        ran = await run("reload", "--data", str(up.data), "--json", *upgrade)
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["workers"] == names
        if upgrade:
            await up.said("goes on with 4 processes")
        after = {name: up.pid(name) for name in names}
        assert not set(before.values()) & set(after.values())
        memories = {inode_of("memfd:lightgate-flying", pid) for pid in after.values()}
        assert len(memories) == 1  # all workers count in one, after an upgrade too
        assert memories == {memory}
        stop.set()
        seen = await asyncio.gather(*load)
        assert all(done > 0 for done, _ in seen)
        assert sum(opened for _, opened in seen[2:]) > 2  # kept ones were told to come anew


async def test_a_stopped_worker_is_replaced_and_what_waited_is_served(
    serve: Serve, config: Path
) -> None:
    async with serve("--no-demo", "--workers", "2") as up:
        stopped = up.pid("worker-1")
        os.kill(stopped, signal.SIGSTOP)
        waiting = [
            asyncio.ensure_future(http(up.state.port, "POST", "/v1/chat/completions", ask()))
            for _ in range(40)
        ]
        told = await up.said("was silent for 5 s")
        assert told["child"] == "worker-1"
        served = await asyncio.gather(*waiting, return_exceptions=True)
        # What the stopped process had accepted dies with it; what waited in its queue does not.
        assert [one for one in served if isinstance(one, tuple)] == [
            one for one in served if isinstance(one, tuple) and one[0] == 200
        ]
        assert sum(isinstance(one, tuple) for one in served) >= 39
        while not up.children["worker-1"].ready:
            await asyncio.sleep(0.02)
        assert (await up.get("/health/ready"))[0] == 200


# Reloading


async def test_a_broken_file_changes_nothing_and_a_good_one_is_taken_over(
    serve: Serve, config: Path
) -> None:
    async with serve("--no-demo") as up:
        good = change(config, lambda old: old + "\nstrange = 1\n[models.other]\ntargets = [1]\n")
        up.process.send_signal(signal.SIGHUP)
        told = await up.said("The old configuration stays.")
        assert len(told["problems"]) >= 2
        assert any("strange" in problem for problem in told["problems"])
        assert await up.aliases() == {"fast"}
        change(config, lambda _: good.replace("[models.fast]", "[models.faster]"))
        up.process.send_signal(signal.SIGHUP)
        await up.said("The configuration was taken over")
        while await up.aliases() != {"faster"}:
            await asyncio.sleep(0.02)


async def test_an_emptied_file_is_taken_over_only_by_force(
    serve: Serve, config: Path, run: Run
) -> None:
    async with serve("--no-demo") as up:
        change(config, lambda _: "")
        up.process.send_signal(signal.SIGHUP)
        told = await up.said("has no model, the one in force has 1")
        assert "reload --force" in told["hint"]
        assert await up.aliases() == {"fast"}
        ran = await run("reload", "--data", str(up.data))
        assert ran.code == 1
        assert "was not taken over" in ran.err
        assert await up.aliases() == {"fast"}
        ran = await run("reload", "--data", str(up.data), "--force")
        assert ran.code == 0, ran.err
        while await up.aliases() != set():
            await asyncio.sleep(0.02)


async def test_readiness_names_the_worker_that_does_not_serve(serve: Serve, config: Path) -> None:
    async with serve("--no-demo", "--workers", "2") as up:
        assert await up.get("/health/ready") == (200, b'{"status":"ready"}')
        state = up.state
        missing = [msgspec.structs.replace(c, ready=c.name != "worker-1") for c in state.children]
        fresh = msgspec.structs.replace(state, children=tuple(missing))
        (up.data / "supervisor.json").write_bytes(msgspec.json.encode(fresh))
        status, body = await up.get("/health/ready")
        assert (status, json.loads(body)["not_ready"]) == (503, ["worker-1"])


async def test_a_reload_beside_another_waits_for_a_replacement_of_its_own(
    serve: Serve, config: Path, run: Run
) -> None:
    """It came back with the end of the other, and what had changed since was not taken over."""
    async with serve("--no-demo") as up:
        os.kill(up.process.pid, signal.SIGUSR2)
        while not up.state.replacing:
            await asyncio.sleep(0.005)
        change(config, lambda text: text + '[models.late]\ntargets = ["lab/s1"]\n')
        ran = await run("reload", "--data", str(up.data), "--json")
        assert ran.code == 0, ran.err
        assert (up.state.reloads, up.state.replacing) == (2, False)
        assert json.loads(ran.out)["workers"] == ["worker-0"]
        assert "late" in await up.aliases()


async def test_a_reload_without_a_gateway(run: Run, tmp_path: Path) -> None:
    ran = await run("reload", "--data", str(tmp_path / "none"))
    assert ran.code == 1
    assert "No `lightgate up` runs on" in ran.err


async def test_a_changed_file_is_noticed(serve: Serve, config: Path) -> None:
    async with serve("--no-demo") as up:
        more = '[models.more]\ntargets = ["lab/s1"]\npolicy = "ordered"\n'
        change(config, lambda old: f"{old}\n[gateway]\nworkers = 3\n{more}")
        told = await up.said("workers changes with the next start")
        assert told["level"] == "warning"
        assert (await up.said("taken over"))["why"] == "the file has changed"
        while await up.aliases() != {"fast", "more"}:
            await asyncio.sleep(0.02)


async def test_stores_that_the_file_names_now_are_used_from_the_next_start_on(
    serve: Serve, config: Path
) -> None:
    """Nothing is asked of them before: keys would be of one ledger, and rows go to the other."""
    async with serve("--no-demo") as up:
        stores = (
            '[ledger]\nurl = "postgresql://u@127.0.0.1:1/x"\nretention = "9d"\n'
            '[shared]\nurl = "redis://127.0.0.1:1"\n'
        )
        more = '[models.more]\ntargets = ["lab/s1"]\npolicy = "ordered"\n'
        change(config, lambda old: f"{old}\n{stores}{more}")
        for name in ("[shared] url", "[ledger] url", "[ledger] retention"):
            assert (await up.said(f"{name} changes with the next start"))["level"] == "warning"
        while await up.aliases() != {"fast", "more"}:
            await asyncio.sleep(0.02)


# What is refused


async def test_it_starts_on_a_full_disk_where_it_ran_before(
    serve: Serve, run: Run, config: Path, tmp_path: Path
) -> None:
    """Without room requests are refused by name, and nothing is lost; with room all goes on."""
    change(config, lambda old: old + '[prices."lab/s1"]\ninput = 1\noutput = 2\n')
    made = await run("keys", "create", "--name", "a", "--data", "data", "--budget", "1", "--json")
    header = f"authorization: Bearer {json.loads(made.out)['key']}\r\n"

    async def asked() -> tuple[int, bytes]:
        return await http(up.state.port, "POST", "/v1/chat/completions", ask(), header=header)

    data = tmp_path / "data"
    SpendCounters.open(data / "spend", 0).close()
    (data / LAST).write_bytes(bytes(ROOM_BYTES))
    with no_room(ROOM_BYTES):  # a process has the limit of the one that starts it
        serving = serve("--no-demo")
        up = await serving.__aenter__()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(serving)
        status, body = await asked()
        assert (status, json.loads(body)["error"]["code"]) == (503, "journal")
        assert await up.get("/health/ready") == (503, b'{"status":"disk full"}')
        assert (await up.get("/api/board", console=True))[0] == 503
        own = psutil.Process(up.process.pid)
        for one in (own, *own.children(recursive=True)):
            one.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
        assert (await asked())[0] == 200
        while (await up.get("/api/board", console=True))[0] != 200:
            await asyncio.sleep(0.05)
        up.process.send_signal(signal.SIGTERM)
        assert await up.end() == 0
    assert b"Traceback" not in up.raw
    with sqlite3.connect(up.data / "ledger.sqlite") as ledger:
        assert ledger.execute("SELECT outcome FROM exchanges").fetchall() == [("ok",)]


async def test_two_on_one_folder(serve: Serve, run: Run, config: Path) -> None:
    async with serve("--no-demo") as up:
        done: Ran = await run("up", "--port", "0", "--console-port", "0", "--data", "data")
        assert done.code == 1
        assert f"(pid {up.process.pid}) already runs on data" in done.sentence


@pytest.mark.parametrize("option", ["--port", "--console-port"])
async def test_a_port_in_use(run: Run, option: str) -> None:
    other = {"--port": "--console-port", "--console-port": "--port"}[option]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done: Ran = await run("up", option, str(port), other, "0")
    assert (done.code, done.out) == (1, "")
    assert f"Port {port} on 127.0.0.1 is in use by another program." in done.sentence
    assert option in done.err


async def test_a_gateway_that_others_reach_needs_a_key(run: Run, serve: Serve) -> None:
    done: Ran = await run("up", "--host", "0.0.0.0", "--port", "0", "--console-port", "0")
    assert done.code == 3
    assert "does not listen on 0.0.0.0 without a key" in done.sentence
    assert "lightgate keys create" in done.err
    made: Ran = await run("keys", "create", "--name", "me", "--data", "data")
    assert made.code == 0
    async with serve("--no-demo", "--host", "0.0.0.0") as up:
        assert up.lines[-1]["keys"] == "a key is needed"
        assert (await up.get("/v1/models"))[0] == 401


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--world", "nowhere"], 2, "There is no world 'nowhere'."),
        (["--port", "65536"], 2, "65536"),
        (["--workers", "0"], 2, "--workers"),
        (["--drain", "soon"], 2, "--drain 'soon' is no duration"),
        (["--log", "xml"], 2, "--log"),
        (["--config", "none.toml"], 3, "There is no configuration file none.toml."),
    ],
)
async def test_wrong_words(run: Run, args: list[str], code: int, said: str) -> None:
    done: Ran = await run("up", *args)
    assert (done.code, done.out) == (code, "")
    assert said in done.sentence


async def test_every_problem_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lightgate.toml").write_text("[gateway]\nport = 'x'\ncolour = 1\n")
    done: Ran = await run("up")
    assert done.code == 3
    assert "lightgate.toml:2: gateway.port" in done.err
    assert "lightgate.toml:3: gateway.colour" in done.err


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


async def test_only_workers_get_the_keys_of_providers(serve: Serve, config: Path) -> None:
    async with serve("--no-demo", GROQ_API_KEY=CANARY) as up:
        told = {
            name: CANARY in psutil.Process(up.pid(name)).environ().values()
            for name in ("worker-0", "console", "batches")
        }
    assert told == {"worker-0": True, "console": False, "batches": False}


async def test_only_the_console_gets_its_secret(serve: Serve, config: Path) -> None:
    async with serve("--no-demo", LIGHTGATE_CONSOLE_SECRET=CANARY) as up:
        told = {
            name: CANARY in psutil.Process(up.pid(name)).environ().values()
            for name in ("worker-0", "console", "batches")
        }
    assert told == {"worker-0": False, "console": True, "batches": False}


async def test_the_data_folder_is_closed_to_others(
    serve: Serve, config: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    async with serve("--no-demo") as up:
        open_ones = [p.name for p in (up.data, *up.data.rglob("*")) if p.stat().st_mode & 0o077]
    assert open_ones == []


def exchanges(data: Path) -> int:
    with contextlib.closing(
        sqlite3.connect(f"file:{data}/ledger.sqlite?mode=ro", uri=True)
    ) as base:
        found: int = base.execute("SELECT count(*) FROM exchanges").fetchone()[0]
        return found


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_ledger_that_goes_away_is_made_anew_and_refilled(
    serve: Serve, config: Path, run: Run, how: str
) -> None:
    made = await run("keys", "create", "--name", "me", "--data", "data", "--json")
    key = f"authorization: Bearer {json.loads(made.out)['key']}\r\n"

    async def some(count: int) -> None:
        for _ in range(count):
            got = await http(up.state.port, "POST", "/v1/chat/completions", ask(), header=key)
            assert got[0] == 200

    async with serve("--no-demo") as up:
        await some(6)
        while exchanges(up.data) < 6:
            await asyncio.sleep(0.05)
        ledger = up.data / "ledger.sqlite"
        if how == "deleted":
            ledger.unlink()
        else:
            other = up.data / "other.sqlite"
            sqlite3.connect(other).close()
            other.write_bytes(b"")
            other.replace(ledger)
        await some(6)
        told = await up.said("ledger's file was deleted or replaced")
        assert told["level"] == "error"
        await some(6)
        up.process.terminate()
        assert await up.end() == 0
        assert exchanges(up.data) == 18
    listed = await run("keys", "list", "--data", "data", "--json")
    assert [row["name"] for row in json.loads(listed.out)] == ["me"]


def answered(data: Path) -> tuple[list[str], int]:
    """The request ids in the ledger, each as often as it is there, and what they cost together."""
    path = f"file:{data}/ledger.sqlite?mode=ro"
    rows: list[tuple[str, int]] = []
    with contextlib.suppress(sqlite3.Error):  # it is being made
        base = sqlite3.connect(path, uri=True)
        with contextlib.closing(base):
            rows = base.execute("SELECT request_id, cost_nano FROM exchange_notes").fetchall()
    return sorted(row[0] for row in rows), sum(row[1] for row in rows)


def spent_nano(data: Path) -> int:
    """What the counters say that the only key has spent."""
    (record,) = read_snapshot(data).keys
    with SpendCounters.open(data / "spend", 99, [record]) as spend:
        standing = spend.standing(record.id)
    assert standing is not None
    return standing.spent_nano


async def test_a_data_folder_that_goes_away_loses_no_answer_no_key_and_no_budget(
    serve: Serve, run: Run, config: Path
) -> None:
    change(config, lambda old: old + '[prices."lab/s1"]\ninput = 1\noutput = 20000\n')
    made = await run("keys", "create", "--name", "a", "--data", "data", "--budget", "9", "--json")
    bearer = f"authorization: Bearer {json.loads(made.out)['key']}\r\n"
    asked: list[str] = []

    async def some(count: int) -> None:
        for _ in range(count):
            asked.append(f"one-{len(asked):03d}")
            header = f"{bearer}x-request-id: {asked[-1]}\r\n"
            assert (await http(port, "POST", CHAT, ask(), header=header))[0] == 200

    async def shipped() -> None:
        while answered(up.data)[0] != asked:
            await asyncio.sleep(0.05)

    async with serve("--no-demo") as up:
        port, worker = up.state.port, up.pid("worker-0")
        await some(2)
        await shipped()  # the journal is still there: only one that was removed cannot come back
        shutil.rmtree(up.data)
        second = await run("up", "--port", "0", "--console-port", "0", "--data", "data")
        assert (second.code, f"(pid {up.process.pid})" in second.sentence) == (1, True)
        await some(2)
        await up.said("with all of its notes")
        await shipped()
        while read_state(up.data) is None:
            await asyncio.sleep(0.02)
        await some(2)
        os.kill(worker, signal.SIGKILL)
        while up.children["worker-0"].pid in {None, worker} or not up.children["worker-0"].ready:
            await asyncio.sleep(0.02)
        assert (await http(port, "POST", CHAT, ask()))[0] == 401
        await some(2)
        assert (await run("reload", "--data", "data")).code == 0
        await some(2)
        await shipped()
        open_ones = [p.name for p in (up.data, *up.data.rglob("*")) if p.stat().st_mode & 0o077]
        up.process.terminate()
        assert await up.end() == 0
    assert (open_ones, answered(up.data)) == ([], (asked, spent_nano(up.data)))
    assert b"Traceback" not in up.raw
    listed = await run("keys", "list", "--data", "data", "--json")
    assert [row["name"] for row in json.loads(listed.out)] == ["a"]


async def test_counters_and_journals_that_are_cut_off_end_no_worker_and_give_no_budget_twice(
    serve: Serve, run: Run, config: Path
) -> None:
    change(config, lambda old: old + '[prices."lab/s1"]\ninput = 1\noutput = 20000\n')
    made = await run("keys", "create", "--name", "a", "--data", "data", "--budget", "1", "--json")
    bearer = f"authorization: Bearer {json.loads(made.out)['key']}\r\n"
    asked: list[str] = []

    async def one() -> int:
        name = f"one-{len(asked):03d}"
        header = f"{bearer}x-request-id: {name}\r\n"
        status = (await http(port, "POST", CHAT, ask(), header=header))[0]
        if status == 200:
            asked.append(name)
        return int(status)

    async with serve("--no-demo") as up:
        port, before = up.state.port, {name: one.pid for name, one in up.children.items()}
        while await one() == 200 and len(asked) < 2:
            pass
        os.truncate(up.data / "spend", 0)
        for journal in (up.data / "journal").glob("*.lgj"):
            os.truncate(journal, 0)
        while (status := await one()) != 200:
            assert status == 503  # until the ledger has said what was spent
            await asyncio.sleep(0.05)
        while await one() == 200:
            pass
        assert {name: one.pid for name, one in up.children.items()} == before
        up.process.terminate()
        assert await up.end() == 0
    assert answered(up.data) == (asked, spent_nano(up.data))
    assert spent_nano(up.data) <= 1_000_000_000
    assert b"Traceback" not in up.raw


async def test_ctrl_c_while_a_provider_s_list_is_waited_for_is_no_greeting(start: Start) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    where = ("--port", "0", "--console-port", "0", "--data", "data", "--log", "json")
    address = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    async with server, asyncio.timeout(200):
        process = await start("up", *where, **address)
        await asked.wait()
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    assert process.returncode == 0
    messages = [json.loads(line)["message"] for line in said.splitlines()]
    assert any(one.startswith("Stopping") for one in messages)
    assert "Serving" not in messages
