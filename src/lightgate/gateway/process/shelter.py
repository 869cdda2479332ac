"""What a gateway does to its own process before it serves: open files, modes of its files."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

ENOUGH: Final = 4096  # open files: about 2,000 streams in one worker, each with its provider's side
_OWN_FILES: Final = 64  # journal, counters, ledger, sockets of the worker itself
_PRIVATE: Final = 0o077  # what neither the group nor others may do


def raise_descriptors() -> tuple[int, int]:
    """Raise the limit of open files as far as the system lets; the limit before and now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 1_048_576)
    with contextlib.suppress(OSError, ValueError):  # a system may allow less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_connections() -> int:
    """The connections that a worker's open files allow: each may need one to a provider."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, (soft - _OWN_FILES) // 2)


def keep_private(data: Path) -> list[Path]:
    """Close a data folder to everybody else, and what this process and its children will write.

    Key hashes and cached answers are in it. Returns what could not be closed.
    """
    os.umask(_PRIVATE)
    left = []
    for path in (data.resolve(), *data.rglob("*")):  # the folder itself may be a link
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) or not mode & _PRIVATE:
                continue
            path.chmod(stat.S_IMODE(mode) & ~_PRIVATE)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(path)
    return left


def counts_memory() -> int | None:
    """Make the memory in which workers count; its descriptor, None where the system has none."""
    try:
        return os.memfd_create("lightgate-flying")
    except (AttributeError, OSError):
        return None
