"""How often are the statistics right? Intervals, comparisons of many targets, the recipe for CI.

    python benchmarks/power.py [--runs 100] [--live]

The code that judges runs is given runs whose truth is known: drawn ones, and with `--live` also
real ones against the simulator. Exit code 6 if a limit is missed: intervals that cover in less than
92 % of the cases, or are more than 1.15 times as wide as independent samples need; differences of
15 % found in less than 90 %; false alarms in more than 5 %; a change in CI found in less than 95 %.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lightgate.bench.statistics.dependence import Moods, effective_n
from lightgate.bench.statistics.regress import Limits, Side, compare_runs
from lightgate.bench.statistics.versus import Field, contest
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.compare import adjusted, blocks_for, compare_all
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import ranks
from lightgate.clock.tokens import Tokens
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import Run, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Drawn = tuple[Floats, Moods]

SPREAD = 0.25  # of a request's time: standard deviation of its logarithm
WEATHER = 0.3  # of a block, shared by all targets
PER_BLOCK = 12  # requests of one target in one block
ALIKE = 10  # times as many runs of targets that are alike: 5 % of few runs say little
# Decode speeds (tok/s) of waves of 8 and of 32 requests, measured on one NVIDIA H200 with
# `transformers serve` 5.17 (7 B, 128 tokens): the requests of a wave share one speed within 1 %.
H200 = (12.84, 11.28, 10.48, 25.1, 9.64, 20.01, 9.2, 18.1)
CI_REQUESTS = 2000  # as docs/guides/ci.md says
CI_WORKERS = 16
CI_RUNS = 40
BLANK = AttemptRecord.of(
    AttemptFacts(
        id="", exchange_id="", source="bench", target="", provider="p", model="m",
        dialect="openai", outcome=Outcome.OK, wall_ns=0,
    ),
    Marks(),
    Tokens(),
)  # fmt: skip


class Verdicts:
    """Prints figures beside their limits, and remembers what was missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def show(self, name: str, share: float, limit: float, *, most: bool = False) -> None:
        """Print one figure."""
        kept = share <= limit if most else share >= limit
        print(f"  {name:<62}{share:>7.1%}   {'at most' if most else 'at least'} {limit:.0%}")
        if not kept:
            self.missed.append(name)


def in_waves(count: int, size: int) -> Moods:
    return Moods(np.arange(count * size), np.repeat(np.arange(count), size))


def h200(rng: np.random.Generator, waves: int) -> Drawn:
    levels = rng.choice(H200, waves)
    return np.repeat(levels, 8) * rng.lognormal(0.0, 0.003, waves * 8), in_waves(waves, 8)


def chain(rng: np.random.Generator, n: int) -> Drawn:
    values = rng.normal(size=n)
    for at in range(1, n):
        values[at] = 0.7 * values[at - 1] + math.sqrt(1 - 0.49) * values[at]
    return values, Moods(np.arange(n))


def bimodal(rng: np.random.Generator, waves: int) -> Drawn:
    levels = np.where(rng.random(waves) < 0.3, 10.0, 20.0)
    return np.repeat(levels, 16) * rng.lognormal(0.0, 0.02, waves * 16), in_waves(waves, 16)


def independent(rng: np.random.Generator, n: int) -> Drawn:
    return rng.lognormal(size=n), Moods(np.arange(n))


def coverage(
    draw: Callable[[np.random.Generator, int], Drawn], size: int, runs: int
) -> tuple[float, float, float]:
    """Shares of the runs with an interval of the median, and of those that cover; mean widening."""
    rng = np.random.default_rng(size)
    truth = float(np.median(draw(rng, 40_000)[0]))
    made = held = 0
    wider = []
    for _ in range(runs):
        values, hang = draw(rng, size)
        n, ordered = len(values), np.sort(values)
        count = effective_n(values.tolist(), 0.5, hang)
        pair, plain = (ranks(count, 0.5) if count else None), ranks(n, 0.5)
        if pair is None or plain is None:
            continue
        made += 1
        low = ordered[math.floor((pair[0] - 1) * n / count)]
        high = ordered[min(n, math.ceil(pair[1] * n / count)) - 1]
        held += bool(low <= truth <= high)
        wider.append((high - low) / (ordered[plain[1] - 1] - ordered[plain[0] - 1]))
    return made / runs, held / max(made, 1), float(np.mean(wider or [0.0]))


