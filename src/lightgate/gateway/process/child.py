"""Keep one child process alive: start it, wait until it serves, restart it, stop it.

A child ends with its parent, also when the parent is killed with -9: the parent keeps the writing
end of the child's standard input and never writes to it. However the parent dies, the system closes
that end and the child reads the end of the file. That works on every POSIX system;
prctl(PR_SET_PDEATHSIG) is Linux's alone and follows the parent's thread, not the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.gateway.process.handover import ORDERS, AdoptedProcess, ChildHand, held
from lightgate.gateway.process.lock import PARENT_DEATH_ENV, ChildState
from lightgate.gateway.process.logs import say
from lightgate.gateway.process.port import WorkerSockets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, MutableMapping

    from lightgate.clock.source import Clock

SECOND_S: Final = 1.0
READY_STEPS: Final = 20
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
KILLED_STARTS: Final = 3
PATIENT_S: Final = 1.0  # a longer pause before the next life is too long for waiting connections
HEALTHY_S: Final = 60.0
GRACE_S: Final = 1.5  # of a child without a parent; what it has written to a file is safe
_STDIN: Final = 0
_STDOUT: Final = 1
_LINE_LIMIT: Final = 1 << 20
_NOT_STARTED: Final = 127  # as a shell says it
_OWNERS_FAULT: Final = {
    2: UsageError,
    3: ConfigError,
}  # exit codes that another try does not change
_log = logging.getLogger(__name__)


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A child process: what to run, and how to start, restart and stop it.

    The child prints one line of JSON on stdout when it serves; its stderr is the parent's. Children
    are stopped stage by stage, the lowest first. `env` is laid over the parent's environment, less
    the variables in `without`.
    """

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    without: frozenset[str] = frozenset()  # variables of the parent's that it does not get
    stage: int = 0
    restart: Literal["always", "never"] = "always"
    insists: bool = False  # a first life that fails is followed by others, while the rest serves
    ready_s: float = 20.0
    stop_signal: int = signal.SIGTERM
    stop_s: float = 5.0
    reloads: bool = False  # gets SIGHUP when the configuration has changed
    retire_signal: int | None = None  # ends it gently beside its successor; None: it runs alone
    silent_s: int | None = None  # killed after so many seconds without a line on stdout
    sockets: WorkerSockets | None = None  # listened on in every life; named in `--fds`
    inherits: tuple[int, ...] = ()  # descriptors that it gets under the same numbers


