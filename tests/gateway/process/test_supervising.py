"""What a supervisor decides, with children that are no processes."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process import supervisor as module
from lightgate.gateway.process.supervisor import HURRY_S, StoppedEarly, Supervisor, look

if TYPE_CHECKING:
    from pathlib import Path


class Puppet:
    """A child that keeps what it is told."""

    def __init__(self, name: str, **spec: Any) -> None:
        facts = {
            "name": name, "reloads": True, "restart": "always", "stage": 0, "stop_s": 9.0,
            "retire_signal": signal.SIGUSR1,
        }  # fmt: skip
        self.spec = SimpleNamespace(**(facts | spec))
        self.restarts = 0
        self.log: list[Any] = []
        self.first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ends = asyncio.Event()
        self.ends.set()

    def signal(self, number: int) -> None:
        self.log.append(number)

    def kill(self) -> None:
        self.log.append("killed")
        self.ends.set()

    async def stop(self, stop_s: float, number: int | None = None) -> None:
        self.log.append(("stop", stop_s, number))
        await self.ends.wait()

    def state(self) -> Any:
        return self.spec.name

    def hand(self) -> Any:
        return None if self.spec.name == "gone" else self.spec.name


def supervisor(*children: Puppet, **named: Any) -> Any:
    made: Any = Supervisor(**named)
    made._children += children
    return made


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, Any]]:
    found = [(one.levelno, one.getMessage(), getattr(one, "fields", {})) for one in caplog.records]
    caplog.clear()
    return found


async def test_a_second_order_to_stop_hurries(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = supervisor()
    made.stop("SIGTERM")
    assert (made._told.is_set(), made._hurry.is_set()) == (True, False)
    made.stop("SIGINT")
    assert made._hurry.is_set()
    first, second = said(caplog)
    assert first == (logging.INFO, first[1], {"why": "SIGTERM"})
    assert "Stopping" in first[1]
    assert second == (logging.WARNING, second[1], {"why": "SIGINT"})


async def test_a_reload_that_does_not_end_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reload after it had waited for it: `lightgate reload` did not come back."""
    monkeypatch.setattr(module, "RELOAD_S", 0.01)
    hangs = asyncio.Event()

    async def reload() -> None:
        await hangs.wait()

    made = supervisor(reload=reload)
    assert (await made.reload("why"), made.read_again) == (False, True)
    sentence = "The configuration could not be read within 0.01 s. The old one stays."
    assert said(caplog) == [(logging.ERROR, sentence, {"why": "why"})]
    hangs.set()
    assert await made.reload("why") is True


async def test_a_reload_is_taken_over_or_the_old_one_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert await supervisor().reload("x") is False
    outcome: list[Any] = [None]

    async def reload() -> None:
        if outcome[0] is not None:
            raise outcome[0]

    told, other = Puppet("a"), Puppet("b", reloads=False)
    made = supervisor(told, other, reload=reload)
    made.read_again = True
    assert await made.reload("why") is True
    assert (told.log, other.log, made.read_again) == ([signal.SIGHUP], [], False)
    assert said(caplog) == [(logging.INFO, "The configuration was taken over", {"why": "why"})]
    outcome[0] = ConfigError("It is wrong.", problems=("p",), hint="h")
    made.read_again = True
    assert (await made.reload("why"), made.read_again) == (False, False)
    facts = {"why": "why", "problems": ["p"], "hint": "h"}
    assert said(caplog) == [(logging.ERROR, "It is wrong. The old configuration stays.", facts)]
    outcome[0] = LightgateError("It is full.", hint="h")
    assert (await made.reload("why"), made.read_again) == (False, True)
    facts = {"why": "why", "problems": [], "hint": "h"}
    assert said(caplog) == [(logging.ERROR, "It is full. The old configuration stays.", facts)]
    made.read_again, outcome[0] = False, OSError(errno.ENOSPC, "No space left on device")
    assert (await made.reload("why"), made.read_again) == (False, True)
    words = "The configuration was not taken over: No space left on device. The old one stays."
    assert said(caplog) == [(logging.ERROR, words, {"why": "why"})]
    made.read_again, outcome[0] = False, ValueError("defect")
    assert (await made.reload("why"), made.read_again) == (False, True)
    assert said(caplog)[0][0] == logging.ERROR
    assert told.log == [signal.SIGHUP]


