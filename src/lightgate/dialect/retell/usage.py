"""Token counts as each dialect counts them.

Neutral counts are all-inclusive: `tokens_in` has what was read from and written to the cache,
`tokens_out` has the reasoning. Anthropic's `input_tokens` has neither cache count, and Gemini's
`candidatesTokenCount` has no thoughts.
"""

from __future__ import annotations

from typing import Any, Final

from lightgate.clock.tokens import Usage
from lightgate.dialect.openai_fields import count, sub

NOTHING: Final = Usage()


def read_responses(value: Any) -> Usage | None:
    """Read the usage object of the responses endpoint."""
    if not isinstance(value, dict) or not value:
        return None
    details = sub(value, "input_tokens_details")
    return Usage(
        tokens_in=count(value.get("input_tokens")),
        tokens_out=count(value.get("output_tokens")),
        tokens_reasoning=count(sub(value, "output_tokens_details").get("reasoning_tokens")),
        tokens_cached=count(details.get("cached_tokens")),
        tokens_cache_write=count(details.get("cache_write_tokens")),
    )


def read_messages(value: Any, before: Usage | None, *, begun: bool = False) -> Usage | None:
    """Read Anthropic's usage; it is cumulative, and a later one may name less than the first did.

    What an answer that has just `begun` says of its output is a placeholder.
    """
    if not isinstance(value, dict) or not value:
        return before
    known = before or NOTHING
    cached = _or(count(value.get("cache_read_input_tokens")), known.tokens_cached)
    written = _or(count(value.get("cache_creation_input_tokens")), known.tokens_cache_write)
    fresh = count(value.get("input_tokens"))
    thinking = count(sub(value, "output_tokens_details").get("thinking_tokens"))
    return Usage(
        tokens_in=known.tokens_in if fresh is None else fresh + (cached or 0) + (written or 0),
        tokens_out=None if begun else _or(count(value.get("output_tokens")), known.tokens_out),
        tokens_reasoning=_or(thinking, known.tokens_reasoning),
        tokens_cached=cached,
        tokens_cache_write=written,
    )


def read_gemini(value: Any) -> Usage | None:
    """Read Gemini's usage metadata; the results of tools are counted apart from the prompt."""
    if not isinstance(value, dict) or not value:
        return None
    thoughts = count(value.get("thoughtsTokenCount"))
    prompt, results = count(value.get("promptTokenCount")), value.get("toolUsePromptTokenCount")
    answer = count(value.get("candidatesTokenCount"))
    return Usage(
        tokens_in=None if prompt is None else prompt + (count(results) or 0),
        tokens_out=None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0),
        tokens_reasoning=thoughts,
        tokens_cached=count(value.get("cachedContentTokenCount")),
    )


def write_chat(usage: Usage) -> dict[str, Any]:
    """Write chat's usage object."""
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    details = {"cached_tokens": usage.tokens_cached or 0}
    if usage.tokens_cache_write:
        details["cache_write_tokens"] = usage.tokens_cache_write
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.tokens_reasoning or 0},
    }


def write_responses(usage: Usage) -> dict[str, Any]:
    """Write the usage object of the responses endpoint."""
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {
            "cached_tokens": usage.tokens_cached or 0,
            "cache_write_tokens": usage.tokens_cache_write or 0,
        },
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": usage.tokens_reasoning or 0},
        "total_tokens": tokens_in + tokens_out,
    }


def write_messages(usage: Usage) -> dict[str, Any]:
    """Write Anthropic's usage object; its input is what no cache had a part in."""
    cached, written = usage.tokens_cached or 0, usage.tokens_cache_write or 0
    out: dict[str, Any] = {
        "input_tokens": max(0, (usage.tokens_in or 0) - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.tokens_out or 0,
    }
    if usage.tokens_reasoning:
        out["output_tokens_details"] = {"thinking_tokens": usage.tokens_reasoning}
    return out


def write_gemini(usage: Usage) -> dict[str, Any]:
    """Write Gemini's usage metadata; there is no word for what was written to a cache."""
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    thoughts = min(usage.tokens_reasoning or 0, tokens_out)
    out = {
        "promptTokenCount": tokens_in,
        "candidatesTokenCount": tokens_out - thoughts,
        "totalTokenCount": tokens_in + tokens_out,
    }
    if thoughts:
        out["thoughtsTokenCount"] = thoughts
    if usage.tokens_cached:
        out["cachedContentTokenCount"] = usage.tokens_cached
    return out


def _or(value: int | None, other: int | None) -> int | None:
    return other if value is None else value
