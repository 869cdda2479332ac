"""Which ledger a process uses: decided here, for verbs, console and workers alike.

Needs no database library: a process that only has to know whether there is a ledger stays small.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.ledger.failed import LedgerNoRoom
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.sqlite import BUSY_S, FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lightgate.config.model import Config
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

DATA: Final = "lightgate-data"  # the data folder where no configuration names one
LEDGER_ENV: Final = "LIGHTGATE_LEDGER_URL"  # a URL may hold a password: never an argument
_PLAIN_SQLITE: Final = "sqlite"  # the file in the data folder
_ENV: Final = "env:"  # before the name of a variable


class LedgerPlace(msgspec.Struct, frozen=True):
    """Where a ledger is: its URL, and the data folder that "sqlite" stands for."""

    url: str
    data: Path

    @classmethod
    def of_process(cls, environ: Mapping[str, str], data: Path) -> LedgerPlace:
        """Find the ledger of a child of `lightgate up`: its URL is in the environment."""
        return cls(environ.get(LEDGER_ENV) or _PLAIN_SQLITE, data)

    @property
    def missing(self) -> bool:
        """Return whether this ledger has not been made yet."""
        return self.url == _PLAIN_SQLITE and not (self.data / FILE).is_file()

    @property
    def blank(self) -> bool:
        """Return whether this ledger has not been made yet, or its file is empty."""
        if self.url != _PLAIN_SQLITE:
            return False
        return self.missing or not (self.data / FILE).stat().st_size

    @property
    def own(self) -> bool:
        """Return whether this ledger is a file of this machine, which no other writes to."""
        return self.url.startswith(_PLAIN_SQLITE)

    def environment(self) -> dict[str, str]:
        """Return the environment that `of_process` reads."""
        return {LEDGER_ENV: self.url}

    def open(self, *, busy_s: float = BUSY_S, patience_s: float | None = None) -> Ledger:
        """Open the ledger; a new one is made, an older one brought up to date.

        `patience_s` is how long one statement of a server may take.
        """
        from lightgate.ledger.store.store import Ledger

        return Ledger.open(self.url, self.data, busy_s=busy_s, patience_s=patience_s)

    def later(self, *, patience_s: float | None = None) -> Ledger:
        """Give a ledger that is opened when it is used, where a server has it; else open it.

        A file that a full disk does not let be opened is opened when it is used, too.
        """
        from lightgate.ledger.store.store import Ledger

        if self.own:
            with contextlib.suppress(LedgerNoRoom):
                return self.open()
        return Ledger.later(self.url, self.data, patience_s=patience_s)

    def open_alone(self) -> Ledger:
        """Open a ledger that is a file to read it, without a byte of room on its disk."""
        from lightgate.ledger.store.store import Ledger

        return Ledger.alone(self.url, self.data)

    def open_existing(self, *, patience_s: float | None = None) -> Ledger:
        """Open a ledger that a verb is to read; UsageError where there is none."""
        if self.missing:
            raise UsageError(
                f"There is no ledger in {self.data}.",
                hint="`lightgate up` writes one; --data names its folder.",
            )
        return self.open(patience_s=patience_s)

    def put_aside(self, stamp: str) -> Path:
        """Give the damaged file of a ledger that nobody has open another name, which is told."""
        from lightgate.ledger.store.file_watch import FileWatch

        return FileWatch(self.data / FILE).put_aside(stamp)

    def keep_keys(self, records: Iterable[KeyRecord]) -> None:
        """Keep keys that a new ledger does not have."""
        from lightgate.ledger.store.keys import restore_keys

        with self.open() as ledger, ledger.writing() as connection:
            restore_keys(connection, records)

    def prepare(self) -> Callable[[], object]:
        """Begin to make the tables, or to bring them up to date, in a process of its own.

        The libraries for that take 11 MB, which a process that serves all day would keep. Call what
        is returned to wait for the end. What goes wrong there goes wrong again when the ledger is
        opened, and is said then.
        """
        if self.url != _PLAIN_SQLITE or self._up_to_date():
            return lambda: None
        child = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "lightgate.ledger.locate", str(self.data)],
            env={**os.environ, **self.environment()},
        )
        return child.wait

    def _up_to_date(self) -> bool:
        import sqlite3

        with contextlib.suppress(sqlite3.Error):
            base = sqlite3.connect(f"{(self.data / FILE).resolve().as_uri()}?mode=ro", uri=True)
            with contextlib.closing(base):
                found = base.execute("SELECT version_num FROM alembic_version").fetchone()
                return bool(found == (HEAD,))
        return False


def locate(config: Config | None, data: Path | None = None) -> LedgerPlace:
    """The ledger of the gateway that runs with a configuration and, where one is typed, a folder.

    Without a configuration it is the folder's own: so a verb reads a folder that it was pointed to.
    """
    if config is None:
        return LedgerPlace(_PLAIN_SQLITE, data or Path(DATA))
    return LedgerPlace(_meant(config.ledger.url), data or Path(config.gateway.data))


def _meant(url: str) -> str:
    """The URL that a configuration names: itself, or the value of its variable."""
    if not url.startswith(_ENV):
        return url
    name = url.removeprefix(_ENV)
    found = os.environ.get(name, "").strip()
    if not found:
        raise ConfigError(f"[ledger] url names the variable {name}, which is not set.")
    return found


if __name__ == "__main__":
    with contextlib.suppress(LightgateError):  # the process that asked meets it again
        LedgerPlace.of_process(os.environ, Path(sys.argv[1])).open().close()