async def test_one_replacement_at_a_time_another_for_orders_meanwhile_and_none_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An order that came meanwhile was refused: what had changed since was not taken over."""
    caplog.set_level(logging.INFO)
    states: list[tuple[int, bool]] = []
    files = ["first", "second"]
    taken: list[str] = []

    async def reload() -> None:
        taken.append(files[0])
        if len(taken) == 1:
            files.pop(0)
            made.replace_all()  # orders that come while it is under way
            made.replace_all()

    made: Any = supervisor(
        reload=reload, changed=lambda _: states.append((made.reloads, made.replacing))
    )
    made.replace_all()
    first = made._replacing
    await first
    assert taken == ["first", "second"]
    assert states == [(0, True), (1, True), (2, False)]
    assert [message for _, message, _ in said(caplog)].count(
        "The processes are being replaced: once more afterwards"
    ) == 2
    made._told.set()
    made.replace_all()
    assert made._replacing is first
    made.replacing = True  # as it was when the order to stop came
    made.replace_all()
    assert not said(caplog)  # there is no afterwards


async def test_orders_that_come_while_it_starts_wait_for_the_end_of_the_start() -> None:
    """A replacement began with half of the children: it broke, or mixed two generations."""
    log: list[str] = []

    async def reload() -> None:
        log.append("reload")

    def renew() -> list[Any]:
        log.append("renew")
        return []

    made = supervisor(reload=reload, renew=renew)
    made._terminal = False
    with made.starting((signal.SIGHUP, signal.SIGUSR2)):
        made._hung_up()
        made.replace_all()
        await asyncio.sleep(0)
        assert (made._rereading, made._replacing, made.replacing) == (None, None, False)
    await asyncio.gather(made._rereading, made._replacing)
    assert log == ["reload", "reload", "renew"]
    assert (made.reloads, made.reload_error) == (1, "")


async def test_orders_of_a_start_that_fails_are_dropped() -> None:
    made = supervisor()
    with pytest.raises(StoppedEarly), made.starting((signal.SIGUSR2,)):
        raise StoppedEarly("Stopped before everything was up.")
    assert made._replacing is None


async def test_the_program_changes_when_no_configuration_is_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, read = asyncio.Event(), asyncio.Event()
    calls, log = list[int](), list[str]()

    async def reload() -> None:
        calls.append(1)
        if len(calls) == 2:
            begun.set()
            await read.wait()
            log.append("read")

    async def succeed(self: Any) -> None:
        self._hung_up()
        await begun.wait()

    async def upgrade() -> None:
        log.append("upgrade")

    monkeypatch.setattr(Supervisor, "_succeed_all", succeed)
    made = supervisor(reload=reload)
    made._terminal, made.upgrade = False, upgrade
    replacing = asyncio.ensure_future(made._replaced_once())
    await begun.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    read.set()
    assert await replacing == ""
    assert log == ["read", "upgrade"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_order_to_stop_that_came_between_two_programs_is_carried_out(
    number: signal.Signals,
) -> None:
    """It killed the new program before it had its handlers, and all open streams with it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    signal.pthread_kill(threading.get_ident(), number)  # pytest has threads that do not hold it
    async with Supervisor() as made:
        await made.run()
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {number}


async def test_signals_do_afterwards_what_they_did_before() -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        async with Supervisor():
            assert signal.getsignal(signal.SIGUSR2) is not signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("order", [signal.SIGHUP, signal.SIGUSR2])
