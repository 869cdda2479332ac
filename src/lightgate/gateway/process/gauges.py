"""Gauges and counters of a worker that no journal has, written once a second for the console.

Each process writes a file of its own by rename. The console reads the files when it is asked for
metrics; nothing is added to the way of a request.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.shared.store import StoreGauge
from lightgate.route.health.breaker import State as BreakerState
from lightgate.whole_file import put

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.exchange.state import State
    from lightgate.wire.door.door import Door

FOLDER: Final = "gauges"
_encode: Final = msgspec.json.Encoder().encode


class WorkerGauges(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one instant (`at_ns`, monotonic); counters begin with its process.

    `in_flight` are attempts by target, `breakers` the state of every target whose breaker is not
    closed. `lags` counts the beats of the loop by how late they were: up to each of LAG_BOUNDS_NS,
    and later. `shed` counts what the worker's load turned away, `refused` all refusals by their
    code. `journal` is the file that is written now, with the bytes of its notes; `waiting` are
    notes that the disk has not taken.
    """

    worker: int
    pid: int
    at_ns: int
    place: int | None = None  # of the worker among all; its successor has the same, not the number
    exchanges: int = 0
    in_flight: dict[str, int] = {}
    breakers: dict[str, BreakerState] = {}
    lags: tuple[int, ...] = ()
    lag_total_ns: int = 0
    shed: dict[str, int] = {}
    refused: dict[str, int] = {}
    turns: dict[str, int] = {}  # of the loop that took long, by their stage
    connections: int = 0
    provider_connections: int = 0
    body_bytes: int = 0
    journal: str = ""
    journal_bytes: int = 0
    waiting: int = 0
    cache_answers: int = 0
    cache_bytes: int = 0
    store: StoreGauge | None = None  # that machines share


_decode: Final = msgspec.json.Decoder(WorkerGauges).decode


class GaugeFile:
    """The file of one worker's gauges."""

    def __init__(self, data: Path, state: State, door: Door, place: int | None = None) -> None:
        self._path = data / FOLDER / f"{state.worker}-{os.getpid()}.json"
        self._state = state
        self._door = door
        self._place = place

    def content(self) -> bytes:
        """The gauges of this instant, as the file has them."""
        state, crowd, now = self._state, self._door.crowd, self._state.now_ns()
        load, learned, memory = state.load, state.learned, state.cache.memory
        journal, journal_bytes = state.journal.place()
        forms = learned.forms.by_target.items()
        gauges = WorkerGauges(
            worker=state.worker,
            pid=os.getpid(),
            at_ns=now,
            place=self._place,
            exchanges=len(state.exchanges),
            in_flight={target: form.in_flight for target, form in forms if form.in_flight},
            breakers=learned.breakers.states(now),
            lags=tuple(load.lags),
            lag_total_ns=load.lag_total_ns,
            shed={**load.shed, **crowd.refused},
            refused=state.refused,
            turns=dict(state.turns.long),
            connections=crowd.connections,
            provider_connections=state.client.open_connections,
            body_bytes=crowd.body_bytes,
            journal=journal,
            journal_bytes=journal_bytes,
            waiting=len(state.journal.waiting),
            cache_answers=len(memory),
            cache_bytes=memory.size,
            store=None if state.store is None else state.store.gauge(),
        )
        return _encode(gauges)

    def write(self, content: bytes) -> None:
        """Replace the file; in a thread, since a disk may be slow.

        A disk that takes nothing only makes the metrics older.
        """
        # The name of a worker's place, not of its life: what a killed one left is written over.
        unborn = f"{self._state.worker}.new"
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            put(self._path, content, unborn=unborn)


def read_gauges(data: Path) -> list[tuple[Path, WorkerGauges]]:
    """The gauges of every worker that has left a file, the living and the dead."""
    found: list[tuple[Path, WorkerGauges]] = []
    try:
        paths = sorted((data / FOLDER).glob("*.json"))
    except OSError:  # no descriptor is left: clients have them all
        return found
    for path in paths:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found.append((path, _decode(path.read_bytes())))
    return found
