"""Do the tests notice a defect? Random small changes of the sources, each against the tests.

    python benchmarks/mutants.py [--seed 1] [--count 200] [--guarded] [--only PATTERN]
        [--minutes 9] [--json FILE] [--after FILE]

A mutation is one small change: a comparison, a number, a condition, a call that is left out. It is
noticed if a test of its package (tests/clock for clock/) fails, fails again by itself, and passes
by itself without the change: a busy machine and a test that is unsound have noticed nothing.
Nothing is changed in the working tree: copies are. Exit code 6 if fewer than 90 % are noticed, or
if one is not that lies in code which masks secrets, checks keys, spends budgets or frames messages
(mutation/guarded.txt). Code that only a real server can test (mutation/needs.txt) is not judged
where its tests were skipped for want of that server: it is counted, told, and not tried. Mutations
that change nothing that can be seen are listed, with the reason, in mutation/accepted.toml; the
list is held against the sources by tests/test_mutants.py.

After `--minutes` no further one is begun: those that are left are counted as not tried, and the
exit code is 7 unless it is 6. `--json` keeps every outcome; `--after` leaves out what such a file
says was noticed, so that a long list is tried in several runs, and what went unnoticed once more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from mutation.accepted import Accepted
from mutation.marks import blocks
from mutation.operators import Mutation, Named, listed, mutation
from mutation.reach import NoTestsError, Reach, Tree, copy_tree, reach
from mutation.worker import Candidate, Worker

ROOT: Final = Path(__file__).parents[1]
HERE: Final = Path(__file__).parent / "mutation"
KEPT: Final = ROOT / "build" / "mutants"
PACKAGES: Final = ("clock", "dialect", "gateway", "ledger", "provider", "route", "wire")
LEAST: Final = 0.9
LIMIT_EXIT: Final = 6
UNJUDGED_EXIT: Final = 7
PROGRESS: Final = 50  # mutations between two lines that say how far it is


class Outcome(NamedTuple):
    """A mutation and what became of it."""

    package: str
    path: str
    scope: str
    line: int
    number: int  # in the list of all mutations of its file
    before: str
    after: str
    verdict: str  # noticed, unnoticed, accepted, not judged, not tried
    by: str  # the test that noticed, the number of those that did not, or what its tests need
    guarded: bool


class Rules(NamedTuple):
    """The accepted mutations, the guarded places, and those whose tests need a server."""

    accepted: Accepted
    guarded: tuple[str, ...]
    needs: tuple[tuple[str, str], ...]  # a place, and a word of the reason why tests are skipped

    def packages(self) -> list[str]:
        """The packages that have guarded code, those among them that a random sample leaves out."""
        return sorted({place.split("/")[0] for place in self.guarded})

    def guards(self, named: Named) -> bool:
        """Whether this lies in a guarded place: a file, or a function or class of it."""
        return any(_within(named, place) for place in self.guarded)

    def lacks(self, named: Named, reasons: set[str]) -> str:
        """What its tests need and this machine lacks, by the reasons of skipped tests; or empty."""
        for place, word in self.needs:
            if _within(named, place) and any(word in reason for reason in reasons):
                return word
        return ""


def _within(named: Named, place: str) -> bool:
    """Whether a mutation lies in a place: a file, or a function or class of it."""
    whole = f"{named.path}:{named.scope}"
    return place in {named.path, whole} or whole.startswith(f"{place}.")


def rules() -> Rules:
    accepted = Accepted.read(HERE / "accepted.toml")
    needs = [line.split(maxsplit=1) for line in _lines("needs.txt")]
    return Rules(accepted, _lines("guarded.txt"), tuple((place, word) for place, word in needs))


def _lines(name: str) -> tuple[str, ...]:
    """The lines of a list, without its remarks."""
    lines = (HERE / name).read_text("utf-8").splitlines()
    return tuple(bare for line in lines if (bare := line.split("#")[0].strip()))


def chosen(tree: Tree, asked: argparse.Namespace, known: Rules) -> list[Named]:
    """The mutations to try: random ones, all guarded ones, or those of a pattern."""
    everything: list[Named] = []
    for package in asked.packages:
        for path in sorted((tree.source / package).rglob("*.py")):
            below = path.relative_to(tree.source).as_posix()
            everything += listed(below, path.read_text("utf-8"))
    if asked.guarded:
        everything = [named for named in everything if known.guards(named)]
    if asked.only:
        pattern = re.compile(asked.only)
        everything = [
            named for named in everything if pattern.search(f"{named.path}:{named.scope}")
        ]
    if asked.count and asked.count < len(everything):
        return random.Random(asked.seed).sample(everything, asked.count)  # noqa: S311 -- no secret
    return everything


def candidates(
    tree: Tree, names: list[Named], reached: Reach, known: Rules, asked: argparse.Namespace
) -> tuple[list[Candidate], list[Outcome]]:
    """Make the mutations and choose their tests.

    Accepted ones, unjudged ones and those that were noticed before are not tried.
    """
    found, outcomes = [], []
    before = noticed_before(asked.after)
    known_blocks = {}
    reasons = {package: set(rows.values()) for package, rows in reached.left_out.items()}
    for named in names:
        source = (tree.source / named.path).read_text("utf-8")
        made = mutation(source, named.number)
        if known.accepted.has(named, source):
            outcomes.append(_outcome(named, made, "accepted", "", known))
            continue
        if earlier := before.get((named.path, named.number, made.before, made.after)):
            outcomes.append(earlier)
            continue
        if lacking := known.lacks(named, reasons[named.path.split("/")[0]]):
            outcomes.append(_outcome(named, made, "not judged", lacking, known))
            continue
        if named.path not in known_blocks:
            known_blocks[named.path] = blocks(source)
        mine = known_blocks[named.path]
        tests = reached.of(named.path.split("/")[0], made, named.path, mine)
        total = 0.0
        within = []
        for name in tests:
            total += reached.seconds[name]
            if total > asked.most:
                break
            within.append(name)
        fresh = reached.at_import(made, named.path, mine)
        found.append(Candidate(named, source, within, fresh))
    return found, outcomes


def _outcome(named: Named, made: Mutation, verdict: str, by: str, known: Rules) -> Outcome:
    package = named.path.split("/")[0]
    place = (package, named.path, named.scope, made.line, named.number, made.before, made.after)
    return Outcome(*place, verdict, by, known.guards(named))


def noticed_before(path: Path | None) -> dict[tuple[str, int, str, str], Outcome]:
    """The mutations that a file of outcomes says were noticed, by their place and their text."""
    if path is None:
        return {}
    rows = [Outcome(**row) for row in json.loads(path.read_text("utf-8"))]
    return {
        (row.path, row.number, row.before, row.after): row
        for row in rows
        if row.verdict == "noticed"
    }


def judged(worker: Worker, candidate: Candidate, known: Rules, until: float) -> Outcome:
    """Try one mutation, unless it is too late, and show it where it went unnoticed."""
    named, made = candidate.named, candidate.made()
    noticed, by = worker.try_out(candidate) if time.monotonic() <= until else (False, "")
    if not by or worker.late():
        return _outcome(named, made, "not tried", "no time", known)
    outcome = _outcome(named, made, "noticed" if noticed else "unnoticed", by, known)
    if not noticed:
        _show(outcome)
    return outcome


def tried(
    found: list[Candidate],
    trees: list[Tree],
    reached: Reach,
    known: Rules,
    pristine: Tree,
    until: float,
) -> list[Outcome]:
    """Try all mutations, as many at once as there are copies of the tree; none after `until`."""
    waiting: queue.SimpleQueue[Candidate] = queue.SimpleQueue()
    for candidate in sorted(found, key=lambda one: one.package):
        waiting.put(candidate)
    outcomes: list[Outcome] = []
    doubtful: Counter[str] = Counter()

    def work(tree: Tree) -> None:
        worker = Worker(tree, pristine, reached.seconds, until)
        while True:
            try:
                candidate = waiting.get_nowait()
            except queue.Empty:
                worker.end()
                doubtful.update(worker.doubtful)
                return
            outcomes.append(judged(worker, candidate, known, until))
            if len(outcomes) % PROGRESS == 0:
                print(f"{len(outcomes)} of {len(found)} tried", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, count in doubtful.most_common():
        print(f"failed {count} times, and not for the change: {name}", flush=True)
    if len(outcomes) != len(found):
        sys.exit(f"{len(found) - len(outcomes)} mutations were not tried to the end")
    return outcomes


def _show(outcome: Outcome) -> None:
    guarded = " (guarded)" if outcome.guarded else ""
    print(
        f"unnoticed{guarded}: src/lightgate/{outcome.path}:{outcome.line} in "
        f"{outcome.scope or 'the module'}, {outcome.by}\n"
        f"  - {outcome.before}\n  + {outcome.after}",
        flush=True,
    )


def told(outcomes: list[Outcome], seconds: float) -> int:
    """Print the table; the exit code."""
    counts = Counter((one.package, one.verdict) for one in outcomes)
    heads = ("tried", "noticed", "unnoticed", "accepted", "not judged", "not tried", "%")
    print(f"\n{'package':10} " + " ".join(f"{head:>10}" for head in heads))
    totals = Counter(one.verdict for one in outcomes)
    for package in [*sorted({one.package for one in outcomes}), "all"]:
        row = totals if package == "all" else {v: counts[package, v] for v in totals}
        noticed, missed = row.get("noticed", 0), row.get("unnoticed", 0)
        tries = noticed + missed
        share = f"{100 * noticed / tries:.1f}" if tries else "-"
        others = (row.get(verdict, 0) for verdict in ("accepted", "not judged", "not tried"))
        cells = (tries, noticed, missed, *others, share)
        print(f"{package:10} " + " ".join(f"{cell:>10}" for cell in cells))
    unjudged = Counter((one.path, one.by) for one in outcomes if one.verdict == "not judged")
    for (path, lacking), count in sorted(unjudged.items()):
        print(f"not judged: {count} in src/lightgate/{path}: its tests need {lacking}")
    late = sum(one.by.startswith("time limit") for one in outcomes)
    print(f"noticed since the tests hang, twice, and do not without the change: {late}")
    noticed, missed = totals["noticed"], totals["unnoticed"]
    guarded = [one for one in outcomes if one.guarded and one.verdict == "unnoticed"]
    inside = sum(one.guarded and one.verdict in {"noticed", "unnoticed"} for one in outcomes)
    print(f"in guarded code: {inside} tried, {len(guarded)} unnoticed; {seconds:.0f} s")
    if guarded or noticed < LEAST * (noticed + missed):
        return LIMIT_EXIT
    return UNJUDGED_EXIT if totals["not tried"] else 0


def tell_left_out(reached: Reach) -> None:
    """Print which tests could not run here: what they alone would notice goes unnoticed."""
    for package, rows in reached.left_out.items():
        for reason, count in sorted(Counter(rows.values()).items()):
            what = "fail or cannot be imported" if reason == "fails" else f"skipped: {reason}"
            print(f"tests/{package}: {count} {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="0: all")
    parser.add_argument(
        "--packages",
        type=lambda text: text.split(","),
        help="with --guarded all that have guarded code; else clock to wire",
    )
    parser.add_argument("--guarded", action="store_true", help="only guarded code")
    parser.add_argument("--only", help="a pattern of path:function")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--most", type=float, default=90.0, help="seconds of tests for a mutation")
    parser.add_argument(
        "--stale", action="store_true", help="use the last map, with new and changed tests"
    )
    parser.add_argument("--minutes", type=float, help="begin no mutation after this time")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--after", type=Path, help="a file of outcomes: leave out what was noticed")
    asked = parser.parse_args()
    began = time.monotonic()
    known = rules()
    if asked.packages is None:
        asked.packages = known.packages() if asked.guarded else list(PACKAGES)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        work = Path(folder)
        pristine = copy_tree(ROOT, work / "pristine")
        try:
            reached = reach(pristine, asked.packages, KEPT, asked.jobs, stale=asked.stale)
        except NoTestsError as error:
            sys.exit(str(error))
        tell_left_out(reached)
        names = chosen(pristine, asked, known)
        found, outcomes = candidates(pristine, names, reached, known, asked)
        trees = []
        for number in range(min(asked.jobs, len(found))):
            shutil.copytree(pristine.root, work / f"copy{number}", symlinks=True)
            trees.append(Tree(work / f"copy{number}"))
        until = math.inf if asked.minutes is None else began + 60 * asked.minutes
        outcomes += tried(found, trees, reached, known, pristine, until)
    if asked.json:
        asked.json.write_text(json.dumps([one._asdict() for one in outcomes], indent=1), "utf-8")
    return told(outcomes, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
