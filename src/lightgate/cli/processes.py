"""The processes of `lightgate up`: how each is started, what it is told, when it is stopped."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.errors import LightgateError
from lightgate.gateway.process import logs
from lightgate.gateway.process.apart import apart
from lightgate.gateway.process.lock import WORKER
from lightgate.gateway.process.port import reached_at
from lightgate.gateway.process.supervisor import ChildSpec
from lightgate.gateway.served.inner import CONSOLE_ENV, SECRET_ENV, new_secret
from lightgate.gateway.shared.store import SHARED_ENV
from lightgate.gateway.spend.shares import WORKERS as MOST_WORKERS

if TYPE_CHECKING:
    from lightgate.gateway.process.port import WorkerSockets
    from lightgate.gateway.process.prepare import Preparation, UpSettings

AFTER_DRAIN_S: Final = 5.0
CONSOLE_STOP_S: Final = 20.0
BATCHES_STOP_S: Final = 10.0  # for the lines of batches that are under way
SILENT_S: Final = 5  # after which a worker or the console is taken for hung
# The order of stopping: batches and demo traffic, workers (streams finish), simulator, console
# (ships last).
TRAFFIC, WORKERS, PROVIDERS, CONSOLE = range(4)
_CONSOLES: Final = frozenset((logs.CONSOLE_SECRET_ENV,))  # variables that only the console gets


class Processes:
    """The processes of one run, as they are to be started with the settings of now.

    `port` and `console_port` are known once they are reserved. `sockets` has those of each worker.
    `generation` counts how often the processes were replaced.
    """

    def __init__(
        self,
        prepare: Preparation,
        settings: UpSettings,
        *,
        console_host: str,
        world: str,
        log_form: logs.Form,
    ) -> None:
        self.settings = settings
        self.data = Path(settings.data)  # another one in a new configuration needs a restart
        self.console_host = console_host
        self.port = self.console_port = 0
        self.sockets: list[WorkerSockets] = []
        self.generation = 0
        self.flying: int | None = None  # the memory in which workers count what they have in flight
        # For the lines of batches and for the console's own requests; the program before this one
        # has left them, or they are made now.
        self.secrets = {
            name: os.environ.pop(name, "") or new_secret() for name in (SECRET_ENV, CONSOLE_ENV)
        }
        self._prepare = prepare
        self._world, self._log_form = world, log_form

    @property
    def gateway_url(self) -> str:
        """The gateway's address as this machine reaches it."""
        return reached_at(self.settings.host, self.port)

    @property
    def console_url(self) -> str:
        """The console's address as this machine reaches it."""
        return reached_at(self.console_host, self.console_port) + "/"

    def successors(self) -> list[ChildSpec]:
        """The children that take the places of those that run."""
        if 2 * len(self.sockets) > MOST_WORKERS:
            raise LightgateError(f"More than {MOST_WORKERS // 2} workers need a restart.")
        self.generation += 1
        return [*self.workers(), self.console(), self.batches()]

    def workers(self) -> list[ChildSpec]:
        """One worker for each set of sockets.

        Its number, under which it counts and keeps its journal, is free while its predecessor runs.
        """
        drain_s = self.settings.drain_ns / 1e9
        first = (self.generation % 2) * len(self.sockets)
        where = ("--data", str(self.data), "--host", self.settings.host, "--port", str(self.port),
                 "--console", self.console_url)  # fmt: skip
        counting = () if self.flying is None else ("--flying", str(self.flying))
        return [
            ChildSpec(
                name=f"{WORKER}{index}",
                argv=_module("lightgate.gateway.process.worker", *where, "--index",
                             str(first + index), "--place", str(index), "--drain-s", f"{drain_s:g}",
                             *(() if index else ("--probes",)), *counting),
                env={**self._environment(), **self.secrets, SHARED_ENV: self.settings.shared},
                without=_CONSOLES,
                stage=WORKERS,
                stop_s=drain_s + AFTER_DRAIN_S,
                reloads=True,
                retire_signal=signal.SIGUSR1,
                silent_s=SILENT_S,
                sockets=sockets,
                inherits=() if self.flying is None else (self.flying,),
            )
            for index, sockets in enumerate(self.sockets)
        ]  # fmt: skip

    def batches(self) -> ChildSpec:
        """The process that sends the lines of batches through the gateway."""
        where = ("--data", str(self.data), "--url", self.gateway_url)
        return ChildSpec(
            name="batches",
            argv=_module("lightgate.gateway.runner", *where),
            env={**self._environment(), SECRET_ENV: self.secrets[SECRET_ENV]},
            without=self._key_variables() | _CONSOLES,
            stage=TRAFFIC,
            stop_s=BATCHES_STOP_S,
            silent_s=SILENT_S,
        )

    def console(self) -> ChildSpec:
        """The control plane: pages, admin API, the way of journals into the ledger."""
        where = ("--data", str(self.data), "--host", self.console_host)
        retention_s = self.settings.retention_ns / 1e9
        return ChildSpec(
            name="console",
            argv=_module("lightgate.console", *where, "--port", str(self.console_port),
                         "--retention-s", f"{retention_s:g}"),
            env={**self._environment(), **self.settings.traces,
                 CONSOLE_ENV: self.secrets[CONSOLE_ENV], **self._config_file()},
            without=self._key_variables() - _CONSOLES,
            insists=True,  # its ledger may have been damaged since it was read for the keys
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
            **logs.environment_form(self._log_form),
            **self.settings.ledger.environment(),
        }

    def _key_variables(self) -> frozenset[str]:
        """The variables that hold a provider's key: only workers call providers."""
        secrets = self.settings.secrets
        holding = (name for name, value in os.environ.items() if value.strip() in secrets)
        return frozenset(holding)

    def simulator(self) -> ChildSpec:
        """The simulated providers of a demo."""
        from lightgate.sim.server.serve import SimOptions

        options = SimOptions(world=self._world, until_eof=True)
        return ChildSpec(
            name="simulator",
            argv=_module("lightgate.sim", msgspec.json.encode(options).decode()),
            without=self._key_variables() | _CONSOLES,
            stage=PROVIDERS,
            restart="never",  # its port is in the snapshot
        )

    def traffic(self) -> ChildSpec:
        """A few requests now and then, so that a demo has something to show."""
        from lightgate.gateway.process.demo import DemoTraffic

        models = apart(self._prepare.demo_models)
        traffic = DemoTraffic(base_url=f"{self.gateway_url}/v1", models=models)
        return ChildSpec(
            name="traffic",
            argv=_module("lightgate.gateway.process.demo", msgspec.json.encode(traffic).decode()),
            env={CONSOLE_ENV: self.secrets[CONSOLE_ENV]},
            without=self._key_variables() | _CONSOLES,
            stage=TRAFFIC,
        )


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *arguments)
