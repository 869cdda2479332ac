"""Batch jobs at a simulated provider, killed again and again: every line is answered and paid once.

A child process brings the lines of a file through a provider's batch API and is killed (SIGKILL) at
random moments; each start goes on with what is on the disk. The simulator loses the answer of every
seventh submission. At the end every line must have one result, the jobs together must hold every
line once, and the ledger's notes must add up to the cost of the lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightgate.batch.job_desk import JobDesk
from lightgate.batch.job_log import SUFFIX, JobLog
from lightgate.batch.journal import Checkpoint
from lightgate.batch.lines import BatchLine, LineReader
from lightgate.batch.via import ProviderJobs, ViaOrder
from lightgate.batch.words import BatchWords
from lightgate.clock.source import SYSTEM
from lightgate.ledger.journal.journal import Journal
from lightgate.price.rates import Rates
from lightgate.provider.batch.registry import job_api
from lightgate.provider.catalogue import BatchOffer, Provider
from lightgate.provider.target import Target
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMS = ("openai", "groq", "together", "mistral", "anthropic", "gemini")
RATES = Rates(input=Decimal(2), output=Decimal(8), batch_input=Decimal(1), batch_output=Decimal(4))
LISTS = {"mistral": "batch/jobs?page_size=1000", "anthropic": "messages/batches?limit=1000"}


def dialect_of(form: str) -> str:
    return form if form in {"anthropic", "gemini"} else "openai"


def world_text(form: str, finish_s: float) -> str:
    dialect = dialect_of(form)
    named = "" if form == dialect else f'form = "{form}", '
    return f"""
