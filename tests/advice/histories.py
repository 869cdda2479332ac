"""Histories for advice: simulated clients and hosts, drawn from random parameters, in a ledger.

A history is made of a world (hosts and callers) and two seeds: the demand (when clients ask, how
long prompts and answers are, what is asked again) and the luck (how long hosts take). A change of
the world is played again with the same demand and other luck: what it then saves is the truth that
a predicted saving is held against. The code under test sees the ledger alone.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import tempfile
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from lightgate.clock.outcome import Outcome
from lightgate.config.notation import parse_duration
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.rollup import Rollup
from lightgate.ledger.store.schema import attempt_notes, exchange_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.advise.advice import Advice

NS: Final = 1_000_000_000
T0: Final = 1_790_000_100  # wall clock, seconds
DAY: Final = 86_400.0
MOOD_S: Final = 600.0


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A target: medians, spreads (of logarithms), dollars per million tokens."""

    name: str
    ttft_s: float
    speed: float
    price_in: float
    price_out: float
    ttft_spread: float = 0.25
    speed_spread: float = 0.1
    slope_s: float = 0.0001  # of the first token, per prompt token
    mood: float = 0.1
    failing: float = 0.0


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A client: how often it asks, for what, and how; a loop asks as soon as it is answered."""

    key: str
    model: str
    targets: tuple[str, ...]
    shares: tuple[float, ...]
    requests: int
    prompt: float = 600.0
    prompt_spread: float = 0.5
    answer: float = 250.0
    answer_spread: float = 0.5
    runaway: float = 0.0  # share of answers that go on
    runaway_tokens: int = 4096
    runaway_cut: bool = False  # they met a limit
    repeats: float = 0.0  # share of requests that were asked before
    repeat_s: float = 900.0  # how long ago, on average
    exact: bool = True
    loop: bool = False
    loop_gap_s: float = 0.05
    grows: bool = False  # every prompt has the last answer in it
    streamed: bool = True
    # What a change does:
    cap: int | None = None
    ttl_s: float | None = None
    at_once: int = 1


class SimWorld(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts, callers, and how long they go on."""

    hosts: tuple[Host, ...]
    callers: tuple[Caller, ...]
    days: float = 4.0

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)


class Call(msgspec.Struct, kw_only=True):
    """One request, as the truth has it; seconds since T0."""

    caller: str
    model: str
    target: str
    at_s: float
    tokens_in: int
    tokens_out: int
    ttft_s: float
    token_s: float
    usd: float
    print_: int
    cut: bool
    streamed: bool
    failed: bool = False
    job_s: float = 0.0  # that the loop got longer by it
    cached: bool = False

    @property
    def e2e_s(self) -> float:
        return 0.002 if self.cached else self.ttft_s + (self.tokens_out - 1) * self.token_s


class _Luck:
    """How long hosts take: lognormal around a mood that wanders."""

    def __init__(self, world: SimWorld, seed: int) -> None:
        self._rng = np.random.default_rng((seed, 2))
        count = int(world.days * DAY / MOOD_S) + 1000
        self._moods = {}
        for at, host in enumerate(world.hosts):
            steps = np.random.default_rng((seed, 3, at)).normal(0.0, 1.0, count)
            mood = np.zeros(count)
            for i in range(1, count):
                mood[i] = 0.9 * mood[i - 1] + np.sqrt(1.0 - 0.81) * steps[i]
            self._moods[host.name] = np.exp(host.mood * mood)

    def times(self, host: Host, at_s: float, tokens_in: int) -> tuple[float, float, bool]:
        mood = self._moods[host.name]
        now = float(mood[min(int(at_s / MOOD_S), len(mood) - 1)])
        first = (host.ttft_s + host.slope_s * tokens_in) * now
        first *= float(np.exp(self._rng.normal(0.0, host.ttft_spread)))
        token = now / host.speed * float(np.exp(self._rng.normal(0.0, host.speed_spread)))
        return first, token, bool(self._rng.random() < host.failing)


def simulate(world: SimWorld, demand: int, luck: int) -> list[Call]:
    """Play a world: every caller by itself, in the order of time."""
    calls: list[Call] = []
    chance = _Luck(world, luck)
    for place, caller in enumerate(world.callers):
        calls += _caller(world, caller, np.random.default_rng((demand, place)), chance)
    return sorted(calls, key=lambda call: call.at_s)


