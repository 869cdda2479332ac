"""Work in a child process, and the lock of a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
from typing import TYPE_CHECKING

import msgspec
import pytest

from full_disk import full_disk, no_room
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.gateway.process.apart import _begun, apart, apart_aside
from lightgate.gateway.process.handover import ORDERS
from lightgate.gateway.process.lock import (
    ChildState,
    DataFolderLock,
    SupervisorState,
    read_state,
    unready,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_work_is_done_in_another_process_and_its_result_comes_back() -> None:
    def work() -> tuple[int, bytes, list[int]]:
        handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
        plain = sum(one == signal.SIG_DFL for one in handlers)
        return os.getpid(), b"x" * 200_000, [plain]

    pid, large, plain = apart(work)
    assert pid != os.getpid()
    assert (len(large), plain) == (200_000, [2])
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # it was waited for


def test_a_child_has_only_its_own_end_of_the_pipe() -> None:
    """A child whose parent has died ends with its answer: nothing else may hold the other end."""

    def pipes() -> list[int]:
        return [fd for fd in range(64) if _is_pipe(fd)]

    mine = pipes()
    assert len(set(apart(pipes)) - set(mine)) == 1


def test_a_child_whose_parent_reads_no_more_ends_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    here = os.getpid()
    try:
        # More than a pipe holds: the child still writes when nobody reads any more.
        child, reader = _begun(lambda: b"x" * 1_000_000, signal.SIG_DFL)
    finally:
        if os.getpid() != here:
            os._exit(9)  # the child came back into the test
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert capfd.readouterr().err == ""


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def test_an_error_of_ours_is_raised_here() -> None:
    def work() -> None:
        raise UsageError("No.", hint="Yes.")

    with pytest.raises(UsageError) as caught:
        apart(work)
    assert (caught.value.message, caught.value.hint) == ("No.", "Yes.")


def test_a_defect_of_the_child_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"ended with status 256 and no result"):
        apart(lambda: 1 // 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_child_that_is_killed_is_said() -> None:
    with pytest.raises(RuntimeError, match=r"status 9 "):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_a_child_that_ctrl_c_ended_is_an_interrupt_here() -> None:
    """A terminal sends SIGINT to both; the parent's loop may have taken its own one for later."""
    with pytest.raises(KeyboardInterrupt):
        apart(lambda: os.kill(os.getpid(), signal.SIGINT))


async def test_ctrl_c_does_not_end_work_that_is_done_aside() -> None:
    def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "done"

    assert await apart_aside(work) == "done"


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_to_reload_does_not_end_the_work(order: signal.Signals) -> None:
    """`pkill -HUP -f lightgate` reached the child that read the configuration, and ended `up`."""

    def work() -> str:
        os.kill(os.getpid(), order)
        return "done"

    assert apart(work) == "done"


def test_a_child_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """A lock or a listening socket would outlive a parent that is killed."""
    with socket.create_server(("127.0.0.1", 0)) as door, (tmp_path / "lock").open("w") as lock:
        mine = {door.fileno(), lock.fileno()}

        def work() -> set[int]:
            return {fd for fd in mine if _is_open(fd)}

        assert apart(work) == set()
        assert all(map(_is_open, mine))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def test_the_loop_goes_on_while_a_child_works(tmp_path: Path) -> None:
    """The child waits for what the loop does after it was started."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def work() -> str:
        return gate.read_text()

    working = asyncio.ensure_future(apart_aside(work))
    while True:
        with contextlib.suppress(OSError):  # until the child reads
            opened = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            break
        await asyncio.sleep(0)
    os.write(opened, b"told")
    os.close(opened)
    assert await working == "told"
    with pytest.raises(UsageError):
        await apart_aside(_refused)


def _refused() -> None:
    raise UsageError("No.")


async def test_a_child_is_killed_where_nobody_waits_for_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def work() -> None:
        mark.with_suffix(".new").write_text(str(os.getpid()))
        mark.with_suffix(".new").rename(mark)
        signal.pause()

    working = asyncio.ensure_future(apart_aside(work))
    while not mark.exists():
        await asyncio.sleep(0.001)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    while True:  # until the thread that waits for it has done so
        try:
            os.kill(int(mark.read_text()), 0)
        except ProcessLookupError:
            break
        await asyncio.sleep(0.001)


# The lock


def state(*children: ChildState) -> SupervisorState:
    return SupervisorState(
        pid=5, version="1", started="now", host="h", port=1, console_host="c", console_port=2,
        children=children,
    )  # fmt: skip


def test_a_full_disk_leaves_no_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness goes by the file: where no other can be made, this one is written over."""
    one = ChildState(name="worker-0", pid=7, ready=True, restarts=0)
    with DataFolderLock(tmp_path) as lock:
        full_disk(monkeypatch)
        with pytest.raises(OSError, match="No space"):  # there is no file yet
            lock.write(state(one))
        assert read_state(tmp_path) is None
        monkeypatch.undo()
        lock.write(state(one))
        assert unready(tmp_path) == []
        full_disk(monkeypatch)
        late = msgspec.structs.replace(one, ready=False)
        lock.write(state(late))
        assert read_state(tmp_path) == state(late)
        assert unready(tmp_path) == ["worker-0"]
        assert not list(tmp_path.glob("*.new"))
        many = [msgspec.structs.replace(one, name=f"worker-{n}") for n in range(200)]
        with pytest.raises(OSError, match="No space"):  # they do not fit
            lock.write(state(*many))
        assert read_state(tmp_path) == state(late)


