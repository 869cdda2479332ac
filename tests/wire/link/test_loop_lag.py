"""How late a read stamp may be: by the time for which the loop was busy."""

from __future__ import annotations

import resource
import socket
import time
from types import SimpleNamespace

import pytest

from lightgate.wire.link import stamps
from lightgate.wire.link.kernel import Poller
from lightgate.wire.link.stamps import (
    SO_TIMESTAMPNS,
    WAKE_NS,
    Anchor,
    BusyTime,
    LoopLag,
    kernel_stamps_available,
)


class Thread:
    """A thread whose times are set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.busy = self.sleeps = 0
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now)
        monkeypatch.setattr(BusyTime, "total_ns", lambda _: self.busy)
        monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_nvcsw=self.sleeps))


def test_a_loop_that_did_not_sleep_may_have_been_late_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Thread(monkeypatch)
    thread.now = 1000
    lag = LoopLag()
    assert lag.since(1500) == 1000
    assert lag.since(1700) == 1000
    lag.close()


def test_a_loop_that_slept_was_late_by_what_it_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(monkeypatch)
    lag = LoopLag()
    thread.sleeps, thread.busy = 1, 300
    assert lag.since(1_000_000) == 1_000_000 - 300 - WAKE_NS
    thread.sleeps, thread.busy = 2, 350
    assert lag.since(2_000_000) == 2_000_000 - 50 - WAKE_NS
    thread.busy = 400
    assert lag.since(2_000_100) == 2_000_000 - 50 - WAKE_NS  # no sleep between
    lag.close()


def test_busy_time_is_time_on_a_core_and_time_queued_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(time, "thread_time_ns", lambda: 1000)
    monkeypatch.setattr(stamps, "SCHEDSTAT", "/nothing/there")
    unknown = BusyTime()
    assert (unknown.fd, unknown.total_ns()) == (-1, 1000)
    unknown.close()
    from pathlib import Path

    file = Path(str(tmp_path)) / "schedstat"
    file.write_text("77 500 3\n")
    monkeypatch.setattr(stamps, "SCHEDSTAT", str(file))
    known = BusyTime()
    assert (known.fd >= 0, known.total_ns()) == (True, 1500)
    known.close()
    assert known.fd == -1
    known.close()


def test_where_the_system_does_not_tell_nothing_was_busy() -> None:
    poller = Poller()
    try:
        assert poller.busy_ns() > 0
        descriptor, poller._busy.fd = poller._busy.fd, -1
        assert poller.busy_ns() == 0
        poller._busy.fd = descriptor
    finally:
        poller.close()
    assert poller._busy.fd == -1


@pytest.mark.skipif(not kernel_stamps_available(), reason="this kernel does not stamp")
def test_one_socket_keeps_the_stamps_switched_on() -> None:
    anchor = Anchor(keep_enabled=True)
    keeper = anchor._keeper
    assert keeper is not None
    assert keeper.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS) == 1
    anchor.close()
    assert (keeper.fileno(), anchor._keeper) == (-1, None)
    assert Anchor()._keeper is None


def test_stamps_are_there_where_the_kernel_takes_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stamps, "SO_TIMESTAMPNS", -7)
    assert not kernel_stamps_available()
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("socket.socket", None)
    assert not kernel_stamps_available()