def _caller(world: SimWorld, caller: Caller, rng: np.random.Generator, chance: _Luck) -> list[Call]:
    n = caller.requests
    arrivals = np.sort(rng.random(n)) * world.days * DAY
    prompts = _lengths(rng, caller.prompt, caller.prompt_spread, n)
    answers = _lengths(rng, caller.answer, caller.answer_spread, n)
    away = rng.random(n) < caller.runaway
    answers = np.where(
        away, (caller.runaway_tokens * rng.uniform(0.8, 1.0, n)).astype(int), answers
    )
    prints = _prints(rng, caller, arrivals)
    hosts = rng.choice(len(caller.targets), n, p=np.array(caller.shares) / sum(caller.shares))
    calls: list[Call] = []
    now, prompt = float(arrivals[0]), int(prompts[0])
    kept: dict[int, float] = {}
    first_of: dict[int, int] = {}
    for at in range(n):
        same = first_of.setdefault(int(prints[at]), at)
        answer = int(answers[same])
        begins = now if caller.loop else float(arrivals[at])
        prompt = prompt + calls[-1].tokens_out if caller.grows and at % 40 else int(prompts[same])
        call = _call(world, caller, (caller.targets[hosts[at]], begins, prompt, answer), chance)
        call.cut = call.cut or bool(away[same] and caller.runaway_cut)
        call.print_ = int(prints[at])
        if caller.ttl_s is not None:
            _from_cache(call, kept, caller.ttl_s)
        call.job_s = (call.e2e_s + caller.loop_gap_s) / caller.at_once
        calls.append(call)
        now += call.job_s
        if at % 200 == 199:  # the job is over; the next one begins some hours later
            now += 3 * 3600.0
    return calls


def _call(
    world: SimWorld, caller: Caller, asked: tuple[str, float, int, int], chance: _Luck
) -> Call:
    target, at_s, prompt, answer = asked
    host = world.host(target)
    first, token, failed = chance.times(host, at_s, prompt)
    cut = caller.cap is not None and answer > caller.cap
    answer = min(answer, caller.cap or answer)
    usd = (prompt * host.price_in + answer * host.price_out) / 1e6
    return Call(
        caller=caller.key, model=caller.model, target=target, at_s=at_s, tokens_in=prompt,
        tokens_out=answer, ttft_s=first, token_s=token, usd=usd, print_=0, cut=cut,
        streamed=caller.streamed, failed=failed,
    )  # fmt: skip


def _from_cache(call: Call, kept: dict[int, float], ttl_s: float) -> None:
    until = kept.get(call.print_, -1.0)
    if call.at_s < until:
        call.cached, call.usd = True, 0.0
    else:
        kept[call.print_] = call.at_s + call.e2e_s + ttl_s


def _lengths(rng: np.random.Generator, median: float, spread: float, n: int) -> np.ndarray:
    return np.maximum(median * np.exp(rng.normal(0.0, spread, n)), 2).astype(int)


def _prints(rng: np.random.Generator, caller: Caller, arrivals: np.ndarray) -> np.ndarray:
    """Fingerprints: a repeat has that of a request some time before it."""
    found = (rng.integers(0, 2**61, len(arrivals)) << 1) | int(caller.exact)
    for at in np.flatnonzero(rng.random(len(arrivals)) < caller.repeats):
        back = arrivals[at] - rng.exponential(caller.repeat_s)
        before = int(np.searchsorted(arrivals, back)) if not caller.loop else int(at) - 5
        if 0 <= before < at:
            found[at] = found[before]
    return found


def keep_in(ledger: Ledger, calls: Sequence[Call], *, hourly: Sequence[str] = ()) -> None:
    """Write calls into a ledger, as a gateway would have; `hourly` are paid by the hour."""
    rollup, exchanges, attempts = Rollup(), [], []
    for number, call in enumerate(calls):
        exchange, attempt = notes_of(call, f"x-{number:07}")
        if attempt is not None and attempt.facts.provider in hourly:
            facts = msgspec.structs.replace(attempt.facts, cost_nano=None, cost_source="hourly")
            attempt = msgspec.structs.replace(attempt, facts=facts)
            exchange = msgspec.structs.replace(exchange, cost_nano=None, cost_source="hourly")
        tries = [] if attempt is None else [attempt]
        exchanges.append(exchange.row(len(tries)))
        attempts += [one.row() for one in tries]
        rollup.add(exchange, tries)
    with ledger.writing() as connection:
        ledger.insert(connection, exchange_notes, exchanges)
        ledger.insert(connection, attempt_notes, attempts)
        rollup.write(ledger, connection)