async def test_the_default_action_is_never_in_force_between_two_handlers(
    order: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that came while the loop took its handlers away ended the process by the signal."""
    loop, kept = asyncio.get_running_loop(), list[int]()
    remove = loop.remove_signal_handler

    def removed(number: int) -> bool:
        done = remove(number)
        assert signal.getsignal(order) is not signal.SIG_DFL
        signal.raise_signal(order)
        return done

    before = signal.signal(order, lambda number, frame: kept.append(number))
    monkeypatch.setattr(loop, "remove_signal_handler", removed)
    try:
        async with Supervisor() as made:
            monkeypatch.setattr(made, "_carry_out", lambda: None)
            made._terminal = False
            signal.raise_signal(order)
            await asyncio.sleep(0)
            assert (made._hung_ups, made.replace_again) == (
                order is signal.SIGHUP,
                order is signal.SIGUSR2,
            )
            assert not kept
        assert set(kept) == {order}
    finally:
        signal.signal(order, before)


async def test_what_comes_of_a_replacement(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome: list[Any] = [None]
    taken, states, upgraded = [True], list[Any](), list[int]()

    async def reload(self: Any, why: str) -> bool:
        assert why == "SIGUSR2"
        return taken[0]

    async def succeed(self: Any) -> None:
        if outcome[0] is not None:
            raise outcome[0]

    async def upgrade() -> None:
        upgraded.append(1)

    monkeypatch.setattr(Supervisor, "reload", reload)
    monkeypatch.setattr(Supervisor, "_succeed_all", succeed)
    made = supervisor(Puppet("a"), changed=states.append)
    for error, reloads, count in (
        (None, "", 1),
        (StoppedEarly("x"), "before", 1),
        (LightgateError("No room."), "No room.", 2),
        (ValueError("x"), "ValueError; the log says more.", 3),
    ):
        outcome[0], made.reload_error = error, "before"
        made.upgrade = upgrade if error is None else None
        await made._replace_all()
        assert (made.reload_error, made.reloads) == (reloads, count)
    taken[0] = False
    await made._replace_all()
    assert made.reload_error == "The configuration was not taken over; the log says why."
    assert (states, upgraded) == ([("a",)] * 4, [1])


async def test_a_successor_takes_the_place_of_its_predecessor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[Any] = []

    async def start(self: Any, spec: Any, restarts: int = 0) -> None:
        log.append(("start", spec.name, restarts, [child.spec.name for child in self._children]))
        begun = Puppet(spec.name)
        begun.spec = spec
        self._children.append(begun)
        if spec.name == "bad":
            self._children.append(Puppet("traffic"))  # begun meanwhile
            raise LightgateError("It does not start.")

    monkeypatch.setattr(Supervisor, "start", start)
    worker, console = Puppet("worker"), Puppet("console", retire_signal=None)
    worker.restarts, console.restarts = 4, 2  # their successors go on with the count
    made = supervisor(worker, console, Puppet("bad"), renew=lambda: [worker.spec, console.spec])
    await made._succeed_all()
    assert log == [
        ("start", "worker", 4, ["worker", "console", "bad"]),
        ("start", "console", 2, ["worker", "bad", "worker"]),
    ]
    assert worker.log == [("stop", 9.0, signal.SIGUSR1)]
    assert console.log == [("stop", 9.0, None)]
    assert [child.spec.name for child in made._children] == ["bad", "worker", "console"]
    made._renew = lambda: [SimpleNamespace(name="bad")]
    with pytest.raises(LightgateError, match="does not start"):
        await made._succeed_all()
    names = [child.spec.name for child in made._children]
    assert names == ["bad", "worker", "console", "traffic"]


async def test_a_successor_that_starts_when_all_are_stopped_is_stopped_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was forgotten: it might serve already, and was killed with its streams at the end."""

    async def start(self: Any, spec: Any, restarts: int = 0) -> None:
        begun = Puppet(spec.name)
        begun.spec = spec
        self._children.append(begun)
        raise StoppedEarly("Stopped before everything was up.")

    monkeypatch.setattr(Supervisor, "start", start)
    worker = Puppet("worker")
    made = supervisor(worker, renew=lambda: [Puppet("worker").spec])
    with pytest.raises(StoppedEarly):
        await made._succeed_all()
    children = list(made._children)
    await made._drain()
    assert [child.log for child in children] == [[("stop", 9.0, None)]] * 2


async def test_a_closed_terminal_stops_and_other_signals_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reloads: list[str] = []

    async def reload(self: Any, why: str) -> bool:
        reloads.append(why)
        if len(reloads) == 1:
            self._hung_up()  # two signals meanwhile are one reload more
            self._hung_up()
        return True

    monkeypatch.setattr(Supervisor, "reload", reload)
    made = supervisor()
    made._terminal = False
    made._hung_up()
    await made._rereading
    assert reloads == ["SIGHUP"] * 2
    made._hung_up()
    await made._rereading
    assert reloads == ["SIGHUP"] * 3
    made._terminal = True
    monkeypatch.setattr("os.isatty", lambda descriptor: descriptor != 0)
    made._hung_up()
    assert made._told.is_set()
    assert len(reloads) == 3


async def test_a_folder_that_was_deleted_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    taken = LightgateError("Another one runs.")
    looks: list[bool | LightgateError] = [False, True, taken, taken, False, taken]
    told, pauses = list[str](), list[float]()

    def keep_in_place() -> bool:
        found = looks.pop(0)
        if isinstance(found, LightgateError):
            raise found
        return found

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if not looks:
            raise asyncio.CancelledError

    folder = SimpleNamespace(data="data", keep_in_place=keep_in_place)
    made = supervisor(changed=lambda _: told.append("state"))
    with pytest.raises(asyncio.CancelledError):
        await made.keep_folder(folder, lambda: told.append("again"), pause)
    assert (told, set(pauses)) == (["state", "again"], {1.0})
    gone = "data, or a file in it, was deleted while the gateway ran."
    again, other = "What it still knows is written again.", "Another one runs."
    assert said(caplog) == [(logging.ERROR, f"{gone} {what}", {}) for what in (again, other, other)]


async def test_a_state_that_cannot_be_written_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(states: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    supervisor(changed=full).tell()
    text = "supervisor.json could not be written: No space left on device"
    assert said(caplog) == [(logging.ERROR, text, {})]


@pytest.mark.parametrize(
    ("restart", "served", "told", "failed"),
    [
        ("never", True, False, True),
        ("always", True, False, False),
        ("never", False, False, False),
        ("never", True, True, False),
    ],
)
async def test_a_child_that_is_not_restarted_ends_all(
    restart: str, served: bool, told: bool, failed: bool
) -> None:
    child = Puppet("worker-0", restart=restart)
    if served:
        child.first.set_result({})
    else:
        child.first.cancel()
    made = supervisor(child)
    if told:
        made._told.set()
    made._on_end(child, child.ended)
    assert made._told.is_set() is (told or failed)
    assert (made._failed is not None) is failed
    if failed:
        assert str(made._failed) == "worker-0 ended by itself; its reason is above."


async def test_stages_are_stopped_one_after_the_other() -> None:
    order: list[str] = []
    late, early, other = Puppet("late", stage=2), Puppet("early"), Puppet("other", stop_s=1.0)
    for child in (late, early, other):
        child.stop = _noting(child, order)  # type: ignore[method-assign]
    made = supervisor(late, early, other, leave=lambda: order.append("leave"))
    await made._drain()
    assert order == ["leave", "early 9.0", "other 1.0", "late 9.0"]
    assert made._children == []
    assert made._told.is_set()


def _noting(child: Puppet, order: list[str]) -> Any:
    async def stop(stop_s: float, number: int | None = None) -> None:
        order.append(f"{child.spec.name} {stop_s}")

    return stop


async def test_a_stage_that_is_hurried_is_killed() -> None:
    child = Puppet("a")
    child.ends.clear()
    made = supervisor()
    stopping = asyncio.ensure_future(made._stop_stage([child]))
    while not child.log:
        await asyncio.sleep(0)
    made._hurry.set()
    await stopping
    assert child.log == [("stop", 9.0, None), "killed"]
    long, short = Puppet("b"), Puppet("c", stop_s=HURRY_S / 2)
    await made._stop_stage([long, short])  # the next stage has little time from the start
    assert (long.log, short.log) == ([("stop", HURRY_S, None)], [("stop", HURRY_S / 2, None)])


async def test_the_file_is_read_again_once_it_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lightgate.toml"
    path.write_text("a")
    reloads: list[int] = []
    looks = [0]
    made = supervisor(watched=lambda: path, known=look(path))

    async def reload(self: Any, why: str) -> bool:
        assert why == "the file has changed"
        reloads.append(looks[0])
        self.read_again = False
        return True

    async def pause(seconds: float) -> None:
        assert seconds == module.LOOK_S
        looks[0] += 1
        if looks[0] in {2, 3}:
            path.write_text("b" * looks[0])  # it is being written
        if looks[0] == 5:
            path.unlink()
        if looks[0] == 6:
            made.read_again = True
        if looks[0] == 30:
            raise asyncio.CancelledError

    monkeypatch.setattr(Supervisor, "reload", reload)
    with pytest.raises(asyncio.CancelledError):
        await made._watch(pause)
    assert reloads == [4, 14]  # two looks alike; ten looks after that
    assert made._known is not None


def test_versions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert (look(None), look(path)) == (None, None)
    path.write_text("abc")
    found = path.stat()
    assert look(path) == (found.st_mtime_ns, found.st_ino, 3)


async def test_the_children_that_serve_are_handed_over() -> None:
    made = supervisor(Puppet("a"), Puppet("gone"), Puppet("b"))
    assert made.hands() == ("a", "b")
    assert made.states() == ("a", "gone", "b")
    made.stop("test")
    with pytest.raises(StoppedEarly):  # an order to stop would be lost with the program
        made.hands()


async def test_a_stop_before_everything_is_up() -> None:
    child, made = Puppet("a"), supervisor()
    told = asyncio.get_running_loop().create_future()
    told.set_result(None)
    puppet: Any = child
    with pytest.raises(StoppedEarly):
        await made._first_facts(puppet, told)
    child.first.set_result({"port": 1})
    assert await made._first_facts(puppet, told) == {"port": 1}


async def test_a_wait_ends_with_its_event_with_its_time_or_with_a_stop() -> None:
    made, event = supervisor(), asyncio.Event()
    assert not made.stopping
    await made.wait_unless_stopped(event, 0.0)
    event.set()
    async with asyncio.timeout(5):
        await made.wait_unless_stopped(event, 3600.0)
    made.stop("a test")
    assert made.stopping
    async with asyncio.timeout(5):
        await made.wait_unless_stopped(asyncio.Event(), 3600.0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1  # nobody waits any more