def intervals(verdicts: Verdicts, runs: int) -> None:
    print(f"95 % intervals of medians, {runs} runs each: share that covers (and that exists)")
    for name, draw, sizes in (
        ("waves of the H200", h200, (6, 12, 40)),
        ("neighbours alike by 0.7", chain, (100, 400, 1000)),
        ("bimodal waves", bimodal, (6, 12, 40)),
    ):
        for size in sizes:
            exists, covers, _ = coverage(draw, size, runs)
            verdicts.show(f"{name}, {size} (exists in {exists:.0%})", covers, 0.92)
    for size in (30, 100, 1000):
        _, covers, wider = coverage(independent, size, runs)
        verdicts.show(f"independent, {size}", covers, 0.92)
        verdicts.show(f"independent, {size}: width over the plain one", wider, 1.15, most=True)


def played(rng: np.random.Generator, factors: list[float]) -> dict[tuple[str, str], str]:
    """The verdicts on targets whose medians have these factors, in as many blocks as they need."""
    names = [f"t{at:02d}" for at in range(len(factors))]
    blocks = blocks_for(len(factors))
    air = np.repeat(rng.lognormal(0.0, WEATHER, blocks), PER_BLOCK)
    attempts, recordings = [], {}
    for name, factor in zip(names, factors, strict=True):
        for at, value in enumerate(200 * factor * rng.lognormal(0.0, SPREAD, len(air)) * air):
            key = f"{name} {at}"
            attempts.append(
                msgspec.structs.replace(BLANK, id=key, target=name, seq=at, ttft_ms=float(value))
            )
            recordings[key] = Recording(id=key, block=at // PER_BLOCK)
    facts = [
        TargetFacts(name=name, provider="p", model="m", base_url="http://h", dialect="openai")
        for name in names
    ]
    found = contest([Field("c=1", attempts)], recordings, facts, rng=rng, rounds=200)
    return {(row.a, row.b): row.verdict for row in found.versus}


def false_alarms(targets: int, runs: int) -> float:
    """The share of runs of targets that are all alike in which a difference is claimed."""
    rng = np.random.default_rng(1000 + targets)
    blocks = np.repeat(np.arange(blocks_for(targets)), PER_BLOCK)
    alarms = 0
    for _ in range(runs):
        air = rng.lognormal(0.0, WEATHER, blocks[-1] + 1)[blocks]
        times = {f"t{at:02d}": rng.lognormal(0.0, SPREAD, len(air)) * air for at in range(targets)}
        found = compare_all(times, rng=rng, blocks=blocks.tolist())
        alarms += any(one.differs for one in adjusted([one for one in found.values() if one]))
    return alarms / runs


def comparisons(verdicts: Verdicts, runs: int) -> None:
    print(f"comparisons, {runs} runs each: spread {SPREAD}, weather {WEATHER}")
    for targets in (2, 5, 12, 17):
        rng = np.random.default_rng(targets)
        size = f"{targets} targets, {blocks_for(targets)} blocks of {PER_BLOCK}"
        alone = apart = ties = 0.0
        for _ in range(runs):
            slower = played(rng, [1.15] + [1.0] * (targets - 1))
            own = [verdict for pair, verdict in slower.items() if "t00" in pair]
            alone += sum(verdict == "b faster" for verdict in own) / len(own)
            ladder = played(rng, [1.15**at for at in range(targets)])
            near = [ladder[f"t{at:02d}", f"t{at + 1:02d}"] for at in range(targets - 1)]
            apart += sum(verdict == "a faster" for verdict in near) / len(near)
            ties += sum(verdict == "tie" for verdict in ladder.values()) / len(ladder)
        verdicts.show(f"{size}: one is 15 % slower, found", alone / runs, 0.9)
        verdicts.show(f"{size}: each 15 % slower than the last, found", apart / runs, 0.9)
        verdicts.show(f"{size}: the same, called a tie", ties / runs, 0.05, most=True)
        alarms = false_alarms(targets, ALIKE * runs)
        name = f"{size}: all alike, {ALIKE * runs} runs, a claim"
        verdicts.show(name, alarms, 0.05, most=True)


def recorded(
    rng: np.random.Generator, *, slow: float = 1.0, tail: float = 1.0, failed: float = 0.0
) -> Side:
    """A run as the recipe makes it: a closed loop, times drawn, a share of failures."""
    n = CI_REQUESTS
    normal = rng.normal(size=n)
    ttfts = 100 * slow * np.exp(SPREAD * normal) * np.where(normal > 1.2816, tail, 1.0)
    decode = 500 * rng.lognormal(0.0, 0.1, n)
    bad = rng.random(n) < failed
    free = [at * 600.0 / CI_WORKERS for at in range(CI_WORKERS)]
    attempts, recordings = [], {}
    for at in range(n):
        worker = min(range(CI_WORKERS), key=free.__getitem__)
        sent, lasts = free[worker], float(ttfts[at] + decode[at])
        free[worker] += lasts
        ok = not bad[at]
        made = msgspec.structs.replace(
            BLANK,
            id=str(at),
            target="mine",
            t_send_ns=int(sent * 1e6) + 1,
            t_end_ns=int((sent + lasts) * 1e6) + 1,
            outcome=Outcome.OK if ok else Outcome.HTTP_ERROR,
            ttft_ms=float(ttfts[at]) if ok else None,
            e2e_ms=lasts if ok else None,
            speed_tps=32_000 / float(decode[at]) if ok else None,
        )
        attempts.append(made)
        recordings[made.id] = Recording(id=made.id, load=f"c={CI_WORKERS}")
    run = Run(id="r", started="2026-01-01T00:00:00Z", finished="2026-01-01T00:01:00Z")
    return Side(run, attempts, recordings)


def recipe(verdicts: Verdicts) -> None:
    print(f"the recipe for CI: {CI_REQUESTS} requests a side, {CI_RUNS} pairs of runs each")
    kinds: tuple[tuple[str, dict[str, float], dict[str, float]], ...] = (
        ("TTFT 20 % slower", {}, {"slow": 1.2}),
        ("the slowest tenth of TTFT 20 % slower", {}, {"tail": 1.2}),
        ("failures 0 % to 2 %", {}, {"failed": 0.02}),
        ("failures 1 % to 3 %", {"failed": 0.01}, {"failed": 0.03}),
        ("nothing", {}, {}),
        ("nothing, with 1 % failures", {"failed": 0.01}, {"failed": 0.01}),
    )
    for name, old, new in kinds:
        found = unjudged = 0
        for seed in range(CI_RUNS):
            rng = np.random.default_rng(seed)
            result = compare_runs(
                recorded(rng, **old), recorded(rng, **new), rng=rng, limits=Limits()
            )
            found += bool(result.regressions)
            unjudged += bool(result.unjudged)
        quiet = name.startswith("nothing")
        verdicts.show(
            f"{name}: called a regression", found / CI_RUNS, 0.05 if quiet else 0.95, most=quiet
        )
        if quiet:
            verdicts.show(f"{name}: not judged", unjudged / CI_RUNS, 0.05, most=True)


LIVE = """
name = "power"
title = "One target, and what becomes of it"
source = "benchmarks/power.py"
[providers.mine.models.m]
curve = [{{ load = 1, ttft_ms = [{p50}, {p95}], tps = [150, 135] }}]
{faults}
"""
CHANGES = (
    ("the same again", 200, 300, "", 0),
    ("first tokens 20 % later", 240, 360, "", 6),
    ("three times slower", 600, 900, "", 6),
    ("p95 twice as late", 200, 600, "", 6),
    (
        "2 % failures",
        200,
        300,
        '[[providers.mine.faults]]\nname = "status"\nshare = 0.02\n',
        6,
    ),
)


def lightgate(*words: str) -> int:
    command = [sys.executable, "-m", "lightgate", *words]
    return subprocess.run(command, check=False, capture_output=True).returncode


def live_recipe(verdicts: Verdicts, folder: Path) -> None:
    print("the recipe for CI against the simulator")
    commands = ("--concurrency", "16", "--requests", "2000", "--max-tokens", "16", "--seed", "1")
    for number, (name, p50, p95, faults, expected) in enumerate((CHANGES[0], *CHANGES)):
        world = folder / f"{number}.toml"
        world.write_text(LIVE.format(p50=p50, p95=p95, faults=faults))
        out = str(folder / str(number))
        lightgate("bench", "mine/m", "--world", str(world), *commands, "--out", out)
        if number:
            code = lightgate("compare", str(folder / "0"), out, "--fail-on-regression", "5%")
            verdicts.show(f"{name}: exit code {code}, to be {expected}", code == expected, 1.0)


def live_targets(verdicts: Verdicts, folder: Path, targets: int) -> None:
    """Targets of one world, all alike but for the first, which is 15 % slower."""
    rows = [
        f"[providers.t{at:02d}.models.m]\ncurve = [{{ load = 1, ttft_ms = "
        f"[{46 if at == 0 else 40}, {69 if at == 0 else 60}], tps = [1000, 900] }}]\n"
        for at in range(targets)
    ]
    head = 'name = "many"\ntitle = "Many targets"\nsource = "benchmarks/power.py"\n'
    world = folder / f"many{targets}.toml"
    world.write_text(head + "".join(rows))
    out = folder / f"many{targets}"
    began = time.monotonic()
    lightgate(
        "bench", "--world", str(world), "--concurrency", "1", "--max-tokens", "8", "--seed", "2",
        "--out", str(out),
    )  # fmt: skip
    run = RunFolder(out).run()
    rows_found = [row for row in run.versus if row.metric == "ttft_ms"]
    own = [r for r in rows_found if "t00/m" in (r.a, r.b) and "twin" not in r.a + r.b]
    found = sum(row.verdict in {"a faster", "b faster"} for row in own) / max(1, len(own))
    others = [r for r in rows_found if "t00" not in r.a + r.b]
    alarms = sum(row.verdict in {"a faster", "b faster"} for row in others)
    print(
        f"  {targets} targets, default settings: {time.monotonic() - began:.0f} s,"
        f" {alarms} false claims of {len(others)}"
    )
    verdicts.show(f"{targets} targets: the one that is 15 % slower, found", found, 0.9)
    verdicts.show(f"{targets} targets: false claims", float(alarms > 0), 0.05, most=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="simulated runs of each kind")
    parser.add_argument("--live", action="store_true", help="also run against the simulator")
    given = parser.parse_args()
    verdicts = Verdicts()
    intervals(verdicts, max(given.runs, 10) * 4)
    comparisons(verdicts, given.runs)
    recipe(verdicts)
    if given.live:
        with tempfile.TemporaryDirectory() as name:
            live_recipe(verdicts, Path(name))
            for targets in (12, 17):
                live_targets(verdicts, Path(name), targets)
    for name in verdicts.missed:
        print(f"missed: {name}")
    return 6 if verdicts.missed else 0


if __name__ == "__main__":
    sys.exit(main())
