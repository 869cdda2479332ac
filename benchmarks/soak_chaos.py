"""What soak.py does to a running gateway: kills, stops, a full disk, reloads, restarts.

An event has a window: from its beginning until all is well again. The death of a worker has a
window of its own, a look at the process table long. What fails within a window that explains it is
a consequence; what fails outside of one is a defect. How late this program itself was is noted too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import overhead
import soak_clients

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WORKER, CONSOLE = "lightgate.gateway.process.worker", "lightgate.console"
WORKERS = 2
READY_S, WELL_S, GONE_S = 60.0, 60.0, 60.0
BUDGET_USD = "0.02"  # some 80 answers
DRAIN_S = 8.0  # for requests under way when their worker is replaced or stopped
# What the log says when a replacement of all processes is over, well or not.
REPLACED = (
    "Every process was replaced",
    "What was not replaced goes on",
    "The processes were not replaced",
    'stays.","why":"SIGUSR2"',
    "was not taken over; the old one stays",
)
# What the log says, as a pattern of the whole message.
TAKEN_OVER = re.compile("The configuration was taken over")
SERVING = re.compile("Serving")
BEHIND = re.compile(r"The worker is \d+ ms behind; new requests get 503")
DEATH = "death of a worker"
REMOVED = "model removed"
LATE_S = 0.05  # of this program's own loop, from which it is noted
MARK = "LIGHTGATE_SOAK"  # in the environment of everything that is started here


class Window(NamedTuple):
    """An event from its beginning to the end of its consequences, in monotonic seconds."""

    kind: str
    began: float
    ended: float


class Lags:
    """When this program's own loop was late, and by how much: its clients were as late."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []  # the end of a pause, and its length

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            due = time.monotonic() + LATE_S
            await asyncio.sleep(LATE_S)
            if (late := time.monotonic() - due) > LATE_S:
                self.seen.append((due + late, late))


class SoakDisk:
    """The filesystem of the data folder, which can be full.

    A small tmpfs where this process may mount one; else the limit of the gateway's processes on the
    size of a file, which refuses writes in the same way (EFBIG for ENOSPC).
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "soak"]
        done = subprocess.run([*mount, str(self.data)], check=False, capture_output=True)
        self.mounted = done.returncode == 0
        self._filler = self.data / "filler"

    def fill(self, pids: list[int]) -> None:
        """Take every byte that is left."""
        if not self.mounted:
            self._limit(pids, 1)
            return
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self, pids: list[int]) -> None:
        """Give them back."""
        if self.mounted:
            self._filler.unlink(missing_ok=True)
        else:
            self._limit(pids, resource.RLIM_INFINITY)

    def _limit(self, pids: list[int], size: int) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))

    def close(self) -> None:
        """Take the filesystem away."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.data)], check=False)


