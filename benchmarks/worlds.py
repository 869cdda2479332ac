"""Policies and marks in many worlds, in virtual time: queues, strangers, cold starts, T1 to T5.

Every policy and every mark meets the same requests and the same dice. Marks (oracles, best fixed
choice in hindsight, least in flight, mean of the last ten) do not depend on the router: they are
kept between runs, so that only the policies are played again.

    python benchmarks/worlds.py [--worlds queue,cold] [--policies fastest,voice] [--seeds 8]
        [--first 1] [--requests N] [--jobs 2] [--fresh] [--json]

`--worlds` takes names or their beginnings; "all" adds the queues of other sizes, and cold, Pareto
and flapping worlds with other numbers, to the usual ones; `--first 101` takes other seeds. A policy
is NAME, NAME:HEDGE (off, auto, p75 to p99) or NAME:raceN; with @4 behind it four workers of one
gateway share the requests, and with @2m two machines do: they tell each other what they learn once
a second, and what they have in flight fifty or ten times a second. The first one is judged by
LIMITS; exit code 6 if it misses one in the worlds that were played.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

import lightgate
from lightgate.bench.rehearse.conditions import ColdStart, Flapping, ParetoStall, SceneConditions
from lightgate.bench.rehearse.gateway_policy import PolicySettings, gateway_policy
from lightgate.bench.rehearse.rehearse import (
    HINDSIGHT,
    WorldSource,
    baseline,
    best_fixed,
    each_fixed,
    play,
)
from lightgate.bench.rehearse.scene import SceneChanges, scene
from lightgate.bench.rehearse.tally import SeedFigures, figures, price
from lightgate.route.plan.alias import lay_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.rehearse import NamedPolicy
    from lightgate.bench.rehearse.scene import Scene

GREEDY: Final = "oracle"
GREEDY_END: Final = "oracle-end"
MEAN10: Final = "mean-of-last-10"
CHEAPEST: Final = "cheapest"  # the policy of money, played in the world that is about money
ORACLES: Final = (GREEDY, "oracle, hedge p90", GREEDY_END, "oracle-end, hedge p90")
LOADED: Final = (*ORACLES, "oracle-all", "least-in-flight")
TROUBLED: Final = (*ORACLES, MEAN10, HINDSIGHT)
EVERY: Final = (*ORACLES, "least-in-flight", MEAN10, HINDSIGHT)


class BenchWorld(NamedTuple):
    """A scene with its changes, the marks that say something there, and policies of its own."""

    scene: str
    changes: SceneChanges
    marks: tuple[str, ...]
    own: tuple[str, ...] = ()
    conditions: SceneConditions | None = None  # instead of the scene's own


def queues(slots: int, percent: int) -> tuple[str, BenchWorld]:
    """A world of queues at a share of its capacity."""
    changes = SceneChanges(slots=slots, share=percent / 100, requests=3000)
    return f"queue-{slots}-{percent}", BenchWorld("queue", changes, LOADED)


def shared(percent: int, *targets: str, slots: int = 0) -> tuple[str, BenchWorld]:
    """A world of engines whose streams share their speed, at a share of its capacity."""
    name = "shared-slots" if slots else "shared"
    changes = SceneChanges(slots=slots, share=percent / 100, requests=3000, targets=tuple(targets))
    engines = f"-{len(targets)}" if targets else ""
    return f"{name}{engines}-{percent}", BenchWorld(name, changes, LOADED)


def _plain(name: str, requests: int, marks: tuple[str, ...], *own: str) -> tuple[str, BenchWorld]:
    return name, BenchWorld(name, SceneChanges(requests=requests), marks, own)


def _other(
    name: str, like: str, requests: int, conditions: SceneConditions
) -> tuple[str, BenchWorld]:
    """A world like another one, with numbers that nothing was chosen by."""
    return name, BenchWorld(like, SceneChanges(requests=requests), TROUBLED, (), conditions)


USUAL: Final = dict(
    [
        *(queues(8, percent) for percent in (40, 60, 80, 90)),
        *(queues(slots, 80) for slots in (2, 5, 24, 64)),
        *(shared(percent) for percent in (40, 60, 80)),
        shared(60, "amber", "cedar"),
        shared(60, "birch", "cedar", "delta"),
        *(shared(percent, slots=16) for percent in (60, 80)),
        _plain("step", 3000, LOADED),
        _plain("strangers", 3000, LOADED),
        _plain("strangers-told", 3000, LOADED),
        _plain("refusals", 3000, LOADED),
        _plain("storm", 3000, LOADED),
        _plain("cold", 1200, TROUBLED),
        _plain("pareto", 3000, TROUBLED),
        _plain("flapping", 3000, TROUBLED),
        _plain("bimodal", 3000, TROUBLED),
        _plain("dear", 3000, TROUBLED, CHEAPEST),
        _plain("mixed", 3000, TROUBLED),
        _plain("prompts", 3000, LOADED),
        _plain("reading", 3000, TROUBLED),
        _plain("T1", 6000, EVERY),
        _plain("T4", 6000, EVERY),
        _plain("T5", 6000, EVERY),
    ]
)
OTHERS: Final = dict(
    [
        *(queues(slots, percent) for slots in (2, 5, 24, 64) for percent in (40, 60, 90)),
        *(queues(200, percent) for percent in (60, 80)),
        _other(
            "cold-soon",
            "cold",
            1200,
            SceneConditions(cold=ColdStart(providers=("amber", "birch"), idle_s=20.0, start_s=6.0)),
        ),
        _other(
            "cold-late",
            "cold",
            1200,
            SceneConditions(
                cold=ColdStart(providers=("amber", "birch"), idle_s=200.0, start_s=45.0)
            ),
        ),
        _other(
            "pareto-some",
            "pareto",
            3000,
            SceneConditions(
                pareto=ParetoStall(providers=("amber",), share=0.3, scale_s=0.5, alpha=1.15)
            ),
        ),
        _other(
            "flapping-slow",
            "flapping",
            3000,
            SceneConditions(
                flapping=(Flapping(provider="amber", each_s=75.0, ttft=6.0, speed=0.7),)
            ),
        ),
        _plain("T2", 6000, EVERY),
        _plain("T3", 6000, EVERY),
    ]
)


class Limit(NamedTuple):
    """What must hold: `figure` of the judged policy is at most `most` (and at least `least`).

    With `of` it is a multiple of the smallest such figure of those marks. `policy` names another
    policy than the judged one.
    """

    worlds: str  # a pattern
    figure: str
    most: float
    of: tuple[str, ...] = ()
    least: float | None = None
    policy: str | None = None


BEST_FIXED: Final = (HINDSIGHT, MEAN10)
LIMITS: Final = (
    Limit("queue-*-[468]0", "ttft_p95", 1.5, (GREEDY,)),
    Limit("queue-*-[468]0", "failures", 0.0),
    Limit("step", "ttft_p95", 1.5, (GREEDY,)),
    Limit("step", "failures", 0.0),
    Limit("prompts", "ttft_p95", 1.5, (GREEDY,)),
    # A small engine reads slowly: probes of a few words must not stand for pages.
    Limit("reading", "ttft_p95", 1.2, (GREEDY,)),
    Limit("reading", "ratio", 1.25, least=0.8),
    # Strangers' requests are invisible without metrics: a simulated design had 2.6 times the
    # oracle, and 1.64 times with metrics that are read once a second.
    Limit("strangers", "ttft_p95", 2.7, (GREEDY,)),
    Limit("strangers-told", "ttft_p95", 1.7, (GREEDY,)),
    Limit("strangers*", "failures", 0.0),
    # Where streams share a speed, nobody waits for a first token: the end tells who was right.
    Limit("shared*", "done_p95", 1.15, (GREEDY_END,)),
    Limit("shared*", "failures", 0.0),
    Limit("T1", "ttft_p95", 1.05, (HINDSIGHT,)),
    Limit("T4", "ttft_p95", 0.53),
    Limit("T4", "ttft_p99", 1.02),
    Limit("T4", "over_1s", 0.012),
    Limit("T4", "done_p95", 3.65),
    Limit("T4", "done_p99", 5.4),
    Limit("T4", "duplicates", 0.15),
    Limit("T5", "ttft_p95", 1.6),
    Limit("cold*", "ttft_p95", 1.1, BEST_FIXED),
    Limit("pareto*", "ttft_p95", 1.1, BEST_FIXED),
    Limit("flapping*", "ttft_p95", 1.1, BEST_FIXED),
    Limit("bimodal", "ttft_p95", 1.1, BEST_FIXED),
    # A short answer that is taken for a long one goes to the wrong target: half of them are short.
    Limit("mixed", "done_p50", 1.25, (GREEDY_END,)),
    Limit("mixed", "done_p95", 1.25, (GREEDY_END,)),
    Limit("dear", "spend", 1.08, policy=CHEAPEST),
    Limit("*", "extra", 0.10),
    Limit("queue-8-[468]0", "ratio", 1.25, least=0.8),
    Limit("T[145]", "ratio", 1.25, least=0.8),
    Limit("queue-8-[468]0", "covered", 0.90, least=0.70),
    Limit("T[145]", "covered", 0.90, least=0.70),
)
# The column of a figure, in the order of the table.
FIGURES: Final = {
    "ttft_p50": "TTFT p50",
    "ttft_p95": "p95",
    "ttft_p99": "p99",
    "done_p50": "done p50",
    "done_p95": "p95",
    "done_p99": "p99",
    "over_1s": ">1 s",
    "failures": "failed",
    "refused": "refused",
    "duplicates": "dupl.",
    "extra": "extra",
    "spend": "spend",
    "ratio": "act/pred",
    "covered": "in band",
}
SHARES: Final = ("over_1s", "failures", "refused", "duplicates", "extra", "covered")


def named(text: str) -> NamedPolicy:
    """A policy of the gateway by its short name."""
    text, _, count = text.partition("@")
    name, _, how = text.partition(":")
    if count.endswith("m"):
        return gateway_policy(
            PolicySettings(policy=name, hedge=how or "auto", machines=int(count[:-1]))
        )
    workers = int(count or 1)
    if how.startswith("race"):
        return gateway_policy(PolicySettings(policy=name, race=int(how[4:]), workers=workers))
    return gateway_policy(PolicySettings(policy=name, hedge=how or "auto", workers=workers))


class Job(NamedTuple):
    """One world on one seed."""

    world: str
    spec: BenchWorld
    seed: int
    marks: tuple[str, ...]
    policies: tuple[str, ...]


class Played(NamedTuple):
    """The figures of a job by mark or policy; `least_usd` is all at the cheapest target's price."""

    world: str
    seed: int
    found: dict[str, SeedFigures]
    least_usd: float


