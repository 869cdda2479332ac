"""Random worlds of prices: what a second attempt may cost there, by losers and dearer winners."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bench.rehearse.stages import played, policy
from lightgate.bench.rehearse.conditions import RequestKind
from lightgate.bench.rehearse.rehearse import WorldSource
from lightgate.bench.rehearse.scene import SceneChanges, scene
from lightgate.sim.world import LoadPoint, Weather, WorldModel, WorldPrice, WorldProvider

if TYPE_CHECKING:
    import random

CAPPED = ("chat", "fastest", "voice", "cheapest", "balanced", "coding", "agent")
CAP = 0.10  # of all spend: the cap of hedges


class Spent(NamedTuple):
    """Where the money of one run went, in shares of all of it."""

    policy: str
    hedge: str
    losers: float
    premiums: float
    duplicates: float
    requests: int

    @property
    def extra(self) -> float:
        """Spend beyond what the planned targets alone would have cost."""
        return self.losers + self.premiums


def a_world(dice: random.Random) -> WorldSource:
    """Two to five targets whose prices differ a hundredfold, with stalls, and some traffic."""
    made = scene("dear", SceneChanges(requests=dice.choice((50, 100, 200))))
    makers = {f"p{place}": _maker(dice) for place in range(dice.randint(2, 5))}
    world = msgspec.structs.replace(
        made.world, providers=makers, weather=Weather(stall=0.02, bad_mean_s=300.0)
    )
    offers = [
        msgspec.structs.replace(
            made.offers[0],
            target=f"{name}/m",
            provider=name,
            price_in=float(_price(maker).input),
            price_out=float(_price(maker).output),
            bills_aborts=dice.random() < 0.4,
            ttft_ms=maker.models["m"].curve[0].ttft_ms[0],
            ttft_p95_ms=maker.models["m"].curve[0].ttft_ms[1],
            speed_tps=maker.models["m"].curve[0].tps[0],
            speed_slow_tps=maker.models["m"].curve[0].tps[1],
        )
        for name, maker in makers.items()
    ]
    kinds = [
        RequestKind(
            key=f"k{number}",
            share=dice.uniform(0.1, 1.0),
            tokens_in=dice.choice((50, 500, 6000)),
            tokens_out=dice.choice((10, 200, 1200)),
            spread=dice.choice((0.0, 0.8)),
            max_tokens=dice.choice((None, 4000)),
        )
        for number in range(dice.randint(1, 3))
    ]
    traffic = msgspec.structs.replace(
        made.traffic, rate=dice.choice((0.2, 1.0, 5.0)), kinds=tuple(kinds)
    )
    return WorldSource(
        msgspec.structs.replace(made, world=world, offers=tuple(offers), traffic=traffic)
    )


def _maker(dice: random.Random) -> WorldProvider:
    ttft, speed = dice.uniform(100.0, 2000.0), dice.uniform(20.0, 300.0)
    dollars = 10.0 ** dice.uniform(-1.0, 1.0)
    point = LoadPoint(
        1, (ttft, ttft * dice.uniform(1.2, 4.0)), (speed, speed / dice.uniform(1.1, 2.0))
    )
    price = WorldPrice(
        Decimal(f"{dollars:.4f}"), Decimal(f"{dollars * dice.uniform(1.0, 8.0):.4f}")
    )
    return WorldProvider(models={"m": WorldModel(curve=(point,), price=price)})


def _price(maker: WorldProvider) -> WorldPrice:
    price = maker.models["m"].price
    assert price is not None
    return price


def spent(dice: random.Random) -> Spent:
    """Play one policy in one random world."""
    where = a_world(dice)
    name, hedge = dice.choice(CAPPED), dice.choice(("auto", "p75", "p95", "300ms"))
    tally = played(where, policy(name, hedge), dice.randrange(1000))
    bills, requests = tally.bills, tally.requests
    assert tally.ends == [1] * requests
    return Spent(
        name,
        hedge,
        bills.extra / bills.mixed,
        bills.premium / bills.mixed,
        tally.duplicates / requests,
        requests,
    )
