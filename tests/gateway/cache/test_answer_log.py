"""What has come of a shared answer, and when it is kept."""

from __future__ import annotations

import asyncio

import pytest

from lightgate.gateway.cache.follower import LOG_BYTES, AnswerLog, Made
from lightgate.gateway.cache.memory import KeptAnswer

MADE = Made("lab/plain", 3, 4, 5, 6)


class Now:
    def __init__(self) -> None:
        self.ns = 1_000_000

    def __call__(self) -> int:
        return self.ns


async def log_of(*pieces: bytes, whole: bool = False) -> AnswerLog:
    now = Now()
    log = AnswerLog(asyncio.get_running_loop(), now)
    log.is_whole = whole
    for piece in pieces:
        now.ns += 2_500
        log.append(piece)
    now.ns += 1_000
    log.finished = True
    return log


async def test_a_log_begins_empty_and_good() -> None:
    log = AnswerLog(asyncio.get_running_loop(), Now())
    assert (log.size, log.status, log.headers, log.end) == (0, 200, b"", 0)
    assert (log.is_whole, log.started, log.finished, log.broken) == (False,) * 4
    assert log.keep_alive
    assert log.on_lost is None
    assert log.read(0) == (b"", 0)


@pytest.mark.parametrize("whole", [False, True])
async def test_an_answer_is_kept_with_its_pieces_and_their_times(whole: bool) -> None:
    log = await log_of(b"abc", b"de", whole=whole)
    log.headers = b"a: b\r\nx-lightgate-dropped: n,seed\r\nc: d\r\n"
    assert log.kept(MADE, 5) == KeptAnswer(
        not whole, b"abcde", (3, 5), (2, 5), "lab/plain", 3, 4, 5, 6_000, 6, b"n,seed"
    )
    assert log.kept(MADE, 4) is None


@pytest.mark.parametrize("change", ["finished", "broken", "status", "forgotten", "large"])
async def test_what_is_not_whole_and_good_is_not_kept(change: str) -> None:
    log = await log_of(b"abc", b"de")
    if change == "forgotten":
        log.forget(1)
        assert log.read(1) == (b"de", 2)
    elif change == "large":
        log.append(b"x" * LOG_BYTES)
    else:
        setattr(log, change, {"finished": False, "broken": True, "status": 201}[change])
    assert log.kept(MADE, 1 << 40) is None


async def test_waiters_are_woken_once() -> None:
    log = await log_of()
    first, second = log.waiting(), log.waiting()
    second.cancel()
    log.wake()
    assert first.done()
    third = log.waiting()
    assert not third.done()
    log.wake()
    assert third.done()