def staged(spec: BenchWorld) -> Scene:
    """The scene of a world, under its own conditions."""
    made = scene(spec.scene, spec.changes)
    if spec.conditions is None:
        return made
    return msgspec.structs.replace(made, conditions=spec.conditions)


def do(job: Job) -> Played:
    """Play a job."""
    source = WorldSource(staged(job.spec))
    again = source.drawn(job.seed)
    given = again()
    sizes = list(zip(given.tokens_in, given.tokens_out, strict=True))
    least = min(sum(price(offer, *size) for size in sizes) for offer in source.offers)
    players: dict[str, NamedPolicy] = {}
    for mark in job.marks:
        if mark == HINDSIGHT:
            players |= {one.name: one for one in each_fixed(len(source.offers))}
        else:
            players[mark] = baseline(mark)
    players |= {text: named(text) for text in job.policies}
    found = {
        name: figures(play(source, policy, again(), job.seed)) for name, policy in players.items()
    }
    return Played(job.world, job.seed, found, least)


# Marks that were played before

NO_MARKS: Final = (
    "__init__.py",
    "gateway_policy.py",
    "past.py",
    "service_curve.py",
)  # no mark is played by them


def fingerprint() -> str:
    """A digest of the code and the data by which marks are played; the router is not in it."""
    root = Path(inspect.getfile(lightgate)).parent
    files = [
        *(root / "bench" / "rehearse").glob("*"),
        *(root / "sim").glob("w*.py"),
        *(root / "sim" / "worlds").glob("*.toml"),
        root / "sim" / "capacity.py",
        *(root / "route" / "health").glob("*.py"),
        root / "route" / "plan" / "course.py",
    ]
    digest = hashlib.sha256(inspect.getsource(lay_out).encode())
    for file in sorted(files):
        if file.is_file() and file.name not in NO_MARKS:
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