def test_a_state_that_cannot_be_written_over_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(5, "broken")

    with DataFolderLock(tmp_path) as lock:
        lock.write(state())
        full_disk(monkeypatch)
        for write in (broken, lambda *_: 1):  # and a disk that takes a part of it
            monkeypatch.setattr("lightgate.gateway.process.lock.os.pwrite", write)
            with pytest.raises(OSError, match="No space"):
                lock.write(state())
        monkeypatch.undo()
        lock.write(state())


def test_a_start_on_a_full_disk_has_the_room_of_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DataFolderLock(tmp_path) as lock:
        lock.write(state())
    assert read_state(tmp_path) is None
    full_disk(monkeypatch)
    monkeypatch.setattr(
        "lightgate.gateway.process.lock.os.write", lambda *_: pytest.fail("a block was asked for")
    )
    one = ChildState(name="worker-0", pid=7, ready=True, restarts=0)
    with DataFolderLock(tmp_path) as lock:
        assert not lock.stale
        lock.write(state(one))
        assert read_state(tmp_path) == state(one)
        lock.write(state())
        assert read_state(tmp_path) == state()
        with pytest.raises(LightgateError, match=rf"pid {os.getpid()}\) already runs"):
            DataFolderLock(tmp_path)


def test_a_lock_that_no_pid_can_be_written_into_holds(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with no_room(), DataFolderLock(data), pytest.raises(LightgateError, match="pid unknown"):
        DataFolderLock(data)


def test_a_folder_has_one_supervisor(tmp_path: Path) -> None:
    data = tmp_path / "a" / "data"
    with DataFolderLock(data) as lock:
        assert not lock.stale
        assert data.stat().st_mode & 0o777 == 0o700
        lock.write(state())
        assert read_state(data) == state()
        with pytest.raises(LightgateError, match=rf"pid {os.getpid()}\) already runs"):
            DataFolderLock(data)
    assert read_state(data) is None
    lock.release()  # again
    with DataFolderLock(data) as lock:
        assert not lock.stale
        (data / "supervisor.json").write_text("{}")
        assert read_state(data) is None
    (data / "supervisor.json").write_bytes(msgspec.json.encode(state()))
    assert DataFolderLock(data).stale


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        DataFolderLock(tmp_path / "file" / "data")
    assert "--data" in caught.value.hint


def test_workers_that_do_not_serve_are_named(tmp_path: Path) -> None:
    assert unready(tmp_path) == []
    children = [
        ChildState(name=name, pid=1, ready=ready, restarts=0)
        for name, ready in (
            ("worker-1", False), ("worker-0", False), ("worker-2", True), ("console", False)
        )
    ]  # fmt: skip
    with DataFolderLock(tmp_path) as lock:
        lock.write(state(*children))
        assert unready(tmp_path) == ["worker-0", "worker-1"]
