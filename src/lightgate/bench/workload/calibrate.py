"""Calibration: how many words make a prompt of so many tokens at one target.

No tokenizer is needed: made text has the same characters for the same number of words, so its
tokens grow with the words on a line. Two probes find the line, a third one verifies it, and where
it is off by more than a word can mend, the line is drawn again through what was seen.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.workload.prompts import CHARS_PER_WORD, INSTRUCTION, MIN_WORDS
from lightgate.clock.marks import Marks
from lightgate.clock.source import SYSTEM
from lightgate.clock.tokens import CHARS_PER_TOKEN, Usage
from lightgate.errors import AttemptError, HttpRefused, Unreachable
from lightgate.provider.call import call
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.dialect.request import Request
    from lightgate.provider.call import Called
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

    Ask = Callable[[int, int], Request]  # the number of a probe, its words

PROBE_TOKENS: Final = 16  # the least that every endpoint lets one ask for
CORRECTIONS: Final = 2  # probes after the verifying one, at most
MOST_PROBES: Final = 8  # in all, whatever is refused or fails: a run announces them
APART: Final = 32  # words between two probes that make a line
DEADLINES: Final = Deadlines(connect_s=10, first_byte_s=60, idle_s=60, total_s=90)


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The line from words to prompt tokens at one target, and what finding it took.

    `overhead` are the tokens of a prompt without a word: template and instruction. Where
    `calibrated` is false the line is a guess from the characters and `note` says why; `failure` is
    set where a probe failed altogether. Probes are not in any statistics.
    """

    target: str
    calibrated: bool
    overhead: float
    per_word: float
    wanted: int  # the size that was verified, in tokens
    achieved: int | None = None  # prompt_tokens of the last probe of that size
    temperature: bool = True  # whether the endpoint lets one choose it
    probes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: Decimal | None = None  # None: a probe's price is not known
    note: str = ""
    failure: AttemptError | None = None

    @property
    def off_by(self) -> int | None:
        """Tokens that the last probe had too many; negative: too few."""
        return None if self.achieved is None else self.achieved - self.wanted

    @property
    def shortest(self) -> int:
        """Tokens of the shortest prompt that can be made here."""
        return round(self.tokens_of(MIN_WORDS))

    def words_for(self, tokens: int) -> int:
        """Words of a whole prompt of so many tokens; never below what makes a prompt unique."""
        return max(MIN_WORDS, round((tokens - self.overhead) / self.per_word))

    def words_more(self, tokens: int) -> int:
        """Words that add so many tokens to a conversation."""
        return max(1, round(tokens / self.per_word))

    def tokens_of(self, words: int) -> float:
        """Tokens of a whole prompt of so many words, by the line."""
        return self.overhead + self.per_word * words

    def shared_with(self, target: str) -> Calibration:
        """The same line for a target at the same place, which needs no probes of its own."""
        return msgspec.structs.replace(
            self, target=target, probes=0, tokens_in=0, tokens_out=0, cost_usd=Decimal(0)
        )

    def says(self) -> str:
        """Describe the calibration in one sentence."""
        cost = "at an unknown price" if self.cost_usd is None else f"for ${self.cost_usd:.6f}"
        spent = f"{self.probes} probes, {self.tokens_in + self.tokens_out} tokens {cost}"
        if not self.calibrated:
            return f"{self.target}: prompt sizes are a guess ({self.note}); {spent}."
        return (
            f"{self.target}: {self.wanted} prompt tokens wanted, {self.achieved} counted by the"
            f" endpoint; {spent}."
        )


def guess(
    target: str, wanted: int, note: str = "not asked for", wish: str = INSTRUCTION
) -> Calibration:
    """Guess the line by the rule of thumb: a token is four characters; `wish` ends a prompt."""
    return Calibration(
        target=target,
        calibrated=False,
        overhead=len(wish) / CHARS_PER_TOKEN,
        per_word=CHARS_PER_WORD / CHARS_PER_TOKEN,
        wanted=wanted,
        note=note,
    )


