"""A plugin of pytest with the three roles of a mutation run: map, serve, fresh.

map: write down which blocks each test runs, and how long it takes.
serve: import the tests once; for each mutation that comes in, fork a child, put the changed
function in the place of the old one and run the chosen tests until one fails.
fresh: run chosen tests in their order, for a mutation of what is done at import.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import pytest
from mutation.operators import Unit, mutation

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ROLE: Final = os.environ.get("MUTATION_ROLE", "")
NOTICED, UNNOTICED, UNCHANGED = 1, 0, 3  # exit codes of a child
LARGEST: Final = 1 << 30  # bytes of a file: a mutation may write on and on


class Mapper:
    """Which blocks a test runs, by the file of marks of this process and its children."""

    def __init__(self, folder: Path, size: int) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._out = folder / f"map-{worker}.json"
        marks = folder / f"marks-{worker}"
        marks.write_bytes(bytes(size))
        with marks.open("r+b") as file:
            self._marks = mmap.mmap(file.fileno(), 0)
        os.environ["MUTATION_MARKS"] = str(marks)
        (folder / f"marks-of-{os.getpid()}").symlink_to(marks)
        self._size = size
        self._rows: dict[str, dict[str, Any]] = {}
        self._first: dict[str, list[int]] = {}
        self._imported: list[int] = []
        self._left_out: dict[str, str] = {}  # a test, or a file of tests, and why it did not run

    def _taken(self) -> list[int]:
        data = self._marks[:]
        self._marks[:] = bytes(self._size)
        return [number for number, byte in enumerate(data) if byte]

    def pytest_collection_finish(self) -> None:
        """What ran until now runs at import."""
        self._imported = self._taken()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """What the first set-up of a file runs is there for all of its tests."""
        yield None
        ran = self._taken()
        first = self._first.setdefault(item.nodeid.split("::")[0], ran)
        self._rows[item.nodeid] = {"hits": sorted({*ran, *first}), "passed": False}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Time a test and take its marks."""
        began = time.monotonic()
        result = yield
        row = self._rows.setdefault(item.nodeid, {"hits": [], "passed": False})
        row["s"] = time.monotonic() - began
        row["hits"] = sorted({*row["hits"], *self._taken()})
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Only tests that pass can notice anything."""
        if report.when == "call" and report.nodeid in self._rows:
            self._rows[report.nodeid]["passed"] = report.passed
        self._leave_out(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported, or is skipped as a whole, is told."""
        self._leave_out(report)

    def _leave_out(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped:
            why = report.longrepr
            self._left_out[report.nodeid] = str(why[2] if isinstance(why, tuple) else why)
        elif report.failed:
            self._left_out[report.nodeid] = "fails"

    def pytest_sessionfinish(self) -> None:
        """Leave what was found to the program."""
        found = {"tests": self._rows, "imported": self._imported, "left_out": self._left_out}
        self._out.write_text(json.dumps(found))


class Server:
    """Mutations come in as lines of JSON and are tried in children."""

    def __init__(self, jobs: int, answers: int) -> None:
        self._jobs = os.fdopen(jobs, "r")
        self._answers = os.fdopen(answers, "w")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve instead of running the tests."""
        items = {item.nodeid: item for item in session.items}
        functions = _functions()
        session.testsfailed = 0  # a file that cannot be imported has noticed nothing
        gc.collect()
        gc.freeze()
        for line in self._jobs:
            job = json.loads(line)
            if "ready" in job:  # the program asks whether all is imported
                print("{}", file=self._answers, flush=True)
                continue
            answer = {"failed": None, "test": "", "how": ""}
            if all(name in items for name in job["tests"]):
                chosen = [items[name] for name in job["tests"]]
                answer = _tried(session, chosen, job, functions)
            print(json.dumps(answer), file=self._answers, flush=True)
        return True


def _functions() -> dict[tuple[str, str, int], FunctionType]:
    found = {}
    gc.unfreeze()  # tests/conftest.py sets aside what is imported, and then it is not listed
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            code = one.__code__
            if "/lightgate/" in code.co_filename:
                found[code.co_filename, code.co_qualname, code.co_firstlineno] = one
    return found


def _tried(
    session: pytest.Session,
    items: list[pytest.Item],
    job: dict[str, Any],
    functions: dict[tuple[str, str, int], FunctionType],
) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(session, items, job, functions, writer)
    os.close(writer)
    told, timed_out = _told(reader, job["limits_s"], time.monotonic() + job["limit_s"])
    os.close(reader)
    _end_group(child)
    _, status = os.waitpid(child, 0)
    *_, test, how = ["", *told.decode(errors="replace").split("\n")]
    code = os.waitstatus_to_exitcode(status)
    timed_out = timed_out or code == -signal.SIGPROF
    if timed_out:
        how = "time limit"
    if not test or (code == UNCHANGED and not timed_out):  # no test has begun
        return {"failed": None, "test": "", "how": how}
    return {"failed": timed_out or code != UNNOTICED, "test": test, "how": how}


def _told(reader: int, limits_s: list[float], end: float) -> tuple[bytes, bool]:
    """Read what a child writes: the tests that it begins; and whether one of them hangs.

    A test hangs that runs longer than its own limit, or when the time of all of them has ended.
    """
    told, begun, until = b"", 0, end
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return told, True
        piece = os.read(reader, 65536)
        if not piece:
            return told, False
        told += piece
        if told.count(b"\n") > begun:
            begun = told.count(b"\n")
            until = min(end, time.monotonic() + limits_s[begun - 1])


def _end_group(child: int) -> None:
    """End a child and what it has started; a child that has no group of its own yet, alone."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            end(child, signal.SIGKILL)


def _child(
    session: pytest.Session,
    items: list[pytest.Item],
    job: dict[str, Any],
    functions: dict[tuple[str, str, int], FunctionType],
    writer: int,
) -> None:
    code = NOTICED
    try:
        os.setsid()
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, hard))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code = _run(session, items, job, functions, writer)
    except BaseException as error:  # noqa: BLE001 -- whatever a mutation does, it was noticed
        os.write(writer, repr(error)[:200].replace("\n", " ").encode())
    finally:
        # The writer ends with the process: closed before, the parent could kill it on its way out.
        os._exit(code)


