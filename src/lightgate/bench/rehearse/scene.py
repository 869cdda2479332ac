"""Scenes: which targets there are, what they cost and believe, and the traffic that meets them."""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.bench.rehearse.conditions import RequestKind, SceneConditions, service_s, token_s
from lightgate.errors import UsageError
from lightgate.provider.catalogue import catalogue
from lightgate.sim import world_file
from lightgate.sim.weather import SpeedCurve
from lightgate.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.sim.world import WorldModel, WorldProvider

NS: Final = 1_000_000_000
PRIOR_LOAD: Final = 8  # where a scene has no load of its own, priors are those of this one
PRICES: Final = (1.0, 4.0)  # dollars per million tokens in and out, where a world names none
CANCEL_LAG_S: Final = 0.1  # until a provider notices that a stream was closed
TTFT_TIMEOUT_NS: Final = 10 * NS
TIMEOUT_NS: Final = 120 * NS


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One target: its prices in dollars per million tokens, and what is believed beforehand.

    `bills_aborts`: a stream that we close is billed to its end.
    """

    target: str
    provider: str
    price_in: float
    price_out: float
    bills_aborts: bool
    ttft_ms: float
    ttft_p95_ms: float
    speed_tps: float
    speed_slow_tps: float


class SceneTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Poisson arrivals of requests; `correlation` is that of log-TTFTs.

    Answers have `tokens_out` tokens, or with a `spread` a lognormal number of which that is the
    median and `spread` the standard deviation of the logarithm. With `kinds` every request is one
    of those, and the sizes are theirs.
    """

    requests: int = 6000
    rate: float = 0.5
    tokens_in: int = 512
    tokens_out: int = 512
    spread: float = 0.0
    kinds: tuple[RequestKind, ...] = ()
    correlation: float = 0.0

    @property
    def mean_tokens(self) -> float:
        """The mean tokens of an answer."""
        if not self.kinds:
            return self.tokens_out * math.exp(self.spread**2 / 2.0)
        each = [(one.share, one.tokens_out * math.exp(one.spread**2 / 2.0)) for one in self.kinds]
        return sum(share * tokens for share, tokens in each) / sum(share for share, _ in each)

    @property
    def mean_prompt(self) -> float:
        """The mean tokens of a prompt."""
        if not self.kinds:
            return self.tokens_in
        shares = sum(one.share for one in self.kinds)
        return sum(one.share * one.tokens_in for one in self.kinds) / shares


class SlowSpell(msgspec.Struct, frozen=True, kw_only=True):
    """A target that is slower from one second to another, beside all weather."""

    target: str
    from_s: float
    until_s: float
    ttft: float = 5.0
    speed: float = 1.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A world and its traffic: all that a rehearsal needs beside the seed."""

    name: str
    title: str
    source: str
    world: World
    offers: tuple[Offer, ...]
    traffic: SceneTraffic = SceneTraffic()
    load: int | None = None  # None: what the world says, or as many as are in flight
    priced: bool = False  # whether the world itself names every price
    turns: tuple[SlowSpell, ...] = ()
    conditions: SceneConditions = SceneConditions()


class SceneChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a scene; None leaves a value as it is.

    `slots` are those of every provider, 0 for no queue; `share` is the traffic as a share of what
    all slots (or limits of requests in flight) together can serve, and stands for a rate.
    """

    targets: tuple[str, ...] = ()
    requests: int | None = None
    rate: float | None = None
    load: int | None = None
    correlation: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    slots: int | None = None
    share: float | None = None


class _SceneRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    world: str
    calm: bool = False
    without: tuple[str, ...] = ()
    load: int | None = None
    rate: float = 0.5
    share: float | None = None
    slots: int | None = None
    tokens_out: int | None = None
    spread: float = 0.0
    kinds: tuple[RequestKind, ...] = ()
    conditions: SceneConditions = SceneConditions()
    changes: dict[str, Any] = {}


@cache
def built_in() -> Mapping[str, _SceneRow]:
    """Read the scenes that come with Lightgate, by name."""
    text = resources.files("lightgate.bench.rehearse").joinpath("scenes.toml").read_text("utf-8")
    rows: dict[str, Any] = tomllib.loads(text)
    return MappingProxyType({name: msgspec.convert(row, _SceneRow) for name, row in rows.items()})


def scene(name: str, wish: SceneChanges | None = None) -> Scene:
    """Make a built-in scene, or one of the simulator's world of that name or in that file."""
    wish = wish or SceneChanges()
    entry = built_in().get(name)
    if entry is None:
        world = _world(name)
        return _staged(name, _SceneRow(world.title, world.name), world, wish)
    world = world_file.parse({"extends": entry.world, **entry.changes}, name)
    if entry.calm and world.weather is not None:
        sky = msgspec.structs.replace(world.weather, good_mean_s=math.inf, shock_every_s=math.inf)
        world = msgspec.structs.replace(world, weather=sky)
    return _staged(name, entry, world, wish)


def _world(name: str) -> World:
    try:
        return world_file.load(name)
    except UsageError as error:
        known = ", ".join((*built_in(), *world_file.shipped()))
        raise UsageError(error.message, hint=f"Name a TOML file or one of: {known}.") from None


