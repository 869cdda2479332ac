"""Failures: what the end of an attempt says about its target, and what to do next.

counts      hard: for the streak and the ratio of the breaker; soft: for the ratio only;
            none: says nothing about the target
fails_over  another target may well answer the same request
again       so may the same target, at once
free        nothing of the request had been sent: trying elsewhere takes nothing from the
            retry budget
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.errors import (
    NO_WORDS,
    AttemptError,
    Cancelled,
    DeadlineMissed,
    EmptyAnswer,
    ErrorWords,
    GatewayBehind,
    Malformed,
    NameUnknown,
    NoDescriptor,
    PeerReset,
    StreamError,
    TlsFailed,
    TooLarge,
    Truncated,
    Unreachable,
)
from lightgate.route.health.field import refused_field

if TYPE_CHECKING:
    from collections.abc import Mapping

Counts = Literal["hard", "soft", "none"]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of end of an attempt; `kind` is a label of low cardinality."""

    kind: str
    counts: Counts = "none"
    fails_over: bool = False
    again: bool = False
    free: bool = False


def _hard(kind: str, *, again: bool = True, free: bool = False) -> Failure:
    return Failure(kind=kind, counts="hard", fails_over=True, again=again, free=free)


def _soft(kind: str, *, again: bool = True) -> Failure:
    return Failure(kind=kind, counts="soft", fails_over=True, again=again)


FINE: Final = Failure(kind="ok")
CANCELLED: Final = Failure(kind="cancelled")  # the client left, or another attempt won
SHORTAGE: Final = Failure(kind="shortage", free=True)  # of this machine's: no target would do
CLIENT: Final = Failure(kind="client")  # the request itself is wrong, and would be elsewhere
FIELD: Final = Failure(kind="field", fails_over=True)  # a field that another target may take
HURRIED: Final = Failure(kind="hurried", fails_over=True)  # missed a deadline of the client's own
RATE_LIMITED: Final = _soft("rate_limited", again=False)
OVERLOADED: Final = _hard("overloaded", again=False)
SERVER: Final = _hard("server_error")
GATEWAY: Final = _hard("bad_gateway")  # what stands before the provider could not reach it
CREDENTIALS: Final = _hard("credentials", again=False)
PAYMENT: Final = _hard("payment", again=False)
FORBIDDEN: Final = _soft("forbidden", again=False)  # an account, but also one prompt, can cause it
MODEL_MISSING: Final = _hard("model_missing", again=False)
NOT_FOUND: Final = _soft("not_found", again=False)
ACCOUNT: Final = Failure(kind="account", fails_over=True)
CONFLICT: Final = _soft("conflict")
UNSUPPORTED: Final = _soft("unsupported", again=False)
ODD_STATUS: Final = _soft("odd_status", again=False)

STATUSES: Final[Mapping[int, Failure]] = MappingProxyType(
    {
        400: CLIENT,
        401: CREDENTIALS,
        402: PAYMENT,
        403: FORBIDDEN,
        404: NOT_FOUND,
        405: UNSUPPORTED,
        408: _soft("request_timeout"),
        409: CONFLICT,
        410: MODEL_MISSING,
        413: FIELD,
        414: CLIENT,
        415: CLIENT,
        422: CLIENT,
        425: CONFLICT,
        429: RATE_LIMITED,
        431: CLIENT,
        498: OVERLOADED,  # Groq: no capacity in the flex tier
        500: SERVER,
        501: UNSUPPORTED,
        502: GATEWAY,
        503: OVERLOADED,
        504: GATEWAY,
        508: _hard("loop", again=False),  # its address leads back to a gateway
        520: GATEWAY,
        521: GATEWAY,
        522: GATEWAY,
        523: GATEWAY,
        524: GATEWAY,
        529: OVERLOADED,  # Anthropic
    }
)
# Providers' words for an error inside an answer of status 200, as the status that they mean.
NAMED: Final[Mapping[str, int]] = MappingProxyType(
    {
        "invalid_request_error": 400,
        "context_length_exceeded": 400,
        "INVALID_ARGUMENT": 400,
        "FAILED_PRECONDITION": 400,
        "authentication_error": 401,
        "invalid_api_key": 401,
        "UNAUTHENTICATED": 401,
        "billing_error": 402,
        "permission_error": 403,
        "PERMISSION_DENIED": 403,
        "not_found_error": 404,
        "model_not_found": 404,
        "NOT_FOUND": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "rate_limit_exceeded": 429,
        "insufficient_quota": 429,
        "RESOURCE_EXHAUSTED": 429,
        "api_error": 500,
        "server_error": 500,
        "internal_error": 500,
        "INTERNAL": 500,
        "UNAVAILABLE": 503,
        "timeout_error": 504,
        "DEADLINE_EXCEEDED": 504,
        "overloaded_error": 529,
    }
)
_DNS: Final = _hard("dns", again=False, free=True)
_TLS: Final = _hard("tls", again=False, free=True)
_CONNECT: Final = _hard("connect", again=False, free=True)
_CONNECT_TIMEOUT: Final = _hard("connect_timeout", again=False, free=True)
_HURRIED_CONNECT: Final = Failure(kind="hurried", fails_over=True, free=True)
_FIRST_BYTE: Final = _hard("first_byte_timeout", again=False)
_IDLE: Final = _hard("idle_timeout", again=False)
_SILENT: Final = _hard("timeout", again=False)
_LONG: Final = _soft("timeout", again=False)  # it was answering when the time ran out
_RESET: Final = _hard("reset")
_TRUNCATED: Final = _hard("truncated")
_TOO_LARGE: Final = _soft("too_large", again=False)
_MALFORMED: Final = _hard("malformed")
_EMPTY: Final = _soft("empty")  # one prompt can cause it, too
_STREAM_ERROR: Final = _hard("stream_error")

