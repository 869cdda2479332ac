"""Work that a long-lived process does now and then, done in a child: its memory goes with it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import resource
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from lightgate.errors import LightgateError
from lightgate.gateway.process.handover import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
_STDERR = 2
_MOST = 1 << 20  # where the system has no limit


def apart(work: Callable[[], Result]) -> Result:
    """Do the work in a forked child and give its result; a LightgateError is raised here.

    What the child imports, a database library above all, this process never holds. The result is
    pickled; nothing else that the work changes in memory comes back. Ctrl-C reaches the child too
    and ends it; here it is a KeyboardInterrupt.
    """
    answer, status = _ended(*_begun(work, signal.SIG_DFL))
    if not answer and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT:
        raise KeyboardInterrupt
    return cast("Result", _result(answer, status))


async def apart_aside(work: Callable[[], Result]) -> Result:
    """Do the same while the loop goes on: on a starved machine the work may take half a minute.

    Where the caller is cancelled, the child is killed. Ctrl-C leaves the child alone: whether the
    work is still wanted is decided here, where a first Ctrl-C lets open streams finish.
    """
    child, reader = _begun(work, signal.SIG_IGN)
    ending = asyncio.ensure_future(asyncio.to_thread(_ended, child, reader))
    try:
        answer, status = await asyncio.shield(ending)
    except asyncio.CancelledError:
        if not ending.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    return cast("Result", _result(answer, status))


def _begun(work: Callable[[], object], on_sigint: signal.Handlers) -> tuple[int, int]:
    """Start the child; its process id, and the descriptor that its answer is read from."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, writer, on_sigint)
    os.close(writer)
    return child, reader


def _ended(child: int, reader: int) -> tuple[bytes, int]:
    """Wait for the child's end; its answer and its status."""
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return answer, status


def _result(answer: bytes, status: int) -> Any:
    if not answer:
        raise RuntimeError(f"A child process ended with status {status} and no result.")
    done, result = pickle.loads(answer)  # noqa: S301 - written by our own child
    if not done:
        raise result
    return result


def _work(work: Callable[[], object], writer: int, on_sigint: signal.Handlers) -> NoReturn:
    """Be the child: leave the parent's loop, signals and exit handlers alone."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, on_sigint)
        for order in ORDERS:  # to reload: they are for the parent, which still wants the result
            signal.signal(order, signal.SIG_IGN)
        # Nothing of the parent's stays open: its lock and its listening sockets go with it if it is
        # killed. Its objects are never collected here, since their descriptors may be others' now.
        gc.freeze()
        os.closerange(_STDERR + 1, writer)
        os.closerange(writer + 1, _most_descriptors())
        sys.stderr = os.fdopen(_STDERR, "w", 1, closefd=False)
        try:
            answer = (True, work())
        except LightgateError as error:
            answer = (False, error)
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
        status = 0
    except BrokenPipeError:
        pass  # the parent is gone
    except BaseException:  # noqa: BLE001 - the wall of a process
        traceback.print_exc()
    os._exit(status)


def _most_descriptors() -> int:
    """One more than the highest descriptor that there can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, hard)
    return most if 0 < most < _MOST else _MOST
