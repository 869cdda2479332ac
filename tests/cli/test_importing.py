"""Ctrl-C in the first moments of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.importing import Importing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INTERRUPTED_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class CtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ["CTRL_C_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a shell may ignore it
sys.meta_path.insert(0, CtrlC())
from lightgate.__main__ import main
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("lightgate.cli.main", ["version"]),
        ("click", ["version"]),
        ("lightgate.cli.version", ["version"]),
        ("lightgate.cli.launch", ["up", "--port", "0", "--console-port", "0", "--demo"]),
    ],
)
def test_an_interrupt_while_modules_are_loaded_is_no_traceback(
    module: str, words: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, *words], cwd=tmp_path, capture_output=True,
        text=True, timeout=100, check=False, env={**os.environ, "CTRL_C_AT": module},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    assert list(tmp_path.iterdir()) == []


def test_afterwards_an_interrupt_is_raised_again() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Importing():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_command_that_is_to_ignore_interrupts_goes_on_doing_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Importing():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
