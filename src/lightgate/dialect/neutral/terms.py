"""Error terms: what a provider's error is called in the dialect of the client that gets it.

In the same family of dialects the provider's own code, type and param stay. In another one the
words are those of the status, and an error that clients act on (a prompt that is too long, a quota)
has the word, or the sentence, by which that family's clients know it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.dialect.errors import NoThread, status_of

if TYPE_CHECKING:
    from lightgate.dialect.errors import Fault

_TOO_LONG: Final = re.compile(
    r"(?i)context[ _-]?(?:length|window|size)|maximum context|prompt is too long|input is too long"
    r"|token count.{0,40}exceeds|too many (?:input |prompt )?tokens|exceeds? .{0,30}maximum.{0,20}"
    r"tokens|longer than the model's"
)
_QUOTA: Final = re.compile(r"(?i)insufficient_quota|current quota|credit balance|out of credits")
_FILTERED: Final = re.compile(r"(?i)content[_ ]?(?:filter|policy|management)|safety system|blocked")
_MODEL: Final = re.compile(r"(?i)\b(?:model|deployment)s?\b")

_NO_THREAD: Final = f'{{"error_code":"{NoThread.label}","unsupported":["thread"]}}'
# By the reason: OpenAI's code, and its param.
_OPENAI: Final = {
    "too_long": ("context_length_exceeded", "messages"),
    "quota": ("insufficient_quota", None),
    "filtered": ("content_filter", None),
    "no_model": ("model_not_found", "model"),
    "rate": ("rate_limit_exceeded", None),
}
# The sentence by which clients of a family without codes know that a prompt is too long: agents
# shorten the conversation when they read it.
_SENTENCES: Final = {
    "anthropic": ("prompt is too long", "prompt is too long: "),
    "gemini": (
        "exceeds the maximum number of tokens",
        "The input token count exceeds the maximum number of tokens allowed: ",
    ),
}


class ErrorTerms(NamedTuple):
    """An error for one client. `kind` is the dialect's word; empty: that of the status."""

    status: int
    message: str
    code: str | int | None
    param: str | None = None
    kind: str = ""
    details: str = ""


def terms(family: str, fault: Fault, param: str | None = None) -> ErrorTerms:
    """Say an error in a family's terms; `param` is the field of the client that is wrong."""
    words, status = fault.words, status_of(fault)
    if not words.family:
        # Anthropic's SDKs act on this code; other errors of our own need none there.
        details = _NO_THREAD if family == "anthropic" and fault.code == NoThread.label else ""
        return ErrorTerms(status, fault.message, fault.code, param, details=details)
    if words.family == family:
        code = words.code if words.said else fault.code
        return ErrorTerms(
            status, fault.message, code, words.param or param, words.kind, words.details
        )
    reason = reason_of(fault)
    message = fault.message
    if reason == "too_long" and family in _SENTENCES:
        known, sentence = _SENTENCES[family]
        if known not in message:
            message = f"{sentence}{message}"
    code, field = _OPENAI.get(reason, (fault.code, None))
    return ErrorTerms(status, message, code, param or field)


def reason_of(fault: Fault) -> str:
    """Say why a provider refused, where it is a reason that clients act on; else nothing."""
    words, status = fault.words, status_of(fault)
    said = f"{words.code or ''} {words.kind} {fault.message}"
    if status in {400, 413, 422} and _TOO_LONG.search(said):
        return "too_long"
    if status in {402, 403, 429} and _QUOTA.search(said):
        return "quota"
    if status in {400, 403} and _FILTERED.search(said):
        return "filtered"
    if status == 404 and _MODEL.search(said):
        return "no_model"
    return "rate" if status == 429 else ""
