from __future__ import annotations

import asyncio
import errno
import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process.child import FIRST_PAUSE_S, HEALTHY_S, LONGEST_PAUSE_S, Backoff
from lightgate.gateway.process.lock import (
    LOCK,
    PARENT_DEATH_ENV,
    STATE,
    DataFolderLock,
    SupervisorState,
    end_orphans,
    read_state,
)
from lightgate.gateway.process.port import ReservedPort, is_loopback, refused
from lightgate.gateway.process.supervisor import (
    AGAIN_LOOKS,
    ChildSpec,
    StoppedEarly,
    Supervisor,
    look,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lightgate.gateway.process.lock import ChildState

READY = 'print(\'{"ready": true, "port": 1}\', flush=True)'


def done(work: Callable[[], object]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Work that is over at once, as something to wait for."""

    async def run() -> None:
        work()

    return run


def spec(code: str, **more: Any) -> ChildSpec:
    """A child of so many lines."""
    lines = textwrap.dedent(code).strip()
    given = {"name": "child", **more}
    return ChildSpec(argv=(sys.executable, "-c", f"import os, signal, sys\n{lines}"), **given)


def serving(**more: Any) -> ChildSpec:
    """A child that serves until it is told to stop."""
    return spec(f"{READY}\nsignal.pause()", **more)


def noting(path: Path, word: str, **more: Any) -> ChildSpec:
    """A child that writes a word when SIGTERM or SIGHUP reaches it."""
    return spec(
        f"""
        signals = {{signal.SIGTERM, signal.SIGHUP}}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # one before the wait is not lost
        {READY}
        while True:
            number = signal.sigwait(signals)
            with open({str(path)!r}, "a") as out:
                out.write({word!r} + signal.Signals(number).name + "\\n")
            if number == signal.SIGTERM:
                sys.exit(0)
        """,
        **more,
    )


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def alone(states: list[tuple[ChildState, ...]]) -> ChildState:
    return states[-1][0]


# Lives


async def test_a_child_is_ready_when_it_says_so_and_gone_when_it_is_told() -> None:
    async with Supervisor() as supervisor:
        (facts,) = await supervisor.start(serving())
        assert facts == {"ready": True, "port": 1}
        pid = supervisor._children[0].pid
        assert pid is not None
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


async def test_a_crashed_child_is_started_again(tmp_path: Path) -> None:
    states: list[tuple[ChildState, ...]] = []
    async with Supervisor(changed=states.append) as supervisor:
        await supervisor.start(serving())
        first = alone(states)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: alone(states).restarts == 1 and alone(states).ready)
        assert alone(states).pid not in {None, first.pid}


async def test_a_silent_child_is_killed_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightgate.gateway.process.child.SECOND_S", 0.02)
    states: list[tuple[ChildState, ...]] = []
    async with Supervisor(changed=states.append) as supervisor:
        await supervisor.start(serving(silent_s=3))
        first = alone(states).pid
        await until(lambda: alone(states).restarts >= 1 and alone(states).ready)
        assert alone(states).pid not in {None, first}


@pytest.mark.parametrize("order", ["SIGHUP", "SIGUSR2"])
async def test_an_order_to_reload_does_not_end_a_child_that_starts(order: str) -> None:
    """`pkill -HUP -f lightgate` ended those that had no handlers yet: some such ended `up`."""
    lives = f"signal.raise_signal(signal.{order})\n{READY}\nsignal.pause()"
    async with Supervisor() as supervisor:
        await supervisor.start(spec(lives))
        assert supervisor.states()[0].restarts == 0
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGHUP, signal.SIGUSR2}


async def test_a_child_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "once"
    code = f"""
        if not os.path.exists({str(mark)!r}):
            open({str(mark)!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        {READY}
        signal.pause()
    """
    async with Supervisor() as supervisor:
        await supervisor.start(spec(code))
        assert supervisor.states()[0].restarts == 1


async def test_a_successor_serves_before_its_predecessor_is_told(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f"""
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}})
        {READY}
        number = signal.sigwait({{signal.SIGUSR1}})
        open({str(told)!r}, "w").write(signal.Signals(number).name)
    """
    fresh = [serving(retire_signal=signal.SIGUSR1)]
    async with Supervisor(reload=done(list), renew=lambda: fresh) as supervisor:
        await supervisor.start(spec(code, retire_signal=signal.SIGUSR1))
        first = supervisor.states()[0].pid
        os.kill(os.getpid(), signal.SIGUSR2)
        await until(lambda: supervisor.reloads == 1)
        assert supervisor.reload_error == ""
        (state,) = supervisor.states()
        assert state.ready
        assert state.pid not in {None, first}
        assert told.read_text() == "SIGUSR1"


async def test_a_child_that_cannot_run_twice_is_stopped_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fresh = [noting(log, "second ")]
    async with Supervisor(reload=done(list), renew=lambda: fresh) as supervisor:
        await supervisor.start(noting(log, "first "))
        supervisor.replace_all()
        await until(lambda: supervisor.reloads == 1)
        assert log.read_text() == "first SIGTERM\n"
        assert supervisor.states()[0].ready


async def test_a_successor_that_does_not_start_leaves_the_predecessor_alone() -> None:
    fresh = [spec("sys.exit(1)", retire_signal=signal.SIGUSR1)]
    async with Supervisor(reload=done(list), renew=lambda: fresh) as supervisor:
        await supervisor.start(serving(retire_signal=signal.SIGUSR1))
        first = supervisor.states()[0]
        supervisor.replace_all()
        await until(lambda: supervisor.reloads == 1)
        assert "did not start" in supervisor.reload_error
        assert supervisor.states() == (first,)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("sys.exit(3)", ConfigError), ("sys.exit(1)", LightgateError), ("print('hello')", None)],
)
async def test_a_child_that_never_serves_fails_the_start(code: str, kind: type | None) -> None:
    async with Supervisor() as supervisor:
        with pytest.raises(kind or LightgateError, match="child did not start"):
            await supervisor.start(spec(code))


async def test_a_child_that_is_not_ready_in_time_fails_the_start() -> None:
    async with Supervisor() as supervisor:
        with pytest.raises(LightgateError, match="did not start"):
            await supervisor.start(spec("signal.pause()", ready_s=0.3))


async def test_time_that_the_supervisor_stood_still_is_not_the_childs(tmp_path: Path) -> None:
    """On a machine that stands still both do: the child is not late by the time of the other."""
    waits = f"import time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    child = spec(f"{waits}\n{READY}\nsignal.pause()", ready_s=1.5)
    async with Supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(child))
        while not supervisor.states() or supervisor.states()[0].pid is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)  # it waits for the child's line now
        time.sleep(1.6)  # noqa: ASYNC251 - it stands still
        (tmp_path / "go").touch()
        assert (await starting)[0]["ready"]
        assert supervisor.states()[0].restarts == 0


async def test_a_program_that_is_not_there_fails_the_start(tmp_path: Path) -> None:
    async with Supervisor() as supervisor:
        with pytest.raises(LightgateError, match="did not start"):
            await supervisor.start(ChildSpec(name="ghost", argv=(str(tmp_path / "none"),)))


async def test_one_that_fails_does_not_leave_the_others(tmp_path: Path) -> None:
    others = psutil.Process().children()  # those of fixtures that outlive their module
    with pytest.raises(LightgateError):
        async with Supervisor() as supervisor:
            await supervisor.start(serving(name="good"), spec("sys.exit(1)", name="bad"))
    assert psutil.Process().children() == others


async def test_one_that_may_not_end_ends_it_all() -> None:
    async with Supervisor() as supervisor:
        await supervisor.start(serving(restart="never", name="sim"))
        os.kill(supervisor._children[0].pid or 0, signal.SIGKILL)
        with pytest.raises(LightgateError, match="sim ended by itself"):
            await supervisor.run()


async def test_it_reads_on_so_that_a_talking_child_never_waits() -> None:
    async with Supervisor() as supervisor:
        talking = f"{READY}\nsys.stdout.write('x' * 1_000_000)\nsys.stdout.flush()\nos._exit(0)"
        states: list[tuple[ChildState, ...]] = []
        supervisor._changed = states.append
        await supervisor.start(spec(talking))
        await until(lambda: alone(states).restarts >= 1)


@given(st.lists(st.floats(min_value=0, max_value=2 * HEALTHY_S)))
def test_pauses_double_to_a_limit_and_a_healthy_life_makes_them_short(lives: list[float]) -> None:
    backoff, expected = Backoff(), FIRST_PAUSE_S
    for lived in lives:
        if lived >= HEALTHY_S:
            expected = FIRST_PAUSE_S
        assert backoff.after(lived) == expected
        expected = min(expected * 2, LONGEST_PAUSE_S)


# Stopping


async def test_stages_stop_one_after_the_other(tmp_path: Path) -> None:
    said = tmp_path / "said"
    async with Supervisor() as supervisor:
        await supervisor.start(
            noting(said, "console ", stage=2, name="console"),
            noting(said, "worker ", stage=1, name="worker"),
        )
        os.kill(os.getpid(), signal.SIGTERM)
        await supervisor.run()
    assert said.read_text().splitlines() == ["worker SIGTERM", "console SIGTERM"]


async def test_one_that_will_not_stop_is_killed_after_its_budget() -> None:
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\nwhile True: signal.pause()"
    async with Supervisor() as supervisor:
        await supervisor.start(spec(deaf, stop_s=0.2))
        pid = supervisor._children[0].pid or 0
        supervisor.stop("test")
        await supervisor.run()
        assert not psutil.pid_exists(pid)


async def test_a_second_signal_does_not_wait_for_the_budget() -> None:
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\nwhile True: signal.pause()"
    async with Supervisor() as supervisor:
        await supervisor.start(spec(deaf, stop_s=3600))
        running = asyncio.ensure_future(supervisor.run())
        os.kill(os.getpid(), signal.SIGINT)
        await until(supervisor._told.is_set)
        os.kill(os.getpid(), signal.SIGINT)
        await running


async def test_a_signal_before_everything_is_up_stops_the_start() -> None:
    others = psutil.Process().children()
    async with Supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(spec("signal.pause()", ready_s=3600)))
        await until(lambda: bool(supervisor._children) and supervisor._children[0].pid is not None)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedEarly):
            await starting
    assert psutil.Process().children() == others


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Only the watch for the parent is left: the child ignores SIGTERM, no one sends SIGKILL."""
    child = textwrap.dedent(
        """
        import os, signal
        from lightgate.gateway.process.child import end_with_parent
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert end_with_parent(os.environ, grace_s=0.1)
        assert not end_with_parent(os.environ)
        print('{"ready": true}', flush=True)
        while True:
            signal.pause()
        """
    )
    parent = textwrap.dedent(
        f"""
        import asyncio, sys
        from lightgate.gateway.process.supervisor import ChildSpec, Supervisor
        async def main():
            async with Supervisor() as supervisor:
                await supervisor.start(
                    ChildSpec(name="child", argv=(sys.executable, "-c", {child!r}))
                )
                print(supervisor._children[0].pid, flush=True)
                await supervisor.run()
        asyncio.run(main())
        """
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        orphan = psutil.Process(int(process.stdout.readline()))
        process.kill()
    orphan.wait(timeout=100)


def test_it_stops_when_its_terminal_is_closed() -> None:
    """A hang-up reloads, but not when it means that nobody is there any more."""
    parent = textwrap.dedent(
        """
        import asyncio, fcntl, termios
        from lightgate.gateway.process.supervisor import Supervisor
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        async def main():
            async def reload():
                print("reloaded", flush=True)
            async with Supervisor(reload=reload) as supervisor:
                print("ready", flush=True)
                await supervisor.run()
                print("stopped", flush=True)
        asyncio.run(main())
        """
    )
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        os.close(slave)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == b"reloaded\n"
        os.close(master)
        assert process.stdout.read() == b"stopped\n"


def test_it_stops_when_its_terminal_was_closed_before_it_began() -> None:
    """The signal was kept for an order to reload: a gateway went on that nobody could see."""
    parent = textwrap.dedent(
        """
        import asyncio, fcntl, signal, sys, termios
        from lightgate.gateway.process.supervisor import Supervisor
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        come = []
        signal.signal(signal.SIGHUP, lambda number, frame: come.append(number))
        print("ready", flush=True)
        open(int(sys.argv[1])).read()
        async def main():
            async with Supervisor() as supervisor:
                with supervisor.starting(come):
                    print(come, supervisor.stopping, flush=True)
        asyncio.run(main())
        """
    )
    master, slave = pty.openpty()
    told, tell = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(told)],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(told,),
    ) as process:
        os.close(slave)
        os.close(told)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.close(master)
        os.close(tell)
        assert process.stdout.read() == b"[1] True\n"