name = "kills"
title = "One batch API"
source = "benchmarks/batch_jobs.py"
[providers.{form}]
dialect = "{dialect}"
batch = {{ {named}finish_s = [{finish_s}, {finish_s * 1.5}], lost_every = 7 }}
[providers.{form}.models.m]
exact = {{ ttft_ms = 1, gap_ms = 0 }}
shape = {{ tokens = 20 }}
"""


def target_of(form: str, url: str) -> Target:
    row = Provider(
        name=form,
        title=form,
        base_url=url,
        dialect=dialect_of(form),  # type: ignore[arg-type]  # one of the families
        auth="none",
        batch=BatchOffer(form=form, lines=50_000),  # type: ignore[arg-type]  # one of the forms
    )
    return Target(name=f"{form}/m", provider=row, model="m", base_url=url, rates=RATES)


async def work(folder: Path, form: str, url: str, job_lines: int) -> None:
    """One process: go on with the run in the folder until it is done, or killed."""
    out, target = folder / "out.jsonl", target_of(form, url)

    def read() -> Iterator[BatchLine]:
        with (folder / "in.jsonl").open("rb") as file:
            for line in LineReader().lines(file):
                if isinstance(line, BatchLine):
                    yield line

    client, words = Client(), BatchWords(target)
    journal = Journal(folder / "journal", int(time.time_ns() % 1_000_000_000))
    with (
        Checkpoint(out, folder / "errors.jsonl", wall_ns=SYSTEM.wall_ns()) as files,
        JobLog(out.with_name(out.name + SUFFIX)) as log,
    ):
        desk = JobDesk(files, words, settle=journal.write)
        jobs = ProviderJobs(
            job_api(target, client), words, log, desk, ViaOrder(job_lines=job_lines)
        )
        # A job may be listed later than it was made, but not by this simulator.
        jobs._sleep = lambda seconds: asyncio.sleep(min(seconds, 0.2))  # noqa: SLF001 - pauses of minutes prove nothing here
        summary = await jobs.run(read)
        cost = files.cost_nano
    await client.close()
    journal.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"answered": summary.answered, "cost_nano": cost, "peak_mb": round(peak)}))


def write_lines(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            say = [{"role": "user", "content": f"Say something about the number {number}. " * 4}]
            body = {"model": "m", "max_tokens": 20, "messages": say}
            row = {"custom_id": f"id-{number}", "method": "POST", "url": "/v1/chat/completions"}
            file.write(json.dumps({**row, "body": body}) + "\n")


def jobs_at(form: str, url: str) -> list[int]:
    """The number of lines of each job that the provider has."""
    found: list[int] = []
    path, after = LISTS.get(form, "batches"), ""
    if form == "gemini":
        path = "batches?pageSize=1000"
    while True:
        with urllib.request.urlopen(f"{url}/{path}{after}") as answer:  # noqa: S310 - our own
            tree: Any = json.load(answer)
        rows = tree if isinstance(tree, list) else tree.get("data") or tree.get("operations") or []
        found += [size for row in rows if (size := size_of(row)) is not None]
        more = isinstance(tree, dict) and tree.get("has_more")
        cursor = tree.get("paging", {}).get("next_cursor") if isinstance(tree, dict) else None
        if cursor:
            after = f"?cursor={cursor}"
        elif more and "last_id" in tree:
            word = "after_id" if form == "anthropic" else "after"
            after = f"{'&' if '?' in path else '?'}{word}={tree['last_id']}"
        else:
            return found


def size_of(row: dict[str, Any]) -> int | None:
    counts = row.get("request_counts")
    if isinstance(counts, dict):
        return int(counts["total"]) if "total" in counts else sum(counts.values())
    if "total_requests" in row:
        return int(row["total_requests"])
    stats = row.get("metadata", {}).get("batchStats")
    return None if stats is None else int(stats["requestCount"])


def one_form(form: str, given: argparse.Namespace) -> bool:
    dice = random.Random(given.seed)  # noqa: S311 - moments of kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lines(folder / "in.jsonl", given.lines)
        (folder / "world.toml").write_text(world_text(form, given.finish), "utf-8")
        with SimProcess(SimOptions(world=str(folder / "world.toml"))) as sim:
            url = sim.facts.providers[form]
            command = [sys.executable, __file__, "--work", name, form, url, str(given.job_lines)]
            kills, began = 0, time.monotonic()
            while True:
                child = subprocess.Popen(command, stdout=subprocess.PIPE)
                limit = given.most_s * dice.random() + 0.4 if kills < given.kills else None
                try:
                    said, _ = child.communicate(timeout=limit)
                    break
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.communicate()
                    kills += 1
            seconds = time.monotonic() - began
            if child.returncode:
                print(f"{form}: the last process failed")
                return False
            facts = json.loads(said)
            rows = [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
            ids = [row["custom_id"] for row in rows]
            sizes = jobs_at(form, url)
    usage = [row["response"]["body"]["usage"] for row in rows]
    cost = sum(1000 * one["prompt_tokens"] + 4000 * one["completion_tokens"] for one in usage)
    once = len(ids) == len(set(ids)) == given.lines
    # Together's list does not say how many lines a job has.
    paid = sum(sizes) if sizes else None
    good = once and cost == facts["cost_nano"] and paid in {None, given.lines}
    print(
        f"| {form} | {given.lines:,} | {kills} | {len(ids) - len(set(ids))} |"
        f" {given.lines - len(set(ids))} | {'·' if paid is None else paid - given.lines} |"
        f" {cost / 1e9:.6f} | {facts['cost_nano'] / 1e9:.6f} | {facts['peak_mb']} |"
        f" {seconds:.0f} | {'yes' if good else 'NO'} |",
        flush=True,
    )
    return good


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "--work":
        folder, form, url, job_lines = sys.argv[2:]
        asyncio.run(work(Path(folder), form, url, int(job_lines)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("forms", nargs="*", default=list(FORMS))
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--job-lines", type=int, default=250)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--finish", type=float, default=3.0, help="seconds of a job, p50")
    parser.add_argument("--most-s", type=float, default=2.0, help="longest life before a kill")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(
        "| form | lines | kills | twice | missing | paid too much | dollars of results |"
        " dollars recorded | peak MB | s | all well |"
    )
    print(f"|{'---|' * 11}")
    good = [one_form(form, given) for form in given.forms]
    return 0 if all(good) else 6


if __name__ == "__main__":
    sys.exit(main())
