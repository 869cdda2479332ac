"""Start, follow and stop benchmarks from the console, one at a time.

A benchmark is `lightgate bench` in a process of its own, by the rules of the command: what it may
cost is said before and is its limit. This process holds no key of a provider: the targets are asked
through the gateway, so its own time is in the numbers, and the ledger has the requests too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from collections import deque
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.bench.run.budget import ASK_ABOVE, announce, rounded_up
from lightgate.bench.run.order import Loading, RunOrder
from lightgate.bench.run.schedule import RUNS
from lightgate.bench.workload.workload import WorkloadWish
from lightgate.clock.attempt import wall_time
from lightgate.console.work.lanes import LaneChoice, choice_of
from lightgate.console.work.race_desk import Crowded
from lightgate.console.work.run_note import BOOT, RunNote, write_note
from lightgate.console.work.runs import RunUnknown
from lightgate.errors import UsageError
from lightgate.gateway.process.lock import PARENT_DEATH_ENV
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV
from lightgate.gateway.served.inner import CONSOLE_ENV
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import own_provider
from lightgate.provider.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lightgate.bench.run.budget import CostEstimate
    from lightgate.clock.source import Clock
    from lightgate.console.work.own_gateway import OwnGateway

MOST_TARGETS: Final = 4
MOST_LOADS: Final = 4
MOST_CONCURRENCY: Final = 64
MOST_REQUESTS: Final = 1_000  # for each target and load
MOST_TOKENS: Final = 4_096
KEY_ENV: Final = "LIGHTGATE_BENCH_KEY"  # of the benchmark's process: the console's credential
PROVIDER: Final = "gateway"  # what the targets' names begin with: they are asked through it
KEPT_LINES: Final = 20
STOP_S: Final = 20.0
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_.-]+")  # what a target's own name cannot have
_CENT: Final = Decimal("0.01")


class RunAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is posted to start a benchmark; `agreed_usd` is needed above a dollar."""

    targets: tuple[str, ...]
    concurrency: tuple[int, ...] = (1, 8)
    requests: int = 48
    prompt_tokens: int = 256
    max_tokens: int = 128
    agreed_usd: Decimal | None = None


class RunStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark that has begun: its id, its command, the requests and dollars it may come to."""

    id: str
    line: str
    total: int
    est_usd: Decimal


class RunEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark would come to at most, by the command's own announcement."""

    requests: int  # that count
    most_requests: int  # with warm-up, ramps and probes
    est_usd: Decimal
    unknown: tuple[str, ...]  # whose price is not known
    said: str
    line: str
    ask_above_usd: Decimal = ASK_ABOVE
    ignored: tuple[str, ...] = ()