class SoakGate:
    """One `lightgate up` after the other on the same folder and port."""

    def __init__(self, folder: Path, data: Path, config: Callable[[bool], str]) -> None:
        self.data = data
        self.file = folder / "lightgate.toml"
        self.log = folder / "log.jsonl"
        self._config = config
        self.port, self._console = overhead.free_port(), overhead.free_port()
        self.child: asyncio.subprocess.Process | None = None
        self.starts = 0
        self.stop_codes: list[int | None] = []
        self.slow_stops = 0
        self.extra = True
        self.write()

    def write(self, text: str | None = None) -> None:
        """Write the configuration, whole or broken; it does not lie on the disk that is filled."""
        new = self.file.with_suffix(".new")
        new.write_text(text if text is not None else self._config(self.extra), "ascii")
        new.replace(self.file)

    def program(self, *arguments: str) -> list[str]:
        """A verb of the command line on this configuration."""
        return [overhead.PYTHON, "-m", "lightgate", *arguments, "--config", str(self.file)]

    def pids(self, what: str = "") -> list[int]:
        """The processes of the tree, or those of them whose command has the word."""
        if self.child is None or self.child.returncode is not None:
            return []
        return [pid for pid in overhead.tree(self.child.pid) if what in overhead.command_of(pid)]

    async def start(self) -> None:
        """Start, and wait until it is ready; again while the disk lets it not."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            self.starts += 1
            flags = ("--port", str(self.port), "--console-port", str(self._console))
            with self.log.open("ab") as log:
                self.child = await asyncio.create_subprocess_exec(
                    *self.program("up", "--no-demo", "--log", "json", *flags),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=log,
                    env={**os.environ, MARK: str(self.port)},
                )
            if await self.well(until):
                return
            await self.child.wait()
        raise RuntimeError(f"`lightgate up` was not ready within {READY_S:g} s: {self.log}")

    async def well(self, until: float) -> bool:
        """Wait until every worker listens; False where it ended, or the time did."""
        while time.monotonic() < until:
            if self.child is None or self.child.returncode is not None:
                return False
            # A worker of a killed predecessor answers until it has noticed.
            own = len(self.pids(WORKER)) >= WORKERS and not await asyncio.to_thread(self.strangers)
            if own and await asyncio.to_thread(self._ready):
                return True
            await asyncio.sleep(0.1)
        return False

    def _ready(self) -> bool:
        import http.client

        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3)
        try:
            link.request("GET", "/health/ready")
            return link.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            link.close()

    def strangers(self) -> list[str]:
        """Workers that were started here and are no part of the tree any more."""
        own = self.pids()
        return [
            command
            for pid, command in marked(self.port)
            if pid not in own and (WORKER in command or CONSOLE in command)
        ]

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """End it, and wait until its children are gone too."""
        if self.child is None or self.child.returncode is not None:
            return
        family = self.pids()
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(number)
        try:
            code = await asyncio.wait_for(self.child.wait(), GONE_S)
        except TimeoutError:
            self.slow_stops += 1
            self.child.kill()
            code = await self.child.wait()
        if number != signal.SIGTERM:
            return  # what it leaves behind is the next one's to end
        self.stop_codes.append(code)
        until = time.monotonic() + WELL_S
        while any(overhead.stat(pid)[:1] not in ([], ["Z"]) for pid in family):
            if time.monotonic() > until:
                self.slow_stops += 1
                break
            await asyncio.sleep(0.05)

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Run a verb of the command line; its code and what it printed."""
        child = await asyncio.create_subprocess_exec(
            *self.program(*arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, _ = await child.communicate()
        return child.returncode or 0, out.decode()

    async def new_key(self, name: str, *terms: str) -> str:
        """Make a virtual key; an empty text where the disk lets it not."""
        code, out = await self.command("keys", "create", "--name", name, "--json", *terms)
        return str(json.loads(out)["key"]) if code == 0 else ""


def marked(port: int) -> list[tuple[int, str]]:
    """Processes that were started here and live, and their commands."""
    found, mark = [], f"{MARK}={port}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append((int(entry.name), overhead.command_of(int(entry.name))))
    return found


class Chaos:
    """The schedule of events, drawn from a seed, and the windows of those that happened.

    Until the `settle` share of the time everything happens; after it only what ends no process, so
    that in the end there are workers that have served for long. `up` itself is restarted in the
    first half alone, so that the supervisor has lived for long too.
    """

    settle = 0.75

    def __init__(
        self, gate: SoakGate, disk: SoakDisk, traffic: soak_clients.Traffic, seed: int
    ) -> None:
        self.windows: list[Window] = []
        self.failed: list[str] = []  # events that did not do what they should
        self.reloads: list[tuple[float, float, int]] = []  # from, until, exit code
        self._gate, self._disk, self._traffic = gate, disk, traffic
        self._dice = random.Random(seed)  # noqa: S311 - a schedule, no secrets
        self._whole = asyncio.Lock()  # one at a time that needs a running `up`
        self._budgets = 0
        self._removed = 0.0  # when the model `extra` was taken out of the configuration
        self._began: dict[asyncio.Task[Any] | None, float] = {}
        self._brave: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill worker": (4, lambda: self._signal(WORKER, signal.SIGKILL)),
            "kill console": (2, lambda: self._signal(CONSOLE, signal.SIGKILL)),
            "stop worker": (3, lambda: self._signal(WORKER, signal.SIGSTOP)),
            "stop console": (1, lambda: self._signal(CONSOLE, signal.SIGSTOP)),
            "reload": (2, self._reload),
            "replace": (2, self._replace),
        }
        self._restarts: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "restart": (2, lambda: self._restart(signal.SIGTERM)),
            "kill all": (1, lambda: self._restart(signal.SIGKILL)),
        }
        self._mild: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "full disk": (3, self._full_disk),
            "new configuration": (3, self._configure),
            "broken configuration": (1, self._break),
            "new key": (1, self._new_key),
            "crowd": (2, self._crowd),
        }

    async def run(self, seconds: float) -> None:
        """Let it happen for so long; the last window has ended when it returns."""
        began = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        while (passed := time.monotonic() - began) < seconds:
            events = dict(self._mild)
            if passed < self.settle * seconds:
                events |= self._brave
            if passed < seconds / 2:
                events |= self._restarts
            names = list(events)
            (name,) = self._dice.choices(names, [events[one][0] for one in names])
            running.add(asyncio.create_task(self._event(name, events[name][1])))
            running = {task for task in running if not task.done()}
            await asyncio.sleep(self._dice.uniform(3.0, 9.0))
        await asyncio.gather(*running)
        if not self._gate.extra:
            self.windows.append(Window(REMOVED, self._removed, time.monotonic()))

    async def _event(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._begins()
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - told at the end; the rest goes on
            self.failed.append(f"{name}: {error}")
        began = self._began.pop(asyncio.current_task())
        self.windows.append(Window(name, began, time.monotonic()))

    async def _signal(self, what: str, number: int) -> None:
        """Kill or stop one process, and wait until it was replaced and all is well."""
        pids = self._gate.pids(what)
        if not pids:
            return
        pid = self._dice.choice(pids)
        alive = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until = alive + WELL_S
        while overhead.stat(pid)[:1] not in ([], ["Z"]):
            alive = time.monotonic()
            if alive > until:
                raise RuntimeError(f"process {pid} was not replaced")
            await asyncio.sleep(0.1)
        if what == WORKER:
            self.windows.append(Window(DEATH, alive, time.monotonic()))
        async with self._whole:
            await self._gate.well(until)

    async def _reload(self) -> None:
        async with self._whole:
            began = time.monotonic()
            code, _ = await self._gate.command("reload")
            self.reloads.append((began, time.monotonic(), code))

    async def _replace(self) -> None:
        async with self._whole:
            said = self._gate.log.stat().st_size
            if self._gate.child is not None and self._gate.child.returncode is None:
                self._gate.child.send_signal(signal.SIGUSR2)
            until = time.monotonic() + WELL_S
            while time.monotonic() < until and self._gate.pids():
                text = self._gate.log.read_bytes()[said:].decode("utf-8", "replace")
                if any(words in text for words in REPLACED):
                    break
                await asyncio.sleep(0.1)
            await self._gate.well(until)

    async def _restart(self, number: int) -> None:
        async with self._whole:
            self._begins()
            await self._gate.stop(number)
            await self._gate.start()

    def _begins(self) -> None:
        """Begin the window of the running event now: it has waited for another one."""
        self._began[asyncio.current_task()] = time.monotonic()

    async def _full_disk(self) -> None:
        await asyncio.to_thread(self._disk.fill, self._gate.pids())
        await asyncio.sleep(self._dice.uniform(2.0, 8.0))
        self._disk.free(self._gate.pids())
        await asyncio.sleep(1.0)

    async def _configure(self) -> None:
        self._gate.extra = not self._gate.extra
        self._gate.write()
        if self._gate.extra:
            self.windows.append(Window(REMOVED, self._removed, time.monotonic()))
        else:
            self._removed = time.monotonic()
        if self._dice.random() < 0.5 and self._gate.child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._gate.child.send_signal(signal.SIGHUP)
        await asyncio.sleep(3.0)

    async def _break(self) -> None:
        self._gate.write("[gateway\nport = no")
        await asyncio.sleep(3.0)
        self._gate.write()
        await asyncio.sleep(3.0)

    async def _new_key(self) -> None:
        self._budgets += 1
        name = f"budget-{self._budgets}"
        secret = await self._gate.new_key(name, "--budget", BUDGET_USD)
        if secret:
            await asyncio.sleep(2.0)  # a running gateway takes it within a second
            self._traffic.keys[name] = secret
            self._traffic.budgeted = name

    async def _crowd(self) -> None:
        """Many bad clients at once."""
        kinds = soak_clients.SLOW
        await asyncio.gather(*(self._dice.choice(kinds)(self._traffic) for _ in range(40)))