class KeptMarks:
    """The figures of marks, in one file for each world."""

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self._folder = folder / fingerprint()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fresh = fresh
        self._kept: dict[str, dict[str, SeedFigures]] = {}

    def of(self, world: str, spec: BenchWorld) -> dict[str, SeedFigures]:
        """By mark and seed: `oracle@3`."""
        if world not in self._kept:
            path = self._path(world, spec)
            known = path.is_file() and not self._fresh
            self._kept[world] = (
                msgspec.json.decode(path.read_bytes(), type=dict[str, SeedFigures]) if known else {}
            )
        return self._kept[world]

    def mark(self, world: str, mark: str, seeds: range) -> Sequence[SeedFigures]:
        """The figures of one mark; those of the best fixed choice are chosen here."""
        known = self._kept[world]
        if mark != HINDSIGHT:
            return [known[f"{mark}@{seed}"] for seed in seeds]
        names = sorted({name.partition("@")[0] for name in known if name.startswith(f"{mark}/")})
        return best_fixed([[known[f"{name}@{seed}"] for seed in seeds] for name in names])

    def save(self, world: str, spec: BenchWorld) -> None:
        """Write one world's marks for the next run."""
        path = self._path(world, spec)
        fresh = path.with_suffix(f".{os.getpid()}")
        kept = self._kept[world]
        if path.is_file():  # another run may have written others meanwhile
            kept = msgspec.json.decode(path.read_bytes(), type=dict[str, SeedFigures]) | kept
        fresh.write_bytes(msgspec.json.encode(kept))
        fresh.replace(path)

    def _path(self, world: str, spec: BenchWorld) -> Path:
        return self._folder / f"{world}-{spec.changes.requests}.json"


