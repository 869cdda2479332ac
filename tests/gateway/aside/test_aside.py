"""Jobs beside the loop: their results, their errors, whose turn it is, and a process that dies."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.errors import UsageError
from lightgate.gateway.aside.aside import Aside, AsideFailed
from lightgate.gateway.aside.frames import FrameReader, pieces, value_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Made = tuple[object, list[bytes]]


def doubled(body: bytes, times: int) -> Made:
    return len(body), [body * times, b""]


def refused(body: bytes) -> Made:
    raise BadField("messages[0]", "must be an object")


def dropped(body: bytes) -> Made:
    raise Untranslatable("logprobs", "it has none", dialect="Anthropic")


def defect(body: bytes) -> Made:
    return 1 / len(body), []


def too_deep(body: bytes) -> Made:
    return too_deep(body)


def died() -> Made:
    os.kill(os.getpid(), signal.SIGKILL)
    return None, []


def slow() -> Made:
    time.sleep(60)
    return None, []


def environment() -> Made:
    return dict(os.environ), []


def pid() -> Made:
    return os.getpid(), []


@pytest.fixture
async def aside() -> AsyncIterator[Aside]:
    aside = Aside(asyncio.get_running_loop())
    yield aside
    await aside.close()


async def test_a_job_is_done_in_another_process(
    aside: Aside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_PROVIDERS_KEY", "canary")
    body = b"ab" * 200_000
    assert await aside.do("k", doubled, (body,), 3) == (len(body), [body * 3, b""])
    assert (await aside.do("k", pid, ()))[0] != os.getpid()
    assert "A_PROVIDERS_KEY" not in (await aside.do("k", environment, ()))[0]
    assert aside.jobs == 3


async def test_errors_of_a_job_are_raised_as_they_are(aside: Aside) -> None:
    with pytest.raises(BadField) as wrong:
        await aside.do("k", refused, (b"",))
    assert wrong.value.field == "messages[0]"
    assert wrong.value.message == "The field 'messages[0]' must be an object."
    with pytest.raises(Untranslatable) as untold:
        await aside.do("k", dropped, (b"",))
    assert (untold.value.why, untold.value.dialect) == ("it has none", "Anthropic")
    with pytest.raises(UsageError, match="nested too deeply"):
        await aside.do("k", too_deep, (b"",))
    with pytest.raises(AsideFailed):
        await aside.do("k", defect, (b"",))
    assert (await aside.do("k", doubled, (b"x",), 1))[0] == 1


async def test_a_process_that_dies_costs_one_job(aside: Aside) -> None:
    before, _ = await aside.do("k", pid, ())
    jobs = [aside.do("k", died, ()), aside.do("k", pid, ())]
    async with asyncio.timeout(30):
        lost, after = await asyncio.gather(*jobs, return_exceptions=True)
    assert isinstance(lost, AsideFailed)
    assert lost.status == 503
    assert isinstance(after, tuple)
    assert after[0] != before


async def test_a_job_that_takes_too_long_is_given_up(aside: Aside) -> None:
    before, _ = await aside.do("k", pid, ())
    late = asyncio.ensure_future(aside.do("k", slow, ()))
    await asyncio.sleep(0)
    assert aside._timer is not None
    aside._too_late()
    with pytest.raises(AsideFailed, match="too long"):
        await late
    assert (await aside.do("k", pid, ()))[0] != before


async def test_a_process_without_work_ends(aside: Aside) -> None:
    before, _ = await aside.do("k", pid, ())
    aside._end()
    assert (await aside.do("k", pid, ()))[0] != before


async def test_every_owner_has_its_turn(aside: Aside) -> None:
    """One that sends many large bodies delays another by one of them."""
    done: list[str] = []

    async def ask(owner: str, name: str) -> None:
        await aside.do(owner, pid, ())
        done.append(name)

    asked = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")]
    await asyncio.gather(*[ask(*one) for one in asked])
    assert done == ["a1", "a2", "b1", "c1", "a3"]


async def test_a_job_of_a_client_that_left_is_not_begun(aside: Aside) -> None:
    first = asyncio.ensure_future(aside.do("k", pid, ()))
    left = asyncio.ensure_future(aside.do("k", died, ()))
    await asyncio.sleep(0)
    left.cancel()
    last = asyncio.ensure_future(aside.do("k", pid, ()))
    assert (await first)[0] == (await last)[0]


async def test_jobs_that_wait_are_given_up_at_the_end(aside: Aside) -> None:
    waiting = [asyncio.ensure_future(aside.do("k", slow, ())) for _ in range(2)]
    await asyncio.sleep(0)
    await aside.close()
    for one in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(one, AsideFailed)


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_frames_are_put_together_out_of_reads(size: int) -> None:
    sent = [({"a": 1}, [b"x" * 500, b"", b"yz"]), (None, [])]
    data = b"".join([piece for value, bodies in sent for piece in pieces(value, bodies)])
    got: list[tuple[object, list[bytes]]] = []
    reader = FrameReader(lambda segments: got.append((value_of(segments), segments[1:])))
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    assert got == sent


async def test_so_many_bytes_may_wait_and_one_body_may_be_larger(
    aside: Aside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.gateway.aside.aside.MOST_BYTES", 10)
    large = asyncio.ensure_future(aside.do("a", doubled, (b"x" * 50,), 1))  # nothing else waits
    await asyncio.sleep(0)
    first = asyncio.ensure_future(aside.do("a", doubled, (b"x" * 6,), 1))
    await asyncio.sleep(0)
    with pytest.raises(AsideFailed, match="as many large bodies"):
        await aside.do("b", doubled, (b"x" * 5,), 1)
    fits = asyncio.ensure_future(aside.do("b", doubled, (b"x" * 4,), 1))
    assert [(await one)[0] for one in (large, first, fits)] == [50, 6, 4]
    assert aside.jobs == 3


async def test_a_process_that_cannot_be_started_is_named(
    aside: Aside, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("sys.executable", "/nowhere/python")
        with pytest.raises(AsideFailed, match=r"cannot be started: No such file or directory\."):
            await aside.do("a", doubled, (b"x",), 2)
    assert await aside.do("a", doubled, (b"x",), 2) == (1, [b"xx", b""])


async def test_a_full_pipe_is_waited_for_and_a_former_ones_is_not(aside: Aside) -> None:
    await aside.do("k", pid, ())
    ended = aside._transport
    aside._end()
    await aside.do("k", pid, ())
    aside.flow(ended, full=True)
    await aside.do("k", pid, ())
    now = aside._transport
    aside.flow(now, full=True)
    asked = asyncio.ensure_future(aside.do("k", doubled, (b"ab",), 2))
    while aside._running is None:
        await asyncio.sleep(0)
    unsent = list(aside._left)
    assert b"ab" in b"".join(unsent)
    aside._left = iter(unsent)
    aside.flow(ended, full=False)
    assert aside._full
    aside.flow(now, full=False)
    assert await asked == (2, [b"abab", b""])


async def test_the_end_of_no_process_is_none_and_a_close_waits_for_it(aside: Aside) -> None:
    aside.lost(None)  # before one was started
    await aside.do("k", pid, ())
    aside.lost(None)
    pipe = aside._pipe
    assert pipe is not None
    assert not pipe.gone.done()
    await aside.close()
    assert pipe.gone.done()