def test_a_process_that_was_not_asked_outlives_its_parent() -> None:
    from lightgate.gateway.process.child import end_with_parent

    assert not end_with_parent({})


# Reloading


async def test_a_hang_up_reloads_and_is_handed_on(tmp_path: Path) -> None:
    said, reloads = tmp_path / "said", []
    async with Supervisor(reload=done(lambda: reloads.append(1))) as supervisor:
        await supervisor.start(
            noting(said, "worker ", name="worker", reloads=True), serving(name="console")
        )
        os.kill(os.getpid(), signal.SIGHUP)
        await until(said.exists)
        await until(lambda: said.read_text() == "worker SIGHUP\n")
    assert len(reloads) == 1


async def test_the_loop_goes_on_while_a_reload_takes_long() -> None:
    """Signals that come meanwhile make one more reload, however many they are."""
    begun: list[asyncio.Event] = []

    async def slow() -> None:
        begun.append(asyncio.Event())
        await begun[-1].wait()

    async with Supervisor(reload=slow) as supervisor:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: len(begun) == 1)
        await supervisor.start(serving())  # a child becomes ready beside it
        for _ in range(3):
            supervisor._hung_up()
        begun[0].set()
        await until(lambda: len(begun) == 2)
        begun[1].set()
        assert supervisor._rereading is not None
        await supervisor._rereading
        assert len(begun) == 2
        supervisor._hung_up()
        await until(lambda: len(begun) == 3)
    assert supervisor._rereading.cancelled()  # the end does not wait for it


