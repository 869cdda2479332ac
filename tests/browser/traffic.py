"""Two weeks of traffic in a ledger: the same every time but for the day on which it ends.

Names have signs that addresses, markup and spreadsheets read in their own way, so every page that
shows a name shows that it takes it for a text.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

from ledger.notes import MS, Called, attempt_note, exchange_note
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage
from lightgate.clock.tokens import count as count_tokens
from lightgate.errors import PeerReset, RateLimited
from lightgate.ledger.store import schema
from lightgate.ledger.store.rollup import Rollup
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote

DAY_S = 86_400
HOSTILE = "x/<img src=q onerror=window.hit=1>'\"&#%2F//=1+1"
KEYS = ("key-app", "key-etl", "key-<b>")
TAGS = ('{"team":"search"}', '{"team":"mail"}', None)


class Speed(NamedTuple):
    """A target: its first token, its gap between bursts, its price of an answer, its failures."""

    target: str
    first_ms: float
    gap_ms: float
    nano_usd: int
    failing: float = 0.0
    share: float = 1.0


SPEEDS = (
    Speed("sim-groq/mixtral", 105, 2.0, 21_000, 0.002),
    Speed("sim-together/mixtral", 215, 8.6, 8_000, 0.03),
    Speed("sim-runpod-h100/mistral-7b", 44, 10.7, 6_000),
    Speed("sim-lambda-h100/mistral-7b", 51, 11.2, 7_000),
    Speed("sim-openai/gpt-4-turbo", 230, 19.0, 683_000, 0.004),
    Speed("sim-anthropic/claude-opus-4.6", 360, 26.0, 845_000),
    Speed("sim-google/gemini-1.5-pro", 176, 17.0, 91_000, 0.01),
    Speed("sim-home-4090/7b-quantized", 62, 12.0, 900),
    Speed(HOSTILE, 400, 40.0, 1_000, 0.2, 0.05),
)


def fill(data: Path, now_s: int, count: int = 3000, *, hostile: bool = True) -> None:
    """Write the exchanges, the newest of the last minutes, and the sums by which they are shown."""
    draw = random.Random(16)  # noqa: S311 - the same traffic every time
    rollup = Rollup()
    exchanges: list[ExchangeNote] = []
    attempts: list[AttemptNote] = []
    weights = [speed.share if hostile or speed.target != HOSTILE else 0.0 for speed in SPEEDS]
    for number in range(count):
        age_s = 14 * DAY_S * (1 - (number + 1) / count) ** 2  # more of it lies in the last days
        wall_ns = int((now_s - 60 - age_s) * 1e9)
        speed = draw.choices(SPEEDS, weights)[0]
        made = f"{number:032x}"
        exchange, notes = _one(made, speed, wall_ns, draw)
        rollup.add(exchange, notes)
        exchanges.append(exchange)
        attempts.extend(notes)
    with Ledger.open("sqlite", data) as ledger, ledger.writing() as connection:
        ledger.insert(connection, schema.exchange_notes, [one.row(1) for one in exchanges])
        ledger.insert(connection, schema.attempt_notes, [one.row() for one in attempts])
        rollup.write(ledger, connection)


def _one(
    made: str, speed: Speed, wall_ns: int, draw: random.Random
) -> tuple[ExchangeNote, tuple[AttemptNote, ...]]:
    hour = wall_ns // 10**9 % DAY_S / 3600
    busy = 1 + 0.35 * max(0.0, math.sin((hour - 6) / 24 * 2 * math.pi))  # slower by day
    failed = draw.random() < speed.failing
    marks = Marks(5_000 * MS)
    marks.send = 5_000 * MS + MS * 3 // 10
    marks.headers = marks.send + 29 * MS
    marks.tcp_ns, marks.tls_ns, marks.pool_wait_ns = 2 * MS, 6 * MS, MS // 2
    stamp = marks.send + int(speed.first_ms * busy * draw.lognormvariate(0, 0.25) * MS)
    tokens = 0
    for _ in range(0 if failed else draw.randint(20, 60)):
        marks.burst(stamp, stamp - 5_000, 4, 16)
        tokens += 4
        stamp += int(4 * speed.gap_ms * busy * draw.uniform(0.7, 1.3) * MS)
    if not failed:
        marks.answer = marks.event = marks.first
    marks.end = marks.last or stamp
    provider, _, model = speed.target.partition("/")
    about = {"target": speed.target, "provider": provider, "model": model, "wall_ns": wall_ns}
    asked = draw.choice((120, 900, 9000, 40_000))
    called = Called(tokens=count_tokens(marks, Usage(tokens_in=asked, tokens_out=tokens)))
    if failed:
        limited = draw.random() < 0.5
        error = RateLimited("Too many requests.") if limited else PeerReset("It <b>broke</b>.")
        outcome = Outcome.RATE_LIMITED if limited else Outcome.RESET
        called = Called(outcome=outcome, error=error, status=429 if limited else None)
    first = attempt_note(
        made, marks, called, id=f"{made}.0", cost_nano=0 if failed else speed.nano_usd, **about
    )
    end = marks.end or stamp
    exchange = exchange_note(
        made, model_asked=model, plan=speed.target, key_id=draw.choice(KEYS), wall_ns=wall_ns,
        winner=None if failed else speed.target, tags=draw.choice(TAGS),
        outcome="ok" if not failed else first.outcome, status=502 if failed else 200,
        sent_ns=marks.send, first_in_ns=None if failed else marks.first, first_out_ns=marks.first,
        last_in_ns=None if failed else marks.last, last_out_ns=None if failed else end + MS // 10,
        closed_ns=end + MS, tokens_in=asked,
        tokens_out=tokens, cost_nano=0 if failed else speed.nano_usd,
    )  # fmt: skip
    return exchange, (first,)
