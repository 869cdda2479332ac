"""The cost of a signature (AWS Signature Version 4), beside the request that is signed.

For bodies of several sizes, in one run: `prepare` of the same request for a target with a bearer's
key and for one that signs, and the signature alone. A token of Google or Entra ID is measured too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

from lightgate.clock.source import SYSTEM
from lightgate.dialect.request import Message, Request
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.cloud.tokens import NS, AccessToken, TokenKeeper
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.provider.target import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "us-east-1",
}


def best_us(work: Callable[[], object], rounds: int, calls: int) -> float:
    """Microseconds of one call: the median of rounds."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(calls):
            work()
        found.append((time.perf_counter_ns() - began) / calls / 1000)
    return statistics.median(found)


def main() -> int:
    """Print one row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    signs = resolve("bedrock-claude/m", env=KEYS)
    plain = resolve("bedrock-claude/m", env=KEYS | {"AWS_BEARER_TOKEN_BEDROCK": "k"})
    signer = signs.signer
    if signer is None:
        raise SystemExit("the target does not sign")
    until = AccessToken(Secret("t" * 800), SYSTEM.wall_ns() + 3600 * NS)
    keeper = TokenKeeper("vertex", lambda: until)
    keeper.renew()
    print("| body | with a key | signed | ratio | the signature alone |")
    print("|---|---|---|---|---|")
    for size in SIZES:
        request = Request(
            model="m", messages=(Message(role="user", content="x" * size),), max_tokens=9
        )
        calls = max(1, min(2000, 40_000_000 // size))
        ask = Ask("POST", "h.example", "/anthropic/v1/messages", (), (b"x" * size,))
        key = best_us(lambda: prepare(plain, request), given.rounds, calls)  # noqa: B023 - at once
        sign = best_us(lambda: prepare(signs, request), given.rounds, calls)  # noqa: B023 - at once
        alone = best_us(lambda: signer.sign(ask), given.rounds, calls)  # noqa: B023 - at once
        print(
            f"| {size:,} B | {key:,.1f} µs | {sign:,.1f} µs | {sign / key:.2f} | {alone:,.1f} µs |"
        )
    ask = Ask("POST", "h.example", "/", (), ())
    token = best_us(lambda: keeper.sign(ask), given.rounds, 20_000)
    print(f"\nThe header with a token that is kept: {token:.2f} µs.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
