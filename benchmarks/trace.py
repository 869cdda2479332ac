"""Count the Python calls and files of one request: plain, streamed token, bench.

    python benchmarks/trace.py [--requests 60] [--walk] [--docs]

A worker runs in this process in front of a simulator in another one, and a client in another
thread asks in turn over one connection, so that the profile of the worker's thread holds the
gateway alone. A "call" is a Python function that is entered or a coroutine that is resumed, as
sys.setprofile reports it; a generator counts once, not once per item. Every figure is of a warm
process, and what an idle worker does by its timers is left out of it. `plain request` is one whole
answer, until the loop is idle again, to a request that came in one read; `in two reads` is the same
where the head came before the body, as many clients send them. `streamed token` is everything
between the arrival of a token after the first and that of the next; `bench request` is
the difference between two `lightgate bench` runs of 2 N and 4 N requests of eight tokens by eight
workers, divided by 2 N, so it holds the records and the statistics, and not the start. With --walk
the steps of one request, one token and one bench request (of one worker, without its statistics)
are printed in their order.
With --docs the marked part of docs/architecture.md is written anew from this run. Exit code 6 if
a figure is above its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import io
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from inspect import CO_GENERATOR
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvloop

import lightgate
from lightgate.cli.main import cli
from lightgate.clock.marks import Marks
from lightgate.config.load import parse_config
from lightgate.gateway.process.worker import Worker, WorkerOptions
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType

HOME = str(Path(lightgate.__file__).parent) + os.sep
WARM_UP = 30  # requests that are not counted
QUIET_S = 0.004  # an event loop that did nothing for so long has ended what it did
READY_S = 20.0
TOKENS = 8  # of an answer that is counted as a whole
WORKERS = 8  # of a bench run
IDLE_S = 1.5  # what the worker does meanwhile is nobody's request: its slowest timer has a second
LIMITS = {
    "plain request": (120, 25),
    "in two reads": (140, None),
    "streamed token": (7, None),
    "bench request": (200, None),
}
TITLES = {
    "plain request": "a whole answer through the gateway",
    "in two reads": "the same, where its head comes before its body",
    "streamed token": "a token after the first, through the gateway",
    "bench request": "a request of a benchmark, with its record and its part of the statistics",
}
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN = "<!-- benchmarks/trace.py --docs writes from here -->"
END = "<!-- to here -->"
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: identity\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
WORLD = """
name = "one"
title = "One provider"
source = "this benchmark"
[providers.lab.models.whole]
exact = { ttft_ms = 0, gap_ms = 0 }
[providers.lab.models.paced]
exact = { ttft_ms = 5, gap_ms = 5 }
"""
CONFIG = """
[providers.lab]
base_url = "{url}"
api_key = "none"
"""


class Step(NamedTuple):
    """One call: its code, how deep it is below the event loop, when it was entered."""

    code: CodeType
    depth: int
    at_ns: int

    @property
    def ours(self) -> bool:
        """Whether the code is lightgate's."""
        return self.code.co_filename.startswith(HOME)

    @property
    def place(self) -> str:
        """The file, below the package where it is lightgate's."""
        name = self.code.co_filename
        return name.removeprefix(HOME) if self.ours else Path(name).name