async def calibrate(
    client: Client, target: Target, ask: Ask, tokens: int, wish: str = INSTRUCTION
) -> Calibration:
    """Find the line for prompts of up to `tokens`; a failed probe gives a guess, not an exception.

    The line holds for smaller prompts too, to about a token.
    """
    probing = _Probing(client, target, ask)
    line = guess(target.name, tokens, wish=wish)
    low = max(MIN_WORDS, tokens // 8)
    try:
        first = await probing.count(low)
        # A tokenizer that needs many tokens for a word shall not be sent more than was asked for:
        # that may be more than the model takes.
        high = max(low + APART, min(tokens * 3 // 4, tokens * low // max(first, 1)))
        seen_at = [(low, first), (high, await probing.count(high))]
        line = probing.line(line, seen_at)
        for _ in range(1 + CORRECTIONS):
            words = line.words_for(tokens)
            seen = await probing.count(words)
            off = abs(seen - tokens)
            fits = off <= max(1, math.ceil(line.per_word / 2)) or words == MIN_WORDS
            if not fits:
                line = probing.line(line, [_partner(seen_at, words), (words, seen)])
                seen_at.append((words, seen))
            line = msgspec.structs.replace(line, achieved=seen)
            if fits:
                break
    except AttemptError as error:
        line = guess(target.name, tokens, f"a probe failed: {error.message}", wish)
        line = msgspec.structs.replace(line, failure=error)
    except _Unknown as reason:
        line = guess(target.name, tokens, str(reason), wish)
    return probing.charged(line)


class _Unknown(Exception):  # noqa: N818 - a reason, and it never leaves this module
    """The endpoint does not say what is needed to know the line."""


class _Probing:
    """Sends probes to one target and adds up what they took."""

    def __init__(self, client: Client, target: Target, ask: Ask) -> None:
        self._client = client
        self._target = target
        self._ask = ask
        self._streams = True  # until usage turns out to be missing from streams
        self._temperature = True  # until it turns out to be refused
        self._said: list[Usage] = []
        self._sent = 0

    async def count(self, words: int) -> int:
        """The prompt tokens that the endpoint counts for a new prompt of so many words."""
        called = await self._send(words)
        error = called.error if called.tokens.tokens_in is None else None
        if error is not None and not is_lasting(error):
            called = await self._send(words)  # one failure is a provider's everyday
        if self._temperature and _refuses_temperature(called):
            self._temperature = False
            called = await self._send(words)
        if called.tokens.tokens_in is None and called.error is None and self._streams:
            self._streams = False
            called = await self._send(words)
        # A model that thinks may answer a short probe with nothing; its prompt is counted all
        # the same.
        if called.tokens.tokens_in is not None:
            return called.tokens.tokens_in
        if called.error is not None:
            raise called.error
        raise _Unknown("the endpoint sends no usage")

    def line(self, old: Calibration, two: list[tuple[int, int]]) -> Calibration:
        """The line through two probes, each its words and its tokens."""
        (words, tokens), (more_words, more_tokens) = sorted(two)
        if more_words == words or more_tokens <= tokens:
            raise _Unknown("the endpoint's prompt_tokens do not grow with the prompt")
        slope = (more_tokens - tokens) / (more_words - words)
        return msgspec.structs.replace(
            old, calibrated=True, note="", per_word=slope, overhead=tokens - slope * words
        )

    def charged(self, line: Calibration) -> Calibration:
        """The line with what the probes took; the price list is read here, after them."""
        at = datetime.fromtimestamp(SYSTEM.wall_ns() / 1e9, tz=UTC)
        costs = [self._target.cost(usage, at).cost_usd for usage in self._said]
        known = [cost for cost in costs if cost is not None]
        return msgspec.structs.replace(
            line,
            temperature=self._temperature,
            probes=self._sent,
            tokens_in=sum(usage.tokens_in or 0 for usage in self._said),
            tokens_out=sum(usage.tokens_out or 0 for usage in self._said),
            cost_usd=sum(known, Decimal(0)) if known and len(known) == len(costs) else None,
        )

    async def _send(self, words: int) -> Called:
        if self._sent >= MOST_PROBES:
            raise _Unknown(f"{MOST_PROBES} probes did not do")
        request = self._ask(self._sent, words)
        changes: dict[str, object] = {"stream": self._streams and request.stream}
        if not self._temperature:
            changes["temperature"] = None
        request = msgspec.structs.replace(request, **changes)
        self._sent += 1
        marks = Marks(plan=time.monotonic_ns())
        called = await call(self._target, request, marks, client=self._client, deadlines=DEADLINES)
        tokens = called.tokens
        if called.status == 200:
            self._said.append(
                Usage(
                    tokens_in=tokens.tokens_in,
                    tokens_out=tokens.out,
                    tokens_reasoning=tokens.reasoning,
                    tokens_cached=tokens.cached,
                )
            )
        return called


def is_lasting(error: AttemptError) -> bool:
    """Whether the next request will fail like this one: refused for what it is, or not reached."""
    if isinstance(error, HttpRefused):
        return error.code < 500 and error.code not in {408, 409, 425, 429}
    return isinstance(error, Unreachable)


def _partner(seen_at: list[tuple[int, int]], words: int) -> tuple[int, int]:
    """The nearest probe that makes a line with one of so many words.

    Two that are nearer would make a slope of the difference between two texts.
    """
    apart = [point for point in seen_at if abs(point[0] - words) >= APART]
    if not apart:
        return max(seen_at, key=lambda point: abs(point[0] - words))
    return min(apart, key=lambda point: abs(point[0] - words))


def _refuses_temperature(called: Called) -> bool:
    """Whether a refusal names the temperature, as models that think refuse it."""
    error = called.error
    return (
        isinstance(error, HttpRefused)
        and error.code in {400, 422}
        and "temperature" in error.message.lower()
    )
