"""Orders to reload in the first moments of `lightgate up`, and beside another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.early_orders import EarlyOrders

if TYPE_CHECKING:
    from pathlib import Path

ORDERED_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Order(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ["ORDER_AT"]:
            os.kill(os.getpid(), getattr(signal, os.environ["ORDER"]))

from lightgate.__main__ import main
sys.meta_path.insert(0, Order())
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["lightgate.cli.main", "lightgate.cli.launch"])
@pytest.mark.parametrize("order", ["SIGHUP", "SIGUSR2"])
def test_an_order_while_modules_are_loaded_does_not_end_the_command(
    order: str, module: str, tmp_path: Path
) -> None:
    """Its default action killed the command: a service manager that reloads at once did that."""
    done = subprocess.run(
        [sys.executable, "-c", ORDERED_AT, "up", "--config", "none.toml"], cwd=tmp_path,
        capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "ORDER": order, "ORDER_AT": module},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")  # the file is not there: it went on so far
    assert "none.toml" in done.stderr


def test_orders_are_kept_in_their_order_and_what_was_held_back_comes_through() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGUSR2)}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})  # as before a change of programs
    signal.raise_signal(signal.SIGUSR2)
    with EarlyOrders() as early:
        assert early.taken() == [signal.SIGUSR2]
        signal.raise_signal(signal.SIGHUP)
        assert early.taken() == [signal.SIGUSR2, signal.SIGHUP]
    assert {number: signal.getsignal(number) for number in before} == before
    # To the last moment of the process: its default action would end an `up` that has ended well.
    assert signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2}) == {signal.SIGUSR2}