# A 404 is the target's own (a wrong model or base URL) unless it is about a thing by whose id only
# the client can have asked for it.
_CLIENTS_THING: Final = re.compile(
    r"(?i)\b(?:previous[_ ]response|response with id|files?|item with id|conversations?|containers?"
    r"|vector[_ ]?stores?|cachedcontents?|prompt with id|assistants?|threads?|batch(?:es)?)\b"
)
_MODEL: Final = re.compile(r"(?i)\b(?:models?|deployments?|engines?)\b")
# Some providers answer 400 where the operator's account is the trouble. It does not count for the
# breaker: a client could put such words into its request and have them quoted.
_ACCOUNT: Final = re.compile(
    r"(?i)\bapi[ _-]?key\b|credit balance|\bbilling\b|location is not supported"
)


def what(
    outcome: Outcome, status: int | None, error: AttemptError | None, *, hurried: bool = False
) -> Failure:
    """Say what an attempt's end means.

    `status` is that of the answer or, for an error inside a 200, the one that the error names
    (`named_status`). `hurried`: the client had asked for a shorter deadline than the configured
    one, so that a missed deadline says nothing about the target.
    """
    if outcome is Outcome.OK:
        return FINE
    if error is None or isinstance(error, Cancelled):
        return CANCELLED
    if isinstance(error, DeadlineMissed):
        return _late(error, status, hurried=hurried)
    if status is not None and status != 200:
        return by_status(status, error.message, error.words)
    return next((row for kind, row in _BY_CLASS if isinstance(error, kind)), _STREAM_ERROR)


def by_status(status: int, message: str = "", words: ErrorWords = NO_WORDS) -> Failure:
    """Say what a status means; the provider's sentence tells a wrong model from a wrong id."""
    if status == 400 and _ACCOUNT.search(message):
        return ACCOUNT
    if refused_field(status, message, words):
        return FIELD
    if status == 404 and _MODEL.search(message):
        return MODEL_MISSING
    if status == 404 and _CLIENTS_THING.search(message):
        return CLIENT
    known = STATUSES.get(status)
    if known is not None:
        return known
    return SERVER if status >= 500 else ODD_STATUS


def named_status(code: str, status: int | None = None, kind: str = "") -> int | None:
    """The status that an error inside a 200 means, by its number or its words; None if unknown."""
    return status if status is not None else NAMED.get(code, NAMED.get(kind))


def _late(error: DeadlineMissed, status: int | None, *, hurried: bool) -> Failure:
    if error.phase == "connect":
        return _HURRIED_CONNECT if hurried else _CONNECT_TIMEOUT
    if hurried:
        return HURRIED
    if error.phase == "first_byte":
        return _FIRST_BYTE
    if error.phase == "idle":
        return _IDLE
    return _SILENT if status is None else _LONG


_BY_CLASS: Final[tuple[tuple[type[AttemptError], Failure], ...]] = (
    (NameUnknown, _DNS),
    (TlsFailed, _TLS),
    (NoDescriptor, SHORTAGE),
    (GatewayBehind, SHORTAGE),
    (Unreachable, _CONNECT),
    (PeerReset, _RESET),
    (Truncated, _TRUNCATED),
    (TooLarge, _TOO_LARGE),
    (Malformed, _MALFORMED),
    (EmptyAnswer, _EMPTY),
    (StreamError, _STREAM_ERROR),
)