class Recorder:
    """The steps of one thread, between `start` and `stop`, both called in that thread."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._depth = 0

    def start(self) -> None:
        """Record from now on."""
        self._depth = 0
        sys.setprofile(self._note)

    def stop(self) -> None:
        """Record no more."""
        sys.setprofile(None)

    def cut(self) -> list[Step]:
        """Everything since the last cut."""
        taken, self.steps = self.steps, []
        return taken

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            resumed = code.co_flags & CO_GENERATOR and code.co_code[frame.f_lasti + 1]
            if not resumed:  # the argument of a generator's first RESUME is 0
                self.steps.append(Step(code, self._depth, time.monotonic_ns()))
            self._depth += 1
        elif event == "return" and self._depth:
            self._depth -= 1


class Row(NamedTuple):
    """The figures of one kind of work, and one instance of it."""

    name: str
    n: int
    calls: float
    ours: float
    files: float
    our_files: float
    walk: Sequence[Step]

    @property
    def over(self) -> bool:
        """Whether all calls, or the files of lightgate, are more than the limit."""
        calls, files = LIMITS[self.name]
        return self.calls > calls or (files is not None and self.our_files > files)


def row(name: str, pieces: Sequence[Sequence[Step]]) -> Row:
    """The medians of pieces of work that are alike: what a timer adds to a few does not count."""

    def median(figure: Callable[[Sequence[Step]], int]) -> float:
        return statistics.median(map(figure, pieces))

    usual = median(len)
    return Row(
        name=name,
        n=len(pieces),
        calls=usual,
        ours=median(lambda piece: sum(step.ours for step in piece)),
        files=median(lambda piece: len({step.code.co_filename for step in piece})),
        our_files=median(lambda piece: len({s.code.co_filename for s in piece if s.ours})),
        walk=min(pieces, key=lambda piece: abs(len(piece) - usual)),
    )


# The gateway


class Visitor:
    """A client in a thread of its own; it starts, cuts and stops the record of the worker's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, requests: int) -> None:
        self.recorder = Recorder()
        self.whole: list[list[Step]] = []
        self.apart: list[list[Step]] = []
        self.tokens: list[list[Step]] = []
        self._loop = loop
        self._port = port
        self._requests = requests
        self._idle: set[CodeType] = set()  # what the worker's timers call

    def run(self) -> None:
        """Ask for everything; the worker ends afterwards, also after a failure."""
        try:
            self._ask_all()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _ask_all(self) -> None:
        connection = self._connect()
        for stream in (False, True):
            for _ in range(WARM_UP):
                self._ask(connection, stream=stream)
        self._loop.call_soon_threadsafe(self.recorder.start)
        time.sleep(IDLE_S)
        self._idle.update(step.code for step in self.recorder.cut() if step.depth == 0)
        for _ in range(self._requests):
            self._ask(connection, stream=False)
            self.whole.append(self._settled())
        for _ in range(self._requests):
            self._ask(connection, stream=False, apart=True)
            self.apart.append(self._settled())
        while len(self.tokens) < self._requests:
            self._ask(connection, stream=True)
            self.tokens += tokens_of(self._settled())
        self._loop.call_soon_threadsafe(self.recorder.stop)
        connection.close()

    def _connect(self) -> socket.socket:
        until = time.monotonic() + READY_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._port), timeout=10)
            except ConnectionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _ask(self, connection: socket.socket, *, stream: bool, apart: bool = False) -> None:
        say = [{"role": "user", "content": "Say something."}]
        model, tokens = ("lab/paced", 3 * TOKENS) if stream else ("lab/whole", TOKENS)
        asked = {"model": model, "messages": say, "max_tokens": tokens, "stream": stream}
        body = json.dumps(asked).encode()
        head = HEAD % len(body)
        if apart:
            connection.sendall(head)
            self._seen()
            connection.sendall(body)
        else:
            connection.sendall(head + body)  # http.client would write them apart
        answer = http.client.HTTPResponse(connection, method="POST")
        answer.begin()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the gateway answered {answer.status}: {said!r}")

    def _settled(self) -> list[Step]:
        """What was done until the loop was idle, without what its timers did."""
        self._seen()
        kept: list[Step] = []
        timed = False
        for step in self.recorder.cut():
            if step.depth == 0:
                timed = step.code in self._idle
            if not timed:
                kept.append(step)
        return kept

    def _seen(self) -> None:
        """Wait until the loop has taken what was sent."""
        steps = self.recorder.steps
        seen = -1
        while seen != len(steps):
            seen = len(steps)
            time.sleep(QUIET_S)


def tokens_of(steps: list[Step]) -> list[list[Step]]:
    """The pieces of a stream between two arrivals from the provider, without its first and last.

    An arrival is a callback at the bottom of the event loop that nothing preceded for half a gap.
    """
    pieces: list[list[Step]] = []
    before = 0
    for step in steps:
        if step.depth == 0 and step.at_ns - before > 2_000_000:
            pieces.append([])
        if pieces:
            pieces[-1].append(step)
        before = step.at_ns
    return pieces[3:-2]


def gateway(url: str, folder: Path, requests: int) -> tuple[Row, ...]:
    """A worker as it is, in this thread, until the visitor has what it wants."""
    put_snapshot(folder, make_snapshot(parse_config(CONFIG.format(url=url)), (), os.environ))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

    async def serve() -> Visitor:
        worker = Worker(WorkerOptions(data=folder, index=0, host="127.0.0.1", port=port))
        loop = asyncio.get_running_loop()
        visitor = Visitor(loop, port, requests)
        visit = loop.run_in_executor(None, visitor.run)
        await worker.run()
        await visit
        return visitor

    with contextlib.redirect_stdout(io.StringIO()):  # the worker says when it is ready
        visitor = uvloop.run(serve())
    return (
        row("plain request", visitor.whole),
        row("in two reads", visitor.apart),
        row("streamed token", visitor.tokens),
    )


# The harness


