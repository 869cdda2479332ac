"""Run `lightgate up`: decide what to serve, lock the data folder, reserve ports, start, watch."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate import __version__
from lightgate.cli.greeting import Greeting, greet
from lightgate.cli.processes import Processes
from lightgate.clock.source import SYSTEM
from lightgate.config.load import find_config
from lightgate.config.notation import parse_duration
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.gateway.process import logs
from lightgate.gateway.process.apart import apart, apart_aside
from lightgate.gateway.process.handover import Handover, check_installed, hand_over, taken_over
from lightgate.gateway.process.lists import ListKeeper, order_of
from lightgate.gateway.process.lock import (
    FORCED,
    ORPHANS_S,
    UPGRADE,
    DataFolderLock,
    SupervisorState,
    end_orphans,
)
from lightgate.gateway.process.port import ReservedPort, is_loopback, require_secret
from lightgate.gateway.process.prepare import (
    Preparation,
    ServedNames,
    UpSettings,
    keys_at_start,
    keys_in,
    providers_with_key,
    restore_spend,
)
from lightgate.gateway.process.shelter import (
    ENOUGH,
    counts_memory,
    keep_private,
    raise_descriptors,
)
from lightgate.gateway.process.supervisor import StoppedEarly, Supervisor, look
from lightgate.gateway.spend.counter_file import CounterFile, CounterFileFailed
from lightgate.ledger.store.keys import KeyRecord, instant_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lightgate.gateway.process.lock import ChildState

# After the start, until the ledger is asked what is known of targets: soon, since the snapshot of
# the start does not wait for it; then when a new target may have answered; then now and then.
PRIORS_S: Final = (2.0, 60.0, 600.0)
CONFIG_S: Final = 60.0  # before a configuration in force is written that a full disk did not take
LISTS_S: Final = 3.0  # that the greeting waits for the providers' lists of models, at the most
_NEEDS_RESTART: Final = {
    "host": "[gateway] host", "port": "[gateway] port", "workers": "[gateway] workers",
    "data": "[gateway] data", "drain_ns": "[gateway] drain", "shared": "[shared] url",
    "ledger": "[ledger] url", "retention_ns": "[ledger] retention",
}  # fmt: skip
_log = logging.getLogger(__name__)


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were typed; None for those that were not."""

    config_file: Path | None = None
    host: str | None = None
    port: int | None = None
    console_host: str = "127.0.0.1"
    console_port: int = 8081
    workers: int | None = None
    data: Path | None = None
    demo: bool | None = None
    world: str = "providers-2026"
    drain: str | None = None
    log_form: logs.Form = "auto"


async def launch(options: UpOptions, early: Callable[[], Iterable[int]] = tuple) -> None:
    """Serve until told to stop; `early` gives the orders to reload that have come before."""
    logs.start(options.log_form)
    up = Launch(options, early)
    logs.start(options.log_form, secrets=up.settings.secrets)
    _, descriptors = raise_descriptors()
    if descriptors < ENOUGH:
        logs.say(_log, logging.WARNING, f"Only {descriptors} files may be open in one process:"
                 " many streams at once will be refused. Raise the hard limit (ulimit -Hn).",
                 descriptors=descriptors)  # fmt: skip
    before = taken_over(os.environ)
    if before is not None:
        await _go_on(up, before)
        return
    with DataFolderLock(up.data) as folder:
        for path in keep_private(up.data):
            logs.say(_log, logging.WARNING, f"Others can read {path}, and its mode cannot be set")
        if killed := end_orphans(up.data):
            logs.say(_log, logging.WARNING, f"{killed} processes of a predecessor that was killed"
                     " did not end by themselves and were killed", killed=killed)  # fmt: skip
        up.require_keys()
        settings, patience_s = up.settings, ORPHANS_S if folder.stale else 0.0
        gateway = await ReservedPort.make(settings.host, settings.port, patience_s=patience_s)
        with gateway:
            up.processes.sockets = gateway.share(settings.workers)
            up.leave = gateway.stop_listening
            console = await ReservedPort.make(
                options.console_host,
                options.console_port,
                option="--console-port",
                patience_s=patience_s,
            )
            with console:
                await up.serve(folder, gateway, console)


