"""Routing between real engines: the gateway's policies at engines that run already, in turns.

    python benchmarks/engines.py NAME=URL#MODEL NAME=URL#MODEL... [--rates 2/s,6/s] [--requests 200]
        [--policies chat,fastest] [--beside NAME=URL#MODEL] [--without-spread] [--prompt-tokens 256]
        [--max-tokens 64]

Every policy has a `lightgate up` of its own over the same engines, which knows only what it has
seen itself; "spread" is one that draws an engine for each request without looking at anything.
`lightgate bench` asks all of them in turns, in random blocks with the same prompts, at each rate
(Poisson). `--beside` adds an address that is not ours, such as nginx with `least_conn` before
the same engines. Printed are first tokens and whole answers beside those of "spread", which engine
answered how often, and the first policy's predictions beside what came (`lightgate report
--predictions`).

Exit code 6 if a request failed, or if the first policy's p95 of the first token is above that of
"spread" at any rate. `--without-spread` leaves that one out, because it overloads slow engines,
which then take minutes to come to rest; the last address is what the others are compared with.
"""

from __future__ import annotations

import argparse
import json
import math
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

LIGHTGATE: Final = (sys.executable, "-m", "lightgate")
SPREAD: Final = "spread"


class Engine(NamedTuple):
    """A running server with one model."""

    name: str
    url: str
    model: str


class Seen(NamedTuple):
    """One request as the client saw it."""

    good: bool
    ttft_ms: float | None
    e2e_ms: float | None


def engine(text: str) -> Engine:
    """Read NAME=URL#MODEL."""
    name, _, rest = text.partition("=")
    url, _, model = rest.rpartition("#")
    if not (name and url and model):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=URL#MODEL")
    return Engine(name, url, model)


def config(engines: list[Engine], policy: str) -> str:
    """Write one model over all engines."""
    parts = [
        f'[providers.{each.name}]\nbase_url = "{each.url}"\napi_key = "none"\nhourly_cost = 1\n'
        for each in engines
    ]
    targets = json.dumps([f"{each.name}/{each.model}" for each in engines])
    chosen = 'policy = "weighted"\nhedge = "off"' if policy == SPREAD else f'policy = "{policy}"'
    return "".join(parts) + f"[models.{policy}]\ntargets = {targets}\n{chosen}\n"


