"""The console's questions to a ledger of millions of attempts, in milliseconds.

    python benchmarks/ledger.py [--attempts 10000000] [--keep FILE] [--rounds 15] [--json]

The ledger has 14 days of traffic at 40 targets of 8 providers, evenly spread: rows and sums as the
control process writes them, 2 % of them failures, 50 keys, 20 tags. Then it is asked as the pages
ask, in one process, without the console's memory of answers: the board of 14 days, of one model, of
a key (from single rows), the first page of requests, a page in the middle, the failures, a filter
that matches nothing, one request. Exit code 6 if the board of 14 days or the first page of
requests takes more than 200 ms (median). `--keep` names a file that is made once and used again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.source import SYSTEM
from lightgate.clock.tokens import Tokens, Usage, count
from lightgate.console.api.endpoint import ApiContext, answer
from lightgate.console.site.endpoints import ENDPOINTS
from lightgate.errors import AttemptError, PeerReset
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts
from lightgate.ledger.store import schema
from lightgate.ledger.store.rollup import FINE_S, Rollup
from lightgate.ledger.store.store import Ledger

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


def timed(ask: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of every round, after one that is not counted."""
    ask()
    found = []
    for _ in range(rounds):
        began = SYSTEM.now_ns()
        ask()
        found.append((SYSTEM.now_ns() - began) / 1e6)
    return found


def measure(ledger: Ledger, rounds: int) -> dict[str, list[float]]:
    """Ask every question."""
    context = ApiContext(ledger, NOW_NS, {})
    routes = {route.path: route for route in ENDPOINTS}
    found = {}
    for name, line in QUESTIONS.items():
        path, _, query = line.partition("?")
        found[name] = timed(partial(answer, routes[path], context, query), rounds)
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


def main() -> int:
    """Make or open the ledger, measure, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attempts", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="the ledger's file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
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
