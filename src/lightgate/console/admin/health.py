"""How the gateway is: its processes, its targets, the way of its records into the ledger."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.console.api.question import rfc3339
from lightgate.console.workers import process_facts
from lightgate.gateway.exchange.load import LAG_BOUNDS_NS
from lightgate.gateway.process.lock import read_state
from lightgate.ledger.sqlite import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.console.admin.sources import AdminSources
    from lightgate.gateway.process.gauges import WorkerGauges

CONFIG_FILE: Final = "config-in-force.json"  # `lightgate up` writes it whenever it reads the file
LATE_S: Final = 30.0  # without a whole pass over the journals
_ORDER: Final = {"open": 0, "half_open": 1, "held": 2, "closed": 3}  # the worst first


class WorkerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One worker; 99 of 100 beats of its loop since its start were no later than `lag_p99_ms`.

    None: later than the largest bound, or there was no beat yet. `waiting` are notes that the disk
    has not taken.
    """

    worker: int
    pid: int
    in_flight: int
    attempts: int
    connections: int
    provider_connections: int
    lag_p99_ms: float | None
    lag_mean_ms: float | None
    resident_bytes: int | None
    open_files: int | None
    most_files: int | None
    waiting: int
    shed: dict[str, int]
    refused: dict[str, int]


class ProcessHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One process of `lightgate up`."""

    name: str
    pid: int | None
    ready: bool
    restarts: int
    resident_bytes: int | None


class TargetHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One target: the worst state of its breaker in any worker, and attempts in flight in all."""

    target: str
    breaker: str
    workers_open: int
    in_flight: int


class JournalHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The way of the workers' records into the ledger."""

    lag_s: float | None
    waiting_bytes: int
    failures: int
    lost: int


class LedgerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's file, where it is one, and the room on its disk."""

    bytes: int | None
    wal_bytes: int | None
    free_bytes: int | None


class GatewayHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that tells whether the gateway is well; `problems` are sentences for people."""

    as_of: str
    version: str
    started: str | None
    gateway: str
    well: bool
    problems: list[str]
    workers: list[WorkerHealth]
    processes: list[ProcessHealth]
    targets: list[TargetHealth]
    journal: JournalHealth
    ledger: LedgerHealth
    console_refused: dict[str, int]


class ConfigValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value in force: its key, how it would be written, and where it comes from.

    A secret is the name of its variable, and whether that is set.
    """

    key: str
    value: str | None
    source: str


