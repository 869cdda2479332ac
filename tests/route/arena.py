"""A small discrete-event world through which the real decisions are run, in virtual time.

Providers have lognormal times and speeds, stalls, failures, bad episodes and, if wanted, a load
curve. All policies of one world see the same draws.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Z95, Prior
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import SERVER
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.finish import ExpectedAnswer, Rival, waits_ns
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice

NS = 1_000_000_000
LAG_S = 0.1  # between closing a stream and its end at the provider


class Service(NamedTuple):
    """One provider: ttft p50 and p95 in ms, speed p50 and slow 5 %; by requests in flight."""

    curve: dict[int, tuple[float, float, float, float]]
    abort_stops: bool = True

    def at(self, flying: float) -> tuple[float, float, float, float]:
        """Log of ttft in seconds and its sigma, log of speed and its sigma."""
        points = sorted(self.curve.items())
        x = math.log2(max(flying, 1.0))
        rows = [_logs(*values) for _, values in points]
        if len(points) == 1:
            return rows[0]
        left = 0 if len(points) == 2 or x <= math.log2(points[1][0]) else 1
        low, high = math.log2(points[left][0]), math.log2(points[left + 1][0])
        w = (x - low) / (high - low)
        a, b = rows[left], rows[left + 1]
        return tuple(p + w * (q - p) for p, q in zip(a, b, strict=True))  # type: ignore[return-value]


def _logs(t50: float, t95: float, s50: float, s5: float) -> tuple[float, float, float, float]:
    return math.log(t50 / 1e3), math.log(t95 / t50) / Z95, math.log(s50), math.log(s50 / s5) / Z95


class World(msgspec.Struct, frozen=True, kw_only=True):
    services: tuple[Service, ...]
    requests: int = 3000
    rate: float = 0.5
    crowd: int | None = 8  # in flight, where the load is not our own
    weather: bool = False
    correlation: float = 0.0
    seed: int = 1
    tokens: int = 512
    tokens_in: int = 512
    stall: float = 0.01
    failure: float = 0.005
    episodes: tuple[tuple[int, float, float], ...] = ()  # provider, from, to (s): 5 x slower


class Draws:
    """The dice of a world, thrown once."""

    def __init__(self, world: World) -> None:
        rng = np.random.default_rng(world.seed)
        n, k, rho = world.requests, len(world.services), world.correlation
        self.at = np.cumsum(rng.exponential(1 / world.rate, n)).tolist()
        common = rng.standard_normal(n)[:, None] * math.sqrt(rho)
        self.ttft = (common + math.sqrt(1 - rho) * rng.standard_normal((n, k))).tolist()
        self.speed = rng.standard_normal((n, k)).tolist()
        self.stall = rng.random((n, k)).tolist()
        self.mid = rng.random((n, k)).tolist()
        self.fail = rng.random((n, k)).tolist()
        self.length = np.exp(math.log(4.0) + 0.7 * rng.standard_normal((n, k))).tolist()
        self.pick = rng.random(n).tolist()
        end = self.at[-1] + 60
        spells = world.weather
        self.bad = [self._spells(rng, end, 1800, 180) if spells else [] for _ in range(k)]
        self.shock = self._spells(rng, end, 7200, 180) if spells else []
        for place, since, until in world.episodes:
            self.bad[place].append((since, until))

    @staticmethod
    def _spells(rng: Any, end: float, good: float, bad: float) -> list[tuple[float, float]]:
        spells, at = [], 0.0
        while at < end:
            at += rng.exponential(good)
            spells.append((at, at + (length := rng.exponential(bad))))
            at += length
        return spells


class Leg:
    def __init__(self, place: int, role: str, began: float) -> None:
        self.place, self.role, self.began = place, role, began
        self.ok = False
        self.first = self.end = self.speed = 0.0
        self.deadline = math.inf
        self.over = self.spoke = False


class Arena:
    """One policy in one world; results in `ttft`, `done` (s), `first_place`, `duplicates`."""

    def __init__(self, world: World, policy: str = "fastest", **alias: Any) -> None:
        self.world, self.draws = world, Draws(world)
        self.names = tuple(f"p{place}/m" for place in range(len(world.services)))
        self.alias = Alias(name="m", targets=self.names, policy=policy, **alias)
        self.prices = {
            name: TargetPrice(100.0, 400.0, abort_stops=service.abort_stops)
            for name, service in zip(self.names, world.services, strict=True)
        }
        self.breakers = Breakers(Rules(), lambda: 0.5)
        self.budgets = HedgeBudgets()
        self.forms: Forms | None = None
        if policy != "ordered":
            self.forms = Forms(dict(zip(self.names, map(self.prior, world.services), strict=True)))
        n = world.requests
        self.ttft, self.done = [math.nan] * n, [math.nan] * n
        self.first_place = [-1] * n
        self.duplicates = self.failures = 0
        self.loser_nano = self.winner_nano = self.probe_nano = 0.0
        self.flying = [0] * len(world.services)
        self.legs: list[list[Leg]] = [[] for _ in range(n)]
        self.plans: list[Any] = [None] * n
        self.left: list[list[Any]] = [[] for _ in range(n)]
        self.winner: list[Leg | None] = [None] * n
        self.events: list[Any] = []
        self.order = 0

    def prior(self, service: Service) -> Prior:
        mu, sigma, speed, spread = service.at(self.world.crowd or 8)
        return Prior(
            math.exp(mu) * 1e3,
            math.exp(mu + Z95 * sigma) * 1e3,
            math.exp(speed),
            math.exp(speed - Z95 * spread),
        )

    def push(self, at: float, act: Any, *args: Any) -> None:
        self.order += 1
        heapq.heappush(self.events, (at, self.order, act, args))

    def run(self) -> Arena:
        for number, at in enumerate(self.draws.at):
            self.push(at, self.arrive, number)
        if self.forms is not None:
            self.push(0.0, self.probe)
        while self.events:
            now, _, act, args = heapq.heappop(self.events)
            act(now, *args)
        return self

    # Providers

    def outcome(self, number: int, place: int, now: float) -> tuple[bool, float, float]:
        """Whether it answers, seconds to that, and its speed."""
        draws, world = self.draws, self.world
        mu, sigma, speed, spread = world.services[place].at(world.crowd or self.flying[place])
        bad = any(a <= now < b for a, b in draws.bad[place])
        shock = any(a <= now < b for a, b in draws.shock)
        if draws.fail[number][place] < (world.failure * 10 if bad else world.failure):
            return False, 0.15, 0.0
        if draws.fail[number][place] > 0.999:
            return False, 10.0, 0.0
        ttft = math.exp(mu + sigma * draws.ttft[number][place])
        ttft *= (5.0 if bad else 1.0) * (2.0 if shock else 1.0)
        if draws.stall[number][place] < world.stall * (5 if bad else 1):
            ttft += draws.length[number][place]
        tps = math.exp(speed + spread * draws.speed[number][place]) * (0.6 if bad else 1.0)
        return ttft <= 10.0, min(ttft, 10.0), tps

    # A request

    def arrive(self, now: float, number: int) -> None:
        world = self.world
        ask = PlanAsk(
            alias=self.alias,
            tokens_in=world.tokens_in,
            max_tokens=world.tokens,
            expected_tokens=world.tokens,
            prices=self.prices,
        )
        self.budgets.deposit("")
        plan = decide(
            ask, self.breakers, int(now * NS), self.draws.pick[number], self.forms, self.budgets
        )
        self.plans[number] = plan
        self.left[number] = list(plan.steps)
        self.first_place[number] = self.names.index(plan.steps[0].target)
        self.step(now, number)
        while self.left[number] and self.left[number][0].role == "racer":
            if self.budgets.take("", "racer", plan.reserve_nano, plan.own_nano):
                self.duplicates += 1
                self.step(now, number)
            else:
                break
        if plan.hedge_ns is not None:
            self.push(now + plan.hedge_ns / NS, self.hedge, number)

    def hedge(self, now: float, number: int) -> None:
        flying = [leg for leg in self.legs[number] if not leg.over]
        if self.winner[number] is not None or not flying or len(self.legs[number]) > 1:
            return
        if self.budgets.take("", "hedge", self.plans[number].reserve_nano):
            self.duplicates += 1
            self.step(now, number)

    def step(self, now: float, number: int) -> None:
        """Start the next step."""
        step = self.left[number].pop(0)
        leg = Leg(self.names.index(step.target), step.role, now)
        self.legs[number].append(leg)
        self.flying[leg.place] += 1
        self.breakers.started(step.target, int(now * NS))
        if self.forms is not None:
            self.forms.started(step.target, int(now * NS))
        leg.ok, after, leg.speed = self.outcome(number, leg.place, now)
        deadline = math.inf if step.ttft_ns is None else step.ttft_ns / NS
        if after > deadline:
            leg.ok, after = False, deadline
        leg.first = now + after
        self.push(leg.first, self.speak if leg.ok else self.fail, number, leg)

    def speak(self, now: float, number: int, leg: Leg) -> None:
        if leg.over:
            return
        leg.spoke = True
        name, ns = self.names[leg.place], int(now * NS)
        self.breakers.spoke(name, ns, int(leg.began * NS))
        if self.forms is None:
            self.commit(now, number, leg)
            return
        self.forms.first(name, 0, ns, ns - int(leg.began * NS))
        if any(other.spoke for other in self.legs[number] if other is not leg):
            self.commit(now, number, leg)
        else:
            self.hold(now, number, leg)

    def hold(self, now: float, number: int, leg: Leg) -> None:
        if self.winner[number] is not None or leg.over or self.forms is None:
            return
        silent = [other for other in self.legs[number] if not (other.over or other.spoke)]
        until = None
        if self.plans[number].finish == "whole" and silent:
            rivals = [Rival(self.names[o.place], int(o.began * NS)) for o in silent]
            spoke = Rival(self.names[leg.place], int(leg.first * NS))
            until = waits_ns(
                spoke, rivals, self.forms, ExpectedAnswer(0, self.world.tokens), int(now * NS)
            )
        if until is None:
            self.commit(now, number, leg)
        else:
            self.push(max(now, until / NS), self.hold, number, leg)

    def commit(self, now: float, number: int, leg: Leg) -> None:
        if self.winner[number] is not None or leg.over:
            return
        self.winner[number] = leg
        self.ttft[number] = now - self.draws.at[number]
        for other in self.legs[number]:
            if other is not leg and not other.over:
                self.lose(now, number, other)
        mid = self.draws.mid[number][leg.place] < 0.005
        stall = self.draws.length[number][leg.place] if mid else 0.0
        leg.end = max(now, leg.first + self.world.tokens / leg.speed + stall)
        self.push(leg.end, self.finish, number, leg)

    def close(self, leg: Leg, now: float) -> None:
        leg.over = True
        self.flying[leg.place] -= 1
        if self.forms is not None:
            self.forms.ended(self.names[leg.place], int(leg.began * NS), int(now * NS))

    def lose(self, now: float, number: int, leg: Leg) -> None:
        self.close(leg, now)
        name, world = self.names[leg.place], self.world
        if self.forms is not None and not leg.spoke:
            self.forms.waited(name, 0, int(now * NS), int(now * NS) - int(leg.began * NS))
        out = 0.0
        if leg.ok:
            out = min(max(0.0, (now + LAG_S - leg.first) * leg.speed), world.tokens)
            if not world.services[leg.place].abort_stops:
                out = world.tokens
        nano = self.prices[name].nano(world.tokens_in, int(out)) if leg.ok else 0.0
        self.loser_nano += nano
        role = "racer" if leg.role == "racer" else "hedge"
        self.budgets.settle("", role, self.plans[number].reserve_nano, nano)  # type: ignore[arg-type]

    def fail(self, now: float, number: int, leg: Leg) -> None:
        if leg.over:
            return
        self.close(leg, now)
        name, ns = self.names[leg.place], int(now * NS)
        self.breakers.failed(name, ns, SERVER, None, int(leg.began * NS))
        if self.forms is not None:
            self.forms.failed(name, 0, ns, SERVER, None)
        if self.winner[number] is None and all(other.over for other in self.legs[number]):
            if self.left[number]:
                self.step(now, number)
            else:
                self.failures += 1

    def finish(self, now: float, number: int, leg: Leg) -> None:
        name, ns = self.names[leg.place], int(now * NS)
        if self.forms is not None:
            decode = int((leg.end - leg.first) * NS)
            took = ns - int(leg.began * NS)
            self.forms.finished(name, ns, self.world.tokens, decode, took)
        self.close(leg, now)
        self.done[number] = now - self.draws.at[number]
        nano = self.prices[name].nano(self.world.tokens_in, self.world.tokens)
        self.winner_nano += nano
        self.budgets.paid("", nano)
        self.breakers.succeeded(name, ns, int(leg.began * NS))

    # Probes: what the gateway does beside the traffic

    def probe(self, now: float) -> None:
        if self.forms is None or now > self.draws.at[-1]:
            return
        for name in self.forms.stale(int(now * NS), 30 * NS):
            place = self.names.index(name)
            number = int(now * 7.3 + place * 13) % self.world.requests
            ok, after, _ = self.outcome(number, place, now)
            self.probe_nano += self.prices[name].nano(16, 1)
            self.push(now + after, self.probed, name, ok, after)
        self.push(now + 1.0 + 30.0 * (not self.names), self.probe)

    def probed(self, now: float, name: str, ok: bool, after: float) -> None:
        assert self.forms is not None
        if ok:
            self.forms.first(name, 0, int(now * NS), int(after * NS))
        else:
            self.forms.failed(name, 0, int(now * NS), SERVER, None)

    # Results

    def quantiles(self, values: list[float]) -> tuple[float, float, float]:
        p50, p95, p99 = np.nanquantile(values, (0.5, 0.95, 0.99))
        return float(p50), float(p95), float(p99)

    @property
    def slow(self) -> float:
        """The share of first tokens after more than a second."""
        return float(np.nanmean(np.array(self.ttft) > 1.0))

    @property
    def duplicate_share(self) -> float:
        return self.duplicates / self.world.requests
