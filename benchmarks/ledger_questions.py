"""The console's questions to a ledger of millions of attempts, in milliseconds.

    python benchmarks/ledger_questions.py [--attempts 10000000] [--keep FILE] [--rounds 15] [--json]
    python benchmarks/ledger_questions.py --postgres [--attempts 100000000] [--rounds 15] [--json]

The ledger has 14 days of traffic at 40 targets of 8 providers, evenly spread: rows and sums as the
control process writes them, 2 % of them failures, 50 keys, 20 tags. Then it is asked as the pages
ask, in one process, without the console's memory of answers: the board of 14 days, of one model, of
a key (from single rows), the first page of requests, a page in the middle, the failures, a filter
that matches nothing, one request. Exit code 6 if the board of 14 days or the first page of
requests takes more than 200 ms (median). `--keep` names a file that is made once and used again.

With `--postgres` a PostgreSQL of the benchmark's own has the sums of 100 million attempts, made as
sums, and no rows of single requests: the questions that sums answer are asked. The board of 14 days
may take 300 ms.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.sketch import DDSketch, merge_all
from lightgate.clock.source import SYSTEM
from lightgate.clock.tokens import Tokens, Usage, count
from lightgate.console.api.endpoint import ApiContext, answer
from lightgate.console.site.endpoints import ENDPOINTS
from lightgate.errors import AttemptError, PeerReset
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts
from lightgate.ledger.store import schema
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S, Rollup
from lightgate.ledger.store.store import Ledger
from postgres import PostgresServer, programs

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_MS: Final = 200.0
DAYS: Final = 14
MS: Final = 1_000_000
STOP_S: Final = 1_794_823_200  # 16.11.2026, 10:00 UTC
START_S: Final = STOP_S - DAYS * 86_400
NOW_NS: Final = STOP_S * 1_000_000_000
TARGETS: Final = tuple(f"host{number % 8}/model-{number // 8}" for number in range(40))
TEMPLATES: Final = 50  # different answers of each target
SERVER_LIMIT_MS: Final = 300.0
SERVER_ATTEMPTS: Final = 100_000_000
VARIANTS: Final = 24  # different 5 minutes of each target
LIMITED: Final = ("board of 14 days", "first page of requests")
QUESTIONS: Final = {
    "board of 14 days": "/api/board?from=-14d",
    "board of 14 days, one model": "/api/board?from=-14d&model=model-1",
    "board of an hour": "/api/board?from=-1h",
    "board of a key, 24 h of rows": "/api/board?from=-24h&key=key-7",
    "series of 14 days, one target": "/api/series?from=-14d&target=host1%2Fmodel-1",
    "series of 14 days": "/api/series?from=-14d",
    "series of 24 hours": "/api/series?from=-24h",
    "heat map of 14 days": "/api/heat?from=-14d&target=host1%2Fmodel-1",
    "map of 14 days": "/api/map?from=-14d",
    "own machine or API, 14 days": "/api/break-even?from=-14d",
    "bill of hedges, 14 days": "/api/hedges?from=-14d",
    "first page of requests": "/api/requests?limit=100",
    "a page of 7 days ago": "/api/requests?limit=100&from=-8d&to=-7d",
    "failed requests": "/api/requests?outcome=bad&limit=100",
    "requests of one target": "/api/requests?target=host1%2Fmodel-1&limit=100",
    "a filter that matches nothing": "/api/requests?model=nothing&limit=100",
}


class Ended:
    """How the call of an attempt ended."""

    status: int | None = 200
    finish_reason: str | None = "stop"
    bytes_in = 900
    bytes_out = 700
    end: End | None = "marker"
    provider_request_id: str | None = "req_011CPJCIsmk2vB7PtU1O"
    streamed = True

    def __init__(self, tokens: Tokens, error: AttemptError | None) -> None:
        self.tokens = tokens
        self.error = error
        self.outcome = Outcome.OK if error is None else Outcome.RESET


def template(target: str, draw: random.Random) -> tuple[AttemptNote, ExchangeNote]:
    """One exchange with one attempt, its ids and its time left to be filled in."""
    at, slow = 10**12, 1.0 + TARGETS.index(target) / 20
    marks = Marks(at)
    marks.send, marks.headers = at + MS, at + 30 * MS
    stamp = at + int(draw.lognormvariate(4.6, 0.4) * slow) * MS
    for _ in range(20):
        marks.burst(stamp, stamp - 5000, 5, 20)
        stamp += int(draw.uniform(20, 60) * slow) * MS
    marks.answer = marks.event = marks.first
    marks.end = (marks.last or at) + MS
    error = PeerReset("The connection broke.") if draw.random() < 0.02 else None
    tokens = count(marks, Usage(tokens_in=draw.choice((120, 900, 9000)), tokens_out=100))
    provider, _, model = target.partition("/")
    facts = NoteFacts("", "", target, provider, model, "openai-chat", 0, "only", None, 0, 15_000,
                      "list", "2026-11-01")  # fmt: skip
    one = AttemptNote.of(facts, marks, Ended(tokens, error))
    end = one.end or at
    tag = f'{{"team":"t{draw.randrange(20)}"}}'
    exchange = ExchangeNote(
        "", "", f"key-{draw.randrange(50)}", model, "chat", target,
        None if error else target, "off", 502 if error else 200, "reset" if error else "ok",
        None, "openai-chat", True, 0, at - 900_000, at - 30_000, at, at + 90_000, one.send,
        one.first, (one.first or at) + 80_000, one.end, end + 90_000, end + 110_000,
        tokens.tokens_in, 100, 15_000, "list", None, tag, 0,
    )  # fmt: skip
    return one, exchange


def make(ledger: Ledger, attempts: int) -> None:
    """Fill a ledger: the rows, and the sums by the code that keeps them up."""
    draw = random.Random(7)  # noqa: S311 - the same ledger every time
    templates = [template(target, draw) for target in TARGETS for _ in range(TEMPLATES)]
    buckets = DAYS * 86_400 // FINE_S
    made = 0
    for bucket in range(buckets):
        wanted = attempts * (bucket + 1) // buckets - made
        if not wanted:
            continue
        start_ns, step = (START_S + bucket * FINE_S) * 10**9, FINE_S * 10**9 // wanted
        rollup, exchange_rows, attempt_rows = Rollup(), [], []
        for number in range(wanted):
            one, exchange = draw.choice(templates)
            wall_ns, id_ = start_ns + number * step, f"{made + number:032x}"
            facts = replace(one.facts, id=f"{id_}.0", exchange_id=id_, wall_ns=wall_ns)
            one = replace(one, facts=facts)
            exchange = replace(exchange, id=id_, request_id=id_, wall_ns=wall_ns)
            rollup.add(exchange, (one,))
            exchange_rows.append(exchange.row(1))
            attempt_rows.append(one.row())
        with ledger.writing() as connection:
            ledger.insert(connection, schema.exchange_notes, exchange_rows)
            ledger.insert(connection, schema.attempt_notes, attempt_rows)
            rollup.write(ledger, connection)
        made += wanted
        if bucket % 288 == 0:
            sys.stderr.write(f"{made:,} attempts\n")


def make_sums(ledger: Ledger, attempts: int) -> None:
    """Fill a ledger with sums alone: each 5 minutes is one of a target's variants."""
    draw = np.random.default_rng(7)
    each = attempts // (DAYS * 288 * len(TARGETS))
    for number, target in enumerate(TARGETS):
        fine = [_sketches(draw, each, 1.0 + number / 20) for _ in range(VARIANTS)]
        for width, buckets in ((FINE_S, 1), (HOUR_S, 12), (DAY_S, 288)):
            wide = [
                [
                    merge_all(fine[(start + step) % VARIANTS][at] for step in range(buckets))
                    for at in range(len(schema.METRICS))
                ]
                for start in range(VARIANTS if buckets == 1 else 2)
            ]
            blobs = [[sketch.to_bytes() for sketch in some] for some in wide]
            rows = [
                _sum_row(width, start, target, each * buckets, blobs[start // width % len(blobs)])
                for start in range(START_S // width * width, STOP_S, width)
            ]
            with ledger.writing() as connection:
                ledger.insert(connection, schema.rollups, rows)


def _sketches(draw: np.random.Generator, count_: int, slow: float) -> list[DDSketch]:
    """One sketch for each metric, of answers that are spread as those of providers are."""
    found = []
    for name in schema.METRICS:
        middle = 4.6 if name.endswith("_ms") else 4.0
        sketch = DDSketch()
        sketch.add_many(list(draw.lognormal(middle, 0.4, count_) * slow))
        found.append(sketch)
    return found


def _sum_row(
    width: int, start: int, target: str, attempts: int, sketches: list[bytes]
) -> tuple[Any, ...]:
    provider, _, model = target.partition("/")
    failed = attempts // 50
    outcomes = [0] * len(schema.OUTCOMES)
    outcomes[schema.OUTCOMES.index("ok")] = attempts - failed
    outcomes[schema.OUTCOMES.index("reset")] = failed
    return (
        width, start, target, provider, model, attempts, *outcomes, attempts - failed,
        attempts * 900, attempts * 100, Decimal(attempts) * Decimal("0.000015"), *sketches,
    )  # fmt: skip


def timed(ask: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of every round, after one that is not counted."""
    ask()
    found = []
    for _ in range(rounds):
        began = SYSTEM.now_ns()
        ask()
        found.append((SYSTEM.now_ns() - began) / 1e6)
    return found


def measure(ledger: Ledger, rounds: int, *, sums: bool = False) -> dict[str, list[float]]:
    """Ask every question, or those that `sums` answer."""
    context = ApiContext(ledger, NOW_NS, {})
    routes = {route.path: route for route in ENDPOINTS}
    found = {}
    for name, line in QUESTIONS.items():
        if sums and ("/api/requests" in line or "key=" in line):
            continue
        path, _, query = line.partition("?")
        found[name] = timed(partial(answer, routes[path], context, query), rounds)
    if sums:
        return found
    one = json.loads(answer(routes["/api/requests"], context, "limit=1"))["rows"][0]["id"]
    single = routes["/api/requests/{id}"]
    found["one request"] = timed(lambda: answer(single, context, "", one), rounds)
    return found


def show(found: dict[str, list[float]], attempts: int, size: int) -> None:
    """The table."""
    print(f"{attempts:,} attempts, {size / 1e9:.2f} GB; ms, median (min - max) of each question")
    for name, values in found.items():
        spread = f"({min(values):.1f} - {max(values):.1f})"
        print(f"{name:32} {statistics.median(values):8.1f} {spread:>18}   n {len(values)}")


def measure_server(options: argparse.Namespace) -> int:
    """Make the sums on a server of our own, measure, and say whether the limit holds."""
    installed = programs()
    if installed is None:
        raise SystemExit("PostgreSQL is not installed.")
    attempts = options.attempts or SERVER_ATTEMPTS
    with PostgresServer(installed) as server:
        url = server.database()
        with Ledger.open(url) as ledger:
            make_sums(ledger, attempts)
            server.run("VACUUM ANALYZE", url.rpartition("/")[2])
            found = measure(ledger, options.rounds, sums=True)
        size = server.run("SELECT pg_total_relation_size('rollups')", url.rpartition("/")[2])[0][0]
    if options.json:
        print(json.dumps({"attempts": attempts, "bytes": size, "ms": found}))
    else:
        show(found, attempts, size)
    return 6 if statistics.median(found["board of 14 days"]) > SERVER_LIMIT_MS else 0


def main() -> int:
    """Make or open the ledger, measure, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attempts", type=int)
    parser.add_argument("--postgres", action="store_true", help="sums in PostgreSQL")
    parser.add_argument("--keep", type=Path, help="the ledger's file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.postgres:
        return measure_server(options)
    options.attempts = options.attempts or 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        path: Path = options.keep or Path(folder) / "ledger.sqlite"
        new = not path.exists()
        with Ledger.open(path) as ledger:
            if new:
                make(ledger, options.attempts)
            found = measure(ledger, options.rounds)
            with ledger.reading() as connection:
                rows = int(
                    connection.exec_driver_sql("SELECT max(rowid) FROM attempt_notes").scalar() or 0
                )
        size = path.stat().st_size
    figures: dict[str, Any] = {"attempts": rows, "bytes": size, "ms": found, "limit_ms": LIMIT_MS}
    if options.json:
        print(json.dumps(figures))
    else:
        show(found, rows, size)
    return 6 if any(statistics.median(found[name]) > LIMIT_MS for name in LIMITED) else 0


if __name__ == "__main__":
    sys.exit(main())