def notes_of(call: Call, made: str) -> tuple[ExchangeNote, AttemptNote | None]:
    """The notes of one call."""
    wall = int((T0 + call.at_s) * NS)
    send = int(call.at_s * NS) + 1_000_000
    first, last = send + int(call.ttft_s * NS), send + int(call.e2e_s * NS)
    nano = round(call.usd * 1e9)
    outcome = Outcome.RESET if call.failed else Outcome.OK
    exchange = ExchangeNote(
        made, made, call.caller, call.model, "weighted", call.target,
        None if call.failed else call.target, "hit" if call.cached else "off",
        502 if call.failed else 200, outcome.value, None, "openai-chat", call.streamed, wall,
        send - 2_000_000, send - 1_500_000, send - 1_000_000, send - 500_000, send, first,
        first + 100_000, last, last + 100_000, last + 200_000, call.tokens_in, call.tokens_out,
        0 if call.failed else nano, "list", None, None, 0, fingerprint=call.print_,
    )  # fmt: skip
    if call.cached:
        return exchange, None
    provider, _, model = call.target.partition("/")
    facts = NoteFacts(
        f"{made}.0", made, call.target, provider, model, "openai-chat", 0, "only", None,
        wall, 0 if call.failed else nano, "list", "2026-09-01",
    )  # fmt: skip
    streamed = call.streamed
    attempt = AttemptNote(
        facts, outcome, None if call.failed else 200, None, streamed,
        "length" if call.cut else "stop", 100, 100, send, send, send + 1000,
        first if streamed else None, first if streamed else None, first if streamed else None,
        None if call.failed else last, last, None, None, None, None, "kernel",
        None, None, 0, False, False, call.tokens_out, call.tokens_out if streamed else None,
        None, None, call.tokens_in, "usage", False, 1.0 if streamed else None,
        array("q", [first, last] if streamed else [last]).tobytes(), "marker",
    )  # fmt: skip
    return exchange, attempt


def empty_ledger(folder: Path) -> Ledger:
    """Open a new ledger in a folder: a copy of one whose tables were made once."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(_tables())
    return Ledger.open("sqlite", folder)


@functools.cache
def _tables() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with Ledger.open("sqlite", Path(folder)) as made, made.writing() as connection:
            connection.exec_driver_sql("SELECT 1")
        base = sqlite3.connect(Path(folder) / FILE)
        with contextlib.closing(base):
            base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (Path(folder) / FILE).read_bytes()


# What a change does


def changed(world: SimWorld, advice: Advice) -> SimWorld:
    """The world with an advice applied, by the words of the advice alone."""
    found = []
    for caller in world.callers:
        if caller.model != advice.model:
            found.append(caller)
        elif advice.kind == "output cap":
            cap = re.search(r"max_tokens\D+(\d+)", advice.apply)
            assert cap is not None
            found.append(msgspec.structs.replace(caller, cap=int(cap[1])))
        elif advice.kind == "caching":
            ttl = re.search(r'ttl = "(\w+)"', advice.apply)
            assert ttl is not None
            found.append(msgspec.structs.replace(caller, ttl_s=parse_duration(ttl[1]) / NS))
        elif advice.kind == "batching":
            many = re.search(r"; (\d+) at once", advice.finding)
            assert many is not None
            found.append(msgspec.structs.replace(caller, at_once=int(many[1])))
        else:
            there = tuple(advice.moves_to if t == advice.target else t for t in caller.targets)
            found.append(msgspec.structs.replace(caller, targets=there))
    return msgspec.structs.replace(world, callers=tuple(found))


class Totals(msgspec.Struct, frozen=True):
    """Seconds (of a loop: those that its jobs took) and dollars of a model's answered requests."""

    seconds: float
    usd: float


def totals(calls: Sequence[Call], model: str, *, job: bool = False) -> Totals:
    good = [call for call in calls if call.model == model and not call.failed]
    spent = [call.job_s if job else call.e2e_s for call in good]
    return Totals(float(np.sum(spent)), float(np.sum([call.usd for call in good])))


def truly_saved(world: SimWorld, advice: Advice, demand: int, luck: int) -> Totals:
    """What an advice saves when it is done: the same demand, and other luck in both worlds."""
    job = advice.kind == "batching"
    before = totals(simulate(world, demand, luck), advice.model, job=job)
    after = totals(simulate(changed(world, advice), demand, luck), advice.model, job=job)
    return Totals(before.seconds - after.seconds, before.usd - after.usd)


def said_saved(advice: Advice) -> Totals:
    """What an advice says that it would have saved in its history."""
    change, n = advice.change, advice.evidence.n
    assert change is not None
    return Totals(change.seconds_mean.value * n, change.dollars_per_1k.value * n / 1000.0)


# Worlds with random parameters


def clean(seed: int) -> SimWorld:
    """A world without waste: two hosts of one model that are alike, usual answers, no repeats."""
    rng = np.random.default_rng((seed, 40))
    hosts = _alike(rng, "llama-x")
    names = tuple(host.name for host in hosts)
    callers = [
        Caller(
            key=f"k-{at}", model="chat", targets=names, shares=(0.6, 0.4),
            requests=int(rng.integers(350, 700)), **_usual(rng),
        )
        for at in range(2)
    ]  # fmt: skip
    return SimWorld(hosts=hosts, callers=tuple(callers), days=float(rng.uniform(3, 10)))


