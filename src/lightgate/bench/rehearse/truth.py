"""The truth of a rehearsal: the fate of every request at every target, drawn before any decision.

All policies meet the same draws: those of request i at target j never depend on what else was
sent where. What does depend on it is what must: the load, a queue, a rate limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from lightgate.bench.rehearse.conditions import service_s
from lightgate.bench.rehearse.provider_load import ProviderLoad
from lightgate.route.health.failure import RATE_LIMITED, by_status
from lightgate.sim.weather import Dice, Parameters, Sky, SpeedCurve, Spells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.scene import Scene, SlowSpell
    from lightgate.route.health.failure import Failure
    from lightgate.sim.world import Weather, WorldModel, WorldProvider

NS: Final = 1_000_000_000
BORN_NS: Final = 1_000 * NS  # the instant at which a rehearsal's clock starts
NEVER_NS: Final = 1 << 62
REFUSED_NS: Final = 20_000_000  # until a refusal (429) is there
FAILED: Final = by_status(503)
PROBE: Final = (16, 1)  # tokens in and out
_NORMALS: Final = 4
_UNIFORMS: Final = 4


class Fate(NamedTuple):
    """The fate of an attempt that is not ended early; durations in nanoseconds from its start.

    `failure` at `first_ns` instead of a first token; a hang has NEVER_NS and no failure. `ticket`
    names the attempt to the truth; -1: it stands in no queue. `beyond`: more was in flight than the
    truth knows anything about. `open`: its end moves with the batch that it is in, and the truth
    says when it has come; until then `decode_ns` is what the answer would take alone.
    """

    first_ns: int
    decode_ns: int
    tps: float
    tokens: int = 0
    failure: Failure | None = None
    wait_s: float | None = None
    ticket: int = -1
    beyond: bool = False
    open: bool = False


class Outlook(NamedTuple):
    """What an oracle knows of an attempt of now, its own dice apart: seconds, tokens a second.

    `first_s` is the wait in the queue, which is exact, and the usual time behind it; infinite where
    the attempt would be refused. `wait_s` is its first part. `tps` is the speed in the batch that
    the attempt would meet, and `shared_s` the seconds of a token that are owed to that batch.
    """

    first_s: float
    tps: float
    wait_s: float = 0.0
    shared_s: float = 0.0


class Truth(Protocol):
    """The truth of one run; `place` is that of the target in the scene's offers."""

    def fate(self, request: int, place: int, now_ns: int, tokens_out: int) -> Fate:
        """Decide the fate of an attempt that starts now, and count it as in flight."""
        ...

    def over(self, place: int, fate: Fate, now_ns: int, *, gone: bool) -> Sequence[tuple[int, int]]:
        """Take in that an attempt has ended; `gone`: it was closed by us.

        Returns the tickets of attempts whose first token comes sooner by that, and by how much.
        """
        ...

    def next_ns(self, place: int) -> int | None:
        """Return when to ask next who has ended at a target of open ends; None: nobody there."""
        ...

    def ended(self, place: int, now_ns: int) -> Sequence[int]:
        """Return the tickets of open ends that have come by now."""
        ...

    def made(self, place: int, ticket: int, now_ns: int) -> float:
        """Return the share of an answer with an open end that is there by now."""
        ...

    def probed(self, request: int, place: int, now_ns: int) -> Fate:
        """Decide the fate of a probe of one token, by the dice of this request."""
        ...

    def outlook(self, place: int, now_ns: int, tokens_in: int) -> Outlook:
        """Return what only an oracle knows of an attempt of now, with a prompt of this size."""
        ...

    def busy(self, place: int, now_ns: int) -> int:
        """Return the requests that the target itself counts: served or waiting, of all tenants."""
        ...


class SeedDraws(NamedTuple):
    """One seed's traffic and draws, shared by all policies.

    `kinds` are the places of the requests' kinds in the scene's traffic, all 0 without kinds;
    `strangers` are the requests of other tenants by provider.
    """

    seed: int
    arrivals_ns: list[int]
    tokens_in: list[int]
    tokens_out: list[int]
    draws: list[float]
    dice: list[list[DrawnDice]]
    kinds: list[int]
    strangers: dict[str, list[tuple[int, int]]]


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
    draws = rng.random(n).tolist()
    kinds, tokens_in, tokens_out = _sizes(scene, seed)
    return SeedDraws(
        seed,
        [BORN_NS + int(at) for at in (arrivals * NS).tolist()],
        tokens_in,
        tokens_out,
        draws,
        [[DrawnDice(a, b) for a, b in zip(zs, us, strict=True)] for zs, us in pairs],
        kinds,
        _strangers(scene, seed, float(arrivals[-1]) if n else 0.0),
    )


