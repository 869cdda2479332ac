"""Hand a running gateway over to the version that is installed now, in the same process.

The supervisor replaces its program (exec) and keeps its process id, its listening sockets, the lock
on the data folder and its children: each child sees nothing but that its parent lives on. What the
new program needs to know is in one environment variable, which holds numbers and no secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import msgspec

from lightgate.errors import LightgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping

ENV: Final = "LIGHTGATE_HANDOVER"
CHECK_S: Final = 60.0  # for the installed version to show that it can be loaded
_LOOK_S: Final = 0.02
ORDERS: Final = (signal.SIGUSR2, signal.SIGHUP)
STOPS: Final = (signal.SIGTERM, signal.SIGINT)
# A version without the last of them would never let the signals through that it finds held back.
_CHECK: Final = (
    "import lightgate.cli.launch, lightgate.cli.up;"
    " from lightgate.gateway.process.handover import STOPS"
)


class ChildHand(msgspec.Struct, frozen=True, kw_only=True):
    """A running child: its process id, and our ends of its standard input and output."""

    name: str
    pid: int
    stdin: int
    stdout: int
    restarts: int = 0


class PortHand(msgspec.Struct, frozen=True, kw_only=True):
    """A reserved port: its sockets that do not listen, and those that do, by worker."""

    port: int
    bound: tuple[int, ...]
    shared: tuple[tuple[int, ...], ...] = ()


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """All that goes from one program to the next; descriptors as numbers."""

    lock: int
    gateway: PortHand
    console: PortHand
    generation: int
    reloads: int
    started: str
    children: tuple[ChildHand, ...]
    facts: dict[str, Any] | None = None  # of a simulator
    flying: int | None = None  # the memory in which workers count what they have in flight
    replace_again: bool = False  # another order to replace the children waits

    def descriptors(self) -> tuple[int, ...]:
        """Every descriptor that outlives the change of programs."""
        ports = (self.gateway, self.console)
        held = [fd for port in ports for fds in (port.bound, *port.shared) for fd in fds]
        pipes = [fd for child in self.children for fd in (child.stdin, child.stdout)]
        memory = () if self.flying is None else (self.flying,)
        return (self.lock, *held, *pipes, *memory)


def taken_over(env: MutableMapping[str, str]) -> Handover | None:
    """What the program before left, if this one continues it; no child inherits any of it."""
    text = env.pop(ENV, None)
    if text is None:
        return None
    found = msgspec.json.decode(text, type=Handover)
    for descriptor in found.descriptors():
        os.set_inheritable(descriptor, False)
    return found


async def check_installed() -> None:
    """See that the installed version can be loaded; after the change there is no way back."""
    with held(*ORDERS):  # its end by one would be taken for a version that cannot be loaded
        check = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CHECK, stdin=asyncio.subprocess.DEVNULL
        )
    try:
        code = await asyncio.wait_for(check.wait(), CHECK_S)
    except TimeoutError:
        check.kill()
        code = await check.wait()
    if code:
        raise LightgateError("The installed version cannot be loaded; the one that runs goes on.")


@contextlib.contextmanager
def held(*signals: signal.Signals) -> Iterator[None]:
    """Keep signals waiting in the kernel; a program that begins meanwhile does as well."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


async def hand_over(what: Callable[[], Handover], secrets: Mapping[str, str]) -> NoReturn:
    """Become the installed version, with the same arguments; nothing of this program returns.

    `secrets` are variables that the new program takes out of its environment at once. `what` is
    asked once the loop has heard the orders that have come, to reload or to stop; those that come
    from then on wait in the kernel until the new program has its handlers.
    """
    with held(*ORDERS):
        await asyncio.sleep(0)
        with held(*STOPS):
            handed = what()
            for descriptor in handed.descriptors():
                os.set_inheritable(descriptor, True)
            env = {**os.environ, **secrets, ENV: msgspec.json.encode(handed).decode()}
            sys.stdout.flush()
            sys.stderr.flush()
            os.execve(sys.executable, sys.orig_argv, env)  # noqa: S606 - our own arguments, no shell


class AdoptedProcess:
    """A child that the program before started; as `asyncio.subprocess.Process`, as far as used."""

    def __init__(self, hand: ChildHand, stdout: asyncio.StreamReader) -> None:
        self.pid = hand.pid
        self.stdout = stdout
        self.stdin = os.fdopen(hand.stdin, "wb", 0)  # never written; our death closes it
        self.returncode: int | None = None
        self._stdout = hand.stdout

    def descriptors(self) -> tuple[int, int]:
        """Our ends of its standard input and output."""
        return self.stdin.fileno(), self._stdout

    @classmethod
    async def adopt(cls, hand: ChildHand) -> Self:
        """Read on from its standard output."""
        reader = asyncio.StreamReader()
        pipe = os.fdopen(hand.stdout, "rb", 0)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return cls(hand, reader)

    def send_signal(self, number: int) -> None:
        """Send a signal; ProcessLookupError where it has ended."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end; its exit code, or minus the signal that ended it."""
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
            except ChildProcessError:  # it was no child of ours, or somebody has waited for it
                self.returncode = 0
                break
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            else:
                await asyncio.sleep(_LOOK_S)
        return self.returncode