class ConfigInForce(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that the gateway took over last."""

    as_of: str
    file: str | None
    rows: list[ConfigValue]
    ignored: tuple[str, ...] = ()


def gateway_health(sources: AdminSources, now_ns: int, version: str) -> GatewayHealth:
    """Look at all of it now."""
    sources.workers.look()
    sources.names.look()
    state = read_state(sources.data)
    with sources.workers.lock:
        gauges = list(sources.workers.now)
        waiting = sources.ship_loop.shipper.waiting_bytes(sources.workers.written())
    children = () if state is None else state.children
    journal = JournalHealth(
        lag_s=sources.ship_loop.lag_s(),
        waiting_bytes=waiting,
        failures=sources.ship_loop.failures,
        lost=sources.ship_loop.lost,
    )
    workers = [_worker(one) for one in sorted(gauges, key=lambda one: (one.worker, one.pid))]
    processes = [
        ProcessHealth(
            name=child.name,
            pid=child.pid,
            ready=child.ready,
            restarts=child.restarts,
            resident_bytes=_resident(child.pid),
        )
        for child in children
    ]
    targets = _targets(gauges, sources.names.configured)
    problems = list(_problems(sources, processes, targets, journal))
    host = "" if state is None else f"{state.host}:{state.port}"
    return GatewayHealth(
        as_of=rfc3339(now_ns // 1_000_000_000),
        version=version if state is None else state.version,
        started=None if state is None else state.started,
        gateway=host,
        well=not problems,
        problems=problems,
        workers=workers,
        processes=processes,
        targets=targets,
        journal=journal,
        ledger=_ledger(sources.data),
        console_refused={str(status): count for status, count in sources.refused().items()},
    )


def config_in_force(data: Path, only: str, now_ns: int, ignored: tuple[str, ...]) -> ConfigInForce:
    """What `lightgate up` wrote down of its configuration; empty where it has written nothing."""
    as_of = rfc3339(now_ns // 1_000_000_000)
    try:
        kept = msgspec.json.decode((data / CONFIG_FILE).read_bytes(), type=ConfigInForce)
    except (OSError, msgspec.DecodeError):
        return ConfigInForce(as_of=as_of, file=None, rows=[], ignored=ignored)
    unchanged = {"default", "catalogue"}
    rows = [row for row in kept.rows if only != "changed" or row.source not in unchanged]
    return msgspec.structs.replace(kept, rows=rows, ignored=ignored)


def _worker(gauges: WorkerGauges) -> WorkerHealth:
    facts = process_facts(gauges.pid)
    beats = sum(gauges.lags)
    return WorkerHealth(
        worker=gauges.worker,
        pid=gauges.pid,
        in_flight=gauges.exchanges,
        attempts=sum(gauges.in_flight.values()),
        connections=gauges.connections,
        provider_connections=gauges.provider_connections,
        lag_p99_ms=_lag_p99_ms(gauges.lags),
        lag_mean_ms=gauges.lag_total_ns / beats / 1e6 if beats else None,
        resident_bytes=None if facts is None else facts.resident_bytes,
        open_files=None if facts is None else facts.open_files,
        most_files=None if facts is None else facts.most_files,
        waiting=gauges.waiting,
        shed=gauges.shed,
        refused=gauges.refused,
    )


def _lag_p99_ms(lags: tuple[int, ...]) -> float | None:
    wanted, seen = 0.99 * sum(lags), 0
    for count, bound_ns in zip(lags, LAG_BOUNDS_NS, strict=False):
        seen += count
        if seen and seen >= wanted:
            return bound_ns / 1e6
    return None


def _targets(gauges: list[WorkerGauges], configured: tuple[str, ...]) -> list[TargetHealth]:
    names = dict.fromkeys(configured)
    for one in gauges:
        names |= dict.fromkeys((*one.in_flight, *one.breakers))
    found = []
    for target in names:
        states = [str(one.breakers[target]) for one in gauges if target in one.breakers]
        worst = min(states, key=lambda state: _ORDER.get(state, 0), default="closed")
        found.append(
            TargetHealth(
                target=target,
                breaker=worst,
                workers_open=sum(state != "closed" for state in states),
                in_flight=sum(one.in_flight.get(target, 0) for one in gauges),
            )
        )
    return sorted(found, key=lambda one: (_ORDER.get(one.breaker, 0), one.target))


def _problems(
    sources: AdminSources,
    processes: list[ProcessHealth],
    targets: list[TargetHealth],
    journal: JournalHealth,
) -> Iterator[str]:
    if not processes:
        yield "No `lightgate up` runs on this data folder."
    for process in processes:
        if not process.ready:
            yield f"{process.name} does not serve now."
    if journal.lag_s is None or journal.lag_s > LATE_S:
        yield "The journals of the workers do not reach the ledger."
    for target in targets:
        if target.breaker != "closed":
            yield f"The breaker of {target.target} is {target.breaker.replace('_', ' ')}."
    away = {one.store.problem for one in sources.workers.now if one.store and one.store.problem}
    for problem in sorted(away):
        yield f"The state that machines share is away: {problem}"
    notice = sources.notice()
    if notice:
        yield notice


def _resident(pid: int | None) -> int | None:
    facts = None if pid is None else process_facts(pid)
    return None if facts is None else facts.resident_bytes


def _ledger(data: Path) -> LedgerHealth:
    sizes: list[int | None] = []
    for name in (FILE, f"{FILE}-wal"):
        try:
            sizes.append((data / name).stat().st_size)
        except OSError:
            sizes.append(None)
    free = None
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(data).free
    return LedgerHealth(bytes=sizes[0], wal_bytes=sizes[1], free_bytes=free)