@contextmanager
def gateway(folder: Path) -> Iterator[int]:
    """Run `lightgate up` with the configuration of this folder; yield its port."""
    child = subprocess.Popen(
        [*LIGHTGATE, "up", "--no-demo", "--port", "0", "--console-port", "0", "--log", "json",
         "--config", str(folder / "lightgate.toml"), "--data", str(folder / "data")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if child.stderr is None:
        raise SystemExit("lightgate up has no log.")
    try:
        yield served_port(child.stderr)
    finally:
        child.terminate()
        child.wait(60)


def served_port(log: IO[str]) -> int:
    """Read the log until all workers listen; the rest of it is printed from then on."""
    for line in log:
        said = json.loads(line) if line.startswith("{") else {}
        if said.get("message") == "Serving":
            Thread(target=lambda: sys.stderr.writelines(log), daemon=True).start()
            return int(said["gateway"].rsplit(":", 1)[1].split("/")[0])
        print(line, end="", file=sys.stderr)
    raise SystemExit("lightgate up did not start.")


def measure(
    given: argparse.Namespace, ports: dict[str, int], rate: str, out: Path
) -> dict[str, list[Seen]]:
    """Bench every gateway, and what stands beside them, at one rate."""
    asked = [f"{name}=http://127.0.0.1:{port}/v1#{name}" for name, port in ports.items()]
    asked += [f"{each.name}={each.url}#{each.model}" for each in given.beside]
    subprocess.run(
        [*LIGHTGATE, "bench", *asked, "--rate", rate, "--requests", str(given.requests),
         "--prompt-tokens", str(given.prompt_tokens), "--max-tokens", str(given.max_tokens),
         "--no-aa", "--seed", str(given.seed), "--out", str(out)],
        check=True, stdout=sys.stderr,
    )  # fmt: skip
    folder = RunFolder(out)
    kept = folder.recordings()
    seen: dict[str, list[Seen]] = {text.partition("=")[0]: [] for text in asked}
    for each in folder.attempts():
        if each.target in seen and each.outcome != "cut" and not kept[each.id].warmup:
            good = each.outcome == "ok"
            seen[each.target].append(Seen(good, each.ttft_ms, each.e2e_ms))
    return seen


def answered(data: Path) -> str:
    """Count who answered, by engine, from the ledger."""
    with sqlite3.connect(f"file:{data / 'ledger.sqlite'}?mode=ro", uri=True) as ledger:
        rows = ledger.execute(
            "SELECT winner, count(*) FROM exchanges"
            " WHERE winner IS NOT NULL AND policy <> 'probe' GROUP BY 1 ORDER BY 1"
        ).fetchall()
    return ", ".join(f"{winner.partition('/')[0]} {count}" for winner, count in rows)


def quantile(seen: list[Seen], field: str, q: float) -> float:
    """Return the nearest rank in milliseconds; a failed request is later than every other."""
    times = [getattr(each, field) if each.good else math.inf for each in seen]
    ordered = sorted(math.inf if time is None else time for time in times)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def show(rate: str, by_model: dict[str, list[Seen]]) -> bool:
    """Print the table of one rate; return whether the first policy holds."""
    other = SPREAD if SPREAD in by_model else list(by_model)[-1]
    base = {field: quantile(by_model[other], field, 0.95) for field in Seen._fields[1:]}
    print(f"\n| {rate} | n | failed | TTFT p50 / p95 ms | end p50 / p95 ms |", end="")
    print(f" p95 x {other}: TTFT, end |\n|---|---|---|---|---|---|")
    for model, seen in by_model.items():
        failed = sum(not each.good for each in seen)
        columns = [
            (quantile(seen, field, 0.5), quantile(seen, field, 0.95)) for field in Seen._fields[1:]
        ]
        cells = " | ".join(f"{half:,.0f} / {most:,.0f}" for half, most in columns)
        ratios = ", ".join(
            f"{most / base[field]:.2f}"
            for field, (_, most) in zip(Seen._fields[1:], columns, strict=True)
        )
        print(f"| {model} | {len(seen)} | {failed} | {cells} | {ratios} |", flush=True)
    everything = all(each.good for seen in by_model.values() for each in seen)
    first = quantile(next(iter(by_model.values())), "ttft_ms", 0.95)
    return everything and first <= base["ttft_ms"]


def main() -> int:
    """Measure at every rate, print, and judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="+", type=engine)
    parser.add_argument("--rates", default="4/s", help="requests a second at each, with commas")
    parser.add_argument("--requests", type=int, default=200, help="for each model and rate")
    parser.add_argument("--policies", default="chat,fastest", help="with commas")
    parser.add_argument("--beside", type=engine, action="append", default=[])
    parser.add_argument("--without-spread", action="store_true")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    policies = [*given.policies.split(","), *([] if given.without_spread else [SPREAD])]
    with tempfile.TemporaryDirectory() as home:
        folders = {policy: Path(home) / policy for policy in policies}
        for policy, folder in folders.items():
            folder.mkdir()
            (folder / "lightgate.toml").write_text(config(given.engines, policy))
        with ExitStack() as running:
            ports = {policy: running.enter_context(gateway(folders[policy])) for policy in policies}
            held = [
                show(rate, measure(given, ports, rate, Path(home) / f"run-{number}"))
                for number, rate in enumerate(given.rates.split(","))
            ]
        for policy, folder in folders.items():
            print(f"\n{policy} was answered by {answered(folder / 'data')}", end="")
        first = folders[policies[0]]
        print(f"\n\nPredictions of {policies[0]}:", flush=True)
        subprocess.run(
            [*LIGHTGATE, "report", "--predictions", "--last", "1h",
             "--config", str(first / "lightgate.toml"), "--data", str(first / "data")],
            check=True,
        )  # fmt: skip
    return 0 if all(held) else 6


if __name__ == "__main__":
    sys.exit(main())
