"""`lightgate up` tells its workers what the ledger knows of targets."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from ledger.notes import attempt_note, settled
from ledger.store.test_seen import keep
from lightgate.cli.launch import PRIORS_S, Launch, UpOptions
from lightgate.gateway.served.snapshot import put_snapshot, read_snapshot
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[providers.lab]
base_url = "http://127.0.0.1:9/v1"
api_key = "none"
[models.fast]
targets = ["lab/s1", "lab/new"]
"""


def launch(tmp_path: Path) -> Launch:
    (tmp_path / "lightgate.toml").write_text(CONFIG)
    return Launch(UpOptions(config_file=tmp_path / "lightgate.toml", data=tmp_path / "data"))


def serve(data: Path, n: int = 30) -> None:
    """Answers of an hour ago, with the first token after 100 ms."""
    wall_ns = time.time_ns() - 3600 * 10**9
    notes = [
        settled(f"x-{at}", attempt_note(f"x-{at}", wall_ns=wall_ns), wall_ns=wall_ns)
        for at in range(n)
    ]
    with Ledger.open("sqlite", data) as ledger:
        keep(ledger, data, notes)


def test_a_reload_asks_the_ledger(tmp_path: Path) -> None:
    up = launch(tmp_path)
    assert up._prepare.priors() == {}
    serve(up.data)
    priors = up._prepare.priors()
    assert priors["lab/s1"].ttft_ms == pytest.approx(100.0, rel=0.02)
    assert priors["lab/new"].ttft_ms == priors["lab/s1"].ttft_ms
    assert priors["lab/new"].speed_tps > priors["lab/s1"].speed_tps


def test_the_first_snapshot_holds_what_the_last_life_believed(tmp_path: Path) -> None:
    up = launch(tmp_path)
    assert up._prepare.first_priors() == {}
    serve(up.data)
    assert up._prepare.first_priors() == {}  # the ledger is asked once it serves
    believed = up._prepare.priors()
    put_snapshot(up.data, up._prepare.make_snapshot((), believed))
    assert up._prepare.first_priors() == believed
    told = CONFIG.replace(', "lab/new"', "") + '[priors."lab/s1"]\nttft = "7ms"\n'
    (tmp_path / "lightgate.toml").write_text(told)
    again = Launch(UpOptions(config_file=tmp_path / "lightgate.toml", data=tmp_path / "data"))
    assert {name: prior.ttft_ms for name, prior in again._prepare.first_priors().items()} == {
        "lab/s1": 7.0
    }


async def test_while_it_runs_it_looks_again(tmp_path: Path) -> None:
    up = launch(tmp_path)
    put_snapshot(up.data, up._prepare.make_snapshot((), {}))
    pauses: list[float] = []
    known: list[set[str]] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        known.append(set(read_snapshot(up.data).priors))
        if len(pauses) == 1:
            serve(up.data)
        elif len(pauses) == 2:
            (up.data / FILE).unlink()
            (up.data / FILE).write_bytes(b"broken" * 5000)
        else:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await up._keep_priors(pause)
    assert pauses == list(PRIORS_S)
    assert known[:2] == [set(), {"lab/s1", "lab/new"}]
    assert known[2] == known[1]  # what cannot be read takes nothing away
