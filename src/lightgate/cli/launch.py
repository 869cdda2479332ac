"""Run `lightgate up`: decide what to serve, lock the data folder, reserve ports, start, watch."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate import __version__
from lightgate.cli.output import note
from lightgate.clock.source import SYSTEM
from lightgate.config.load import find_config, load_config
from lightgate.config.notation import parse_duration
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.gateway.process import logs
from lightgate.gateway.process.apart import apart
from lightgate.gateway.process.lock import DataFolderLock, SupervisorState
from lightgate.gateway.process.port import ReservedPort, is_loopback
from lightgate.gateway.process.supervisor import ChildSpec, StoppedEarly, Supervisor, look
from lightgate.gateway.served.priors import gather_priors, priors_of
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import (
    SnapshotFailed,
    put_snapshot,
    read_snapshot,
    refresh_priors,
)
from lightgate.ledger.locate import locate
from lightgate.ledger.store.keys import KeyRecord, instant_text, read_keys
from lightgate.provider.catalogue import catalogue
from lightgate.provider.secret import first_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.config.model import Config
    from lightgate.gateway.process.lock import ChildState
    from lightgate.gateway.served.snapshot import Snapshot
    from lightgate.route.form.prior import Prior
    from lightgate.sim.server.serve import SimFacts
    from lightgate.sim.world import World

CONSOLE_HOST: Final = "127.0.0.1"
ORPHANS_S: Final = 4.0  # the children of a predecessor that was killed are gone by then
AFTER_DRAIN_S: Final = 5.0
CONSOLE_STOP_S: Final = 20.0
# After the start, until the ledger is asked what is known of targets: soon, since the snapshot of
# the start does not wait for it; then when a new target may have answered; then now and then.
PRIORS_S: Final = (2.0, 60.0, 600.0)
# The order of stopping: demo traffic, workers (streams finish), simulator, console (ships last).
TRAFFIC, WORKERS, PROVIDERS, CONSOLE = range(4)
_NEEDS_RESTART: Final = ("host", "port", "workers", "data", "drain")
_log = logging.getLogger(__name__)


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were typed; None for those that were not."""

    config_file: Path | None = None
    host: str | None = None
    port: int | None = None
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
    logs.start(options.log_form, secrets=logs.secrets_of(up.config, os.environ))
    with DataFolderLock(up.data) as folder:
        up.require_keys()
        table, patience_s = up.config.gateway, ORPHANS_S if folder.stale else 0.0
        gateway = await ReservedPort.make(table.host, table.port, patience_s=patience_s)
        with gateway:
            console = await ReservedPort.make(
                CONSOLE_HOST, options.console_port, option="--console-port", patience_s=patience_s
            )
            with console:
                await up.serve(folder, gateway.port, console.port)


