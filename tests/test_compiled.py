"""Compiled modules on a disk without room: a part of one would stop every later start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from full_disk import no_room

if TYPE_CHECKING:
    from pathlib import Path

TRY = "import lightgate.ledger.journal.ship, lightgate.gateway.process.worker"
SOME_BYTES = 8192  # less than many a compiled module has


def load(cache: Path, *, code: str = TRY) -> str:
    """Import in a process that keeps compiled modules in a folder; what it says."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_disk_that_is_full_leaves_no_part_of_a_compiled_module(tmp_path: Path) -> None:
    load(tmp_path)  # what is loaded before the first module of ours is no part of this
    for file in tmp_path.rglob("lightgate/**/*.pyc"):
        file.unlink()
    with no_room(SOME_BYTES):  # a process has the limit of the one that starts it
        load(tmp_path)
    load(tmp_path)  # there is room again


def test_with_room_compiled_modules_are_kept(tmp_path: Path) -> None:
    load(tmp_path)
    assert list(tmp_path.rglob("ship.cpython-*.pyc"))


@pytest.mark.parametrize(("free", "kept"), [(1 << 20, False), (1 << 30, True)])
def test_the_room_of_the_disk_is_looked_at(tmp_path: Path, free: int, kept: bool) -> None:
    code = (
        "import os, sys\n"
        f"os.statvfs = lambda _: type('Room', (), dict(f_bavail={free}, f_frsize=1))\n"
        "import lightgate\n"
        "print(not sys.dont_write_bytecode)"
    )
    assert load(tmp_path, code=code) == str(kept)