async def test_a_reload_and_a_replacement_take_turns() -> None:
    under_way, most = 0, 0

    async def counted() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    async with Supervisor(reload=counted) as supervisor:
        assert await asyncio.gather(*(supervisor.reload("test") for _ in range(3))) == [True] * 3
    assert most == 1


async def test_a_wrong_configuration_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def wrong() -> None:
        raise ConfigError("The file has 2 problems.", problems=("a:1: x", "a:2: y"))

    said = tmp_path / "said"
    async with Supervisor(reload=wrong) as supervisor:
        await supervisor.start(noting(said, "worker ", reloads=True))
        assert not await supervisor.reload("test")
        supervisor._reload = done(lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        assert not await supervisor.reload("test")
        assert supervisor._children[0].ready
    record = next(record for record in caplog.records if "2 problems" in record.getMessage())
    assert record.fields["problems"] == ["a:1: x", "a:2: y"]  # type: ignore[attr-defined]
    assert said.read_text() == "worker SIGTERM\n"


async def test_a_changed_file_is_reloaded_once_it_keeps_still(tmp_path: Path) -> None:
    file = tmp_path / "lightgate.toml"
    reloads: list[str] = []
    file.write_text("a")
    looks = iter(["a", "ab", "abc", "abc", "abc", None, "gone", "gone", "gone"])
    many = asyncio.Event()

    async def next_look(delay: float) -> None:
        text = next(looks, "")
        if text == "":
            many.set()
            await asyncio.Event().wait()
        elif text is None:
            file.unlink()
        elif not file.exists() or file.read_text() != text:
            file.write_text(text)

    supervisor = Supervisor(
        reload=done(lambda: reloads.append(file.read_text())),
        watched=lambda: file,
        known=look(file),
    )
    watching = asyncio.ensure_future(supervisor._watch(next_look))
    await many.wait()
    watching.cancel()
    assert reloads == ["abc", "gone"]


async def test_a_change_that_could_not_be_taken_over_is_tried_again(tmp_path: Path) -> None:
    """A full disk passes; a wrong file stays wrong until it changes."""
    file = tmp_path / "lightgate.toml"
    file.write_text("a")
    errors: list[Exception | None] = [
        LightgateError("full"), OSError(errno.ENOSPC, "full"), None,
    ]  # fmt: skip
    tries: list[int] = []
    looks, many = 0, asyncio.Event()

    async def reload() -> None:
        tries.append(looks)
        error = errors.pop(0)
        if error is not None:
            raise error

    async def next_look(delay: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 50:
            file.write_text("wrong")
            errors.append(ConfigError("The file is wrong."))
        elif looks == 100:
            many.set()
            await asyncio.Event().wait()

    supervisor = Supervisor(reload=reload, watched=lambda: file, known=None)
    watching = asyncio.ensure_future(supervisor._watch(next_look))
    await many.wait()
    watching.cancel()
    assert tries == [1, 1 + AGAIN_LOOKS, 1 + 2 * AGAIN_LOOKS, 51]


async def test_a_start_with_the_last_configuration_is_made_good_without_a_file_too() -> None:
    """The keys of providers may be in the environment: then no file is watched."""
    tries: list[int] = []
    looks, many = 0, asyncio.Event()

    async def next_look(delay: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3 * AGAIN_LOOKS:
            many.set()
            await asyncio.Event().wait()

    supervisor = Supervisor(reload=done(lambda: tries.append(looks)))
    supervisor.read_again = True
    watching = asyncio.ensure_future(supervisor._watch(next_look))
    await many.wait()
    watching.cancel()
    assert tries == [AGAIN_LOOKS]


# The lock on the folder


def state(**more: Any) -> SupervisorState:
    facts = {"pid": 1, "version": "1", "started": "now", "host": "h", "port": 2}
    return SupervisorState(**{**facts, "console_host": "c", "console_port": 3, **more})


def test_a_folder_has_one_owner_and_the_sentence_names_it(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    with DataFolderLock(data) as folder:
        folder.write(state(port=4))
        assert read_state(data) == state(port=4)
        with pytest.raises(LightgateError, match=rf"pid {os.getpid()}\) already runs on"):
            DataFolderLock(data)
    assert read_state(data) is None
    assert not DataFolderLock(data).stale


def test_a_folder_that_is_deleted_is_locked_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DataFolderLock(data) as folder:
        folder.write(state(port=4))
        assert not folder.keep_in_place()
        (data / "supervisor.json").unlink()
        assert folder.keep_in_place()
        shutil.rmtree(data)
        assert folder.keep_in_place()
        assert data.stat().st_mode & 0o777 == 0o700
        folder.write(state(port=4))
        assert not folder.keep_in_place()
        with pytest.raises(LightgateError, match=rf"pid {os.getpid()}\) already runs on"):
            DataFolderLock(data)
        shutil.rmtree(data)
        with DataFolderLock(data) as other:
            with pytest.raises(LightgateError, match="already runs on"):
                folder.keep_in_place()
            other.write(state(port=5))
            assert not other.keep_in_place()
        assert folder.keep_in_place()  # the other one has ended


def test_a_claim_ends_with_its_process_and_is_known_to_be_stale(tmp_path: Path) -> None:
    code = "import os, sys, pathlib; from lightgate.gateway.process.lock import *; c = DataFolderLock(pathlib.Path(sys.argv[1])); (pathlib.Path(sys.argv[1]) / STATE).touch(); os._exit(0)"  # noqa: E501
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    with DataFolderLock(tmp_path) as folder:
        assert folder.stale
        assert (tmp_path / LOCK).read_text().rstrip() == f"{os.getpid()}"


LEAVES = """
import os, signal, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", "--data", sys.argv[1]],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    env={**os.environ, **({sys.argv[2]: "1"} if sys.argv[2] else {})},
    cwd=sys.argv[3],
)
child.stdout.readline()
os.kill(child.pid, signal.SIGSTOP)
print(child.pid)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system has no /proc")
def test_a_stopped_child_of_a_killed_predecessor_is_ended(tmp_path: Path) -> None:
    def left(data: str, variable: str, cwd: Path = tmp_path) -> int:
        command = [sys.executable, "-c", LEAVES, data, variable, str(cwd)]
        return int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)

    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    ours = [left(str(tmp_path / "mine"), PARENT_DEATH_ENV), left("mine", PARENT_DEATH_ENV)]
    others = [
        left(str(tmp_path / "mine"), ""),  # started by hand
        left(str(tmp_path / "other"), PARENT_DEATH_ENV),
        left("mine", PARENT_DEATH_ENV, tmp_path / "other"),
    ]
    ends = [os.pidfd_open(pid) for pid in ours]
    try:
        assert end_orphans(tmp_path / "mine", 0.0) == 2
        assert end_orphans(tmp_path / "mine", 0.0) == 0
        for end in ends:  # a process that ends shows no environment, and is there for a moment
            assert select.select([end], [], [], 60)[0] == [end]
        assert all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in others)
    finally:
        for end in ends:
            os.close(end)
        for pid in others:
            os.kill(pid, signal.SIGKILL)


def test_the_note_is_replaced_whole(tmp_path: Path) -> None:
    with DataFolderLock(tmp_path) as folder:
        folder.write(state())
        first = (tmp_path / STATE).stat().st_ino
        with (tmp_path / STATE).open() as old:
            folder.write(state(port=9))
            assert json.load(old)["port"] == 2
        assert (tmp_path / STATE).stat().st_ino != first


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        DataFolderLock(tmp_path / "file" / "data")


# The port


async def test_a_reserved_port_is_kept_and_shared_only_by_those_who_ask() -> None:
    reserved = await ReservedPort.make("127.0.0.1", 0)
    try:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", reserved.port))
        with socket.socket() as worker:
            worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            worker.bind(("127.0.0.1", reserved.port))
            worker.listen()
            with socket.create_connection(("127.0.0.1", reserved.port)):
                worker.accept()[0].close()
    finally:
        reserved.close()


async def test_a_reserved_port_is_free_behind_its_block() -> None:
    with await ReservedPort.make("127.0.0.1", 0) as reserved:
        (shared,) = reserved.share(1)
        assert reserved.shared == [shared]
        hand = reserved.hand()
        assert hand.port == reserved.port
        socket.create_connection(("127.0.0.1", reserved.port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reserved.port))
    (await ReservedPort.make("127.0.0.1", reserved.port)).close()


async def test_a_second_gateway_does_not_slip_in_beside_the_first() -> None:
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(LightgateError, match=f"Port {port} on 127.0.0.1 is in use"):
            await ReservedPort.make("127.0.0.1", port)
        waiting = asyncio.ensure_future(ReservedPort.make("127.0.0.1", port, patience_s=60))
        await asyncio.sleep(0)
        first.close()
        (await waiting).close()


async def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="cannot be listened on"):
        await ReservedPort.make("203.0.113.1", 0)


def test_a_forbidden_port() -> None:
    error = refused("127.0.0.1", 80, PermissionError(errno.EACCES, "Permission denied"))
    assert (error.exit_code, error.message) == (
        1, "Port 80 on 127.0.0.1 may not be opened by this user.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("[::1]", True),
        ("localhost", True), ("LOCALHOST.", True), ("0.0.0.0", False), ("::", False), ("", False),
        ("192.168.1.1", False), ("example.com", False), ("localhost.example.com", False),
    ],
)  # fmt: skip
def test_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer
