"""A child that another program started, and a version that takes too long to be loaded."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from lightgate.errors import LightgateError
from lightgate.gateway.process import handover
from lightgate.gateway.process.handover import AdoptedProcess, check_installed


def adopted(pid: int = 77) -> Any:
    made: Any = object.__new__(AdoptedProcess)
    made.pid, made.returncode = pid, None
    return made


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([(0, 0), (0, 0), (77, 3 << 8)], 3),
        ([(77, signal.SIGKILL)], -signal.SIGKILL),
        ([ChildProcessError()], 0),
    ],
)
async def test_the_end_of_an_adopted_child(
    monkeypatch: pytest.MonkeyPatch, ends: list[Any], code: int
) -> None:
    asked: list[tuple[int, int]] = []

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        asked.append((pid, options))
        found = ends[len(asked) - 1]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return] # of the table

    monkeypatch.setattr(os, "waitpid", waitpid)
    monkeypatch.setattr(handover, "_LOOK_S", 0)
    child = adopted()
    assert await child.wait() == code
    assert await child.wait() == code  # known from now on
    assert asked == [(77, os.WNOHANG)] * len(ends)


def test_a_child_that_has_ended_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    adopted().kill()
    assert sent == [(77, signal.SIGKILL)]
    with pytest.raises(ProcessLookupError):
        adopted().send_signal(signal.SIGTERM)


@pytest.mark.parametrize(("late", "code"), [(False, 0), (False, 1), (True, -9)])
async def test_a_version_that_takes_too_long_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, late: bool, code: int
) -> None:
    log: list[str] = []

    class Check:
        async def wait(self) -> int:
            if late and not log:
                await asyncio.get_running_loop().create_future()
            return code

        def kill(self) -> None:
            log.append("killed")

    async def start(*_: object, **__: object) -> Check:
        return Check()

    monkeypatch.setattr("asyncio.create_subprocess_exec", start)
    monkeypatch.setattr(handover, "CHECK_S", 0 if late else 20)
    if code:
        with pytest.raises(LightgateError, match="cannot be loaded"):
            await check_installed()
    else:
        await check_installed()
    assert log == (["killed"] if late else [])
