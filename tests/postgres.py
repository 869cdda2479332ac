"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, never as root.

Its password and its data are worth nothing, so it writes nothing to disk before it answers.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

USER = "lightgate"
PASSWORD = "moonlit-harbour"
_START_S = 60.0
_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


def programs() -> Path | None:
    """The folder of the server's programs; None where none is installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


class PostgresServer:
    """A server that runs while this is used as a context manager."""

    def __init__(self, bin_: Path, settings: tuple[str, ...] = _QUICK) -> None:
        self._bin = bin_
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        self.port = _free_port()

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="lightgate-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # initdb refuses root
            other = _other_user()
            os.chown(self._folder, other.pw_uid, other.pw_gid)
            self._as = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [self._bin / "initdb", "-D", self._folder / "data", "-U", USER, "-A", "scram-sha-256",
             f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "-N"],
            check=True, capture_output=True, cwd=self._folder, **self._as,
        )  # fmt: skip
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = (*self._settings, f"unix_socket_directories={self._folder}", f"port={self.port}",
                    "listen_addresses=127.0.0.1", "max_connections=60")  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._folder / "data",
                 *(word for setting in settings for word in ("-c", setting))],
                stdout=log, stderr=log, cwd=self._folder, **self._as,
            )  # fmt: skip
        until = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    said = (self._folder / "log").read_text()
                    raise RuntimeError(f"PostgreSQL does not start: {error}\n{said}") from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop it at once; connections are cut."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGQUIT)
            process.wait(_START_S)

    def crash(self) -> None:
        """Kill a session of Lightgate with -9: the server ends all others, and recovers."""
        of_ours = "SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'lightgate'"
        ((pid,),) = self.run(of_ours)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the server and all of its processes for a while: sockets stay open, and silent."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def freeze(self) -> None:
        """Stop the server and all of its processes where they are."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        if self._process is None:
            return []
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]

    def cpu_ns(self) -> int:
        """CPU that the server has spent, with that of its processes that have ended."""
        ticks, (parent, *children) = 0, self._pids()
        for pid in (*children, parent):  # one that ends meanwhile is in the parent's then
            with suppress(FileNotFoundError):
                numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, numbers[11 : 15 if pid == parent else 13]))
        return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))

    def url(self, database: str, user: str = USER, password: str = PASSWORD) -> str:
        """The URL of a database."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the owner of all."""
        with psycopg.connect(self.url(database), autocommit=True) as base:
            cursor = base.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def database(self, template: str = "template0") -> str:
        """Make a new database and give its URL."""
        self._made += 1
        name = f"{template}_{self._made}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever still uses it."""
        self.run(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("There is no user postgres and no user nobody.")