def uncapped_and_repeated(seed: int) -> SimWorld:
    """Answers that run away, and prompts that are asked again and again."""
    rng = np.random.default_rng((seed, 41))
    hosts = _alike(rng, "llama-y")
    names = tuple(host.name for host in hosts)
    running = Caller(
        key="k-run", model="writer", targets=names, shares=(0.5, 0.5),
        requests=int(rng.integers(700, 1100)), runaway=float(rng.uniform(0.04, 0.1)),
        runaway_tokens=int(rng.integers(3000, 8000)), runaway_cut=bool(rng.random() < 0.5),
        **_usual(rng),
    )  # fmt: skip
    again = Caller(
        key="k-again", model="faq", targets=names, shares=(0.5, 0.5),
        requests=int(rng.integers(700, 1100)), repeats=float(rng.uniform(0.2, 0.6)),
        repeat_s=float(rng.uniform(600, 20_000)), exact=bool(rng.random() < 0.5), **_usual(rng),
    )  # fmt: skip
    return SimWorld(hosts=hosts, callers=(running, again), days=float(rng.uniform(3, 10)))


def slow_and_looping(seed: int) -> SimWorld:
    """A host that takes much longer for the same model, and a client that asks in a loop."""
    rng = np.random.default_rng((seed, 42))
    quick, slow = _alike(rng, "llama-z")
    factor = float(rng.uniform(1.8, 4.0))
    slow = msgspec.structs.replace(
        slow, ttft_s=slow.ttft_s * factor, speed=slow.speed / factor, slope_s=slow.slope_s * factor
    )
    mixed = Caller(
        key="k-chat", model="chat", targets=(quick.name, slow.name),
        shares=(1.0, float(rng.uniform(0.5, 1.5))), requests=int(rng.integers(700, 1100)),
        **_usual(rng),
    )  # fmt: skip
    loop = Caller(
        key="k-loop", model="classify", targets=(quick.name,), shares=(1.0,), loop=True,
        requests=int(rng.integers(400, 900)), loop_gap_s=float(rng.uniform(0.005, 0.1)),
        **_usual(rng),
    )  # fmt: skip
    return SimWorld(hosts=(quick, slow), callers=(mixed, loop), days=float(rng.uniform(3, 10)))


def dear(seed: int) -> SimWorld:
    """A host that costs several times as much for the same model, and is no faster."""
    rng = np.random.default_rng((seed, 43))
    cheap, costly = _alike(rng, "llama-w")
    factor = float(rng.uniform(1.8, 8.0))
    costly = msgspec.structs.replace(
        costly, price_in=costly.price_in * factor, price_out=costly.price_out * factor
    )
    mixed = Caller(
        key="k-chat", model="chat", targets=(cheap.name, costly.name),
        shares=(1.0, float(rng.uniform(0.5, 2.0))), requests=int(rng.integers(800, 1400)),
        **_usual(rng),
    )  # fmt: skip
    return SimWorld(hosts=(cheap, costly), callers=(mixed,), days=float(rng.uniform(3, 10)))


def _alike(rng: np.random.Generator, model: str) -> tuple[Host, Host]:
    ttft, speed = float(rng.uniform(0.15, 0.8)), float(rng.uniform(30, 200))
    price = float(rng.uniform(0.2, 3.0))

    def one(name: str) -> Host:
        return Host(
            name=f"{name}/{model}", ttft_s=ttft * float(rng.uniform(0.97, 1.03)),
            speed=speed * float(rng.uniform(0.98, 1.02)), price_in=price,
            price_out=price * 4, ttft_spread=float(rng.uniform(0.1, 0.4)),
            speed_spread=float(rng.uniform(0.05, 0.2)),
            slope_s=float(rng.uniform(0.00002, 0.0002)), mood=float(rng.uniform(0.02, 0.15)),
            failing=float(rng.uniform(0.0, 0.01)),
        )  # fmt: skip

    return one("north"), one("south")


def _usual(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "prompt": float(rng.uniform(100, 2000)),
        "prompt_spread": float(rng.uniform(0.2, 0.8)),
        "answer": float(rng.uniform(80, 500)),
        "answer_spread": float(rng.uniform(0.2, 0.7)),
    }


# Every kind of history, and the ids of the advice that its waste should get.
PLANTED: Final[dict[Callable[[int], SimWorld], tuple[str, ...]]] = {
    uncapped_and_repeated: ("cap:writer", "cache:faq"),
    slow_and_looping: ("other-target:chat:south/llama-z", "batch:classify:k-loop"),
    dear: ("other-target:chat:south/llama-w",),
    clean: (),
}
