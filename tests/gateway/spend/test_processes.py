"""Several processes at one file of spend counters, and processes that die in the middle of it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.store.keys import KeyTerms, new_key

if TYPE_CHECKING:
    from pathlib import Path

COMMON = """
import os, signal, sys
from decimal import Decimal
from pathlib import Path
from lightgate.clock.source import SYSTEM, ManualClock
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.store.keys import KeyRecord
path = Path(sys.argv[1])
key = KeyRecord(id=sys.argv[2], name="n", hash="00", prefix="lg-", created="2026-01-01T00:00:00Z",
                budget_usd=Decimal("0.00001"), rpm=100000, tpm=1000000)
COST = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
"""

# Each waits for a byte, so that all of them begin together.
MANY = (
    COMMON
    + """
with SpendCounters.open(path, int(sys.argv[3]), [key]) as spend:
    print("ready", flush=True)
    sys.stdin.read(1)
    print(sum(spend.admit(key, SYSTEM.wall_ns(), 1, COST) is None for _ in range(50)))
"""
)

# A child for every line that admit and settle run: each is killed when it reaches the next one.
DYING = (
    COMMON
    + """
clock = ManualClock()
pause_s = int(sys.argv[3])

def child(step, told):
    spend = SpendCounters.open(path, 1, [key], clock=clock)
    passed = 0
    def trace(frame, event, argument):
        nonlocal passed
        if f"lightgate{os.sep}gateway" not in frame.f_code.co_filename:
            return None
        if event == "line":
            if passed == step:
                os.kill(os.getpid(), signal.SIGKILL)
            passed += 1
        return trace
    sys.settrace(trace)
    assert spend.admit(key, clock.wall_ns(), 3, 1000) is None
    os.write(told, b"a")
    clock.advance(pause_s * 1_000_000_000)
    spend.settle(key.id, 1000, 400, 3, 2)
    sys.settrace(None)
    os.write(told, b"s")
    os._exit(0)

signal.alarm(60)  # a lock that was not released would hang here
for step in range(1000):
    path.unlink(missing_ok=True)
    read, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(step, told)
    os.close(told)
    _, status = os.waitpid(pid, 0)
    said = os.read(read, 9).decode()
    os.close(read)
    with SpendCounters.open(path, 0, [key], clock=clock) as spend:
        before = spend.standing(key.id)
        spend.clear_worker(1)
        after = spend.standing(key.id)
        again = spend.admit(key, clock.wall_ns(), 3, 9000) is None
    print(said or "-", before.spent_nano, before.held_nano, before.held_tokens, before.requests,
          after.spent_nano, after.held_nano, after.held_tokens, again)
    if os.waitstatus_to_exitcode(status) == 0:
        break
else:
    sys.exit("it never came to its end")
"""
)


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("enough", [10, 100, 160])
def test_four_processes_and_a_budget_for_some(tmp_path: Path, enough: int) -> None:
    path, key_id, cost = tmp_path / "spend", "0190", 10_000 // enough
    workers = [start(MANY, str(path), key_id, str(index), str(cost)) for index in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("g")
        worker.stdin.flush()
    ends = [worker.communicate(timeout=100) for worker in workers]
    assert [said[1] for said in ends] == ["", "", "", ""]
    assert sum(int(said[0]) for said in ends) == 10_000 // cost


@pytest.mark.parametrize("pause_s", [0, 1])
def test_a_kill_at_any_line_leaves_consistent_counters(tmp_path: Path, pause_s: int) -> None:
    process = start(DYING, str(tmp_path / "spend"), "0190", str(pause_s))
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    states = Counter(out.splitlines())
    assert len(out.splitlines()) > 50
    for state in states:
        said, *rest = state.split()
        spent, held, held_tokens, requests, later, still, still_tokens = map(int, rest[:-1])
        assert spent in {0, 400}
        assert held in {0, 1000}
        assert held_tokens in {0, 3}
        # A kill while another second begins counts those of the second before twice.
        assert requests in {0, 1, 1 + pause_s}
        # Once admitted, the money is reserved or spent at every instant.
        assert said == "-" or spent + held >= 400
        assert (later, still, still_tokens) == (spent, 0, 0)
        assert rest[-1] == "True"
    assert any(state.startswith("as 400 0 0 1") for state in states)
    assert any(state.startswith("a 400 1000") for state in states)


def test_a_record_made_elsewhere_is_met_again(tmp_path: Path) -> None:
    record = new_key(KeyTerms(name="n", budget_usd=Decimal("0.00001")), clock=ManualClock())[1]
    worker = start(MANY, str(tmp_path / "spend"), record.id, "9")
    said, err = worker.communicate("g", timeout=100)
    assert (said, err) == ("ready\n10\n", "")
    with SpendCounters.open(tmp_path / "spend", 0, [record]) as spend:
        standing = spend.standing(record.id)
        assert standing is not None
        assert standing.held_nano == 10_000
