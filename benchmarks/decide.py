"""What a decision costs, beside one msgspec decode of a 2 KB request in the same run.

Eight targets with form, prices, breakers and budgets; a thousand prepared moments, so that no two
decisions in a row see the same instant, draw or load. Exit code 6 if a limit is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from lightgate.route.alias import Alias
from lightgate.route.breaker import Breakers, Rules
from lightgate.route.decide import Ask, decide
from lightgate.route.form import Forms
from lightgate.route.hedge import HedgeBudgets, Price
from lightgate.route.prior import Prior
from lightgate.route.slo import Slo

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_US = 30.0
LIMIT_RATIO = 8.0
TARGETS = tuple(f"p{number}/m" for number in range(8))
POLICIES = ("fastest", "voice", "agent", "balanced", "cheapest", "batch", "ordered")
NS = 1_000_000_000


class Message(msgspec.Struct):
    """One message of a request."""

    role: str
    content: str


class Request(msgspec.Struct):
    """What a gateway must at least know of a chat request."""

    model: str
    messages: list[Message]
    max_tokens: int | None = None
    stream: bool = False
    temperature: float | None = None


def a_request() -> bytes:
    """A chat request of 2 KB."""
    text = 'The quick brown fox jumps over the lazy dog, and "nobody" minds.\n'
    turns = [{"role": ("user", "assistant")[turn % 2], "content": text * 7} for turn in range(4)]
    body = {"model": "fast", "messages": turns, "max_tokens": 512, "stream": True}
    return msgspec.json.encode(body)[:-1] + b',"temperature":0.2}'


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
        forms.finished(target, 0, now, 300, int(dice.lognormvariate(0.7, 0.2) * NS))
        breakers.succeeded(target, now, now)
        budgets.deposit("")
        budgets.paid("", 250_000.0)
    for target in TARGETS[:6]:
        forms.started(target, 0, 3600 * NS)
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
        slo=Slo(ttft_p95=900_000_000, speed_p50=80.0),
    )
    prices = {target: Price(100.0 - place, 400.0) for place, target in enumerate(TARGETS)}
    ask = Ask(alias=alias, tokens_in=500, max_tokens=512, streamed=True, prices=prices)
    dice = random.Random(2)  # noqa: S311 - the same every time
    moments = [(3600 * NS + dice.randrange(60 * NS), dice.random()) for _ in range(calls)]

    def all_moments() -> None:
        for now_ns, draw in moments:
            decide(ask, breakers, now_ns, draw, forms, budgets)

    all_moments()
    return [per_call_us(all_moments, 1) / calls for _ in range(rounds)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    body = a_request()
    decoder = msgspec.json.Decoder(Request)
    decoding = [
        per_call_us(lambda: decoder.decode(body), options.calls) for _ in range(options.rounds)
    ]
    plain = statistics.median(decoding)
    print(
        f"msgspec decode of {len(body)} bytes: {plain:.2f} us ({min(decoding):.2f} - {max(decoding):.2f})"
    )
    print("\n| policy | us | min - max | x decode |\n|---|---|---|---|")
    worst = 0.0
    for policy in POLICIES:
        found = decisions(policy, options.rounds, options.calls)
        middle = statistics.median(found)
        worst = max(worst, middle)
        print(
            f"| {policy} | {middle:.1f} | {min(found):.1f} - {max(found):.1f} | {middle / plain:.1f} |"
        )
    print(f"\nslowest: {worst:.1f} us (limit {LIMIT_US:.0f}), {worst / plain:.1f} x decode")
    return 6 if worst > LIMIT_US or worst / plain > LIMIT_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
