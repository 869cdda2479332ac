"""A disk or a database that does not take what a client leaves here."""

from __future__ import annotations

import errno
import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.batches.desk import BatchDesk
from lightgate.gateway.request.refusal import Refusing


def full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EIO, "broken"), "The disk did not take it: broken. Nothing was kept."),
        (full(), "The disk is full. Nothing was kept."),
        (sqlite3.OperationalError("locked"), None),
    ],
)
async def test_a_store_that_does_not_take_a_change(error: Exception, message: str | None) -> None:
    def work() -> None:
        raise error

    desk: Any = SimpleNamespace(_pool=None)
    if message is None:
        with pytest.raises(sqlite3.OperationalError):
            await BatchDesk._in_thread(desk, work)
    else:
        with pytest.raises(Refusing) as refusing:
            await BatchDesk._in_thread(desk, work)
        told = refusing.value.refusal
        assert (told.status, told.message) == (507, message)
    assert await BatchDesk._in_thread(desk, lambda: 7) == 7