def missing(kept: dict[str, SeedFigures], mark: str, seed: int) -> bool:
    """Whether a mark has to be played."""
    if mark == HINDSIGHT:
        return f"{HINDSIGHT}/0@{seed}" not in kept
    return f"{mark}@{seed}" not in kept


# Rows


def row(seeds: Sequence[SeedFigures], least_usd: Sequence[float]) -> dict[str, float | None]:
    """The means of one policy in one world."""
    ratios = [one.ratio for one in seeds if one.ratio is not None]
    covered = [one.covered for one in seeds if one.covered is not None]
    values: dict[str, list[float]] = {
        "ttft_p50": [one.ttft_s[0] for one in seeds],
        "ttft_p95": [one.ttft_s[1] for one in seeds],
        "ttft_p99": [one.ttft_s[2] for one in seeds],
        "done_p50": [one.done_s[0] for one in seeds],
        "done_p95": [one.done_s[1] for one in seeds],
        "done_p99": [one.done_s[2] for one in seeds],
        "over_1s": [one.over_1s for one in seeds],
        "failures": [one.failures for one in seeds],
        "refused": [one.refused for one in seeds],
        "duplicates": [one.duplicates for one in seeds],
        "extra": [(one.extra + one.premium) / max(one.mixed, 1e-12) for one in seeds],
        "spend": [one.mixed / least for one, least in zip(seeds, least_usd, strict=True)],
        "ratio": ratios,
        "covered": covered,
    }
    return {name: float(np.mean(each)) if each else None for name, each in values.items()}


Table = dict[str, dict[str, dict[str, float | None]]]


def tabled(
    worlds: dict[str, BenchWorld], seeds: range, policies: Sequence[str], given: argparse.Namespace
) -> Table:
    """Play what is not kept; the means by world, then by mark or policy."""
    kept = KeptMarks(given.marks, fresh=given.fresh)
    jobs = []
    for world, spec in worlds.items():
        known = kept.of(world, spec)
        for seed in seeds:
            marks = tuple(mark for mark in spec.marks if missing(known, mark, seed))
            jobs.append(Job(world, spec, seed, marks, (*dict.fromkeys((*policies, *spec.own)),)))
    mine: dict[tuple[str, str], list[SeedFigures]] = {}
    least: dict[str, list[float]] = {world: [] for world in worlds}
    with ProcessPoolExecutor(given.jobs) as pool:
        for played in pool.map(do, jobs):
            known = kept.of(played.world, worlds[played.world])
            least[played.world].append(played.least_usd)
            for name, found in played.found.items():
                if name in policies or name in worlds[played.world].own:
                    mine.setdefault((played.world, name), []).append(found)
                else:
                    known[f"{name}@{played.seed}"] = found
            kept.save(played.world, worlds[played.world])  # of a run that is cut short, too
            if played.seed == seeds[-1]:
                print(f"  {played.world}", file=sys.stderr, flush=True)
    return {
        world: {
            **{mark: row(kept.mark(world, mark, seeds), least[world]) for mark in spec.marks},
            **{
                policy: row(mine[world, policy], least[world])
                for policy in dict.fromkeys((*policies, *spec.own))
            },
        }
        for world, spec in worlds.items()
    }


