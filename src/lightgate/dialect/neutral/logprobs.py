"""Log probabilities of an answer's tokens, in no dialect: readers make them, writers show them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from lightgate.dialect.neutral.json_text import dicts_of


class Likely(msgspec.Struct, frozen=True):
    """A token that might have been; `bytes` is its UTF-8 where the provider told it."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class Logprob(msgspec.Struct, frozen=True):
    """A token that was chosen, and the likeliest in its place."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[Likely] = []


def logprobs_of(value: Any) -> list[Logprob]:
    """Read the entries of chat and responses; what is not one of them is passed over."""
    out = []
    for entry in dicts_of(value):
        found = _likely(entry)
        if found is not None:
            top = [t for one in dicts_of(entry.get("top_logprobs")) if (t := _likely(one))]
            out.append(Logprob(found.token, found.logprob, found.bytes, top))
    return out


def _likely(entry: dict[str, Any]) -> Likely | None:
    token, logprob, raw = entry.get("token"), entry.get("logprob"), entry.get("bytes")
    if not isinstance(token, str) or not isinstance(logprob, int | float):
        return None
    good = isinstance(raw, list) and all(isinstance(b, int) and 0 <= b < 256 for b in raw)
    return Likely(token, logprob, raw if good else None) if math.isfinite(logprob) else None
