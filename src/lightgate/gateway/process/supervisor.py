"""Supervise the processes of `lightgate up`: keep them alive, reload them, stop them in order.

The supervisor serves no request, so no request can break it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import logging
import os
import signal
import termios
from typing import TYPE_CHECKING, Any, Final, Self

from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process.child import Child, ChildSpec
from lightgate.gateway.process.handover import ORDERS, STOPS
from lightgate.gateway.process.logs import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from lightgate.gateway.process.handover import ChildHand
    from lightgate.gateway.process.lock import ChildState, DataFolderLock

__all__ = ["ChildSpec", "StoppedEarly", "Supervisor", "look"]

LOOK_S: Final = 1.0  # between two looks at the configuration file, and at the data folder
AGAIN_LOOKS: Final = 10  # before a reload is tried again that a full disk did not let happen
RELOAD_S: Final = 120.0  # to read the configuration in; a starved machine takes half a minute
HURRY_S: Final = 2.0  # what each stage gets after a second Ctrl-C
Look = tuple[int, int, int] | None
_log = logging.getLogger(__name__)


class StoppedEarly(LightgateError):  # noqa: N818 - names the event
    """A signal came before everything was up."""

    exit_code = 130


class Supervisor:
    """A set of children; a context manager that stops all of them, stage by stage.

    `reload` reads the configuration again and puts it in force, or raises and changes nothing; the
    loop goes on meanwhile, so that children that start or serve are not taken for late.
    `watched` names the file to look at, `known` is the version of it that was read. `changed` gets
    the children's states whenever a process starts or ends. `renew` gives the children that take
    the places of those with the same names (SIGUSR2), and `leave` is called when the end begins.
    `upgrade` is called once all are replaced; it may put another program in the place of this one.
    An order to reload or to replace that cannot be carried out yet waits; several are as good as
    one.
    """

    def __init__(
        self,
        *,
        reload: Callable[[], Awaitable[None]] | None = None,
        watched: Callable[[], Path | None] = lambda: None,
        known: Look = None,
        changed: Callable[[tuple[ChildState, ...]], None] = lambda _: None,
        renew: Callable[[], list[ChildSpec]] = list,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._reload = reload
        self._watched = watched
        self._known = known
        self._changed = changed
        self._renew = renew
        self._leave = leave
        self.upgrade: Callable[[], Awaitable[None]] | None = None
        self._children: list[Child] = []
        self._replacing: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None  # because of SIGHUP
        self._hung_ups = 0  # that no reload has begun after
        self.replacing = False  # children are being replaced
        self.replace_again = False  # ordered since that began, or since the start did
        self._starting = False
        self._before: dict[int, Any] = {}  # what signals did before
        self._one_reload = asyncio.Lock()
        self.read_again = False  # the file was not taken over, and not its own fault: a full disk
        self.reloads = 0  # replacements that have ended
        self.reload_error = ""  # of the last one
        self._told = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failed: LightgateError | None = None
        self._terminal = os.isatty(0)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGINT, self.stop, "SIGINT")
        # No handlers of the loop: where those are taken away, the default action is in force for a
        # moment, and ends the process.
        calls = {signal.SIGHUP: self._hung_up, signal.SIGUSR2: self.replace_all}
        for order in ORDERS:
            self._before[order] = signal.signal(order, _soon(loop, calls[order]))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # held since the change of programs
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._drain()
        loop = asyncio.get_running_loop()
        for order, before in self._before.items():
            signal.signal(order, before)
        for number in STOPS:
            loop.remove_signal_handler(number)

    @contextlib.contextmanager
    def starting(self, early: Iterable[int] = ()) -> Iterator[None]:
        """Let orders wait until everything has started; `early` are signals that came before."""
        self._starting = True
        for number in early:
            if number == signal.SIGHUP:
                self._hung_up()
            else:
                self.replace_all()
        yield
        self._starting = False
        self._carry_out()

    async def start(self, *specs: ChildSpec, restarts: int = 0) -> list[dict[str, Any]]:
        """Start children together and wait until each serves; the facts of their ready lines.

        A successor goes on with the count of its predecessor's `restarts`.
        """
        begun = [Child(spec, self.tell, restarts=restarts) for spec in specs]
        self._children += begun
        for child in begun:
            child.ended.add_done_callback(functools.partial(self._on_end, child))
        told = asyncio.ensure_future(self._told.wait())
        try:
            return [await self._first_facts(child, told) for child in begun]
        finally:
            told.cancel()

    def adopt(self, *running: tuple[ChildSpec, ChildHand]) -> None:
        """Go on with children that the program before this one started."""
        for spec, hand in running:
            child = Child(spec, self.tell, running=hand)
            self._children.append(child)
            child.ended.add_done_callback(functools.partial(self._on_end, child))

    def hands(self) -> tuple[ChildHand, ...]:
        """The children that serve, for the program after this one; StoppedEarly if none follows."""
        if self.stopping:  # the next program would not know of it
            raise StoppedEarly("Stopped before the supervisor became the installed version.")
        found = [child.hand() for child in self._children]
        return tuple(hand for hand in found if hand is not None)

    async def run(self) -> None:
        """Wait for the signal to stop; then stop every child in order."""
        watching = asyncio.ensure_future(self._watch())
        try:
            await self._told.wait()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        await self._drain()
        if self._failed is not None:
            raise self._failed

    def stop(self, why: str) -> None:
        """Begin to stop; the second time, without waiting for streams."""
        if self._told.is_set():
            say(_log, logging.WARNING, "Told again to stop: not waiting any longer", why=why)
            self._hurry.set()
        else:
            say(_log, logging.INFO, "Stopping: streams may finish, new requests are refused",
                why=why)  # fmt: skip
        self._told.set()

    @property
    def stopping(self) -> bool:
        """Whether the supervisor was told to stop."""
        return self._told.is_set()

    async def wait_unless_stopped(self, event: asyncio.Event, most_s: float) -> None:
        """Wait for the event, but not longer than this, and not once it is time to stop."""
        waits = {asyncio.ensure_future(one.wait()) for one in (event, self._told)}
        try:
            await asyncio.wait(waits, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def reload(self, why: str) -> bool:
        """Read the configuration again; a wrong one is logged, and the old one stays in force."""
        if self._reload is None:
            return False
        try:
            async with self._one_reload, asyncio.timeout(RELOAD_S):
                await self._reload()
        except LightgateError as error:
            problems = list(error.problems) if isinstance(error, ConfigError) else []
            say(_log, logging.ERROR, f"{error.message} The old configuration stays.", why=why,
                problems=problems, hint=error.hint)  # fmt: skip
            self.read_again = not isinstance(error, ConfigError)
            return False
        except TimeoutError:  # such as a file on a server that does not answer
            say(_log, logging.ERROR, f"The configuration could not be read within {RELOAD_S:g} s."
                " The old one stays.", why=why)  # fmt: skip
            self.read_again = True
            return False
        except OSError as error:  # such as a full disk: the next look tries again
            say(_log, logging.ERROR, f"The configuration was not taken over: {error.strerror}."
                " The old one stays.", why=why)  # fmt: skip
            self.read_again = True
            return False
        except Exception:  # noqa: BLE001 - a reload that fails must not end what runs
            _log.exception("The configuration was not taken over; the old one stays")
            self.read_again = True
            return False
        self.read_again = False
        self.tell_reload()
        say(_log, logging.INFO, "The configuration was taken over", why=why)
        return True

    def tell_reload(self) -> None:
        """Tell the workers that there is another snapshot; they would find it in a moment."""
        for child in self._children:
            if child.spec.reloads:
                child.signal(signal.SIGHUP)

    def replace_all(self) -> None:
        """Read the configuration again, and replace the children one after the other."""
        self.replace_again = True
        if self.replacing and not self.stopping:
            say(_log, logging.INFO, "The processes are being replaced: once more afterwards")
        self._carry_out()

    def _carry_out(self) -> None:
        """Begin with the orders that wait, unless something else has to end before."""
        if self._starting or self._told.is_set():
            return
        if self._hung_ups and (self._rereading is None or self._rereading.done()):
            self._rereading = asyncio.ensure_future(self._reread())
        if self.replace_again and not self.replacing:
            self.replacing, self.replace_again = True, False
            self.tell()  # at once: who orders now waits for the one after this
            self._replacing = asyncio.ensure_future(self._replace_all())

    async def _replace_all(self) -> None:
        """Replace all children; again for orders that came meanwhile, however many."""
        while True:
            try:
                self.reload_error = await self._replaced_once()
            except StoppedEarly:
                return
            self.reloads += 1
            self.replacing, self.replace_again = self.replace_again, False
            self.tell()
            if not self.replacing:
                return

    async def _replaced_once(self) -> str:
        """Start a successor before its predecessor ends, where two of a kind can run at once.

        Returns what went wrong; "" if nothing did.
        """
        try:
            if not await self.reload("SIGUSR2"):
                return "The configuration was not taken over; the log says why."
            await self._succeed_all()
            say(_log, logging.INFO, "Every process was replaced")
            if self.upgrade is not None:
                async with self._one_reload:  # what is being read is taken over before
                    await self.upgrade()
        except StoppedEarly:
            raise
        except LightgateError as error:
            say(_log, logging.ERROR, f"{error.message} What was not replaced goes on.")
            return error.message
        except Exception as error:  # noqa: BLE001 - a reload that fails must not end what runs
            _log.exception("The processes were not replaced")
            return f"{type(error).__name__}; the log says more."
        return ""

    async def _succeed_all(self) -> None:
        leaving: list[asyncio.Future[None]] = []
        try:
            for spec in self._renew():
                await self._succeed(spec, leaving)
        finally:
            await asyncio.gather(*leaving)

    async def _succeed(self, spec: ChildSpec, leaving: list[asyncio.Future[None]]) -> None:
        """Put one child in the place of the child of the same name."""
        old = next(child for child in self._children if child.spec.name == spec.name)
        if old.spec.retire_signal is None:
            await self._retire(old)
            await self.start(spec, restarts=old.restarts)
            return
        try:
            await self.start(spec, restarts=old.restarts)
        except StoppedEarly:
            raise  # it is stopped with the others
        except LightgateError:  # it never served; its predecessor goes on
            self._children = [child for child in self._children if child.spec is not spec]
            raise
        leaving.append(asyncio.ensure_future(self._retire(old)))

    async def _retire(self, child: Child) -> None:
        await child.stop(child.spec.stop_s, child.spec.retire_signal)
        if child in self._children:
            self._children.remove(child)
        self.tell()

    async def _first_facts(self, child: Child, told: asyncio.Future[Any]) -> dict[str, Any]:
        either: set[asyncio.Future[Any]] = {child.first, told}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not child.first.done():
            raise StoppedEarly("Stopped before everything was up.")
        return child.first.result()

    def _hung_up(self) -> None:
        """Handle SIGHUP: stop where the terminal was closed, else reload."""
        if (self._terminal and not os.isatty(0)) or _terminal_closed():
            self.stop("the terminal was closed")
        else:
            self._hung_ups += 1
            self._carry_out()

    async def _reread(self) -> None:
        """Reload; again for signals that came meanwhile, however many."""
        while self._hung_ups:
            self._hung_ups = 0
            await self.reload("SIGHUP")

    def states(self) -> tuple[ChildState, ...]:
        """The state of every child now."""
        return tuple(child.state() for child in self._children)

    def tell(self) -> None:
        """Write down which children there are, and whether they serve."""
        try:
            self._changed(self.states())
        except OSError as error:  # a full disk must not take the gateway down
            say(_log, logging.ERROR, f"supervisor.json could not be written: {error.strerror}")

    def _on_end(self, child: Child, ended: asyncio.Future[None]) -> None:
        """Stop all where a child that is not restarted has ended: nothing can be served then."""
        del ended
        if child.spec.restart == "never" and not self._told.is_set() and _served(child):
            self._failed = LightgateError(
                f"{child.spec.name} ended by itself; its reason is above."
            )
            self._told.set()

    async def _drain(self) -> None:
        """Stop the stages one after the other, each within its children's time."""
        self._told.set()
        self._leave()
        for task in (self._replacing, self._rereading):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        ordered = sorted(self._children, key=lambda child: child.spec.stage)
        for _, stage in itertools.groupby(ordered, key=lambda child: child.spec.stage):
            await self._stop_stage(list(stage))
        self._children.clear()

    async def _stop_stage(self, stage: list[Child]) -> None:
        hurried = self._hurry.is_set()
        stopping = asyncio.gather(
            *(
                child.stop(min(child.spec.stop_s, HURRY_S) if hurried else child.spec.stop_s)
                for child in stage
            )
        )
        hurry = asyncio.ensure_future(self._hurry.wait())
        either: set[asyncio.Future[Any]] = {stopping, hurry}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done() and not hurried:
                for child in stage:
                    child.kill()
            await stopping
        finally:
            hurry.cancel()

    async def keep_folder(
        self,
        folder: DataFolderLock,
        again: Callable[[], object],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Lock a data folder again that was deleted, and tell `again` what is served from it.

        Workers and console write their own files again. Where another `lightgate up` was faster, or
        the folder cannot be made, that is logged once.
        """
        said, gone = "", f"{folder.data}, or a file in it, was deleted while the gateway ran."
        while True:
            await pause(LOOK_S)
            try:
                deleted, problem = folder.keep_in_place(), ""
            except LightgateError as error:
                deleted, problem = False, error.message
            if problem and problem != said:
                say(_log, logging.ERROR, f"{gone} {problem}")
            said = problem
            if deleted:
                say(_log, logging.ERROR, f"{gone} What it still knows is written again.")
                self.tell()
                again()

    async def _watch(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Reload when the file has changed and was then the same in two looks.

        A file that is being written may be valid and incomplete. What could not be taken over for
        another reason than the file itself is tried again now and then.
        """
        settled, looks = look(self._watched()), 0
        while True:
            await pause(LOOK_S)
            seen, looks = look(self._watched()), looks + 1
            again = self.read_again and looks >= AGAIN_LOOKS
            changed = seen is not None and seen != self._known
            if seen == settled and (changed or again):
                self._known, looks = seen or self._known, 0
                await self.reload("the file has changed")
            settled = seen


def look(path: Path | None) -> Look:
    """What distinguishes versions of a file; None where there is no file."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino, found.st_size)


def _terminal_closed() -> bool:
    """Whether standard input is a terminal that was closed, perhaps before this process looked."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Callable[..., None]:
    """A handler of a signal that lets the loop make the call."""

    def handle(number: int, frame: object) -> None:
        del number, frame
        loop.call_soon_threadsafe(call)

    return handle


def _served(child: Child) -> bool:
    first = child.first
    return first.done() and not first.cancelled() and first.exception() is None