class Verdict(NamedTuple):
    """A limit in one world."""

    world: str
    policy: str
    limit: Limit
    value: float | None
    most: float

    @property
    def holds(self) -> bool:
        """Whether it is kept; a figure that does not exist yet is not."""
        if self.value is None:
            return False
        least = self.limit.least
        return self.value <= self.most + 1e-9 and (least is None or self.value >= least)

    @property
    def text(self) -> str:
        """In one line."""
        least, of = self.limit.least, " or ".join(self.limit.of)
        bound = f"{self.most:.4g}" if least is None else f"{least:g} to {self.most:.4g}"
        why = f" ({self.limit.most:g} x {of})" if of else ""
        value = "unknown" if self.value is None else f"{self.value:.4g}"
        word = "holds" if self.holds else "MISSED"
        return (
            f"{word}  {self.world}: {self.policy} {self.limit.figure} {value}, limit {bound}{why}"
        )


def verdicts(table: Table, judged: str) -> list[Verdict]:
    """Every limit in every world that was played."""
    found = []
    for limit in LIMITS:
        for world, rows in table.items():
            policy = limit.policy or judged
            if not fnmatch(world, limit.worlds) or policy not in rows:
                continue
            most = limit.most
            if limit.of:
                most *= min(float(rows[mark][limit.figure] or 0.0) for mark in limit.of)
            found.append(Verdict(world, policy, limit, rows[policy][limit.figure], most))
    return found


def show(table: Table) -> None:
    """Print a table for each world; x is beside the greedy oracle of first tokens, of ends."""
    head = "".join(f"{title:>9}" for title in FIGURES.values())
    for world, rows in table.items():
        print(f"\n{world:<24}{head}    x p95  x done")
        for name, values in rows.items():
            cells = []
            for figure in FIGURES:
                value = values[figure]
                if value is None:
                    cells.append("-")
                else:
                    cells.append(f"{value:.2%}" if figure in SHARES else f"{value:.3f}")
            first = _over(values["ttft_p95"], rows[GREEDY]["ttft_p95"])
            end = _over(values["done_p95"], rows[GREEDY_END]["done_p95"])
            print(f"{name:<24}{''.join(f'{cell:>9}' for cell in cells)}{first:>9}{end:>8}")


def _over(mine: float | None, mark: float | None) -> str:
    return "-" if not mine or not mark else f"{mine / mark:.2f}"


def chosen(text: str, requests: int | None) -> dict[str, BenchWorld]:
    """The worlds of a wish: names, or how they begin."""
    every = {**USUAL, **OTHERS}
    found: dict[str, BenchWorld] = {}
    for word in text.split(","):
        pool = every if word == "all" or word in every else USUAL
        begins = "" if word in {"all", "usual"} else word
        here = {n: spec for n, spec in pool.items() if n == word or n.startswith(begins)}
        if word in every:
            here = {word: every[word]}
        if not here:
            raise SystemExit(f"There is no world {word!r}. There are: {', '.join(every)}.")
        found |= here
    if requests is not None:
        found = {
            name: spec._replace(changes=msgspec.structs.replace(spec.changes, requests=requests))
            for name, spec in found.items()
        }
    return found


def main() -> int:
    """Play, print, judge; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--worlds", default="usual")
    parser.add_argument("--policies", default="fastest,voice")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="play the marks again")
    parser.add_argument(
        "--marks", type=Path, default=Path(tempfile.gettempdir()) / "lightgate-worlds"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    policies = given.policies.split(",")
    worlds = chosen(given.worlds, given.requests)
    table = tabled(worlds, range(given.first, given.first + given.seeds), policies, given)
    judged = verdicts(table, policies[0])
    missed = [one for one in judged if not one.holds]
    if given.json:
        limits: list[dict[str, Any]] = [
            {"text": one.text, "holds": one.holds, "value": one.value} for one in judged
        ]
        print(json.dumps({"worlds": table, "limits": limits}))
    else:
        show(table)
        print()
        for one in judged:
            print(one.text)
        print(f"{len(judged) - len(missed)} of {len(judged)} limits hold for {policies[0]}.")
    return 6 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
