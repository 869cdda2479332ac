"""The harness's own error, end to end: `lightgate bench` against the simulator's log.

    python benchmarks/accuracy.py [--streams 1,32,256,1024] [--repeat 4] [--only quiet|busy]

The command runs as a user runs it, in a pseudo-terminal so that the live view draws, against
scripted models (slow streams above 256): first on the machine as it is, then beside two processes
that take all the CPU they get. Every attempt that a cell counts is joined with the simulator's log
by its request id, and every printed quantile is held against the same quantile of the truth: from
our own t_send to the instants at which the simulator wrote.

A figure holds when the truth lies between the ends of its bounds. A quiet run must call no figure
of its tables doubtful that is right (times to the headers are in run.json alone), a busy one must
call nothing sure that is off by more than max(1 ms, 2 %). Exit code 6 if fewer than 99 % of the
figures hold, or if one of the two is not so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pty
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lightgate.clock.bounds import ONE_BURST_NS, Bounds, doubtful
from lightgate.clock.load import counting
from lightgate.clock.quantile import quantile, quantiles
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.samples import Samples
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.run import CellSummary, Estimate

MS = 1e6
MODELS = ("s1", "s3", "s12")  # plain, bundles of tokens, split and doubled events
HELD = 0.99
SLACK_MS = 0.3  # from the simulator's clock to the arrival on loopback
SLACK_RATE = 0.005
HOG = "while True: pass"

Entry = dict[str, Any]


class Figure(NamedTuple):
    """One printed quantile beside the truth, which the simulator's own delay leaves open a little.

    A write left between the two instants that the log has of it.
    """

    metric: str
    found: Estimate
    truth: float
    earliest: float
    latest: float

    @property
    def rate(self) -> bool:
        """Whether it is tokens per second."""
        return self.metric.endswith("_tps")

    @property
    def holds(self) -> bool:
        """Whether the truth is within the bounds."""
        slack = SLACK_RATE * self.truth if self.rate else SLACK_MS
        low = self.found.value if self.found.low is None else self.found.low
        high = math.inf if self.found.high is None else self.found.high
        return (low or 0.0) - slack <= self.latest and self.earliest <= high + slack

    @property
    def off(self) -> bool:
        """Whether the printed value is wrong by more than max(1 ms, 2 %)."""
        value = self.found.value or 0.0
        if self.earliest <= value <= self.latest:
            return False
        nearest = self.earliest if value < self.earliest else self.latest
        return doubtful(value, Bounds(min(value, nearest), max(value, nearest)), rate=self.rate)


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    started = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def bench(url: str, model: str, streams: int, out: Path) -> None:
    """Run the command with its live view on a pseudo-terminal that nobody reads for long."""
    command = [
        sys.executable, "-m", "lightgate", "bench", f"sim={url}#{model}",
        "--concurrency", str(streams), "--requests", str(max(2 * streams, 80)),
        "--prompt-tokens", "64", "--max-tokens", "20" if streams == 1 else "50",
        "--processes", "1", "--out", str(out),
    ]  # fmt: skip
    master, slave = pty.openpty()
    with subprocess.Popen(command, stderr=slave, stdout=subprocess.DEVNULL) as process:
        os.close(slave)
        while True:
            try:
                if not os.read(master, 65536):
                    break
            except OSError:
                break
        os.close(master)
    if process.returncode:
        raise SystemExit(f"bench ended with {process.returncode}")


def log(root: str) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    since, more = 0, True
    while more:
        with urllib.request.urlopen(f"{root}/sim/log?since={since}") as answer:  # noqa: S310 - loopback
            page = json.load(answer)
        found |= {entry["request_id"]: entry for entry in page["entries"]}
        since, more = page["next"], page["more"]
    return found


class Numbers(NamedTuple):
    """The instants of one answer's writes at one end of what the log knows of them."""

    writes: list[tuple[int, int]]  # instant, tokens
    head: int

    def of(
        self, attempt: AttemptRecord, before: Numbers, *, longest: bool = False
    ) -> dict[str, list[float]]:
        """Work the numbers out by metric; what they begin at is taken from `before`."""
        send = attempt.t_send_ns or 0
        first, last = self.writes[0][0], self.writes[-1][0]
        joined = sum(
            part or 0.0
            for part in (attempt.pool_wait_ms, attempt.dns_ms, attempt.tcp_ms, attempt.tls_ms)
        )
        starts = [at for at, _ in before.writes[:-1]]
        gaps = [(at - start) / MS for start, (at, _) in zip(starts, self.writes[1:], strict=True)]
        # Writes that follow each other at once are one burst if the client reads them together.
        late = ONE_BURST_NS if longest else 0
        rest = sum(tokens for at, tokens in self.writes[1:] if at - first > late)
        e2e = (last - send) / MS
        return {
            "ttft_ms": [(first - send) / MS],
            "tth_ms": [(self.head - send) / MS],
            "e2e_ms": [e2e],
            "gap_ms": gaps,
            "stall_ms": [max(gaps)],
            "speed_tps": [rest * 1e9 / max(1, last - starts[0])],
            "speed_total_tps": [(attempt.tokens_out or 0) * 1e3 / (e2e + joined)],
        }


