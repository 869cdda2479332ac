"""Lock a data folder for one `lightgate up`, and write down which process and ports hold it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from lightgate.errors import ConfigError, LightgateError
from lightgate.whole_file import NO_ROOM, put

if TYPE_CHECKING:
    from types import TracebackType

STATE: Final = "supervisor.json"
LAST: Final = "supervisor.last"  # the same file while no supervisor runs: its room is needed again
LOCK: Final = "supervisor.lock"
FORCED: Final = "reload-forced"  # a file that lets the next reload remove every model or key
UPGRADE: Final = "reload-upgrade"  # a file that lets the next reload replace the supervisor too
WORKER: Final = "worker-"  # begins the name of a worker
PARENT_DEATH_ENV: Final = "LIGHTGATE_ENDS_WITH_PARENT"  # set for every child of a supervisor
ORPHANS_S: Final = 4.0  # the children of a supervisor that was killed are gone by then
ROOM_BYTES: Final = 8192  # by which the state grows: some 60 children fit
_LOOK_S: Final = 0.05
_PID_BYTES: Final = 32  # of the lock's file: always as long, so that it never needs another block


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """One child process now; `pid` is None between two lives."""

    name: str
    pid: int | None
    ready: bool
    restarts: int


class SupervisorState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `supervisor.json`; `port` and `console_port` are the bound ones."""

    pid: int
    version: str
    started: str
    host: str
    port: int
    console_host: str
    console_port: int
    reloads: int = 0  # replacements of all processes that have ended, well or not
    reload_error: str = ""  # of the last of them
    replacing: bool = False  # one is under way: an order that comes now waits for its end
    children: tuple[ChildState, ...] = ()


class DataFolderLock:
    """A lock on the data folder, which ends with the process in any case."""

    def __init__(self, data: Path, held: int | None = None) -> None:
        self.data = data
        self._lock = _taken(data) if held is None else held  # by the program before
        self.stale = (data / STATE).exists()  # the previous process did not end in order

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def write(self, state: SupervisorState) -> None:
        """Replace `supervisor.json` by atomic rename; on a full disk it is written over.

        It is filled up to whole blocks with white space, so that there is room for that: readiness
        goes by this file, and must not be that of an hour ago.
        """
        told = msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"
        told = told.ljust(-(-len(told) // ROOM_BYTES) * ROOM_BYTES - 1) + b"\n"
        try:
            put(self.data / STATE, told)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._written_over(told):
                raise

    def _written_over(self, told: bytes) -> bool:
        """Write into the blocks that the file, or that of the last process, has; whether so."""
        state, last = self.data / STATE, self.data / LAST
        at = state if state.exists() else last
        try:
            descriptor = os.open(at, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            room = os.fstat(descriptor).st_size
            if len(told) > room or os.pwrite(descriptor, told.ljust(room), 0) != room:
                return False
            if at is last:
                last.rename(state)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    @property
    def descriptor(self) -> int:
        """Of the file that is locked."""
        return self._lock

    def keep_in_place(self) -> bool:
        """Lock the folder again where it, its lock or its state was deleted; whether it was.

        LightgateError where another `lightgate up` has the folder by now, or none can be made.
        """
        if not _lies_at(self._lock, self.data / LOCK):
            fresh = _locked(self.data)
            os.close(self._lock)
            self._lock = fresh
            return True
        return not (self.data / STATE).exists()

    def release(self) -> None:
        """Take `supervisor.json` out of its place, then release the lock."""
        if self._lock >= 0:
            with contextlib.suppress(FileNotFoundError):
                (self.data / STATE).replace(self.data / LAST)
            os.close(self._lock)
            self._lock = -1


def end_orphans(data: Path, patience_s: float = ORPHANS_S) -> int:
    """Wait for the children of a supervisor that was killed, and kill those that stay.

    A child that is stopped (SIGSTOP) or hangs does not notice that its parent died: it would keep
    the port, and the lock on its journal. Call it with the folder's lock, which says that there is
    no other supervisor. Returns how many were killed; none where the system has no /proc.
    """
    until = time.monotonic() + patience_s
    while left := _orphans(data):
        if time.monotonic() >= until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while _orphans(data):
                time.sleep(_LOOK_S)
            return len(left)
        time.sleep(_LOOK_S)
    return 0


def _orphans(data: Path) -> list[int]:
    """The processes of supervisors that serve from this folder, but for our own children."""
    return [pid for pid, _ in _served_from(data)]


def _served_from(data: Path) -> list[tuple[int, int]]:
    """The processes that serve from this folder, but for our own children, with their parents."""
    found, folder, mark = [], data.resolve(), f"{PARENT_DEATH_ENV}=1".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            if b"--data" not in arguments or mark not in (entry / "environ").read_bytes():
                continue
            named = os.fsdecode(arguments[arguments.index(b"--data") + 1])
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if parent != os.getpid() and ((entry / "cwd").readlink() / named).resolve() == folder:
                found.append((int(entry.name), parent))
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile, or is another user's
    return found


def _supervisor_of(data: Path) -> int | None:
    """The process that serves from this folder and holds a lock which lies there no more."""
    for parent in sorted({parent for _, parent in _served_from(data)}):
        with contextlib.suppress(OSError):
            for entry in (Path("/proc") / str(parent) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if entry.readlink().name in {LOCK, f"{LOCK} (deleted)"}:
                        return parent
    return None


def read_state(data: Path) -> SupervisorState | None:
    """The content of a folder's `supervisor.json`, or None where none can be read."""
    try:
        return msgspec.json.decode((data / STATE).read_bytes(), type=SupervisorState)
    except (OSError, msgspec.DecodeError):
        return None


def unready(data: Path) -> list[str]:
    """The workers of a data folder that do not serve now; none where no supervisor says so."""
    state = read_state(data)
    workers = [] if state is None else [c for c in state.children if c.name.startswith(WORKER)]
    serving = {worker.name for worker in workers if worker.ready}
    return sorted({worker.name for worker in workers} - serving)


def _taken(data: Path) -> int:
    """Lock a folder for a start; also one whose lock was deleted under its holder is held."""
    lock = _locked(data)
    holder = _supervisor_of(data)
    if holder is not None:
        os.close(lock)
        raise _already(data, str(holder))
    return lock


def _already(data: Path, holder: str) -> LightgateError:
    return LightgateError(
        f"Another `lightgate up` (pid {holder or 'unknown'}) already runs on {data}.",
        hint="Stop it, or name another folder with --data.",
    )


def _lies_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    own = os.fstat(descriptor)
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _locked(data: Path) -> int:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as reason:
        raise ConfigError(
            f"The data folder {data} cannot be written: {reason.strerror}.",
            hint="Name another one with --data, or `data` under [gateway].",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(lock, _PID_BYTES).decode("ascii", "replace").strip()
        os.close(lock)
        raise _already(data, holder) from None
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
        os.pwrite(lock, f"{os.getpid()}\n".ljust(_PID_BYTES).encode(), 0)
    return lock
