"""Log probabilities of tokens: chat and responses have them alike, Gemini in words of its own."""

from __future__ import annotations

import math
from typing import Any

import msgspec


class Likely(msgspec.Struct, frozen=True):
    """A token that might have been."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class Logprob(msgspec.Struct, frozen=True):
    """A token that was chosen, and the likeliest in its place; `bytes` is its UTF-8 if told."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[Likely] = []


def read(value: Any) -> list[Logprob]:
    """Read the entries of chat and responses; what is not one of them is passed over."""
    out = []
    for entry in _listed(value):
        found = _likely(entry)
        if found is not None:
            top = [t for one in _listed(entry.get("top_logprobs")) if (t := _likely(one))]
            out.append(Logprob(found.token, found.logprob, found.bytes, top))
    return out


def read_gemini(value: Any) -> list[Logprob]:
    """Read Gemini's result: chosen candidates, and for each the top ones."""
    if not isinstance(value, dict):
        return []
    chosen, tops = _listed(value.get("chosenCandidates")), _listed(value.get("topCandidates"))
    out = []
    for at, entry in enumerate(chosen):
        found = _candidate(entry)
        if found is not None:
            others = tops[at] if at < len(tops) else None
            others = _listed(others.get("candidates") if isinstance(others, dict) else None)
            top = [likely for one in others if (likely := _candidate(one))]
            out.append(Logprob(found.token, found.logprob, None, top))
    return out


def with_bytes(entries: list[Logprob]) -> list[Logprob]:
    """Fill the bytes in, for responses, where they are not optional."""
    return [
        Logprob(
            entry.token,
            entry.logprob,
            _bytes(entry),
            [Likely(top.token, top.logprob, _bytes(top)) for top in entry.top_logprobs],
        )
        for entry in entries
    ]


def write_gemini(entries: list[Logprob]) -> dict[str, Any]:
    """Write Gemini's result."""
    return {
        "chosenCandidates": [_said(entry) for entry in entries],
        "topCandidates": [{"candidates": [_said(t) for t in e.top_logprobs]} for e in entries],
    }


def _said(entry: Logprob | Likely) -> dict[str, Any]:
    return {"token": entry.token, "logProbability": entry.logprob}


def _bytes(entry: Logprob | Likely) -> list[int]:
    return list(entry.token.encode("utf-8", "replace")) if entry.bytes is None else entry.bytes


def _likely(entry: Any) -> Likely | None:
    raw = entry.get("bytes") if isinstance(entry, dict) else None
    good = isinstance(raw, list) and all(isinstance(b, int) and 0 <= b < 256 for b in raw)
    return _read(entry, "logprob", raw if good else None)


def _candidate(entry: Any) -> Likely | None:
    return _read(entry, "logProbability", None)


def _read(entry: Any, field: str, raw: list[int] | None) -> Likely | None:
    if not isinstance(entry, dict):
        return None
    token, logprob = entry.get("token"), entry.get(field)
    if not isinstance(token, str) or not isinstance(logprob, int | float):
        return None
    return Likely(token, logprob, raw) if math.isfinite(logprob) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