def _sizes(scene: Scene, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Draw kinds, prompts and answers, from numbers that nothing else uses."""
    traffic = scene.traffic
    n = traffic.requests
    if not traffic.kinds and not traffic.spread:
        return [0] * n, [traffic.tokens_in] * n, [traffic.tokens_out] * n
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 13))))
    width = rng.standard_normal(n)
    if not traffic.kinds:
        tokens = np.maximum(1, np.rint(traffic.tokens_out * np.exp(traffic.spread * width)))
        return [0] * n, [traffic.tokens_in] * n, tokens.astype(int).tolist()
    shares = np.array([kind.share for kind in traffic.kinds])
    kinds: list[int] = rng.choice(len(shares), n, p=shares / shares.sum()).tolist()
    tokens_in, tokens_out = [], []
    for place, z in zip(kinds, width.tolist(), strict=True):
        kind = traffic.kinds[place]
        length = max(1, round(kind.tokens_out * math.exp(kind.spread * z)))
        tokens_in.append(kind.tokens_in)
        tokens_out.append(length if kind.max_tokens is None else min(length, kind.max_tokens))
    return kinds, tokens_in, tokens_out


def _strangers(scene: Scene, seed: int, length_s: float) -> dict[str, list[tuple[int, int]]]:
    """Draw the requests of other tenants: Poisson arrivals, and the time each holds a slot."""
    share, traffic = scene.conditions.strangers, scene.traffic
    found: dict[str, list[tuple[int, int]]] = {}
    if not share:
        return found
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 17))))
    for place, offer in enumerate(scene.offers):
        maker = scene.world.providers[offer.provider]
        if offer.provider in found or not maker.slots:
            continue
        at = _SimulatedTarget(scene, place, seed).at(1)
        rate = share * maker.slots / service_s(at, traffic.mean_tokens)
        count = rng.poisson(rate * length_s)
        when = np.sort(rng.random(count)) * length_s
        first = np.exp(at.ttft_mu + at.ttft_sigma * rng.standard_normal(count))
        speed = np.exp(at.tps_mu + at.tps_sigma * rng.standard_normal(count))
        tokens = traffic.mean_tokens * np.exp(
            traffic.spread * rng.standard_normal(count) - traffic.spread**2 / 2.0
        )
        held = first + tokens / speed
        found[offer.provider] = [
            (BORN_NS + int(begin * NS), int(length * NS))
            for begin, length in zip(when.tolist(), held.tolist(), strict=True)
        ]
    return found


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
        conditions = scene.conditions
        self.flaps = [one for one in conditions.flapping if one.provider == offer.provider]
        pareto = conditions.pareto
        self.reads_s = conditions.reads_s
        self.pareto = pareto if pareto and offer.provider in pareto.providers else None
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
        for flap in self.flaps:
            if flap.slow_at(second):
                return flap.ttft, flap.speed
        return 1.0, 1.0


class WorldTruth:
    """A world of the simulator in virtual time, by the simulator's own models."""

    def __init__(self, scene: Scene, shared: SeedDraws) -> None:
        self._dice = shared.dice
        self._tokens_in = shared.tokens_in
        self._sites = [
            _SimulatedTarget(scene, place, shared.seed) for place in range(len(scene.offers))
        ]
        self._tickets = 0
        end_ns = shared.arrivals_ns[-1] if shared.arrivals_ns else BORN_NS
        self._loads = {
            name: ProviderLoad(
                name,
                scene,
                BORN_NS,
                changes=_changes(scene, name, end_ns),
                strangers=shared.strangers.get(name, ()),
            )
            for name in {offer.provider for offer in scene.offers}
        }

    def fate(self, request: int, place: int, now_ns: int, tokens_out: int) -> Fate:
        """Decide the fate of an attempt that starts now, and count it as in flight."""
        return self._fate(request, place, now_ns, (self._tokens_in[request], tokens_out))

    def _fate(self, request: int, place: int, now_ns: int, size: tuple[int, int]) -> Fate:
        site = self._sites[place]
        self._tickets += 1
        load = self._loads[site.provider]
        wait_s = load.begins(now_ns)
        if wait_s is not None:
            return Fate(REFUSED_NS, 0, 0.0, 0, RATE_LIMITED, wait_s or None)
        return self._met(site, load, self._dice[request][place], now_ns, size)

    def over(self, place: int, fate: Fate, now_ns: int, *, gone: bool) -> Sequence[tuple[int, int]]:
        """Take in that an attempt has ended; `gone`: it was closed by us."""
        load = self._loads[self._sites[place].provider]
        refused = fate.failure is RATE_LIMITED
        return load.ends(fate.ticket, now_ns, refused=refused, gone=gone)

    def next_ns(self, place: int) -> int | None:
        """Return when the batch of a target changes next by itself."""
        batch = self._loads[self._sites[place].provider].batch
        return None if batch is None else batch.next_ns()

    def ended(self, place: int, now_ns: int) -> Sequence[int]:
        """Return the tickets whose answers have ended in the batch of a target."""
        batch = self._loads[self._sites[place].provider].batch
        return () if batch is None else batch.ended(now_ns)

    def made(self, place: int, ticket: int, now_ns: int) -> float:
        """Return the share of its answer that a request has in the batch of a target."""
        batch = self._loads[self._sites[place].provider].batch
        return 0.0 if batch is None else batch.made(ticket, now_ns)

    def probed(self, request: int, place: int, now_ns: int) -> Fate:
        """Decide the fate of a probe of one token, by the dice of this request."""
        return self._fate(request, place, now_ns, PROBE)

    def outlook(self, place: int, now_ns: int, tokens_in: int) -> Outlook:
        """Return what an oracle knows: regime, load, the queue and the limit, but no dice."""
        site = self._sites[place]
        load = self._loads[site.provider]
        at = site.at(site.load or load.in_flight + 1)
        second = (now_ns - BORN_NS) / NS
        slower, slow = site.turned(second)
        ttft, tps = math.exp(at.ttft_mu) * slower, math.exp(at.tps_mu) * slow
        weather = site.weather
        if weather is not None and site.spells is not None:
            bad = site.spells.bad_at(second)
            if bad:
                ttft, tps = ttft * weather.bad_ttft, tps * weather.bad_tps
            stalls = weather.stall * (weather.bad_stall if bad else 1.0)
            ttft += stalls * weather.stall_median_s * math.exp(weather.stall_sigma**2 / 2.0)
        ttft += site.reads_s(site.provider, tokens_in)
        if site.pareto is not None:
            ttft += site.pareto.mean_s()
        if load.refuses(now_ns):
            return Outlook(math.inf, tps)
        wait_s, slower = load.wait_ns(now_ns) / NS, load.slower(now_ns)
        return Outlook(wait_s + ttft, tps / slower, wait_s, (slower - 1.0) / tps)

    def busy(self, place: int, now_ns: int) -> int:
        """Return the requests that the provider itself counts."""
        return self._loads[self._sites[place].provider].busy(now_ns)

    def _met(
        self,
        site: _SimulatedTarget,
        load: ProviderLoad,
        dice: DrawnDice,
        now_ns: int,
        size: tuple[int, int],
    ) -> Fate:
        tokens_in, tokens_out = size
        second = (now_ns - BORN_NS) / NS
        luck = site.sky.luck(site.at(site.load or load.in_flight), dice, second)
        if site.weather is not None and luck.fails:
            return Fate(round(site.weather.fail_s * NS), 0, 0.0, 0, FAILED)
        if luck.hangs:
            return Fate(NEVER_NS, 0, 0.0)
        first_ns, tps = luck.ttft_ns, luck.tps
        if site.turns or site.flaps:
            slower, slow = site.turned(second)
            first_ns, tps = round(first_ns * slower), tps * slow
        if site.pareto is not None:
            first_ns += round(site.pareto.extra_s(dice.stall, dice.stall_size) * NS)
        first_ns += round(site.reads_s(site.provider, tokens_in) * NS)
        first_ns += load.starts_ns(now_ns)
        natural = site.model.shape.tokens
        tokens = tokens_out if natural is None else min(tokens_out, natural)
        stall_ns = luck.mid_stall_ns if tokens > 1 else 0
        decode_ns = int(tokens / tps * NS) + stall_ns
        first_ns += load.enter(self._tickets, now_ns, first_ns, decode_ns)
        shared = load.batch is not None
        ticket = self._tickets if shared or load.queue is not None else -1
        return Fate(first_ns, decode_ns, tps, tokens, ticket=ticket, open=shared)


def _changes(scene: Scene, provider: str, end_ns: int) -> list[tuple[int, int]]:
    """Return when a provider has other slots, and how many."""
    narrowed, slots = scene.conditions.narrowed, scene.world.providers[provider].slots
    if narrowed is None or slots is None or provider not in narrowed.providers:
        return []
    length_ns = end_ns - BORN_NS
    return [
        (BORN_NS + int(narrowed.since * length_ns), max(1, round(narrowed.slots * slots))),
        (BORN_NS + int(narrowed.until * length_ns), slots),
    ]


def _exact(model: WorldModel) -> Parameters:
    """An exact script as a distribution without width."""
    from lightgate.bench.rehearse.scene import believed

    ttft_ms, _, speed, _ = believed(model, 1)
    return Parameters(math.log(ttft_ms / 1e3), 0.0, math.log(speed), 0.0)