async def _go_on(up: Launch, before: Handover) -> None:
    """Serve on where the program before this one, of another version perhaps, has left."""
    with DataFolderLock(up.data, before.lock) as folder:
        up.require_keys()
        gateway = ReservedPort.of_hand(up.settings.host, before.gateway)
        with gateway, ReservedPort.of_hand(up.processes.console_host, before.console) as console:
            up.processes.sockets = gateway.shared
            up.leave = gateway.stop_listening
            await up.serve(folder, gateway, console, before)


class Launch:
    """One run of `lightgate up`."""

    def __init__(self, options: UpOptions, early: Callable[[], Iterable[int]] = tuple) -> None:
        self._options = options
        self._early = early
        self._config_taken = asyncio.Event()
        require_secret(options.console_host, os.environ)
        path = find_config(options.config_file, env=os.environ, cwd=Path.cwd())
        self._known = look(path)  # before it is read: a change meanwhile is not missed
        self._demo = options.demo
        if self._demo is None:
            self._demo = path is None and not providers_with_key()
        typed: dict[str, Any] = {
            "host": options.host,
            "port": options.port,
            "workers": options.workers,
            "data": None if options.data is None else str(options.data),
            "drain": None if options.drain is None else _duration(options.drain),
        }
        self._prepare = Preparation(path, typed, options.world if self._demo else None)
        self.settings = apart(self._prepare.settings)
        self.processes = Processes(
            self._prepare,
            self.settings,
            console_host=options.console_host,
            world=options.world,
            log_form=options.log_form,
        )
        self.data = self.processes.data
        self._keys: tuple[KeyRecord, ...] = ()
        self.leave: Callable[[], None] = lambda: None  # refuses connections from then on
        self._served = ServedNames(providers=(), model=None)  # known once there is a snapshot
        self._lists: ListKeeper | None = None
        self._greeted: str | None = None  # the model that the greeting has named

    def require_keys(self) -> None:
        """Require a usable key of a gateway that other machines can reach, before it listens.

        Elsewhere the keys are read with the snapshot, once: the libraries for it take 0.1 s.
        """
        if is_loopback(host := self.settings.host):
            return
        self._keys = apart(self._read_keys)
        if not self._usable():
            raise ConfigError(
                f"The gateway does not listen on {host} without a key: anybody could spend yours.",
                hint=f"Make one: lightgate keys create --name me --data {self.data}",
            )

    def _read_keys(self) -> tuple[KeyRecord, ...]:
        return keys_at_start(self.settings.ledger)

    async def serve(
        self,
        folder: DataFolderLock,
        gateway: ReservedPort,
        console_at: ReservedPort,
        before: Handover | None = None,
    ) -> None:
        """Start all processes in their order, print the addresses, and keep the processes up.

        After a program `before` this one the processes run already.
        """
        processes = self.processes
        processes.port, processes.console_port = gateway.port, console_at.port
        processes.flying = counts_memory() if before is None else before.flying
        self._prepare.port = gateway.port
        started = instant_text(SYSTEM.wall_ns()) if before is None else before.started

        def changed(children: tuple[ChildState, ...]) -> None:
            state = self._state(started, children)
            folder.write(
                msgspec.structs.replace(
                    state,
                    reloads=supervisor.reloads,
                    reload_error=supervisor.reload_error,
                    replacing=supervisor.replacing,
                )
            )

        def handed() -> Handover:
            return Handover(
                lock=folder.descriptor,
                gateway=gateway.hand(),
                console=console_at.hand(),
                generation=processes.generation,
                flying=processes.flying,
                reloads=supervisor.reloads,
                replace_again=supervisor.replace_again,
                started=started,
                children=supervisor.hands(),
                facts=None if self._prepare.facts is None else dict(self._prepare.facts),
            )

        async def upgrade() -> None:
            if (self.data / UPGRADE).exists():
                (self.data / UPGRADE).unlink(missing_ok=True)
                await check_installed()
                logs.say(_log, logging.INFO, "The supervisor becomes the installed version")
                await hand_over(handed, processes.secrets)

        supervisor = Supervisor(
            reload=self._reload,
            watched=lambda: self._prepare.path,
            known=self._known,
            changed=changed,
            renew=processes.successors,
            leave=self.leave,
        )
        supervisor.upgrade = upgrade
        async with supervisor:
            with supervisor.starting(self._early()):
                if before is None:
                    await self._start_all(supervisor)
                else:
                    await self._adopt(supervisor, before)
            tasks = [
                asyncio.ensure_future(self._keep_priors()),
                asyncio.ensure_future(self._tell_config()),
                asyncio.ensure_future(supervisor.keep_folder(folder, self._config_taken.set)),
            ]
            try:
                if not self._demo:  # the configuration of a demo names all models
                    tasks.append(await self._keep_lists(supervisor))
                if not supervisor.stopping:  # Ctrl-C may have come while the lists were waited for
                    self._greet()
                if before is None and self._demo:
                    with contextlib.suppress(StoppedEarly):  # it serves already: an end in order
                        await supervisor.start(processes.traffic())
                await supervisor.run()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _start_all(self, supervisor: Supervisor) -> None:
        # Side by side. Batches wait: they have nothing to do before, and would delay the workers.
        processes = self.processes
        console = asyncio.ensure_future(supervisor.start(processes.console()))
        try:
            self._served = await self._start_data_plane(supervisor)
            await supervisor.start(processes.batches())
            await console
        finally:
            console.cancel()

    async def _adopt(self, supervisor: Supervisor, before: Handover) -> None:
        """Go on with the processes of the program before, and start those that did not serve."""
        processes = self.processes
        processes.generation, self._prepare.facts = before.generation, before.facts
        specs = [*processes.workers(), processes.console(), processes.batches()]
        if self._demo:
            specs += [processes.simulator(), processes.traffic()]
        hands = {hand.name: hand for hand in before.children}
        supervisor.reloads, supervisor.replacing = before.reloads, True
        supervisor.replace_again = supervisor.replace_again or before.replace_again
        supervisor.adopt(*((s, hands[s.name]) for s in specs if s.name in hands))
        self._served = await apart_aside(
            lambda: self._prepare.put_snapshot(self._read_keys, first=True)
        )
        self._keys, supervisor.read_again = self._served.keys, self._served.old
        supervisor.tell_reload()
        await supervisor.start(*(spec for spec in specs if spec.name not in hands))
        logs.say(_log, logging.INFO, f"Version {__version__} goes on with {len(hands)} processes")
        supervisor.reloads += 1  # only now: `lightgate reload` waits for it
        supervisor.replacing = False
        supervisor.tell()

    async def _keep_lists(self, supervisor: Supervisor) -> asyncio.Task[None]:
        """Begin to look after the lists of models; wait a moment for the first, to name a model."""

        async def renew() -> None:
            self._served = await apart_aside(self._prepare.refresh_names)
            supervisor.tell_reload()
            self._tell_late_list()

        keeper = self._lists = ListKeeper(lambda: order_of(self._prepare), self.data, renew)
        task = asyncio.ensure_future(keeper.run())
        await supervisor.wait_unless_stopped(keeper.looked, LISTS_S)
        return task

    async def _start_data_plane(self, supervisor: Supervisor) -> ServedNames:
        """Start the workers; before them the simulator, whose port is in the snapshot."""
        if self._demo:
            (self._prepare.facts,) = await supervisor.start(self.processes.simulator())
        served = await apart_aside(lambda: self._prepare.put_snapshot(self._read_keys, first=True))
        self._keys, supervisor.read_again = served.keys, served.old
        await self._restore_spend()
        await supervisor.start(*self.processes.workers())
        return served

    async def _restore_spend(self) -> None:
        """Count what keys with a budget have spent already, before a worker spends more."""
        place, keys, shared = self.settings.ledger, self._keys, bool(self.settings.shared)
        if any(key.budget_usd is not None for key in keys):
            await apart_aside(lambda: restore_spend(place, keys, shared=shared))
        else:  # a worker that begins the file itself takes it for one that was lost
            with contextlib.suppress(CounterFileFailed):
                CounterFile(place.data / "spend").close()

    async def _reload(self) -> None:
        """Read the file again; log what changes only with the next start."""
        prepare = self._prepare
        prepare.path = find_config(self._options.config_file, env=os.environ, cwd=Path.cwd())
        fresh = self._for_now(await apart_aside(prepare.settings))
        mark = self.data / FORCED
        forced = mark.exists()
        mark.unlink(missing_ok=True)
        served = await apart_aside(
            lambda: prepare.put_snapshot(lambda: keys_in(fresh.ledger), first=False, forced=forced)
        )
        self.settings = self.processes.settings = fresh
        self._keys = served.keys
        self._config_taken.set()
        if self._lists is not None:
            self._lists.again()

    def _for_now(self, fresh: UpSettings) -> UpSettings:
        """The settings of a file that has changed, with those that no process takes over.

        A child that is started again must have the ledger and the store of the others.
        """
        now = {field: getattr(self.settings, field) for field in _NEEDS_RESTART}
        for field, name in _NEEDS_RESTART.items():
            if now[field] != getattr(fresh, field):
                logs.say(_log, logging.WARNING, f"{name} changes with the next start")
        return msgspec.structs.replace(fresh, **now)

    def _usable(self) -> bool:
        wall_ns = SYSTEM.wall_ns()
        return any(key.over(wall_ns) is None for key in self._keys)

    def _tell_late_list(self) -> None:
        """Name a model in the log that is served, where the greeting came too soon to know it."""
        served = self._served
        if self._greeted is not None and served.model not in {None, self._greeted}:
            self._greeted = served.model
            logs.say(_log, logging.INFO, f"The providers' lists of models have come: {served.names}"
                     f" names are served, such as {served.model}")  # fmt: skip

    def _greet(self) -> None:
        self._greeted = self._served.model or ""
        greeting = Greeting(self._served, self._usable(), self._prepare.facts)
        greet(greeting, self.processes, self._options.log_form)

    async def _keep_priors(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Put the priors of the ledger into the snapshot, now and then, until cancelled."""
        for pause_s in itertools.chain(PRIORS_S, itertools.repeat(PRIORS_S[-1])):
            await pause(pause_s)
            try:
                await apart_aside(self._prepare.refresh_priors)
            except LightgateError as error:
                logs.say(_log, logging.WARNING, f"The priors stay as they are. {error.message}")
            except Exception:  # noqa: BLE001 - the wall of a background task: workers need none
                _log.exception("The priors stay as they are")

    async def _tell_config(self) -> None:
        """Write down the configuration in force, now and after every reload, until cancelled.

        Where that fails it is tried again now and then: a full disk has room one day.
        """
        while True:
            self._config_taken.clear()
            again_s: float | None = None
            try:
                await apart_aside(self._write_config)
            except (LightgateError, OSError) as error:
                logs.say(_log, logging.WARNING, f"The console shows an old configuration: {error}")
                again_s = CONFIG_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self._config_taken.wait()

    def _write_config(self) -> None:
        from lightgate.cli.in_force import write_in_force  # with all that reads a configuration

        write_in_force(self.data, self._prepare.path, self._prepare.typed)

    def _state(self, started: str, children: tuple[ChildState, ...]) -> SupervisorState:
        return SupervisorState(
            pid=os.getpid(),
            version=__version__,
            started=started,
            host=self.settings.host,
            port=self.processes.port,
            console_host=self.processes.console_host,
            console_port=self.processes.console_port,
            children=children,
        )


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(f"--drain {text!r} is no duration.", hint="Such as 30s or 2m.") from None