class RunPlan(NamedTuple):
    """A benchmark that may begin, with what it costs at most."""

    asked: RunAsked
    choices: tuple[LaneChoice, ...]
    cost: CostEstimate
    address: str  # of the gateway
    keyed: bool  # whether it asks clients for a key

    @property
    def total(self) -> int:
        """Requests of all targets and loads that count."""
        return len(self.choices) * len(self.asked.concurrency) * self.asked.requests

    def estimate(self) -> RunEstimate:
        """What is said before it begins."""
        return RunEstimate(
            requests=self.total,
            most_requests=sum(one.requests + one.probes for one in self.cost.plans),
            est_usd=self.cost.total,
            unknown=tuple(name.removeprefix(f"{PROVIDER}/") for name in self.cost.unknown),
            said=self.cost.sentence,
            line=self.line(),
        )

    def line(self) -> str:
        """The same as a command that a person can copy: it asks the gateway as a client does."""
        targets = [
            f"{_UNNAMED.sub('-', one.name)}={self.address}/v1#{one.name}" for one in self.choices
        ]
        key = ["--key-env", "LIGHTGATE_KEY"] if self.keyed else []
        return shlex.join(["lightgate", "bench", *targets, *key, *self.measured()])

    def arguments(self) -> list[str]:
        """The command's arguments, but for its files."""
        words = [f"{PROVIDER}/{choice.name}" for choice in self.choices] + self.measured()
        words += ["--no-aa", "--header", "x-lightgate-tags: bench"]
        words += ["--header", "x-lightgate-cache: off"]
        if self.cost.total and not self.cost.unknown:
            limit = max(self.cost.total, self.asked.agreed_usd or Decimal(0))
            words += ["--max-cost", str(limit.quantize(_CENT, rounding=ROUND_UP))]
        return [*words, "--yes"]

    def measured(self) -> list[str]:
        """What is measured, as arguments."""
        asked = self.asked
        words = ["--concurrency", ",".join(map(str, asked.concurrency))]
        words += ["--requests", str(asked.requests), "--prompt-tokens", str(asked.prompt_tokens)]
        return [*words, "--max-tokens", str(asked.max_tokens)]

    def config(self, base_url: str, *, keyed: bool) -> str:
        """The configuration of the command: the gateway as a provider, with its targets' prices."""
        key = f"env:{KEY_ENV}" if keyed else "none"
        lines = [
            f"[providers.{PROVIDER}]",
            f'base_url = "{base_url}"',
            'dialect = "openai"',
            f'api_key = "{key}"',
        ]
        for choice in self.choices:
            rates = _priced(choice).rates
            if rates is not None:
                name = msgspec.json.encode(f"{PROVIDER}/{choice.name}").decode()
                lines += [f"[prices.{name}]", f"input = {rates.input:f}"]
                lines += [f"output = {rates.output:f}"]
        return "\n".join((*lines, ""))


def plan_run(gateway: OwnGateway, asked: RunAsked) -> RunPlan:
    """Plan a benchmark; UsageError where it is beyond a limit or not served."""
    _bounded(asked)
    snapshot, choices = gateway.snapshot(), []
    for name in asked.targets:
        choice = choice_of(snapshot, name)
        if choice is None:
            raise UsageError(f"The gateway does not serve {name[:128]!r}.")
        choices.append(choice)
    order = RunOrder(
        targets=tuple(map(_priced, choices)),
        loads=tuple(
            Loading(label=f"c={each}", concurrency=each, requests=asked.requests)
            for each in asked.concurrency
        ),
        wish=WorkloadWish(tokens_in=asked.prompt_tokens, tokens_out=asked.max_tokens),
        seed=0,
        stamps="read",
        at=datetime.now(UTC),
        aa=False,
    )
    address = gateway.address or "http://127.0.0.1:8080"
    return RunPlan(asked, tuple(choices), announce(order), address, bool(snapshot.keys))


def _priced(choice: LaneChoice) -> Target:
    """A target as the command sees it: the gateway, with the price of what is behind it."""
    url = "http://127.0.0.1/v1"
    price = (Decimal(0), Decimal(0)) if choice.free else (choice.input, choice.output)
    known = None not in price
    return Target(
        name=f"{PROVIDER}/{choice.name}",
        provider=own_provider(PROVIDER, url),
        model=choice.name,
        base_url=url,
        rates=Rates(input=price[0], output=price[1]) if known else None,
    )


class _Running(NamedTuple):
    process: asyncio.subprocess.Process
    watching: asyncio.Task[None]