def bench_run(url: str, requests: int, workers: int = WORKERS) -> list[Step]:
    """The steps of one whole `lightgate bench` in this process."""
    arguments = [
        "bench", f"lab={url}#whole", "--requests", str(requests), "--concurrency", str(workers),
        "--max-tokens", str(TOKENS), "--no-aa", "--seed", "1", "--yes", "--json",
    ]  # fmt: skip
    recorder = Recorder()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        recorder.start()
        try:
            cli.main(arguments, standalone_mode=False)
        finally:
            recorder.stop()
    return recorder.cut()


def bench(url: str, requests: int) -> Row:
    """The difference between a run of 2 N requests and one of 4 N, for each request."""
    bench_run(url, WARM_UP)
    once, twice = (bench_run(url, n) for n in (2 * requests, 4 * requests))
    more = Counter(step.code for step in twice)
    more.subtract(step.code for step in once)
    requests = more[Marks.__init__.__code__]  # blocks are filled up: there may be more than asked
    each = {code: count / requests for code, count in more.items() if count >= requests / 2}
    ours = {code: count for code, count in each.items() if code.co_filename.startswith(HOME)}
    return Row(
        name="bench request",
        n=requests,
        calls=(len(twice) - len(once)) / requests,
        ours=sum(more[code] for code in more if code.co_filename.startswith(HOME)) / requests,
        files=len({code.co_filename for code in each}),
        our_files=len({code.co_filename for code in ours}),
        walk=one_bench_request(bench_run(url, WARM_UP, workers=1)),
    )


def one_bench_request(steps: list[Step]) -> list[Step]:
    """What lies between two calls of the provider, in the middle of a run."""
    calls = [
        place
        for place, step in enumerate(steps)
        if step.place == "provider/call.py" and step.code.co_qualname == "Call.__init__"
    ]
    middle = len(calls) // 2
    return steps[calls[middle] : calls[middle + 1]]


# What is printed


def print_walk(found: Row) -> None:
    print(f"\n{found.name}: {len(found.walk)} calls")
    for step in found.walk:
        mark = "" if step.ours else "   (not ours)"
        print(f"  {'  ' * step.depth}{step.place}:{step.code.co_qualname}{mark}")


def limit_of(found: Row) -> str:
    calls, files = LIMITS[found.name]
    return f"{calls} calls" + ("" if files is None else f" in {files} files")


def write_page(rows: Sequence[Row]) -> None:
    """Write the figures, the walk of a token and the files of a request into the page."""
    walks = {found.name: [step for step in found.walk if step.ours] for found in rows}
    lines = [
        f"Measured on {datetime.now(UTC):%d.%m.%Y}.\n",
        "| | calls | files of lightgate | limit |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {TITLES[found.name]} | {found.calls:.0f} | {found.our_files:.0f} | {limit_of(found)} |"
        for found in rows
    ]
    lines += ["\nA streamed token after the first, from socket to socket:\n", "```"]
    token = walks["streamed token"]
    top = min(step.depth for step in token)
    lines += [f"{'  ' * (step.depth - top)}{step.place}:{step.code.co_qualname}" for step in token]
    lines += [
        "```\n",
        "The files of a whole answer, in the order in which they are entered:\n",
        "```",
    ]
    lines += [*dict.fromkeys(step.place for step in walks["plain request"]), "```"]
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=60, help="that each figure is made of")
    parser.add_argument("--only", choices=["gateway", "bench"], help="leave the other out")
    parser.add_argument("--walk", action="store_true", help="print one of each, step by step")
    parser.add_argument("--docs", action="store_true", help="write the trace into the page")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "one.toml"
        world.write_text(WORLD)
        with SimProcess(SimOptions(world=str(world))) as sim:
            url = sim.facts.providers["lab"]
            if options.only != "bench":
                rows += gateway(url, Path(folder) / "data", options.requests)
            if options.only != "gateway":
                rows.append(bench(url, options.requests))
    print("| | n | calls | of lightgate | files | of lightgate | limit |")
    print("|---|---|---|---|---|---|---|")
    for found in rows:
        print(
            f"| {found.name} | {found.n} | {found.calls:.0f} | {found.ours:.0f} |"
            f" {found.files:.0f} | {found.our_files:.0f} | {limit_of(found)} |"
        )
    if options.walk:
        for found in rows:
            print_walk(found)
    if options.docs and options.only is None:
        write_page(rows)
    over = [found.name for found in rows if found.over]
    print(f"\nover the limit: {', '.join(over)}" if over else "\neverything is within its limit")
    return 6 if over else 0


if __name__ == "__main__":
    sys.exit(main())