def _run(
    session: pytest.Session,
    items: list[pytest.Item],
    job: dict[str, Any],
    functions: dict[tuple[str, str, int], FunctionType],
    writer: int,
) -> int:
    plain = job["number"] is None
    if not plain and job["module"] in sys.modules and not _changed(job, functions):
        return UNCHANGED
    limits_s = job["limits_cpu_s"]
    for item, following, limit_s in zip(items, [*items[1:], None], limits_s, strict=True):
        os.write(writer, f"{item.nodeid}\n".encode())
        signal.setitimer(signal.ITIMER_PROF, limit_s)  # its signal ends the process
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return NOTICED
    return UNNOTICED


def _changed(job: dict[str, Any], functions: dict[tuple[str, str, int], FunctionType]) -> bool:
    """Put the changed function into its place, for all that hold a reference to it."""
    made = mutation(job["source"], job["number"])
    unit = made.site.unit
    if unit is None:
        return False
    function = functions.get((job["file"], unit.name, unit.line))
    code = _code_of(compile(made.tree, job["file"], "exec", dont_inherit=True), unit)
    if (
        function is None
        or code is None
        or len(code.co_freevars) != len(function.__code__.co_freevars)
    ):
        return False
    function.__code__ = code
    return True


def _code_of(code: CodeType, unit: Unit) -> CodeType | None:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if (inner.co_qualname, inner.co_firstlineno) == (unit.name, unit.line):
                return inner
            if unit.name.startswith(f"{inner.co_qualname}.") and (found := _code_of(inner, unit)):
                return found
    return None


class Chosen:
    """Run only the chosen tests, in their order, and write down which of them runs."""

    def __init__(self, names: list[str], running: Path) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._running = running

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the others out."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """The last of these is the one that failed, as the first failure ends the run."""
        self._running.write_text(nodeid, "utf-8")


# Made here and not in a hook: conftest.py imports the product before the first hook is called.
MAPPER: Final = (
    Mapper(Path(os.environ["MUTATION_FOLDER"]), int(os.environ["MUTATION_SIZE"]))
    if ROLE == "map" and "PYTEST_XDIST_WORKER" in os.environ
    else None
)


def pytest_configure(config: pytest.Config) -> None:
    """Take the role that the program gave."""
    if MAPPER is not None:
        config.pluginmanager.register(MAPPER)
    elif ROLE == "serve":
        jobs, answers = (int(fd) for fd in os.environ["MUTATION_FDS"].split(","))
        config.pluginmanager.register(Server(jobs, answers))
    elif ROLE == "fresh":
        names = json.loads(Path(os.environ["MUTATION_TESTS"]).read_text("utf-8"))
        config.pluginmanager.register(Chosen(names, Path(os.environ["MUTATION_RUNNING"])))