def truths(attempt: AttemptRecord, entry: Entry) -> list[dict[str, list[float]]]:
    """Work out the true numbers of one attempt: right before the writes, shortest, longest."""
    rows = [
        (at, done, tokens, kind)
        for (_, at, tokens, kind), done in zip(entry["plan"], entry["done_ns"], strict=False)
    ]
    early, late = (
        Numbers(
            [(row[end], row[2]) for row in rows if row[2]],
            next(row[end] for row in rows if row[3] == "head"),
        )
        for end in (0, 1)
    )
    return [
        early.of(attempt, early),
        early.of(attempt, late),
        late.of(attempt, early, longest=True),
    ]


def judged(out: Path, entries: dict[str, Entry]) -> tuple[CellSummary, list[Figure], list[float]]:
    """Hold the cell of a run against the log; the errors of single first tokens come along."""
    folder = RunFolder(out)
    run, recordings = folder.run(), folder.recordings()
    samples, cell = Samples(run), run.cells[0]
    counted = counting(a for a in folder.attempts() if samples.counts(a, recordings.get(a.id)))
    true: list[dict[str, list[float]]] = [{}, {}, {}]
    errors = []
    for attempt in counted:
        known = truths(attempt, entries[attempt.id])
        errors.append(abs((attempt.ttft_ms or 0.0) - known[0]["ttft_ms"][0]))
        for kept, found in zip(true, known, strict=True):
            for metric, values in found.items():
                kept.setdefault(metric, []).extend(values)
    figures = []
    for name, one in ((m.name, one) for m in cell.metrics for one in m.quantiles):
        if name in true[0] and one.value is not None:
            ends = [quantile(kept[name], one.q) or 0.0 for kept in true]
            figures.append(Figure(name, one, ends[0], min(ends), max(ends)))
    return cell, figures, errors


def shown(figures: list[Figure], metric: str, q: float) -> str:
    """One figure: what was printed, its range where it is doubtful, and the truth."""
    for one in figures:
        if one.metric == metric and one.found.q == q:
            value = one.found.value or 0.0
            range_ = f" ({one.found.low:.1f}-{one.found.high or math.inf:.1f})"
            return f"{value:.1f}{range_ if one.found.doubtful else ''} / {one.truth:.1f}"
    return "·"


def table(where: str, streams: list[int], repeat: int, folder: Path) -> list[Figure]:
    """Run every cell in one surrounding, print its row, and return all figures."""
    every: list[Figure] = []
    for count in streams:
        for model in (MODELS if count <= 256 else ("slow",)) * repeat:
            out = folder / f"{where}-{count}-{model}-{len(every)}"
            with SimProcess(SimOptions(world="selftest")) as sim:
                with hogs(2 if where == "busy" else 0):
                    bench(sim.facts.providers["lab"], model, count, out)
                cell, figures, errors = judged(out, log(sim.url))
            every += figures
            p50, p99, most = (f"{value:.3f}" for value in quantiles(errors, (0.5, 0.99, 1.0)))
            print(
                f"| {where} | {count:,} | {model} | {len(errors)} | {p50} | {p99} | {most}"
                f" | {shown(figures, 'ttft_ms', 0.5)} | {shown(figures, 'ttft_ms', 0.95)}"
                f" | {shown(figures, 'speed_tps', 0.5)}"
                f" | {sum(one.holds for one in figures)}/{len(figures)} | {len(cell.doubts())} |",
                flush=True,
            )
            for one in figures:
                wrong = not one.holds or (one.off and not one.found.doubtful)
                if wrong or (where == "quiet" and one.found.doubtful):
                    print(
                        f"  {one.metric} {one.found.q:g}: {one.found.value:.3f}"
                        f" ({one.found.low}, {one.found.high}), truth {one.truth:.3f}"
                        f" ({one.earliest:.3f}, {one.latest:.3f})",
                        file=sys.stderr,
                    )
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="1,32,256,1024")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", choices=("quiet", "busy"))
    options = parser.parse_args()
    streams = [int(part) for part in options.streams.split(",")]
    print("| | streams | model | n | ttft error p50, ms | p99 | max | TTFT p50 / truth"
          " | p95 / truth | tok/s p50 / truth | figures that hold | doubtful |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for where in ("quiet", "busy") if options.only is None else (options.only,):
            figures = table(where, streams, options.repeat, Path(folder))
            share = sum(one.holds for one in figures) / len(figures)
            right = [one for one in figures if one.found.doubtful and not one.off]
            shown_doubts = sum(one.metric != "tth_ms" for one in right)
            sure = sum(one.off and not one.found.doubtful for one in figures)
            print(
                f"\n{where}: the bounds hold the truth in {share:.2%} of {len(figures)} figures;"
                f" {sum(one.found.doubtful for one in figures)} doubtful, {len(right)} of them"
                f" right all the same, {shown_doubts} of these in a table; {sure} called sure that"
                f" are off by more than max(1 ms, 2 %)\n"
            )
            failed |= share < HELD or (shown_doubts if where == "quiet" else sure) > 0
    if failed:
        raise SystemExit(6)


if __name__ == "__main__":
    main()
