"""Try one mutation after the other in a copy of the tree, each against the tests that reach it."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mutation.operators import mutation
from mutation.reach import pytest_command

if TYPE_CHECKING:
    from mutation.operators import Mutation, Named
    from mutation.reach import Tree

# A mutation may make its tests slow, and the machine may be busy: what takes longer hangs. How busy
# it is does not matter to the processor's time, so that a loop without an end is found earlier.
SLOWER, GRACE_S, GRACE_CPU_S = 6.0, 10.0, 3.0
NEAREST: Final = 40  # tests that a fresh process begins with
LAST_S: Final = 45.0  # for mutations that were begun in time


class Candidate(NamedTuple):
    """A mutation that is to be tried."""

    named: Named
    source: str  # of its module: thousands of changed trees at once would fill the memory
    tests: list[str]
    fresh: bool

    def made(self) -> Mutation:
        """The changed tree."""
        return mutation(self.source, self.named.number)

    @property
    def package(self) -> str:
        """The folder of its tests."""
        return self.named.path.split("/")[0]


class Ran(NamedTuple):
    """What came of one run of tests."""

    failed: bool
    test: str  # the test that failed, or that ran when the time was over; empty: before any test
    how: str = ""  # an empty text, "time limit", or the error that ended the process
    fresh: bool = False  # in a process of its own


class Worker:
    """One copy of the tree, with one process that has imported the tests of a package."""

    def __init__(self, tree: Tree, pristine: Tree, seconds: dict[str, float], until: float) -> None:
        self._tree = tree
        self._pristine = pristine
        self._seconds = seconds
        self._end = until + LAST_S
        self._package = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        self._sound: dict[tuple[str, bool], bool] = {}  # tests without a change, fresh or not
        self.doubtful: Counter[str] = Counter()  # tests that failed, and not for the change

    def late(self) -> bool:
        """Whether a run may have been ended before its own limit: it says nothing then."""
        return time.monotonic() >= self._end

    def try_out(self, candidate: Candidate) -> tuple[bool, str]:
        """Whether the tests notice, and which.

        A test has noticed if it fails, fails again by itself, and passes without the change.
        """
        tests = candidate.tests
        while tests:
            ran = self._run(candidate, tests)
            if not ran.failed:
                break
            if self._sure(candidate, ran):
                return True, f"{ran.how}: {ran.test}" if ran.how else ran.test or "at import"
            if not ran.test:
                break
            self.doubtful[ran.test] += 1
            tests = [name for name in tests if name != ran.test]
        return False, f"{len(candidate.tests)} tests" if candidate.tests else "no test"

    def _sure(self, candidate: Candidate, ran: Ran) -> bool:
        # What fails before any test does so with the nearest ones alone. All of them in one process
        # would have to pass without the change, which tests of another file may prevent.
        again = [ran.test] if ran.test else candidate.tests[:NEAREST]
        key = (ran.test or " ".join(sorted({name.split("::")[0] for name in again})), ran.fresh)
        if not self._run(candidate, again, fresh=ran.fresh).failed:
            return False
        if key not in self._sound:
            self._sound[key] = not self._run(candidate, again, fresh=ran.fresh, plain=True).failed
        return self._sound[key]

    def _run(
        self, candidate: Candidate, tests: list[str], *, fresh: bool = False, plain: bool = False
    ) -> Ran:
        """Run tests until one fails: with the change, or, plain, without it."""
        path = self._tree.source / candidate.named.path
        original = self._pristine.source / candidate.named.path
        self._count += 1
        tree = ast.parse(candidate.source) if plain else candidate.made().tree
        path.write_text(ast.unparse(tree), "utf-8")
        later = original.stat().st_mtime + 10 * self._count  # no stale bytecode
        os.utime(path, (later, later))
        limit_s = GRACE_S + SLOWER * sum(self._seconds[name] for name in tests)
        limit_s = min(limit_s, max(0.0, self._end - time.monotonic()))
        try:
            if not (candidate.fresh or fresh):
                ran = self._served(candidate, tests, limit_s, plain=plain)
                if ran is not None:
                    return ran
            return self._fresh_in_parts(candidate, tests, limit_s)
        finally:
            shutil.copy2(original, path)

    def _served(
        self, candidate: Candidate, tests: list[str], limit_s: float, *, plain: bool
    ) -> Ran | None:
        """Run tests in a fork; None if the change cannot be put into a running process."""
        if self._package != candidate.package:
            self.end()
            self._begin(candidate.package)
        named = candidate.named
        job = {
            "module": f"lightgate.{named.path.removesuffix('.py').replace('/', '.')}",
            "file": str(self._tree.source / named.path),
            "source": candidate.source,
            "number": None if plain else named.number,
            "tests": tests,
            "limit_s": limit_s,
            "limits_s": [GRACE_S + SLOWER * self._seconds[name] for name in tests],
            "limits_cpu_s": [GRACE_CPU_S + SLOWER * self._seconds[name] for name in tests],
        }
        print(json.dumps(job), file=self._jobs, flush=True)
        line = self._answers.readline()
        answer: dict[str, Any] = json.loads(line or '{"failed": null}')
        if answer["failed"] is None:
            if not line:  # the process has ended
                self.end()
            return None
        return Ran(answer["failed"], answer["test"], answer["how"])

    def _begin(self, package: str) -> None:
        # What is imported here must be the unchanged product.
        path = {one: one.read_bytes() for one in self._changed()}
        for one in path:
            shutil.copy2(self._pristine.source / one.relative_to(self._tree.source), one)
        jobs_out, jobs_in = os.pipe()
        answers_out, answers_in = os.pipe()
        environment = self._tree.environment("serve", MUTATION_FDS=f"{jobs_out},{answers_in}")
        base = f"--basetemp={self._tree.root.parent}/{self._tree.root.name}-served"
        self._process = subprocess.Popen(
            pytest_command(package, base, "-p", "no:xdist"),
            cwd=self._tree.root,
            env=environment,
            pass_fds=(jobs_out, answers_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(jobs_out)
        os.close(answers_in)
        self._jobs, self._answers = os.fdopen(jobs_in, "w"), os.fdopen(answers_out)
        self._package = package
        print(json.dumps({"ready": True}), file=self._jobs, flush=True)
        self._answers.readline()
        for one, text in path.items():
            one.write_bytes(text)

    def _changed(self) -> list[Path]:
        """The modules of the copy that are not as they were."""
        return [
            one
            for one in self._tree.source.rglob("*.py")
            if one.read_bytes()
            != (self._pristine.source / one.relative_to(self._tree.source)).read_bytes()
        ]

    def _fresh_in_parts(self, candidate: Candidate, tests: list[str], limit_s: float) -> Ran:
        """Run the nearest tests first, by themselves: they have fewer files to import."""
        few = {name.split("::")[0] for name in tests[:NEAREST]}
        near = [name for name in tests if name.split("::")[0] in few]
        ran = self._fresh(candidate.package, near, limit_s)
        rest = [name for name in tests if name.split("::")[0] not in few]
        return ran if ran.failed or not rest else self._fresh(candidate.package, rest, limit_s)

    def _fresh(self, package: str, tests: list[str], limit_s: float) -> Ran:
        beside = f"{self._tree.root.parent}/{self._tree.root.name}"
        names, running = Path(f"{beside}-tests.json"), Path(f"{beside}-running")
        names.write_text(json.dumps(tests), "utf-8")
        running.write_text("", "utf-8")
        files = sorted({name.split("::")[0] for name in tests})
        more = (f"--basetemp={beside}-fresh", "-x", "-p", "no:xdist")
        environment = self._tree.environment(
            "fresh", MUTATION_TESTS=str(names), MUTATION_RUNNING=str(running)
        )
        process = subprocess.Popen(
            [*pytest_command(package, *more)[:-1], *files],
            cwd=self._tree.root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        how = ""
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code, how = 1, "time limit"
        with contextlib.suppress(ProcessLookupError):  # what the tests left behind ends, too
            os.killpg(process.pid, 9)
        process.wait()
        # 5: none was collected, since the change gave the tests other names.
        return Ran(code not in {0, 5}, running.read_text("utf-8"), how, fresh=True)

    def end(self) -> None:
        """Let the process of the package end."""
        if self._process is not None:
            self._jobs.close()
            self._answers.close()
            self._process.wait()
            self._process = None
            self._package = ""