def _staged(name: str, entry: _SceneRow, world: World, wish: SceneChanges) -> Scene:
    load = wish.load or entry.load
    slots = entry.slots if wish.slots is None else wish.slots
    if slots is not None:
        world = _with_slots(world, slots)
    offers = [
        _offer(provider, maker, title, model, load)
        for provider, maker in world.providers.items()
        for title, model in maker.models.items()
        if provider not in entry.without
    ]
    kept = _chosen(offers, wish.targets)
    priced = all(_model(world, offer.target).price is not None for offer in kept)
    made = Scene(
        name=name,
        title=entry.title,
        source=world.source,
        world=world,
        offers=tuple(kept if priced else [_unpriced(offer) for offer in kept]),
        traffic=_traffic(entry, wish),
        load=load,
        priced=priced,
        conditions=entry.conditions,
    )
    share = wish.share or (None if wish.rate else entry.share)
    if share is None:
        return made
    rate = share * capacity(made)
    traffic = msgspec.structs.replace(made.traffic, rate=rate)
    return msgspec.structs.replace(made, traffic=traffic)


def _traffic(entry: _SceneRow, wish: SceneChanges) -> SceneTraffic:
    usual = SceneTraffic()
    tokens_out = wish.tokens_out or entry.tokens_out or usual.tokens_out
    own = wish.tokens_in is not None or wish.tokens_out is not None
    return SceneTraffic(
        requests=wish.requests or usual.requests,
        rate=wish.rate or entry.rate,
        tokens_in=wish.tokens_in or usual.tokens_in,
        tokens_out=tokens_out,
        spread=entry.spread,
        kinds=() if own else entry.kinds,
        correlation=wish.correlation or usual.correlation,
    )


def _with_slots(world: World, slots: int) -> World:
    makers = {
        name: msgspec.structs.replace(maker, slots=slots or None)
        for name, maker in world.providers.items()
    }
    return msgspec.structs.replace(world, providers=makers)


def capacity(made: Scene) -> float:
    """Return the requests a second that all targets of a scene can serve.

    By their slots, or limits in flight; where streams share a speed and there is neither, by what
    the streams of a very large batch have together.
    """
    total = 0.0
    tokens, conditions = made.traffic.mean_tokens, made.conditions
    for provider in dict.fromkeys(offer.provider for offer in made.offers):
        places = made.world.providers[provider].slots or conditions.most
        half = conditions.halved.get(provider)
        if places is None and half is None:
            raise UsageError(
                f"{provider} of the world {made.name!r} has no slots, so no share of its capacity.",
                hint="Give it slots, or name a rate.",
            )
        names = [one.target for one in made.offers if one.provider == provider]
        each = [_alone_s(_model(made.world, target)) for target in names]
        if places is None:
            total += (half or 0.0) * len(each) / sum(tokens * token for _, token in each)
            continue
        slower = 1.0 if half is None else 1.0 + (places - 1) / half
        reads_s = conditions.reads_s(provider, made.traffic.mean_prompt)
        held = [reads_s + first + tokens * token * slower for first, token in each]
        total += places * len(held) / sum(held)
    return total


def _alone_s(model: WorldModel) -> tuple[float, float]:
    """Return the mean seconds of a model's first token, and of each one behind it, alone there."""
    if model.curve:
        at = SpeedCurve(model.curve).at(1)
        return service_s(at, 0.0), token_s(at)
    ttft_ms, _, speed, _ = believed(model, 1)
    return ttft_ms / 1e3, 1.0 / speed


def _chosen(offers: list[Offer], wanted: tuple[str, ...]) -> list[Offer]:
    """Keep the offers that were named, by target or by provider, in the order of the names."""
    if not wanted:
        return offers
    found = []
    for name in wanted:
        here = [offer for offer in offers if name in {offer.target, offer.provider}]
        if not here:
            known = ", ".join(offer.target for offer in offers)
            raise UsageError(f"This world has no target {name!r}.", hint=f"It has: {known}.")
        found += [offer for offer in here if offer not in found]
    return found


def _model(world: World, target: str) -> WorldModel:
    provider, _, title = target.partition("/")
    return world.providers[provider].models[title]


def _unpriced(offer: Offer) -> Offer:
    """Give an offer the price that all have where one of their prices is unknown."""
    return msgspec.structs.replace(offer, price_in=PRICES[0], price_out=PRICES[1])


def _offer(
    provider: str, maker: WorldProvider, title: str, model: WorldModel, load: int | None
) -> Offer:
    row = catalogue().get(provider)
    price = model.price
    ttft, ttft95, speed, slow = believed(model, load or maker.load or PRIOR_LOAD)
    return Offer(
        target=f"{provider}/{title}",
        provider=provider,
        price_in=PRICES[0] if price is None else float(price.input),
        price_out=PRICES[1] if price is None else float(price.output),
        bills_aborts=row is not None and row.abort.stops_billing is False,
        ttft_ms=ttft,
        ttft_p95_ms=ttft95,
        speed_tps=speed,
        speed_slow_tps=slow,
    )


def believed(model: WorldModel, load: int) -> tuple[float, float, float, float]:
    """Read a model's table at a load: p50 and p95 of TTFT (ms), speed and slow speed."""
    if model.exact is not None:
        gap = model.exact.gap_ms
        middle = sum(gap) / 2 if isinstance(gap, tuple) else gap
        speed = 1000.0 / max(middle, 1e-3)
        return model.exact.ttft_ms, model.exact.ttft_ms, speed, speed
    at = SpeedCurve(model.curve).at(load)
    spread, slower = math.exp(1.6448536 * at.ttft_sigma), math.exp(1.6448536 * at.tps_sigma)
    ttft, speed = 1000.0 * math.exp(at.ttft_mu), math.exp(at.tps_mu)
    return ttft, ttft * spread, speed, speed / slower
