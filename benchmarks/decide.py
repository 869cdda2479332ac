"""The cost of a decision, beside one msgspec decode of a 2 KB request in the same run.

Eight targets with form, prices, breakers and budgets. 100 requests a second: each decision is 10 ms
after the one before it, with another draw, and a first token has come from the target that was
chosen last, so that its prediction is made anew. "kept" is the same at 10,000 requests a second,
with plans that are kept for a few milliseconds; "observed" is what an answered request teaches
breakers, form and budgets. Exit code 6 if a limit is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.observe import Observer
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice
from lightgate.route.plan.kept import PlanCache

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_US = 30.0
LIMIT_RATIO = 8.0
TARGETS = tuple(f"p{number}/m" for number in range(8))
POLICIES = ("chat", "fastest", "voice", "agent", "balanced", "cheapest", "batch", "ordered")
NS = 1_000_000_000


def a_request() -> bytes:
    """A chat request of 2 KB: a system prompt, six turns, one tool."""
    text = 'Where is the parcel of "Ada" now? It left the depot on Monday,\nthey said. '
    turns = [{"role": ("user", "assistant")[turn % 2], "content": text * 3} for turn in range(6)]
    fields = {
        name: {"type": "string", "description": f"The {name} of the parcel."}
        for name in ("number", "carrier", "country")
    }
    function = {
        "name": "find_parcel",
        "description": "Find out where a parcel is.",
        "parameters": {"type": "object", "properties": fields, "required": ["number"]},
    }
    body = {
        "model": "fast",
        "messages": [{"role": "system", "content": "You answer in one sentence."}, *turns],
        "tools": [{"type": "function", "function": function}],
        "max_tokens": 512,
        "temperature": 0.2,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return msgspec.json.encode(body)


def a_gateway() -> tuple[Forms, Breakers, HedgeBudgets]:
    """Eight targets that have been used for an hour."""
    dice = random.Random(1)  # noqa: S311 - the same every time
    priors = {
        target: Prior(
            200.0 + 60 * place, 500.0 + 150 * place, 250.0 - 20 * place, 150.0 - 10 * place
        )
        for place, target in enumerate(TARGETS)
    }
    forms, breakers, budgets = Forms(priors), Breakers(Rules(), dice.random), HedgeBudgets()
    for second in range(3600):
        target = TARGETS[dice.randrange(8)]
        now = second * NS
        forms.first(target, 0, now, int(dice.lognormvariate(-1.2, 0.4) * NS))
        forms.finished(target, now, 300, int(dice.lognormvariate(0.7, 0.2) * NS))
        breakers.succeeded(target, now, now)
        budgets.deposit("")
        budgets.paid("", 250_000.0)
    for target in TARGETS[:6]:
        forms.started(target)
    return forms, breakers, budgets


def per_call_us(act: Callable[[], object], calls: int) -> float:
    """CPU microseconds of one call."""
    begun = time.process_time_ns()
    for _ in range(calls):
        act()
    return (time.process_time_ns() - begun) / calls / 1e3


def decisions(policy: str, rounds: int, calls: int) -> list[float]:
    forms, breakers, budgets = a_gateway()
    alias = Alias(
        name="fast",
        targets=TARGETS,
        policy=policy,
        hedge="auto",
        slo=ServiceLevels(ttft_p95=900_000_000, speed_p50=80.0),
    )
    prices = {target: TargetPrice(100.0 - place, 400.0) for place, target in enumerate(TARGETS)}
    ask = PlanAsk(alias=alias, tokens_in=500, max_tokens=512, prices=prices)
    dice = random.Random(2)  # noqa: S311 - the same every time
    draws = [dice.random() for _ in range(calls)]
    clock = [3600 * NS]

    def all_moments() -> None:
        now_ns, by_target = clock[0], forms.by_target
        for draw in draws:
            now_ns += 10_000_000
            plan = decide(ask, breakers, now_ns, draw, forms, budgets)
            by_target[plan.steps[0].target].until_ns = 0  # as its first token does
        clock[0] = now_ns

    all_moments()
    return [per_call_us(all_moments, 1) / calls for _ in range(rounds)]


def kept(rounds: int, calls: int) -> list[float]:
    """Plans of `fastest` at 10,000 requests a second, each for a key with a budget."""
    forms, breakers, budgets = a_gateway()
    alias = Alias(name="fast", targets=TARGETS, policy="fastest", hedge="auto")
    prices = {target: TargetPrice(100.0 - place, 400.0) for place, target in enumerate(TARGETS)}
    cache = PlanCache(breakers, forms, budgets)
    dice = random.Random(2)  # noqa: S311 - the same every time
    draws = [dice.random() for _ in range(calls)]
    clock = [3600 * NS]

    def all_moments() -> None:
        now_ns, by_target = clock[0], forms.by_target
        for draw in draws:
            now_ns += 100_000
            ask = PlanAsk(alias=alias, tokens_in=500, max_tokens=512, prices=prices, key="a")
            plan = cache.plan(ask, now_ns, draw)
            by_target[plan.steps[0].target].until_ns = 0  # as its first token does
        clock[0] = now_ns

    all_moments()
    return [per_call_us(all_moments, 1) / calls for _ in range(rounds)]


def observed(rounds: int, calls: int) -> list[float]:
    """All that one answered request reports: it arrives, begins, speaks, ends and is settled."""
    forms, breakers, budgets = a_gateway()
    observer = Observer(breakers, forms, budgets)
    plan = Alias(name="fast", targets=TARGETS).in_order
    dice = random.Random(2)  # noqa: S311 - the same every time
    seen = [(dice.choice(TARGETS), int(dice.lognormvariate(-1.2, 0.4) * NS)) for _ in range(calls)]
    clock = [3600 * NS]

    def all_moments() -> None:
        now_ns = clock[0]
        for target, ttft_ns in seen:
            now_ns += 10_000_000
            observer.arrived("a")
            observer.began(target, now_ns - 3 * NS - ttft_ns)
            observer.spoke(target, 0, now_ns - 3 * NS, now_ns - 3 * NS - ttft_ns)
            observer.succeeded(target, now_ns, now_ns - 3 * NS - ttft_ns, (300, 3 * NS))
            observer.settled("a", plan, (), 250_000.0, 0.0)
        clock[0] = now_ns

    all_moments()
    return [per_call_us(all_moments, 1) / calls for _ in range(rounds)]


def row(name: str, found: list[float], plain: float) -> float:
    """Print one row; return its median."""
    middle = statistics.median(found)
    spread = f"{min(found):.1f} - {max(found):.1f}"
    print(f"| {name} | {middle:.1f} | {spread} | {middle / plain:.1f} |")
    return middle


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    body = a_request()
    decode = msgspec.json.decode
    decoding = [per_call_us(lambda: decode(body), options.calls) for _ in range(options.rounds)]
    plain = statistics.median(decoding)
    spread = f"{min(decoding):.2f} - {max(decoding):.2f}"
    print(f"msgspec decode of {len(body)} bytes: {plain:.2f} us ({spread})")
    print("\n| policy | us | min - max | x decode |\n|---|---|---|---|")
    rounds, calls = options.rounds, options.calls
    worst = max([row(policy, decisions(policy, rounds, calls), plain) for policy in POLICIES])
    row("fastest, kept", kept(rounds, calls), plain)
    row("observed", observed(rounds, calls), plain)
    print(f"\nslowest: {worst:.1f} us (limit {LIMIT_US:.0f}), {worst / plain:.1f} x decode")
    return 6 if worst > LIMIT_US or worst / plain > LIMIT_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
