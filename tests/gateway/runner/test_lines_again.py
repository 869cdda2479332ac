"""A line that is sent again, waits for room, or breaks: step by step."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.runner import __main__ as process_module
from lightgate.gateway.runner import job_run as module
from lightgate.gateway.runner.__main__ import RunnerProcess
from lightgate.gateway.runner.job_run import FREE_BYTES, JobRun
from lightgate.gateway.runner.sender import (
    ALONE_TRIES,
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    TRIES,
    GatewayAnswer,
    judge,
)
from lightgate.gateway.runner.window import SendWindow, WindowClosed
from lightgate.gateway.served.snapshot import SnapshotFailed


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


class Window:
    """A window that keeps what it is told."""

    def __init__(self, said: list[Any]) -> None:
        self._said = said

    async def enter(self) -> None:
        self._said.append("enter")

    def leave(self) -> None:
        self._said.append("leave")

    def refused(self, wait_s: float) -> None:
        self._said.append(("refused", wait_s))

    def answered(self) -> None:
        self._said.append("answered")


def run(*answers: GatewayAnswer, **facts: Any) -> tuple[Any, list[Any]]:
    """A batch whose gateway answers so, one try after the other."""
    said: list[Any] = []
    left = list(answers)

    async def send(job: Any, line: Any, request_id: str) -> GatewayAnswer:
        said.append(("send", request_id, made._flying))
        return left.pop(0)

    async def pause(seconds: float) -> None:
        said.append(("pause", seconds))

    async def keep(line: Any, result: Any) -> None:
        said.append(("keep", result.status))

    made: Any = object.__new__(JobRun)
    made.job = fake(state="in_progress", expires_s=100)
    made._tools = fake(
        window=Window(said), send=send, free_bytes=lambda: FREE_BYTES, store=fake(now_s=1)
    )
    made._files = fake(result_id=lambda number: f"r-{number}")
    made._flying, made._stopping, made._trouble = 0, False, None
    made._room = asyncio.Semaphore(1)
    made._pause, made._keep = pause, keep
    for name, value in facts.items():
        setattr(made, name, value)
    return made, said


LINE: Any = fake(number=7, custom_id="c", model="m")
GOOD = GatewayAnswer(200, b"{}", "x-1")
TRY = ["enter", ("send", "r-7", 1), "leave"]


async def test_a_line_is_sent_until_its_answer_stands() -> None:
    made, said = run(GatewayAnswer(500), GatewayAnswer(429, retry_after_s=3.0), GOOD)
    await made._ask(LINE)
    assert said == [
        *TRY, ("pause", FIRST_WAIT_S), *TRY, ("refused", 3.0), ("pause", 3.0), *TRY, "answered",
        ("keep", 200),
    ]  # fmt: skip
    assert made._flying == 0


async def test_an_answer_that_stands_and_is_not_good_is_kept_and_widens_nothing() -> None:
    made, said = run(GatewayAnswer(400, b"{}"))
    await made._ask(LINE)
    assert said == [*TRY, ("keep", 400)]


async def test_a_line_whose_batch_is_over_meanwhile_is_not_sent() -> None:
    made, said = run()
    made.job.state = "cancelling"
    await made._ask(LINE)
    assert said == ["enter", "leave"]


async def test_nothing_is_sent_before_the_disk_has_room() -> None:
    made, said = run(GOOD)
    free = [FREE_BYTES - 1, FREE_BYTES - 1, FREE_BYTES]
    made._tools.free_bytes = lambda: free.pop(0)
    await made._ask(LINE)
    assert said[:3] == [("pause", module.FULL_S), ("pause", module.FULL_S), "enter"]


@pytest.mark.parametrize("error", [None, WindowClosed(), ValueError("a defect")])
async def test_a_line_gives_its_room_back_however_it_ends(error: Exception | None) -> None:
    made, _ = run()

    async def ask(line: Any) -> None:
        if error is not None:
            raise error

    made._ask = ask
    await made._room.acquire()
    await made._carry_out(LINE)
    assert not made._room.locked()
    assert made._trouble is (error if isinstance(error, ValueError) else None)


async def test_a_defect_in_a_line_ends_the_batch_for_now() -> None:
    lines = [fake(number=number) for number in range(3)]
    made, _ = run(_lines=lambda: lines)
    made._files = fake(name_of=lambda line: line.number, done={0})
    asked: list[int] = []

    async def ask(line: Any) -> None:
        asked.append(line.number)
        raise ValueError("a defect")

    made._ask = ask
    with pytest.raises(ValueError, match="a defect"):
        await made._send_all()
    assert asked == [1]  # one has its result, and after a defect no other begins
    assert not made._room.locked()


async def test_a_batch_that_ends_before_its_lines_is_a_defect() -> None:
    made, _ = run()
    made._files = fake(done={1})
    made.job.total = 2
    with pytest.raises(RuntimeError, match="before all of its lines"):
        await made._finish()


async def test_a_batch_is_known_as_it_was_changed_last() -> None:
    made, _ = run()
    cancelling = fake(id="b-1", state="cancelling")

    async def in_thread(call: Any) -> Any:
        return call()

    stored: list[Any] = [cancelling, None]
    made.job.id = "b-1"
    made._changed = asyncio.Event()
    made._tools.in_thread = in_thread
    made._tools.store.change = lambda id_, change: stored.pop(0)
    await made._change(lambda job: job)
    assert made.job is cancelling
    assert made._changed.is_set()  # lines that wait need not wait any more
    await made._change(lambda job: job)  # it is there no more: what is known stays
    assert made.job is cancelling


# Verdicts


@pytest.mark.parametrize(
    ("answer", "tries", "alone", "wait", "crowded", "counts"),
    [
        (GatewayAnswer(200), 0, True, None, False, False),
        (GatewayAnswer(429), 0, True, FIRST_WAIT_S, True, False),
        (GatewayAnswer(429), 2, True, FIRST_WAIT_S * 4, True, False),
        (GatewayAnswer(429), 30, True, LONGEST_WAIT_S, True, False),
        (GatewayAnswer(429, code="insufficient_quota"), 0, True, None, False, False),
        (GatewayAnswer(0, sent=False), 9, True, FIRST_WAIT_S, True, False),
        (GatewayAnswer(0), 0, True, FIRST_WAIT_S, False, True),
        (GatewayAnswer(0), TRIES - 2, True, FIRST_WAIT_S * 2 ** (TRIES - 2), False, True),
        (GatewayAnswer(0), TRIES - 1, True, None, False, False),
        (GatewayAnswer(402), 0, False, FIRST_WAIT_S, True, True),
        (GatewayAnswer(402), 0, True, None, False, False),
        (GatewayAnswer(402), ALONE_TRIES, False, None, False, False),
    ],
)
def test_what_follows_an_answer(
    answer: GatewayAnswer, tries: int, alone: bool, wait: float | None, crowded: bool, counts: bool
) -> None:
    verdict = judge(answer, tries, alone=alone)
    expected = None if wait is None else min(wait, LONGEST_WAIT_S)
    assert (verdict.wait_s, verdict.crowded, bool(verdict.counts)) == (expected, crowded, counts)


# The process


async def test_the_first_snapshot_may_be_still_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LOOK_S", 0.0)
    looked: list[str] = []

    def terms() -> str:
        looked.append("looked")
        if len(looked) < 3:
            raise SnapshotFailed("It is not there.")
        return "terms"

    process: Any = fake(_stop=asyncio.Event(), _terms=terms)
    found: Any = await RunnerProcess._first_terms(process)
    assert found == "terms"
    assert len(looked) == 3
    process._stop.set()
    assert await RunnerProcess._first_terms(process) is None
    assert len(looked) == 3


async def test_one_timer_wakes_those_that_wait_and_none_where_nobody_does() -> None:
    window: Any = SendWindow(8, lambda: 0)
    window._held_until_ns = 60_000_000_000
    window._wake()
    timers = [window._timer]
    waiting = asyncio.ensure_future(window.enter())
    await asyncio.sleep(0)  # it has begun to wait
    timer = window._timer
    assert timers == [None]
    assert timer is not None
    window._wake()
    assert window._timer is timer
    window.close()
    assert timer.cancelled()
    with pytest.raises(WindowClosed):
        await waiting
