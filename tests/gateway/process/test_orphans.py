"""Children of a supervisor that was killed: which processes they are, and how they end."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import LightgateError
from lightgate.gateway.process import lock

if TYPE_CHECKING:
    from pathlib import Path

ENV = f"PATH=/bin\0{lock.PARENT_DEATH_ENV}=1\0".encode()


class Processes:
    """A /proc of a test's own."""

    def __init__(self, root: Path, data: Path) -> None:
        self.root = root
        self.data = data

    def add(self, pid: int, *, parent: int = 1, data: str = "", env: bytes = ENV) -> None:
        entry = self.root / str(pid)
        entry.mkdir(parents=True)
        arguments = ["python", "-m", "lightgate", "--data", data or str(self.data), "x"]
        (entry / "cmdline").write_bytes("\0".join(arguments).encode())
        (entry / "environ").write_bytes(env)
        (entry / "stat").write_bytes(b"%d (a ) b) S %d 7 7" % (pid, parent))
        (entry / "cwd").symlink_to(self.data.parent)


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    data = tmp_path / "data"
    data.mkdir()
    made = Processes(tmp_path / "proc", data)
    monkeypatch.setattr(lock, "Path", lambda path: {"/proc": made.root}[path])
    return made


def test_orphans_serve_from_the_folder_and_are_no_children_of_ours(processes: Processes) -> None:
    processes.add(11)
    processes.add(12, data="data")  # from its own folder
    processes.add(13, data="other")
    processes.add(14, parent=os.getpid())
    processes.add(15, env=b"PATH=/bin\0")
    processes.add(16)
    (processes.root / "16" / "cmdline").write_bytes(b"python\0--data")
    processes.add(17)
    (processes.root / "17" / "stat").unlink()
    processes.add(18)
    (processes.root / "18" / "stat").write_bytes(b"18 (x) S y")
    processes.add(19)
    (processes.root / "19" / "cmdline").write_bytes(b"python\0x")
    processes.add(20)
    assert sorted(lock._orphans(processes.data)) == [11, 12, 20]


def test_a_folder_whose_lock_was_deleted_under_its_holder_is_held(
    processes: Processes, tmp_path: Path
) -> None:
    """Nobody holds the lock that is there now: it is another file."""
    processes.add(11, parent=7)
    processes.add(12, parent=5)  # of a program that holds nothing here
    processes.add(13, parent=6)  # whose descriptors cannot be read
    for parent in (5, 7):
        (processes.root / str(parent) / "fd").mkdir(parents=True)
        (processes.root / str(parent) / "fd" / "3").symlink_to("/dev/null")
    lock.DataFolderLock(processes.data).release()
    for name in (lock.LOCK, f"{lock.LOCK} (deleted)"):  # moved away, deleted
        held = processes.root / "7" / "fd" / "4"
        held.symlink_to(tmp_path / name)
        with pytest.raises(LightgateError, match=r"\(pid 7\) already runs on"):
            lock.DataFolderLock(processes.data)
        held.unlink()
    lock.DataFolderLock(processes.data).release()


def test_orphans_have_a_while_and_are_killed_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left, killed = [100.0], [{7, 8}], list[tuple[int, int]]()

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        if pid == 8:
            raise ProcessLookupError

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if killed:
            left[0] = set()

    monkeypatch.setattr(lock, "_orphans", lambda data: sorted(left[0]))
    monkeypatch.setattr(lock, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(os, "kill", kill)
    folder: Path = None  # type: ignore[assignment] # the look at processes is a test's own
    assert lock.end_orphans(folder, 1.0) == 2
    assert killed == [(7, signal.SIGKILL), (8, signal.SIGKILL)]
    assert 1.0 < now[0] - 100.0 < 1.2
    assert lock.end_orphans(folder, 1.0) == 0
    left[0], killed[:] = {9}, [(0, 0)]  # it ends by itself
    assert lock.end_orphans(folder, 1.0) == 0
    assert killed == [(0, 0)]