class RunDesk:
    """Starts benchmarks for one gateway."""

    def __init__(
        self, gateway: OwnGateway, clock: Clock, command: Sequence[str] = ("-m", "lightgate")
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._command = command
        self._running: dict[str, _Running] = {}
        self._starting = False

    def check(self, asked: RunAsked) -> RunPlan:
        """The benchmark that was asked for; UsageError says what is wrong with it."""
        plan = plan_run(self._gateway, asked)
        if plan.cost.total > max(ASK_ABOVE, asked.agreed_usd or Decimal(0)):
            dollars = rounded_up(plan.cost.total)
            raise UsageError(f"This run may cost {dollars} dollars: agree to that first.")
        return plan

    async def start(self, plan: RunPlan) -> RunStarted:
        """Start the process of a benchmark; Crowded where one runs already."""
        if self._running or self._starting:
            raise Crowded("A benchmark is under way; two at once would disturb each other.")
        reached = self._gateway.reached()
        self._starting = True
        try:
            now = wall_time(self._clock.wall_ns())
            id_ = f"console-{re.sub(r'[^0-9]', '', now)[:17]}"
            folder = (self._gateway.data / RUNS / id_).absolute()  # the process works in it
            folder.mkdir(parents=True)
            config = folder / "gateway.toml"
            config.write_text(plan.config(reached.base_url, keyed=bool(reached.credential)))
            words = plan.arguments()
            line = plan.line()
            note = RunNote(
                started=now,
                targets=tuple(choice.name for choice in plan.choices),
                loads=tuple(f"c={each}" for each in plan.asked.concurrency),
                total=plan.total,
                line=line,
                boot=BOOT,
            )
            write_note(folder, note)
            process = await asyncio.create_subprocess_exec(
                sys.executable, *self._command, "bench", *words,
                "--config", str(config), "--out", str(folder),
                cwd=folder,
                env=_environment(reached.credential),
                stdin=asyncio.subprocess.PIPE,  # it ends with this process
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            watching = asyncio.ensure_future(self._watch(id_, folder, note, process))
            self._running[id_] = _Running(process, watching)
        finally:
            self._starting = False
        return RunStarted(id=id_, line=line, total=plan.total, est_usd=plan.cost.total)

    async def stop(self, id_: str) -> None:
        """Interrupt a benchmark: what it measured is kept."""
        running = self._running.get(id_)
        if running is None:
            raise RunUnknown(f"{id_[:128]} does not run.")
        await _end(running)

    async def close(self) -> None:
        """End what runs."""
        for running in tuple(self._running.values()):
            await _end(running)

    async def _watch(
        self, id_: str, folder: Path, note: RunNote, process: asyncio.subprocess.Process
    ) -> None:
        """Read the log of a benchmark until it ends, and note how."""
        said: deque[str] = deque(maxlen=KEPT_LINES)
        if process.stderr is not None:
            async for raw in process.stderr:
                said.append(raw.decode("utf-8", "replace").rstrip()[:300])
        code = await process.wait()
        del self._running[id_]
        ended = msgspec.structs.replace(
            note, exit_code=code, said=tuple(line for line in said if line)
        )
        with contextlib.suppress(OSError):  # a full disk: the run's own record says how it ended
            write_note(folder, ended)


async def _end(running: _Running) -> None:
    process = running.process
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    done, _ = await asyncio.wait({running.watching}, timeout=STOP_S)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({running.watching})


def _environment(credential: str) -> dict[str, str]:
    """The environment of a benchmark: nothing of the console's secrets but its credential."""
    hidden = {CONSOLE_SECRET_ENV, CONSOLE_ENV}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    if credential:
        kept[KEY_ENV] = credential
    return {**kept, PARENT_DEATH_ENV: "1"}


def _bounded(asked: RunAsked) -> None:
    if not 1 <= len(asked.targets) <= MOST_TARGETS or len(set(asked.targets)) < len(asked.targets):
        raise UsageError(f"A run has 1 to {MOST_TARGETS} targets, each once.")
    loads = asked.concurrency
    if not 1 <= len(loads) <= MOST_LOADS or len(set(loads)) < len(loads):
        raise UsageError(f"A run has 1 to {MOST_LOADS} loads, each once.")
    if any(not 1 <= each <= MOST_CONCURRENCY for each in loads):
        raise UsageError(f"A load has 1 to {MOST_CONCURRENCY} requests in flight.")
    if not 1 <= asked.requests <= MOST_REQUESTS:
        raise UsageError(f"A load has 1 to {MOST_REQUESTS:,} requests.")
    for name in ("prompt_tokens", "max_tokens"):
        if not 1 <= getattr(asked, name) <= MOST_TOKENS:
            raise UsageError(f"{name.replace('_', ' ')} are 1 to {MOST_TOKENS:,}.")
