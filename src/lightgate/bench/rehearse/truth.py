"""The truth of a rehearsal: the fate of every request at every target, drawn before any decision.

All policies meet the same draws: those of request i at target j never depend on what else was
sent where. What does depend on it is what must: the load, a queue, a rate limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from lightgate.route.health.failure import RATE_LIMITED, by_status
from lightgate.sim.capacity import Bucket, Slots
from lightgate.sim.weather import Dice, Parameters, Sky, SpeedCurve, Spells

if TYPE_CHECKING:
    from lightgate.bench.rehearse.scene import Scene, SlowSpell
    from lightgate.route.health.failure import Failure
    from lightgate.sim.world import Weather, WorldModel, WorldProvider

NS: Final = 1_000_000_000
BORN_NS: Final = 1_000 * NS  # the instant at which a rehearsal's clock starts
NEVER_NS: Final = 1 << 62
FAILED: Final = by_status(503)
_NORMALS: Final = 4
_UNIFORMS: Final = 4


class Fate(NamedTuple):
    """The fate of an attempt that is not ended early; durations in nanoseconds from its start.

    `failure` at `first_ns` instead of a first token; a hang has NEVER_NS and no failure.
    """

    first_ns: int
    decode_ns: int
    tps: float
    tokens: int = 0
    failure: Failure | None = None
    wait_s: float | None = None
    slot: tuple[int, int] | None = None


class Truth(Protocol):
    """The truth of one run; `place` is that of the target in the scene's offers."""

    def fate(self, request: int, place: int, now_ns: int, tokens_out: int) -> Fate:
        """Decide the fate of an attempt that starts now, and count it as in flight."""
        ...

    def over(self, place: int, fate: Fate, now_ns: int, *, gone: bool) -> None:
        """Take in that an attempt has ended; `gone`: it was closed by us."""

    def probed(self, request: int, place: int, now_ns: int) -> Fate:
        """Decide the fate of a probe of one token, by the dice of this request."""
        ...

    def outlook(self, place: int, now_ns: int) -> tuple[float, float]:
        """The median TTFT (s) and speed of an attempt of now, which only an oracle knows."""
        ...


class SeedDraws(NamedTuple):
    """One seed's traffic and draws, shared by all policies."""

    seed: int
    arrivals_ns: list[int]
    tokens_in: list[int]
    tokens_out: list[int]
    draws: list[float]
    dice: list[list[DrawnDice]]


class DrawnDice(Dice):
    """The dice of one request at one target, thrown with all others up front."""

    __slots__ = ()

    def __init__(self, normals: list[float], uniforms: list[float]) -> None:  # not super's: no rng
        self.ttft, self.tps, self.stall_size, self.mid_size = normals
        self.fail, self.stall, self.mid, self.mid_at = uniforms
        self.fault = 1.0


def draw(scene: Scene, seed: int) -> SeedDraws:
    """Draw the traffic of a scene."""
    traffic, k = scene.traffic, len(scene.offers)
    n = traffic.requests
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 7))))
    arrivals = np.cumsum(rng.exponential(1.0 / traffic.rate, n))
    normals = rng.standard_normal((n, k, _NORMALS))
    shared = rng.standard_normal(n)
    rho = traffic.correlation
    normals[:, :, 0] = math.sqrt(rho) * shared[:, None] + math.sqrt(1.0 - rho) * normals[:, :, 0]
    uniforms = rng.random((n, k, _UNIFORMS))
    pairs = zip(normals.tolist(), uniforms.tolist(), strict=True)
    return SeedDraws(
        seed,
        [BORN_NS + int(at) for at in (arrivals * NS).tolist()],
        [traffic.tokens_in] * n,
        [traffic.tokens_out] * n,
        rng.random(n).tolist(),
        [[DrawnDice(a, b) for a, b in zip(zs, us, strict=True)] for zs, us in pairs],
    )


class _SimulatedTarget:
    """One target of a world as the simulator has it."""

    def __init__(self, scene: Scene, place: int, seed: int) -> None:
        offer = scene.offers[place]
        maker: WorldProvider = scene.world.providers[offer.provider]
        self.model: WorldModel = maker.models[offer.target.partition("/")[2]]
        self.provider = offer.provider
        self.load = scene.load or maker.load
        weather = maker.weather or scene.world.weather
        self.weather: Weather | None = weather
        self.sky = Sky(weather, seed, offer.provider)
        self.spells = (
            None
            if weather is None
            else Spells(seed, offer.provider, weather.good_mean_s, weather.bad_mean_s)
        )
        self.turns: list[SlowSpell] = [turn for turn in scene.turns if turn.target == offer.target]
        self._curve = SpeedCurve(self.model.curve) if self.model.curve else None
        self._at: dict[int, Parameters] = {}

    def at(self, load: int) -> Parameters:
        """The parameters with so many in flight."""
        found = self._at.get(load)
        if found is None:
            found = _exact(self.model) if self._curve is None else self._curve.at(load)
            self._at[load] = found
        return found

    def turned(self, second: float) -> tuple[float, float]:
        """Factors by which the target is slower to begin, and to go on, at this second."""
        for turn in self.turns:
            if turn.from_s <= second < turn.until_s:
                return turn.ttft, turn.speed
        return 1.0, 1.0