class Backoff:
    """The pause before a restart: doubling, and short again after a healthy life."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def after(self, healthy_s: float) -> float:
        """Seconds to wait after a life that served for `healthy_s`."""
        if healthy_s >= HEALTHY_S:
            self._next_s = FIRST_PAUSE_S
        pause = self._next_s
        self._next_s = min(2 * pause, LONGEST_PAUSE_S)
        return pause


class Child:
    """One child process, restarted until it is told to stop."""

    def __init__(
        self,
        spec: ChildSpec,
        changed: Callable[[], None],
        clock: Clock = SYSTEM,
        *,
        running: ChildHand | None = None,  # its first life, which another program began
        restarts: int = 0,  # of its predecessors: the count goes on
    ) -> None:
        self.spec = spec
        self.restarts = self._restarts_before = restarts if running is None else running.restarts
        self._running = running
        self.ready = False
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._changed = changed
        self._clock = clock
        self._process: asyncio.subprocess.Process | AdoptedProcess | None = None
        self._stopping = asyncio.Event()
        self._task = loop.create_task(self._live(), name=spec.name)

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def state(self) -> ChildState:
        """For `supervisor.json`."""
        return ChildState(
            name=self.spec.name, pid=self.pid, ready=self.ready, restarts=self.restarts
        )

    def hand(self) -> ChildHand | None:
        """What another program needs to go on with the process; None where it does not serve."""
        process = self._process
        if not self.ready or process is None:
            return None
        if isinstance(process, AdoptedProcess):
            stdin, stdout = process.descriptors()
        else:
            transport = process._transport  # type: ignore[attr-defined] # noqa: SLF001 - asyncio shows a child's pipes nowhere else
            ends = [transport.get_pipe_transport(number) for number in (_STDIN, _STDOUT)]
            stdin, stdout = (end.get_extra_info("pipe").fileno() for end in ends)
        return ChildHand(
            name=self.spec.name,
            pid=process.pid,
            stdin=stdin,
            stdout=stdout,
            restarts=self.restarts,
        )

    def signal(self, number: int) -> None:
        """Send a signal to a process that serves; one that is starting may not know it yet."""
        if self.ready:
            self._send(number)

    async def stop(self, budget_s: float, number: int | None = None) -> None:
        """Ask it to end, wait for the budget, then kill it; it is gone afterwards."""
        self._stopping.set()
        self._send(self.spec.stop_signal if number is None else number)
        done, _ = await asyncio.wait({self._task}, timeout=budget_s)
        if not done:
            say(_log, logging.WARNING, f"{self.spec.name} did not end in time and is killed",
                child=self.spec.name, budget_s=budget_s)  # fmt: skip
            self.kill()
            await asyncio.wait({self._task})

    def kill(self) -> None:
        """End it now."""
        self._stopping.set()
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _live(self) -> None:
        backoff = Backoff()
        try:
            while not self._stopping.is_set():
                healthy_s, code = await self._one_life()
                if self._stopping.is_set() or self._over(code):
                    return
                pause_s = backoff.after(healthy_s)
                say(_log, logging.ERROR, f"{self.spec.name} ended by itself and is started again",
                    child=self.spec.name, code=code, pause_s=pause_s)  # fmt: skip
                if pause_s > PATIENT_S and self.spec.sockets is not None:
                    self.spec.sockets.close()  # connections go to the other workers
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)
                self.restarts += 1
        finally:
            if not self.first.done():
                self.first.cancel()
            if not self.ended.done():
                self.ended.set_result(None)

    def _over(self, code: int) -> bool:
        """Whether there is no next life: the first one never served, or one is all it gets.

        A child that was killed while it started (a negative code) is started again, a few times.
        One that insists is started again for any reason but a wrong command or configuration.
        """
        if not self.first.done() and self.spec.insists and code not in _OWNERS_FAULT:
            return False
        if not self.first.done() and code < 0 and self._starts_again < KILLED_STARTS:
            return False
        if not self.first.done():
            kind = _OWNERS_FAULT.get(code, LightgateError)
            self.first.set_exception(
                kind(f"{self.spec.name} did not start (code {code}); its reason is above.")
            )
            self.first.exception()  # whoever waits hears of it; nobody has to
            return True
        if self.spec.restart == "never":
            say(_log, logging.ERROR, f"{self.spec.name} ended by itself",
                child=self.spec.name, code=code)  # fmt: skip
            return True
        return False

    @property
    def _starts_again(self) -> int:
        """How often it was started again itself."""
        return self.restarts - self._restarts_before

    async def _one_life(self) -> tuple[float, int]:
        """Start, serve, end: how long it served, in seconds, and its exit code."""
        try:
            process = await self._spawn()
        except OSError as reason:
            say(_log, logging.ERROR, f"{self.spec.name} cannot be started: {reason.strerror}",
                child=self.spec.name)  # fmt: skip
            return 0.0, _NOT_STARTED
        self._process = process
        if self._stopping.is_set():
            self._send(self.spec.stop_signal)
        self._changed()
        try:
            served = isinstance(process, AdoptedProcess)
            facts: dict[str, Any] | None = {} if served else await self._ready_line(process)
            served_ns = self._clock.now_ns()
            if facts is None:
                await self._end(process)
            else:
                self.ready = True
                self._changed()
                if not self.first.done():
                    self.first.set_result(facts)
                await self._drain(process)
                code = await process.wait()
                return (self._clock.now_ns() - served_ns) / 1e9, code
        finally:
            self.ready = False
            if process.returncode is None:
                process.kill()
            code = await process.wait()
            if process.stdin is not None:
                process.stdin.close()
            self._changed()
        return 0.0, code

    async def _spawn(self) -> asyncio.subprocess.Process | AdoptedProcess:
        if self._running is not None:
            running, self._running = self._running, None
            return await AdoptedProcess.adopt(running)
        sockets = self.spec.sockets
        fds = () if sockets is None else sockets.open()
        named = ("--fds", ",".join(map(str, fds))) if fds else ()
        with held(*ORDERS):  # it lets them through once it passes over them
            return await asyncio.create_subprocess_exec(
                *self.spec.argv,
                *named,
                pass_fds=(*fds, *self.spec.inherits),
                stdin=asyncio.subprocess.PIPE,  # never written; our death closes it
                stdout=asyncio.subprocess.PIPE,
                env=self._environment(),
                limit=_LINE_LIMIT,
                start_new_session=True,  # Ctrl-C reaches the parent alone
            )

    def _environment(self) -> dict[str, str]:
        without = self.spec.without
        kept = {name: value for name, value in os.environ.items() if name not in without}
        return {**kept, **self.spec.env, PARENT_DEATH_ENV: "1"}

    async def _end(self, process: asyncio.subprocess.Process | AdoptedProcess) -> None:
        """Give a child that is not ready a moment to end with its own exit code."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 1.0)

    async def _ready_line(
        self, process: asyncio.subprocess.Process | AdoptedProcess
    ) -> dict[str, Any] | None:
        """The facts of the ready line; None where the child ended, was late, or said otherwise."""
        if process.stdout is None:
            return None
        try:
            line = await self._in_time(process.stdout.readline())
        except (TimeoutError, ValueError):
            say(_log, logging.ERROR, f"{self.spec.name} was not ready in time",
                child=self.spec.name, ready_s=self.spec.ready_s)  # fmt: skip
            return None
        try:
            facts = msgspec.json.decode(line, type=dict[str, Any]) if line else None
        except msgspec.DecodeError:
            say(_log, logging.ERROR, f"{self.spec.name} did not say that it is ready",
                child=self.spec.name)  # fmt: skip
            return None
        return facts

    async def _in_time(self, line: Coroutine[Any, Any, bytes]) -> bytes:
        """Wait for the ready line, in steps that are counted here.

        Where this process stood still for long, the line may be there and only not be read yet.
        """
        reading = asyncio.ensure_future(line)
        try:
            for _ in range(READY_STEPS):
                done, _ = await asyncio.wait({reading}, timeout=self.spec.ready_s / READY_STEPS)
                if done:
                    return reading.result()
        finally:
            reading.cancel()
        raise TimeoutError

    async def _drain(self, process: asyncio.subprocess.Process | AdoptedProcess) -> None:
        """Read and drop what else the child prints; kill a child that has fallen silent.

        Silence is counted in seconds that passed here one by one: where the whole machine stood
        still, so did this process, and the child is not to blame.
        """
        if process.stdout is None:
            return
        silent_s = 0
        while True:
            try:
                if not await asyncio.wait_for(process.stdout.read(65536), SECOND_S):
                    return
                silent_s = 0
            except TimeoutError:
                silent_s += 1
                limit = self.spec.silent_s
                if limit is not None and silent_s == limit and not self._stopping.is_set():
                    say(_log, logging.ERROR, f"{self.spec.name} was silent for {limit} s and is"
                        " killed", child=self.spec.name, pid=process.pid)  # fmt: skip
                    self._send(signal.SIGKILL)


def beat() -> None:
    """Tell the parent that this process still works through its events: an empty line a second."""
    with contextlib.suppress(OSError):
        os.write(_STDOUT, b"\n")


def end_with_parent(env: MutableMapping[str, str], *, grace_s: float = GRACE_S) -> bool:
    """End this process with its parent, if the parent asks for that; whether it does.

    A daemon thread waits, so that a busy event loop cannot miss the parent's death. Then the
    process gets SIGTERM, and is gone after the grace whatever it does. Orders to reload are the
    parent's affair: one that is sent to all processes by their name ends no child.
    """
    if env.pop(PARENT_DEATH_ENV, "") != "1":
        return False
    for number in ORDERS:
        signal.signal(number, _pass_over)  # not SIG_IGN, which the child's own children would get
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ORDERS)  # held back since the first moment
    threading.Thread(
        target=_wait_for_end, args=(grace_s,), name="parent-death", daemon=True
    ).start()
    return True


def _pass_over(number: int, frame: object) -> None:
    """Do nothing about a signal."""


def _wait_for_end(grace_s: float) -> None:
    while True:
        try:
            if not os.read(_STDIN, 4096):
                break
        except InterruptedError:
            continue
        except OSError:
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os._exit(1)
