"""Run `lightgate up`: decide what to serve, lock the data folder, reserve ports, start, watch."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate import __version__
from lightgate.cli.output import note
from lightgate.clock.source import SYSTEM
from lightgate.config.load import find_config
from lightgate.config.notation import parse_duration
from lightgate.console.admin.sign_in import SignIns, link_address
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.gateway.process import logs
from lightgate.gateway.process.apart import apart, apart_aside
from lightgate.gateway.process.handover import Handover, check_installed, hand_over, taken_over
from lightgate.gateway.process.lists import ListKeeper, order_of
from lightgate.gateway.process.lock import (
    FORCED,
    ORPHANS_S,
    UPGRADE,
    WORKER,
    DataFolderLock,
    SupervisorState,
    end_orphans,
)
from lightgate.gateway.process.port import ReservedPort, is_loopback, require_secret
from lightgate.gateway.process.prepare import (
    Preparation,
    ServedNames,
    keys_in,
    providers_with_key,
    restore_spend,
)
from lightgate.gateway.process.shelter import ENOUGH, keep_private, raise_descriptors
from lightgate.gateway.process.supervisor import ChildSpec, StoppedEarly, Supervisor, look
from lightgate.gateway.served.inner import CONSOLE_ENV, SECRET_ENV, new_secret
from lightgate.gateway.shared.store import SHARED_ENV
from lightgate.gateway.spend.shares import WORKERS as MOST_WORKERS
from lightgate.ledger.store.keys import KeyRecord, instant_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.gateway.process.lock import ChildState
    from lightgate.gateway.process.port import WorkerSockets

AFTER_DRAIN_S: Final = 5.0
CONSOLE_STOP_S: Final = 20.0
BATCHES_STOP_S: Final = 10.0  # for the lines of batches that are under way
SILENT_S: Final = 5  # after which a worker or the console is taken for hung
# After the start, until the ledger is asked what is known of targets: soon, since the snapshot of
# the start does not wait for it; then when a new target may have answered; then now and then.
PRIORS_S: Final = (2.0, 60.0, 600.0)
CONFIG_S: Final = 60.0  # before a configuration in force is written that a full disk did not take
LISTS_S: Final = 3.0  # that the greeting waits for the providers' lists of models, at the most
# The order of stopping: batches and demo traffic, workers (streams finish), simulator, console
# (ships last).
TRAFFIC, WORKERS, PROVIDERS, CONSOLE = range(4)
AUTO: Final = (
    "on: a model that several of your providers have is routed, hedged and failed over between"
    " them; other providers mean other prices and terms"
)
_NEEDS_RESTART: Final = {
    "host": "[gateway] host", "port": "[gateway] port", "workers": "[gateway] workers",
    "data": "[gateway] data", "drain_ns": "[gateway] drain", "shared": "[shared] url",
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


async def launch(options: UpOptions) -> None:
    """Serve until told to stop."""
    logs.start(options.log_form)
    up = Launch(options)
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
            up.sockets = gateway.share(settings.workers)
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
        with gateway, ReservedPort.of_hand(up.console_host, before.console) as console:
            up.sockets = gateway.shared
            up.leave = gateway.stop_listening
            await up.serve(folder, gateway, console, before)


class Launch:
    """One run of `lightgate up`."""

    def __init__(self, options: UpOptions) -> None:
        self._options = options
        self.console_host = options.console_host
        self._config_taken = asyncio.Event()
        require_secret(self.console_host, os.environ)
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
        self.data = Path(self.settings.data)
        self._keys: tuple[KeyRecord, ...] = ()
        self._port = self._console_port = 0  # known once they are reserved
        self.sockets: list[WorkerSockets] = []  # one worker's each
        self.leave: Callable[[], None] = lambda: None  # refuses connections from then on
        self._generation = 0  # how often the processes were replaced
        self._served = ServedNames(providers=(), model=None)  # known once there is a snapshot
        self._lists: ListKeeper | None = None
        # For the lines of batches and for the console's own requests; the program before this one
        # has left them, or they are made now.
        self._secrets = {
            name: os.environ.pop(name, "") or new_secret() for name in (SECRET_ENV, CONSOLE_ENV)
        }

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
        return keys_in(self.settings.ledger)

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
        self._port, self._console_port = gateway.port, console_at.port
        self._prepare.port = gateway.port
        started = instant_text(SYSTEM.wall_ns()) if before is None else before.started

        def changed(children: tuple[ChildState, ...]) -> None:
            state = self._state(started, children)
            done, error = supervisor.reloads, supervisor.reload_error
            folder.write(msgspec.structs.replace(state, reloads=done, reload_error=error))

        async def upgrade() -> None:
            if (self.data / UPGRADE).exists():
                (self.data / UPGRADE).unlink(missing_ok=True)
                await check_installed()
                logs.say(_log, logging.INFO, "The supervisor becomes the installed version")
                hand_over(
                    Handover(
                        lock=folder.descriptor,
                        gateway=gateway.hand(),
                        console=console_at.hand(),
                        generation=self._generation,
                        reloads=supervisor.reloads,
                        started=started,
                        children=supervisor.hands(),
                        facts=None if self._prepare.facts is None else dict(self._prepare.facts),
                    ),
                    self._secrets,
                )

        supervisor = Supervisor(
            reload=self._reload,
            watched=lambda: self._prepare.path,
            known=self._known,
            changed=changed,
            renew=self._successors,
            leave=self.leave,
        )
        supervisor.upgrade = upgrade
        async with supervisor:
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
                    self._greet(self._served)
                if before is None and self._demo and not self._usable():
                    with contextlib.suppress(StoppedEarly):  # it serves already: an end in order
                        await supervisor.start(self._traffic())
                await supervisor.run()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _start_all(self, supervisor: Supervisor) -> None:
        # Side by side. Batches wait: they have nothing to do before, and would delay the workers.
        console = asyncio.ensure_future(supervisor.start(self._console()))
        try:
            self._served = await self._start_data_plane(supervisor)
            await supervisor.start(self._batches())
            await console
        finally:
            console.cancel()

    async def _adopt(self, supervisor: Supervisor, before: Handover) -> None:
        """Go on with the processes of the program before, and start those that did not serve."""
        self._generation, self._prepare.facts = before.generation, before.facts
        specs = [*self._workers(), self._console(), self._batches()]
        if self._demo:
            specs.append(self._simulator())
            specs += [] if self._usable() else [self._traffic()]
        hands = {hand.name: hand for hand in before.children}
        supervisor.reloads = before.reloads + 1
        supervisor.adopt(*((s, hands[s.name]) for s in specs if s.name in hands))
        self._served = await apart_aside(
            lambda: self._prepare.put_snapshot(self._read_keys, first=True)
        )
        self._keys, supervisor.read_again = self._served.keys, self._served.old
        supervisor.tell_reload()
        await supervisor.start(*(spec for spec in specs if spec.name not in hands))
        logs.say(_log, logging.INFO, f"Version {__version__} goes on with {len(hands)} processes")

    async def _keep_lists(self, supervisor: Supervisor) -> asyncio.Task[None]:
        """Begin to look after the lists of models; wait a moment for the first, to name a model."""

        async def renew() -> None:
            self._served = await apart_aside(self._prepare.refresh_names)
            supervisor.tell_reload()

        keeper = self._lists = ListKeeper(lambda: order_of(self._prepare), self.data, renew)
        task = asyncio.ensure_future(keeper.run())
        await supervisor.wait_unless_stopped(keeper.looked, LISTS_S)
        return task

    async def _start_data_plane(self, supervisor: Supervisor) -> ServedNames:
        """Start the workers; before them the simulator, whose port is in the snapshot."""
        if self._demo:
            (self._prepare.facts,) = await supervisor.start(self._simulator())
        served = await apart_aside(lambda: self._prepare.put_snapshot(self._read_keys, first=True))
        self._keys, supervisor.read_again = served.keys, served.old
        await self._restore_spend()
        await supervisor.start(*self._workers())
        return served

    async def _restore_spend(self) -> None:
        """Count what keys with a budget have spent already, before a worker spends more."""
        place, keys, shared = self.settings.ledger, self._keys, bool(self.settings.shared)
        if any(key.budget_usd is not None for key in keys):
            await apart_aside(lambda: restore_spend(place, keys, shared=shared))

    async def _reload(self) -> None:
        """Read the file again; log what changes only with the next start."""
        prepare = self._prepare
        prepare.path = find_config(self._options.config_file, env=os.environ, cwd=Path.cwd())
        fresh = await apart_aside(prepare.settings)
        mark = self.data / FORCED
        forced = mark.exists()
        mark.unlink(missing_ok=True)
        served = await apart_aside(
            lambda: prepare.put_snapshot(lambda: keys_in(fresh.ledger), first=False, forced=forced)
        )
        before, self.settings, self._keys = self.settings, fresh, served.keys
        self._config_taken.set()
        if self._lists is not None:
            self._lists.again()
        for field, name in _NEEDS_RESTART.items():
            if getattr(before, field) != getattr(fresh, field):
                logs.say(_log, logging.WARNING, f"{name} changes with the next start")

    def _usable(self) -> bool:
        wall_ns = SYSTEM.wall_ns()
        return any(key.over(wall_ns) is None for key in self._keys)

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
            port=self._port,
            console_host=self.console_host,
            console_port=self._console_port,
            children=children,
        )

    # What runs

    def _successors(self) -> list[ChildSpec]:
        """The children that take the places of those that run."""
        if 2 * len(self.sockets) > MOST_WORKERS:
            raise LightgateError(f"More than {MOST_WORKERS // 2} workers need a restart.")
        self._generation += 1
        return [*self._workers(), self._console(), self._batches()]

    def _workers(self) -> list[ChildSpec]:
        """One worker for each set of sockets.

        Its number, under which it counts and keeps its journal, is free while its predecessor runs.
        """
        drain_s = self.settings.drain_ns / 1e9
        first = (self._generation % 2) * len(self.sockets)
        where = ("--data", str(self.data), "--host", self.settings.host, "--port", str(self._port),
                 "--console", _address(self.console_host, self._console_port) + "/")  # fmt: skip
        return [
            ChildSpec(
                name=f"{WORKER}{index}",
                argv=_module("lightgate.gateway.process.worker", *where, "--index",
                             str(first + index), "--drain-s", f"{drain_s:g}",
                             *(() if index else ("--probes",))),
                env={**self._environment(), **self._secrets, SHARED_ENV: self.settings.shared},
                stage=WORKERS,
                stop_s=drain_s + AFTER_DRAIN_S,
                reloads=True,
                retire_signal=signal.SIGUSR1,
                silent_s=SILENT_S,
                sockets=sockets,
            )
            for index, sockets in enumerate(self.sockets)
        ]  # fmt: skip

    def _batches(self) -> ChildSpec:
        """The process that sends the lines of batches through the gateway."""
        where = ("--data", str(self.data), "--url", self._base())
        return ChildSpec(
            name="batches",
            argv=_module("lightgate.gateway.runner", *where),
            env={**self._environment(), SECRET_ENV: self._secrets[SECRET_ENV]},
            without=self._key_variables(),
            stage=TRAFFIC,
            stop_s=BATCHES_STOP_S,
            silent_s=SILENT_S,
        )

    def _console(self) -> ChildSpec:
        where = ("--data", str(self.data), "--host", self.console_host)
        retention_s = self.settings.retention_ns / 1e9
        return ChildSpec(
            name="console",
            argv=_module("lightgate.console", *where, "--port", str(self._console_port),
                         "--retention-s", f"{retention_s:g}"),
            env={**self._environment(), **self.settings.traces,
                 CONSOLE_ENV: self._secrets[CONSOLE_ENV], **self._config_file()},
            without=self._key_variables(),
            stage=CONSOLE,
            stop_s=CONSOLE_STOP_S,
            silent_s=SILENT_S,
        )  # fmt: skip

    def _config_file(self) -> dict[str, str]:
        """The configuration file for a process that reads it by itself."""
        path = self._prepare.path
        return {} if path is None else {"LIGHTGATE_CONFIG": str(path.absolute())}

    def _environment(self) -> dict[str, str]:
        return {
            **logs.environment_form(self._options.log_form),
            **self.settings.ledger.environment(),
        }

    def _key_variables(self) -> frozenset[str]:
        """The variables that hold a provider's key: only workers call providers."""
        secrets = self.settings.secrets
        holding = (name for name, value in os.environ.items() if value.strip() in secrets)
        return frozenset(holding) - {logs.CONSOLE_SECRET_ENV}

    def _simulator(self) -> ChildSpec:
        from lightgate.sim.server.serve import SimOptions

        options = SimOptions(world=self._options.world, until_eof=True)
        return ChildSpec(
            name="simulator",
            argv=_module("lightgate.sim", msgspec.json.encode(options).decode()),
            without=self._key_variables(),
            stage=PROVIDERS,
            restart="never",  # its port is in the snapshot
        )

    def _traffic(self) -> ChildSpec:
        from lightgate.gateway.process.demo import DemoTraffic

        models = apart(self._prepare.demo_models)
        traffic = DemoTraffic(base_url=f"{self._base()}/v1", models=models)
        return ChildSpec(
            name="traffic",
            argv=_module("lightgate.gateway.process.demo", msgspec.json.encode(traffic).decode()),
            without=self._key_variables(),
            stage=TRAFFIC,
        )

    # What is said

    def _base(self) -> str:
        """The gateway's address as this machine reaches it."""
        return _address(self.settings.host, self._port)

    def _greet(self, served: ServedNames) -> None:
        """Print a few lines for a person, or one record for a program."""
        keyed = self._usable()
        who = "a key is needed" if keyed else "no key: loopback only"
        gateway = f"{self._base()}/v1"
        console = _address(self.console_host, self._console_port) + "/"
        workers = self.settings.workers
        if logs.chosen(self._options.log_form, sys.stderr) == "json":
            logs.say(
                _log,
                logging.INFO,
                "Serving",
                gateway=gateway,
                console=console,
                keys=who,
                workers=workers,
                providers=list(served.providers),
                names=served.names,
                auto=served.auto,
                ignored=list(served.ignored),
                try_model=served.model,
                data=str(self.data),
            )
            return
        crew = "1 worker" if workers == 1 else f"{workers} workers"
        note(f"Gateway    {gateway}   ({crew}; {who})")
        note(f"Console    {console}   (live speeds, /metrics)")
        note(f"Sign in    {self._sign_in()}")
        note(f"Providers  {self._providers(served)}")
        if served.model is not None:
            more = f"; all {served.names}: GET /v1/models" if served.names > 1 else ""
            note(f"Models     by their own names, such as {served.model}{more}")
        elif served.providers:
            note(f"Models     as {served.providers[0]}/MODEL: which ones there are is not known")
        if served.auto:
            note(f"Auto       {AUTO}")
        for name in served.ignored:
            note(f"Ignored    {name}: it points at this gateway itself; clients may use it")
        note(f"Data       {self.data}")
        note(f"Try        {self._example(served, keyed=keyed)}")
        note("Ctrl-C lets open streams finish and stops.")

    def _sign_in(self) -> str:
        """A link that is good once; only for a terminal: other lines may be kept as a log."""
        if not sys.stderr.isatty():
            return "`lightgate console link` prints a link, to change keys and to start races"
        try:
            code = SignIns(self.data).new_link("up")
        except OSError as error:
            return f"no link could be made: {error.strerror}"
        url = link_address(self.console_host, self._console_port, code)
        return f"{url}   (once, within 10 minutes)"

    def _providers(self, served: ServedNames) -> str:
        names = [name for name in served.providers if not name.startswith("sim-")]
        real = ", ".join(names)
        facts = self._prepare.facts
        if facts is None:
            return (
                real
                or "none: no provider key is in the environment (`lightgate models` says which)"
            )
        count = len(facts["providers"])
        told = f"{count} simulated ones of the world {facts['world']}, with light demo traffic"
        if real:
            return f"{real}; {told}"
        return f"{told}; set a provider's key, such as GROQ_API_KEY, for real ones"

    def _example(self, served: ServedNames, *, keyed: bool) -> str:
        """A command that gets an answer; without any provider, what to do first."""
        if not served.providers:
            return "set a provider's key, such as OPENAI_API_KEY, and start again"
        shown = ' -H "authorization: Bearer $LIGHTGATE_KEY"' if keyed else ""
        model = served.model or f"{served.providers[0]}/MODEL"
        body = (
            f'{{"model":"{model}","stream":true,"max_tokens":60,'
            '"messages":[{"role":"user","content":"Hello"}]}'
        )
        url = f"{self._base()}/v1/chat/completions"
        return f"curl -N {url}{shown} -H 'content-type: application/json' -d '{body}'"


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)


def _address(host: str, port: int) -> str:
    """Where this machine reaches a server that listens on a host."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - recognised, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(f"--drain {text!r} is no duration.", hint="Such as 30s or 2m.") from None