class WorldTruth:
    """A world of the simulator in virtual time, by the simulator's own models."""

    def __init__(self, scene: Scene, shared: SeedDraws) -> None:
        self._dice = shared.dice
        self._sites = [
            _SimulatedTarget(scene, place, shared.seed) for place in range(len(scene.offers))
        ]
        makers = scene.world.providers
        names = {offer.provider for offer in scene.offers}
        self._in_flight = dict.fromkeys(names, 0)
        self._slots = {name: Slots(makers[name].slots or 1) for name in names if makers[name].slots}
        rates = {name: makers[name].rate for name in names}
        self._buckets = {name: Bucket(rate) for name, rate in rates.items() if rate is not None}

    def fate(self, request: int, place: int, now_ns: int, tokens_out: int) -> Fate:
        """Decide the fate of an attempt that starts now, and count it as in flight."""
        site = self._sites[place]
        self._in_flight[site.provider] += 1
        return self._met(site, self._dice[request][place], now_ns, tokens_out)

    def over(self, place: int, fate: Fate, now_ns: int, *, gone: bool) -> None:
        """Take in that an attempt has ended; `gone`: it was closed by us."""
        provider = self._sites[place].provider
        self._in_flight[provider] -= 1
        if gone and fate.slot is not None:
            slot, until_ns = fate.slot
            self._slots[provider].release(slot, until_ns, now_ns)

    def probed(self, request: int, place: int, now_ns: int) -> Fate:
        """Decide the fate of a probe of one token, by the dice of this request."""
        return self.fate(request, place, now_ns, 1)

    def outlook(self, place: int, now_ns: int) -> tuple[float, float]:
        """The median TTFT (s) and speed of an attempt of now, regime and load included."""
        site = self._sites[place]
        at = site.at(site.load or self._in_flight[site.provider] + 1)
        second = (now_ns - BORN_NS) / NS
        slower, slow = site.turned(second)
        ttft, tps = math.exp(at.ttft_mu) * slower, math.exp(at.tps_mu) * slow
        if site.weather is not None and site.spells is not None and site.spells.bad_at(second):
            return ttft * site.weather.bad_ttft, tps * site.weather.bad_tps
        return ttft, tps

    def _met(self, site: _SimulatedTarget, dice: DrawnDice, now_ns: int, tokens_out: int) -> Fate:
        provider = site.provider
        bucket = self._buckets.get(provider)
        wait_s = None if bucket is None else bucket.take(now_ns)
        if wait_s is not None:
            return Fate(0, 0, 0.0, 0, RATE_LIMITED, float(int(wait_s) + 1))
        second = (now_ns - BORN_NS) / NS
        luck = site.sky.luck(site.at(site.load or self._in_flight[provider]), dice, second)
        if site.weather is not None and luck.fails:
            return Fate(round(site.weather.fail_s * NS), 0, 0.0, 0, FAILED)
        if luck.hangs:
            return Fate(NEVER_NS, 0, 0.0)
        first_ns, tps = luck.ttft_ns, luck.tps
        if site.turns:
            slower, slow = site.turned(second)
            first_ns, tps = round(first_ns * slower), tps * slow
        natural = site.model.shape.tokens
        tokens = tokens_out if natural is None else min(tokens_out, natural)
        stall_ns = luck.mid_stall_ns if tokens > 1 else 0
        decode_ns = int(tokens / tps * NS) + stall_ns
        slots = self._slots.get(provider)
        if slots is None:
            return Fate(first_ns, decode_ns, tps, tokens)
        slot, start_ns = slots.start(now_ns)
        until_ns = start_ns + first_ns + decode_ns
        slots.hold(slot, until_ns)
        return Fate(start_ns - now_ns + first_ns, decode_ns, tps, tokens, slot=(slot, until_ns))


def _exact(model: WorldModel) -> Parameters:
    """An exact script as a distribution without width."""
    from lightgate.bench.rehearse.scene import believed

    ttft_ms, _, speed, _ = believed(model, 1)
    return Parameters(math.log(ttft_ms / 1e3), 0.0, math.log(speed), 0.0)
