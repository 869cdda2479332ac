"""The tokens of an answer, and which of them came with which burst.

Chunks are never counted as tokens. The count comes from the highest rung of a ladder that has one:
final usage, usage counted along in the stream, a local tokenizer, a quarter of the characters. The
rung is kept as `source`, so that an estimate can never pass for a count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.marks import Marks

TokensSource = Literal["usage", "running", "tokenizer", "estimate"]
Calls = tuple[tuple[str, int], ...]  # a provider's own tools, each with how often it was called
Media = tuple[tuple[str, int], ...]  # of an answer: audio, image, video; of its prompt: HEARD
HEARD: Final = "heard"  # tokens of sound in a prompt
CHARS_PER_TOKEN: Final = 4  # the usual rule of thumb for English text
ONE_PER_DELTA_SLACK: Final = 2  # special tokens that are billed but never streamed


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage that the provider reports; None where it does not.

    `tokens_out` includes reasoning, `tokens_in` includes what was read from the cache and, where
    the provider says so, `tokens_audio` of sound. `seconds` is the length of a recording, `tier`
    the service tier that answered. `calls` are calls of the provider's own tools, by kind, and
    `media` are tokens, among all, that are no text.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_cached: int | None = None
    tokens_cache_write: int | None = None
    tokens_cache_write_1h: int | None = None  # of these, what is kept for an hour
    tokens_audio: int | None = None
    seconds: float | None = None
    tier: str | None = None
    calls: Calls = ()
    media: Media = ()


_UNSAID: Final = Usage()


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The token counts of one attempt; None where nothing is known.

    `streamed` are the tokens that came with bursts, `first_burst` those of the first one: the
    decode speed is over the others.
    """

    out: int | None = None
    streamed: int | None = None
    reasoning: int | None = None
    cached: int | None = None
    tokens_in: int | None = None
    source: TokensSource | None = None
    hidden_reasoning: bool = False
    first_burst: float | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    audio: int | None = None
    seconds: float | None = None
    tier: str | None = None
    calls: Calls = ()
    media: Media = ()


def count(
    marks: Marks,
    usage: Usage | None,
    *,
    running: int = -1,
    chars: int = 0,
    reasoning_streamed: bool = True,
    tokenizer_count: int | None = None,
) -> Tokens:
    """Count the tokens of one attempt by the ladder.

    `running` is the last usage counted along in the stream (-1: the provider does not count along),
    `chars` the characters of all token-bearing deltas, `tokenizer_count` what a local tokenizer
    made of the whole text.
    """
    said = usage or _UNSAID
    out = said.tokens_out
    source: TokensSource | None = "usage"
    if not out:
        out, source = _ladder(marks, out, running, chars, tokenizer_count)
    reasoning = said.tokens_reasoning
    hidden = 0 if reasoning_streamed or not reasoning else reasoning
    streamed, first = (0, None) if not marks.burst_ns else _streamed(marks, out, hidden)
    if out is None:
        streamed = None
    return Tokens(
        out=out,
        streamed=streamed,
        reasoning=reasoning,
        cached=said.tokens_cached,
        tokens_in=said.tokens_in,
        source=source,
        hidden_reasoning=hidden > 0,
        first_burst=first,
        cache_write=said.tokens_cache_write,
        cache_write_1h=said.tokens_cache_write_1h,
        audio=said.tokens_audio,
        seconds=said.seconds,
        tier=said.tier,
        calls=said.calls,
        media=said.media,
    )


def per_burst(
    streamed: int | None,
    pieces: Sequence[int],
    weight: Sequence[int],
    counted: Sequence[int],
) -> list[float]:
    """Lay the streamed tokens out over the bursts; empty where they are unknown.

    `pieces`, `weight` and `counted` are the columns of `Marks`, one entry for each burst. Counted
    along where the provider did, else in proportion to deltas or to bytes of text.
    """
    if not pieces or streamed is None:
        return []
    if sum(counted) == streamed and min(counted) >= 0:
        return list(map(float, counted))
    by_delta = abs(sum(pieces) - streamed) <= ONE_PER_DELTA_SLACK
    shares = pieces if by_delta or not any(weight) else weight
    total = sum(shares)
    return [streamed * share / total for share in shares] if total else []


def _ladder(
    marks: Marks, final: int | None, running: int, chars: int, tokenizer_count: int | None
) -> tuple[int | None, TokensSource | None]:
    # Zero beside text that did arrive is a field left blank, not a count.
    has_text = chars > 0 or len(marks.burst_ns) > 0
    if final is not None and not has_text:
        return final, "usage"
    if running > 0:
        return running, "running"
    if tokenizer_count is not None:
        return tokenizer_count, "tokenizer"
    size = chars or sum(marks.burst_weight)
    if size > 0:
        return max(1, round(size / CHARS_PER_TOKEN)), "estimate"
    return None, None


def _streamed(marks: Marks, out: int | None, hidden: int) -> tuple[int | None, float | None]:
    """Find the streamed tokens, and those of the first burst."""
    if out is None:
        return None, None
    expected = out - hidden
    if expected <= 0:  # text came, but usage leaves no token for it: the two contradict
        return None, None
    counted = None
    if min(marks.burst_tokens) >= 0:
        counted = _counted_along(marks, out, expected, hidden)
    return counted or (expected, _first_burst(marks, expected))


def _counted_along(marks: Marks, out: int, expected: int, hidden: int) -> tuple[int, float] | None:
    """Read the provider's own running count as streamed and first-burst tokens, if it really ran.

    A counter that is still below half of the final count at the last token stood still (Anthropic's
    first event already names a token), and one above it counts something else.
    """
    first, total = marks.burst_tokens[0], sum(marks.burst_tokens)
    if first == 0 or total > out or total * 2 < expected:
        return None
    if total > expected and first > hidden:  # hidden reasoning was counted with the first burst
        return total - hidden, float(first - hidden)
    return min(total, expected), float(first)


def _first_burst(marks: Marks, streamed: int) -> float | None:
    if len(marks.burst_ns) == 1:
        return float(streamed)
    if abs(sum(marks.burst_pieces) - streamed) <= ONE_PER_DELTA_SLACK:
        # A delta without a token of its own is a tool's name, and that comes first.
        surplus = max(0, sum(marks.burst_pieces) - streamed)
        return float(max(1, marks.burst_pieces[0] - surplus))
    # By the bytes of text, or by deltas where no text was weighed.
    shares = marks.burst_weight if any(marks.burst_weight) else marks.burst_pieces
    total = sum(shares)
    if not total:
        return None
    # Tokens are whole: the nearest whole number is closer to the truth than the bare share.
    return float(min(streamed, max(1, round(streamed * shares[0] / total))))