class Launch:
    """One run of `lightgate up`."""

    def __init__(self, options: UpOptions) -> None:
        self._options = options
        self._path = find_config(options.config_file, env=os.environ, cwd=Path.cwd())
        self._known = look(self._path)  # before it is read: a change meanwhile is not missed
        self.config = self._read()
        self.data = Path(self.config.gateway.data)
        self._providers = _with_key()
        self._demo = options.demo
        if self._demo is None:
            self._demo = self._path is None and not self._providers
        self._world = self._load_world()
        self._facts: SimFacts | None = None
        self._keys: tuple[KeyRecord, ...] = ()
        self._port = self._console_port = 0  # known once they are reserved

    def require_keys(self) -> None:
        """Read the keys; a gateway that other machines can reach must have a usable one."""
        self._keys = self._read_keys()
        host = self.config.gateway.host
        if not is_loopback(host) and not self._usable():
            raise ConfigError(
                f"The gateway does not listen on {host} without a key: anybody could spend yours.",
                hint=f"Make one: lightgate keys create --name me --data {self.data}",
            )

    async def serve(self, folder: DataFolderLock, port: int, console_port: int) -> None:
        """Start all processes in their order, print the addresses, and keep the processes up."""
        self._port, self._console_port = port, console_port
        self._restore()
        started = instant_text(SYSTEM.wall_ns())

        def changed(children: tuple[ChildState, ...]) -> None:
            folder.write(self._state(started, children))

        supervisor = Supervisor(
            reload=self._reload, watched=lambda: self._path, known=self._known, changed=changed
        )
        async with supervisor:
            # Workers need no console: the two start side by side.
            console = asyncio.ensure_future(supervisor.start(self._console()))
            try:
                snapshot = await self._start_data_plane(supervisor)
                await console
            finally:
                console.cancel()
            self._greet(snapshot)
            if self._demo and not self._usable():
                with contextlib.suppress(StoppedEarly):  # it serves already: an end in order
                    await supervisor.start(self._traffic())
            priors = asyncio.ensure_future(self._keep_priors())
            try:
                await supervisor.run()
            finally:
                priors.cancel()

    async def _start_data_plane(self, supervisor: Supervisor) -> Snapshot:
        """Start the workers; before them the simulator, whose port is in the snapshot."""
        if self._demo:
            from lightgate.sim.server.serve import SimFacts

            (told,) = await supervisor.start(self._simulator())
            self._facts = msgspec.convert(told, SimFacts)
        snapshot = self._make_snapshot(self._first_priors())
        put_snapshot(self.data, snapshot)
        await supervisor.start(*self._workers())
        return snapshot

    def _reload(self) -> None:
        """Read the file again; log what changes only with the next start."""
        self._path = find_config(self._options.config_file, env=os.environ, cwd=Path.cwd())
        before, fresh = self.config.gateway, self._read()
        self._keys = self._read_keys()
        kept, self.config = self.config, fresh
        try:
            put_snapshot(self.data, self._make_snapshot(self._priors()))
        except BaseException:
            self.config = kept
            raise
        for name in _NEEDS_RESTART:
            if getattr(before, name) != getattr(fresh.gateway, name):
                logs.say(_log, logging.WARNING, f"[gateway] {name} changes with the next start")

    def _read(self) -> Config:
        """The configuration of the file, if there is one, under the options that were typed."""
        from lightgate.config.model import Config

        config = Config() if self._path is None else load_config(self._path)
        options = self._options
        typed: dict[str, Any] = {
            "host": options.host,
            "port": options.port,
            "workers": options.workers,
            "data": None if options.data is None else str(options.data),
            "drain": None if options.drain is None else _duration(options.drain),
        }
        over = {name: value for name, value in typed.items() if value is not None}
        return config.model_copy(update={"gateway": config.gateway.model_copy(update=over)})

    def _read_keys(self) -> tuple[KeyRecord, ...]:
        place = locate(self.config)
        if place.missing:
            return ()  # the console makes the ledger

        def read() -> tuple[KeyRecord, ...]:
            with place.open() as ledger, ledger.reading() as connection:
                return read_keys(connection)

        return apart(read)

    def _restore(self) -> None:
        """Raise the spend counters to what the ledger knows, before a worker runs."""
        if all(key.budget_usd is None for key in self._keys):
            return
        apart(self._ship_and_restore)

    def _ship_and_restore(self) -> None:
        from lightgate.gateway.spend.counters import SpendCounters, restore
        from lightgate.ledger.journal.ship import Shipper

        with (
            locate(self.config).open() as ledger,
            SpendCounters.open(self.data / "spend", 0) as spend,
        ):
            Shipper(ledger, self.data / "journal").drain()
            restore(spend, ledger, self._keys, SYSTEM.wall_ns())

    def _usable(self) -> bool:
        wall_ns = SYSTEM.wall_ns()
        return any(key.over(wall_ns) is None for key in self._keys)

    def _load_world(self) -> World | None:
        if not self._demo:
            return None
        from lightgate.sim.world_file import load

        return load(self._options.world)

    def _make_snapshot(self, priors: dict[str, Prior]) -> Snapshot:
        return make_snapshot(self._full(), self._keys, os.environ, priors=priors)

    def _full(self) -> Config:
        """The configuration, with the simulated providers of a demo."""
        if self._facts is None or self._world is None:
            return self.config
        from lightgate.gateway.process.demo import with_simulated

        return with_simulated(self.config, self._facts, self._world)

    def _first_priors(self) -> dict[str, Prior]:
        """The priors of the last snapshot and the configuration: no database delays the start."""
        known = gather_priors(self._full())
        try:
            before = read_snapshot(self.data).priors
        except SnapshotFailed:
            before = {}
        kept = {target: prior for target, prior in before.items() if target in known}
        told = {target: word for target, word in known.items() if word.source == "config"}
        return priors_of(known) | kept | priors_of(told)

    def _priors(self, *, strict: bool = False) -> dict[str, Prior]:
        """The priors of the ledger and of past runs, read in a process of its own."""
        full = self._full()
        return apart(
            lambda: priors_of(gather_priors(full, self.data, datetime.now(UTC), strict=strict))
        )

    async def _keep_priors(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Put the priors of the ledger into the snapshot, now and then, until cancelled."""
        for pause_s in itertools.chain(PRIORS_S, itertools.repeat(PRIORS_S[-1])):
            await pause(pause_s)
            try:
                config = self.config
                priors = await asyncio.to_thread(self._priors, strict=True)
                if config is self.config:  # else a reload has just made them
                    refresh_priors(self.data, priors)
            except LightgateError as error:
                logs.say(_log, logging.WARNING, f"The priors stay as they are. {error.message}")
            except Exception:  # noqa: BLE001 - the wall of a background task: workers need none
                _log.exception("The priors stay as they are")

    def _state(self, started: str, children: tuple[ChildState, ...]) -> SupervisorState:
        return SupervisorState(
            pid=os.getpid(),
            version=__version__,
            started=started,
            host=self.config.gateway.host,
            port=self._port,
            console_host=CONSOLE_HOST,
            console_port=self._console_port,
            children=children,
        )

    # What runs

    def _workers(self) -> list[ChildSpec]:
        table = self.config.gateway
        drain_s = table.drain / 1e9
        where = ("--data", str(self.data), "--host", table.host, "--port", str(self._port))
        return [
            ChildSpec(
                name=f"worker-{index}",
                argv=_module("lightgate.gateway.process.worker", *where, "--index", str(index),
                             "--drain-s", f"{drain_s:g}"),
                env=self._environment(),
                stage=WORKERS,
                stop_s=drain_s + AFTER_DRAIN_S,
                reloads=True,
            )
            for index in range(table.workers)
        ]  # fmt: skip

    def _console(self) -> ChildSpec:
        where = ("--data", str(self.data), "--host", CONSOLE_HOST)
        ledger = self.config.ledger
        return ChildSpec(
            name="console",
            argv=_module("lightgate.console", *where, "--port", str(self._console_port),
                         "--retention-s", f"{ledger.retention / 1e9:g}"),
            env=self._environment(),
            stage=CONSOLE,
            stop_s=CONSOLE_STOP_S,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {
            **logs.environment_form(self._options.log_form),
            **locate(self.config).environment(),
        }

    def _simulator(self) -> ChildSpec:
        from lightgate.sim.server.serve import SimOptions

        options = SimOptions(world=self._options.world, until_eof=True)
        return ChildSpec(
            name="simulator",
            argv=_module("lightgate.sim", msgspec.json.encode(options).decode()),
            stage=PROVIDERS,
            restart="never",  # its port is in the snapshot
        )

    def _traffic(self) -> ChildSpec:
        from lightgate.gateway.process.demo import DemoTraffic, first_targets

        models = tuple(first_targets(self._world)) if self._world is not None else ()
        traffic = DemoTraffic(base_url=f"{self._base()}/v1", models=models)
        return ChildSpec(
            name="traffic",
            argv=_module("lightgate.gateway.process.demo", msgspec.json.encode(traffic).decode()),
            stage=TRAFFIC,
        )

    # What is said

    def _base(self) -> str:
        """The gateway's address as this machine reaches it."""
        host = self.config.gateway.host
        if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - recognised, not bound
            host = "127.0.0.1"
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def _greet(self, snapshot: Snapshot) -> None:
        """Print a few lines for a person, or one record for a program."""
        keyed = self._usable()
        who = "a key is needed" if keyed else "no key: loopback only"
        gateway = f"{self._base()}/v1"
        console = f"http://{CONSOLE_HOST}:{self._console_port}/"
        workers = self.config.gateway.workers
        if logs.chosen(self._options.log_form, sys.stderr) == "json":
            logs.say(
                _log,
                logging.INFO,
                "Serving",
                gateway=gateway,
                console=console,
                keys=who,
                workers=workers,
                providers=list(snapshot.providers),
                data=str(self.data),
            )
            return
        crew = "1 worker" if workers == 1 else f"{workers} workers"
        note(f"Gateway    {gateway}   ({crew}; {who})")
        note(f"Console    {console}   (live speeds, /metrics)")
        note(f"Providers  {self._served(snapshot)}")
        note(f"Data       {self.data}")
        note(f"Try        {self._curl(snapshot, keyed=keyed)}")
        note("Ctrl-C lets open streams finish and stops.")

    def _served(self, snapshot: Snapshot) -> str:
        names = [name for name in snapshot.providers if not name.startswith("sim-")]
        real = ", ".join(names)
        if self._facts is None:
            return (
                real
                or "none: no provider key is in the environment (`lightgate models` says which)"
            )
        count = len(self._facts.providers)
        told = f"{count} simulated ones of the world {self._facts.world}, with light demo traffic"
        if real:
            return f"{real}; {told}"
        return f"{told}; set a provider's key, such as GROQ_API_KEY, for real ones"

    def _curl(self, snapshot: Snapshot, *, keyed: bool) -> str:
        shown = ' -H "authorization: Bearer $LIGHTGATE_KEY"' if keyed else ""
        if not snapshot.aliases:
            return f"curl {self._base()}/v1/models{shown}"
        body = (
            f'{{"model":"{snapshot.aliases[0].name}","stream":true,"max_tokens":60,'
            '"messages":[{"role":"user","content":"Hello"}]}'
        )
        url = f"{self._base()}/v1/chat/completions"
        return f"curl -N {url}{shown} -H 'content-type: application/json' -d '{body}'"


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)


def _with_key() -> list[str]:
    """The providers whose key is in the environment."""
    return [
        name for name, row in catalogue().items() if first_set(row.key_env, os.environ) is not None
    ]


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as reason:
        raise UsageError(f"--drain {text!r} is no duration.", hint=f"{reason}.") from None
