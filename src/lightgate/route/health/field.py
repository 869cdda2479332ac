"""Refusals of a field: what a provider does not take, and another one may.

A request that is wrong is wrong everywhere, and is not tried at the next target. But a provider may
also refuse a request that is sound: because it does not know a field, because a model lacks a
feature, or because the prompt is too long for it. Such a refusal speaks of support, not of
validity, and names the field or the feature.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.errors import ErrorWords

STATUSES: Final = frozenset((400, 413, 422))
# Providers' words for it: OpenAI's, pydantic's (Mistral, vLLM), others'.
_CODES: Final = frozenset(
    (
        *("unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden"),
        *("unsupported_field", "unsupported_content", "unsupported", "not_supported"),
        *("unsupported_file_type", "unrecognized_parameter", "context_length_exceeded"),
    )
)
_LENGTH: Final = re.compile(
    r"(?i)context[ _-]?(?:length|window|size)|maximum context|(?:prompt|input) is too long"
    r"|token count.{0,40}exceeds|too many (?:input |prompt )?tokens"
)
_LIMIT: Final = re.compile(
    r"(?i)max_?(?:completion_|output_|new_)?tokens\b.{0,80}"
    r"(?:too large|too high|at most|exceed|less than or equal|maximum)"
)
_SUPPORT: Final = re.compile(
    r"(?i)\b(?:un(?:supported|recognized|recognised)|not (?:yet |currently )?(?:supported|allowed"
    r"|permitted|available|implemented)|(?:does|do)(?: not|n't) (?:support|accept|allow)"
    r"|isn't supported|unavailable|unexpected keyword|unknown (?:field|parameter|argument|name"
    r"|variant|property)|extra (?:inputs?|fields?))\b"
)
_QUOTED: Final = re.compile(r"[`'\"]([A-Za-z][A-Za-z0-9_.\[\]-]{1,63})[`'\"]")
_NAMED: Final = re.compile(r"\b([a-z]+(?:_[a-z]+)+)\b")  # a name with an underscore is a field's
_FEATURE: Final = re.compile(
    r"(?i)\b(images?|vision|audio|videos?|files?|pdfs?|documents?|tools?|functions?|json|schemas?"
    r"|structured outputs?|logprobs|reasoning|thinking|stream(?:ing)?|systems?|developer|roles?"
    r"|stop|temperature|seed|penalty|prefill|citations?|caching)\b"
)


def refused_field(status: int | None, message: str, words: ErrorWords) -> str:
    """Find the field or feature that a provider refused and another may take; empty: none."""
    if status not in STATUSES:
        return ""
    if _LENGTH.search(message) or words.code == "context_length_exceeded":
        return "the length of the prompt"
    if _LIMIT.search(message):
        return "max_tokens"
    if status == 413:
        return "the size of the request"
    if words.code in _CODES or _SUPPORT.search(message):
        return words.param or _named(message)
    return ""


def _named(message: str) -> str:
    """Find what a sentence names: in quotes, by a field's name, or as a feature."""
    found = _QUOTED.search(message) or _NAMED.search(message) or _FEATURE.search(message)
    return "" if found is None else found[1].lower()
