"""A gateway goes on under another program: sockets, lock and children are the same."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from gateway.process.test_supervisor import serving, until
from lightgate.errors import LightgateError
from lightgate.gateway.process import handover
from lightgate.gateway.process.handover import (
    ENV,
    ORDERS,
    STOPS,
    ChildHand,
    Handover,
    PortHand,
    check_installed,
    taken_over,
)
from lightgate.gateway.process.lock import DataFolderLock
from lightgate.gateway.process.port import ReservedPort
from lightgate.gateway.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lightgate.gateway.process.child import ChildSpec

    Become = Callable[[Callable[[], Handover], dict[str, str]], Awaitable[object]]


def doubled(hand: PortHand) -> PortHand:
    """The same sockets under other numbers, as another program has them."""
    return PortHand(
        port=hand.port,
        bound=tuple(map(os.dup, hand.bound)),
        shared=tuple(tuple(map(os.dup, fds)) for fds in hand.shared),
    )


async def test_connections_that_wait_are_accepted_by_the_next_program() -> None:
    before = await ReservedPort.make("127.0.0.1", 0)
    before.share(2)
    lines = [socket.create_connection(("127.0.0.1", before.port)) for _ in range(8)]
    after = ReservedPort.of_hand("127.0.0.1", doubled(before.hand()))
    before.close()
    assert after.port == before.port
    accepted = 0
    for one in after.shared:
        for fd in one.open():
            with socket.socket(fileno=os.dup(fd)) as listening:
                listening.setblocking(False)
                while True:
                    try:
                        listening.accept()[0].close()
                    except BlockingIOError:
                        break
                    accepted += 1
    assert accepted == len(lines)
    for line in lines:
        line.close()
    after.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", before.port))


def begun(spec: ChildSpec) -> tuple[subprocess.Popen[bytes], ChildHand]:
    """A child of a program before this one, which has said that it serves."""
    process = subprocess.Popen(spec.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline()
    ends = os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno())
    process.stdin.close()
    process.stdout.close()
    hand = ChildHand(name=spec.name, pid=process.pid, stdin=ends[0], stdout=ends[1], restarts=3)
    return process, hand


async def test_a_child_is_kept_then_restarted_then_stopped() -> None:
    spec = serving(name="worker-0")
    process, hand = begun(spec)
    async with Supervisor() as supervisor:
        supervisor.adopt((spec, hand))
        await until(lambda: supervisor.states()[0].ready)
        [state] = supervisor.states()
        assert (state.pid, state.restarts) == (process.pid, 3)
        [again] = supervisor.hands()
        assert again == hand
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: supervisor.states()[0].restarts == 4 and supervisor.states()[0].ready)
        assert supervisor.states()[0].pid != process.pid
        [fresh] = supervisor.hands()  # one that this program started
        assert stat.S_ISFIFO(os.fstat(fresh.stdin).st_mode)
    process.returncode = 0  # it was waited for


async def test_an_adopted_child_is_stopped_in_order() -> None:
    spec = serving(name="console")
    process, hand = begun(spec)
    async with Supervisor() as supervisor:
        supervisor.adopt((spec, hand))
        await until(lambda: supervisor.states()[0].ready)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    process.returncode = 0


def test_what_was_handed_over_is_taken_once_and_inherited_by_nobody(tmp_path: Path) -> None:
    with DataFolderLock(tmp_path) as lock:
        held = os.dup(lock.descriptor)
        os.set_inheritable(held, True)
        port = PortHand(port=1, bound=())
        what = Handover(
            lock=held, gateway=port, console=port, generation=1, reloads=2, started="", children=()
        )
        env = {ENV: msgspec.json.encode(what).decode()}
        assert taken_over(env) == what
        assert taken_over(env) is None
        assert not os.get_inheritable(held)
        with pytest.raises(LightgateError):  # the lock is the same one
            DataFolderLock(tmp_path)
        DataFolderLock(tmp_path, held).release()


async def test_a_version_that_cannot_be_loaded_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    await asyncio.wait_for(check_installed(), 60)
    monkeypatch.setattr(handover, "_CHECK", "import lightgate.no_such_module")
    with pytest.raises(LightgateError, match="the one that runs goes on"):
        await check_installed()
    assert "no_such_module" in capfd.readouterr().err


async def test_an_order_to_reload_is_no_sign_of_a_version_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "_CHECK", "import signal; signal.raise_signal(signal.SIGHUP)")
    await check_installed()


async def test_the_arguments_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *what: done.append(what))
    port = PortHand(port=1, bound=())
    ends = os.pipe()
    what = Handover(
        lock=ends[0], gateway=port, console=port, generation=1, reloads=2, started="", children=()
    )
    become: Become = handover.hand_over  # never returns
    await become(lambda: what, {"LIGHTGATE_BATCH_SECRET": "s3cret"})
    [(program, arguments, env)] = done
    assert (program, arguments) == (sys.executable, sys.orig_argv)
    assert msgspec.json.decode(env[ENV], type=Handover) == what
    assert env["LIGHTGATE_BATCH_SECRET"] == "s3cret"
    assert "LIGHTGATE_BATCH_SECRET" not in os.environ
    assert os.get_inheritable(ends[0])
    for end in ends:
        os.close(end)


async def test_an_order_that_comes_last_is_heard_before_or_waits_for_the_next_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that came after the last turn of the loop was lost: what is handed on was made before."""
    heard: list[int] = []
    loop, here = asyncio.get_running_loop(), list[set[int]]()
    port = PortHand(port=1, bound=())
    end = os.open(os.devnull, os.O_RDONLY)

    def what() -> Handover:
        here.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return Handover(
            lock=end, gateway=port, console=port, generation=1, reloads=2, started="", children=(),
            replace_again=bool(heard),
        )  # fmt: skip

    done: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *what: done.append(what))
    before = signal.signal(
        signal.SIGUSR2, lambda *_: loop.call_soon_threadsafe(heard.append, signal.SIGUSR2)
    )
    try:
        signal.raise_signal(signal.SIGUSR2)
        become: Become = handover.hand_over  # never returns
        await become(what, {})
    finally:
        signal.signal(signal.SIGUSR2, before)
        os.close(end)
    [(_, _, env)] = done
    assert here[0] >= set(ORDERS)
    assert msgspec.json.decode(env[ENV], type=Handover).replace_again


async def test_signals_are_let_through_again_where_the_program_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*what: object) -> None:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= {*ORDERS, *STOPS}
        raise FileNotFoundError

    monkeypatch.setattr(os, "execve", gone)
    port = PortHand(port=1, bound=())
    end = os.open(os.devnull, os.O_RDONLY)
    what = Handover(
        lock=end, gateway=port, console=port, generation=1, reloads=2, started="", children=()
    )
    with pytest.raises(FileNotFoundError):
        await handover.hand_over(lambda: what, {})
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*ORDERS, *STOPS}
    os.close(end)
