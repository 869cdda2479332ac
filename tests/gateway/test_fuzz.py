"""A share of the fuzz of all sixteen pairs of dialects; `make soak` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.mark.parametrize("seed", [101, 102])
def test_no_request_and_no_answer_does_harm(seed: int) -> None:
    command = [sys.executable, str(PROGRAM), "--each", "20", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "640 exchanges of 16 pairs" in done.stdout
    reached = [line for line in done.stdout.splitlines() if "request reached" in line]
    assert int(reached[0].rpartition(":")[2]) > 100  # not all of them were refused
