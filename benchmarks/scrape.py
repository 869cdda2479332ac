"""How long `GET /metrics` takes before and after clients have made up model names.

    python benchmarks/scrape.py [--names 100000] [--json]

The exchanges go through a journal and the ship loop into a ledger, as a worker's do: first some at
one known target, then one for each made-up name. The page is asked for through the console's own
application, ten times each, and the slowest counts. Exit code 6 if a scrape takes more than 50 ms,
or if the number of series has grown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ledger.notes import attempt_note, settled
from lightgate.clock.source import SYSTEM
from lightgate.config.load import parse_config
from lightgate.console.app import ConsoleContext, build_app
from lightgate.console.guard import ConsoleAccess
from lightgate.console.labels import LabelNames
from lightgate.console.ship_loop import ShipLoop
from lightgate.console.totals import Totals
from lightgate.console.traces import Traces
from lightgate.console.workers import Workers
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.store.store import Ledger

LIMIT_MS: Final = 50.0
SCRAPES: Final = 10
CONFIG: Final = """
[providers.lab]
base_url = "http://127.0.0.1:1/v1"
api_key = "none"
[models.fast]
targets = ["lab/s1"]
policy = "ordered"
"""


async def scrape(app: Any) -> str:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/metrics", "raw_path": b"/metrics", "query_string": b"",
        "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8081),
        "headers": [(b"host", b"127.0.0.1:8081")],
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return b"".join(message.get("body", b"") for message in sent[1:]).decode()


async def timed(app: Any) -> tuple[float, int]:
    """The slowest of some scrapes in milliseconds, and the number of series."""
    slowest, text = 0.0, ""
    for _ in range(SCRAPES):
        began = time.monotonic()
        text = await scrape(app)
        slowest = max(slowest, (time.monotonic() - began) * 1000)
    return slowest, sum(not line.startswith("#") for line in text.splitlines())


async def measure(data: Path, names: int) -> dict[str, Any]:
    put_snapshot(data, make_snapshot(parse_config(CONFIG), (), {}))
    journal, wall_ns = Journal(data / "journal", 0), SYSTEM.wall_ns()
    with Ledger.open("sqlite", data) as ledger:
        totals = Totals(LabelNames(data))
        loop = ShipLoop(ledger, data, prune=lambda: None, taken=totals.take)
        console = ConsoleContext(ledger, loop, totals, Workers(data, SYSTEM), Traces(None), data)
        app = build_app(console, ConsoleAccess())

        def ask(number: int, target: str) -> None:
            made, model = f"x-{number:07d}", target.partition("/")[2]
            note = attempt_note(made, target=target, model=model, wall_ns=wall_ns)
            journal.write(settled(made, note, model_asked=target, winner=target, wall_ns=wall_ns))

        for number in range(100):
            ask(number, "lab/s1")
            ask(number + 100, "lab/made-up")
        loop.work()
        await scrape(app)  # imports what a scrape needs
        before_ms, before = await timed(app)
        began = time.process_time()
        for number in range(names):
            ask(number + 200, f"lab/made-up-{number}")
        loop.work()
        spent_s = time.process_time() - began
        after_ms, after = await timed(app)
    journal.close()
    return {
        "names": names,
        "before_ms": round(before_ms, 1),
        "after_ms": round(after_ms, 1),
        "series_before": before,
        "series_after": after,
        "ship_us_per_exchange": round(spent_s * 1e6 / names, 1),
        "limit_ms": LIMIT_MS,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), given.names))
    if given.json:
        print(json.dumps(found))
    else:
        print(
            f"/metrics: {found['before_ms']} ms with {found['series_before']} series before,"
            f" {found['after_ms']} ms with {found['series_after']} series after"
            f" {given.names:,} made-up names (limit {LIMIT_MS:g} ms)"
        )
    grown = found["series_after"] != found["series_before"]
    return 6 if grown or found["after_ms"] > LIMIT_MS else 0


if __name__ == "__main__":
    raise SystemExit(main())
