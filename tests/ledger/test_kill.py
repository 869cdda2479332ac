"""A real worker, really killed: what it acknowledged is in the ledger once, whatever the moment."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from lightgate.ledger.journal.journal import journals
from lightgate.ledger.journal.ship import ORPHANED, Shipper
from lightgate.ledger.store import schema
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROUNDS = 10
WORKER = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from ledger.notes import reserved, settled
    from lightgate.ledger.journal.journal import Journal

    journal = Journal(Path(sys.argv[1]), int(sys.argv[2]), rotate_bytes=20_000)
    at = 0
    while True:
        made = f"{sys.argv[2]}-{at}"
        journal.write(reserved(made))
        os.write(1, f"seen {made}\\n".encode())
        journal.write(settled(made))
        os.write(1, f"done {made}\\n".encode())
        at += 1
""")
SHIPPER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from lightgate.ledger.journal.ship import Shipper
    from lightgate.ledger.store.store import Ledger

    ledger = Ledger.open("sqlite", Path(sys.argv[1]))
    shipper = Shipper(ledger, Path(sys.argv[1]) / "journal")
    print("ready", flush=True)
    while True:
        shipper.ship(7)
""")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes; none of them outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(script: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            kill(process)


def read_until(process: subprocess.Popen[bytes], size: int) -> bytes:
    """Read what a process says until it has said this much."""
    assert process.stdout is not None
    said = b""
    while len(said) < size:
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready, "the process says nothing"
        more = os.read(process.stdout.fileno(), 4096)
        assert more, "the process died by itself"
        said += more
    return said


def kill(process: subprocess.Popen[bytes]) -> bytes:
    process.kill()
    assert process.stdout is not None
    rest = process.stdout.read()
    process.stdout.close()
    process.wait()
    return rest


def test_every_id_that_was_seen_is_there_once(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    draw = random.Random(20)  # noqa: S311 - the same moments every time
    seen: set[str] = set()
    done: set[str] = set()
    carrier = start(SHIPPER, str(tmp_path))
    read_until(carrier, 5)
    for at in range(ROUNDS):
        worker = start(WORKER, str(tmp_path / "journal"), str(at))
        said = read_until(worker, draw.randrange(1, 20_000)) + kill(worker)
        for line in said.decode().splitlines():
            what, made = line.split()
            (seen if what == "seen" else done).add(made)
        if at % 3 == 1:  # the shipper dies too, in the midst of its work
            kill(carrier)
            carrier = start(SHIPPER, str(tmp_path))
            read_until(carrier, 5)
    kill(carrier)
    with Ledger.open("sqlite", tmp_path) as ledger:
        Shipper(ledger, tmp_path / "journal").drain()
        assert journals(tmp_path / "journal") == []
        with ledger.reading() as connection:
            rows = connection.execute(sa.select(schema.exchanges.c.id, schema.exchanges.c.error))
            kept = {row.id: row.error for row in rows}
            tries = connection.execute(sa.select(sa.func.count()).select_from(schema.attempts))
            sums = sa.select(sa.func.sum(schema.rollups.c.attempts)).group_by(
                schema.rollups.c.width_s
            )
            summed = [int(total) for total in connection.scalars(sums)]
            open_now = connection.execute(schema.reservations.select()).all()
            settled = tries.scalar_one()
    assert len(done) > ROUNDS
    assert seen <= kept.keys()
    assert done <= {made for made, error in kept.items() if error is None}
    assert settled == sum(error is None for error in kept.values())
    assert summed == [settled] * 3  # of 5 minutes, hours and days
    # At most one a round was written and not yet said when its worker died.
    assert len(kept.keys() - seen) <= ROUNDS
    assert sum(error == ORPHANED for error in kept.values()) <= ROUNDS
    assert open_now == []
