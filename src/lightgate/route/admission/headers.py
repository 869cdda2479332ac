"""Rate limits as providers state them in the header fields of every answer."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

What = Literal["requests", "tokens", "input", "output"]
REFUSED: Final = 429  # the status of an answer that met a limit
SPANS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
# Most providers speak like OpenAI; Cerebras names the span of time, Fireworks splits the tokens.
_USUAL: Final = re.compile(
    rb"x-ratelimit-(limit|remaining|reset)-"
    rb"(requests|tokens-prompt|tokens-generated|input-tokens|output-tokens|tokens)"
    rb"(?:-(second|minute|hour|day))?"
)
_ANTHROPIC: Final = re.compile(
    rb"anthropic-ratelimit-(requests|tokens|input-tokens|output-tokens)-(limit|remaining|reset)"
)
_WHAT: Final[dict[bytes, What]] = {
    b"requests": "requests",
    b"tokens": "tokens",
    b"input-tokens": "input",
    b"tokens-prompt": "input",
    b"output-tokens": "output",
    b"tokens-generated": "output",
}
_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|us|ns|d|h|m|s)")
_LONGEST: Final = 64  # characters of a time; the search for parts in 60,000 digits takes a minute
_UNITS: Final = {
    "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
_EPOCH_LIKE: Final = 1_000_000_000.0  # a number this large is a date, not a wait


class RateFact(NamedTuple):
    """One limit as an answer states it; `span_s` is None where the field does not name it.

    `remaining` is what is left of it, `reset_s` the seconds until all of it is there again.
    """

    what: What
    limit: float
    remaining: float | None
    reset_s: float | None
    span_s: float | None


def read_rates(fields: Iterable[tuple[bytes, bytes]], wall_s: float) -> list[RateFact]:
    """Read the limits among the header fields of an answer that came at this wall time."""
    found: dict[tuple[What, float | None], dict[bytes, float]] = {}
    for name, value in fields:
        usual = _USUAL.fullmatch(name)
        if usual is not None:
            part, what, span = usual.groups()
        else:
            own = _ANTHROPIC.fullmatch(name)
            if own is None:
                continue
            (what, part), span = own.groups(), None
        number = _reset_s(value, wall_s) if part == b"reset" else _number(value)
        if number is not None:
            key = _WHAT[what], None if span is None else SPANS[span.decode()]
            found.setdefault(key, {})[part] = number
    return [
        RateFact(what, said[b"limit"], said.get(b"remaining"), said.get(b"reset"), span_s)
        for (what, span_s), said in found.items()
        if said.get(b"limit", 0.0) > 0.0
    ]


def _number(value: bytes) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0.0 <= number < 1e15 else None


def _reset_s(value: bytes, wall_s: float) -> float | None:
    """Seconds from `6m0s`, `120ms`, `1.5`, an epoch or a date; never below 0."""
    number = _number(value)
    if number is not None:
        return max(0.0, number - wall_s) if number > _EPOCH_LIKE else number
    text = value.decode("latin-1").strip()
    if len(text) > _LONGEST:
        return None
    parts = _PARTS.findall(text)
    if parts and "".join(size + unit for size, unit in parts) == text:
        return sum(float(size) * _UNITS[unit] for size, unit in parts)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else max(0.0, at.timestamp() - wall_s)
