"""Errors in each dialect's shape: as a body, and as the event that ends a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.retell.frame import dumped, event, named

if TYPE_CHECKING:
    from lightgate.dialect.fault import Fault

UPSTREAM: Final = 502  # the status of a failure that names none

# The word that each dialect has for a status: OpenAI's type, Anthropic's type, Gemini's status.
# Anything else is the word of 400 below 500, and of 500 above.
WORDS: Final[dict[int, tuple[str, str, str]]] = {
    400: ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "authentication_error", "UNAUTHENTICATED"),
    402: ("insufficient_quota", "billing_error", "FAILED_PRECONDITION"),
    403: ("permission_error", "permission_error", "PERMISSION_DENIED"),
    404: ("invalid_request_error", "not_found_error", "NOT_FOUND"),
    408: ("timeout_error", "timeout_error", "DEADLINE_EXCEEDED"),
    409: ("conflict_error", "conflict_error", "ABORTED"),
    413: ("invalid_request_error", "request_too_large", "INVALID_ARGUMENT"),
    429: ("rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"),
    499: ("server_error", "api_error", "CANCELLED"),
    500: ("server_error", "api_error", "INTERNAL"),
    501: ("server_error", "api_error", "UNIMPLEMENTED"),
    502: ("server_error", "api_error", "UNAVAILABLE"),
    503: ("server_error", "overloaded_error", "UNAVAILABLE"),
    504: ("server_error", "timeout_error", "DEADLINE_EXCEEDED"),
    529: ("server_error", "overloaded_error", "UNAVAILABLE"),
}

# What a provider's own word says about the status where it names none.
_STATUS: Final = {
    "overloaded_error": 529,
    "overloaded": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "unavailable": 503,
    "service_unavailable": 503,
    "deadline_exceeded": 504,
    "timeout_error": 504,
    "server_error": 500,
    "api_error": 500,
    "internal": 500,
    "blocked": 400,
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "invalid_prompt": 400,
}


def status_of(fault: Fault) -> int:
    """Say which status a provider's error inside a good answer amounts to."""
    return fault.status or _STATUS.get(fault.code.lower(), UPSTREAM)


def error_body(
    dialect: str, status: int, *, message: str, code: str, param: str | None = None
) -> bytes:
    """Write an error answer in a dialect's shape; Anthropic and Gemini have no place for a code."""
    return dumped(_tree(dialect, status, message, code, param))


def error_event(dialect: str, status: int, *, message: str, code: str) -> bytes:
    """Write the error that ends a stream whose status was already 200.

    No terminal marker follows: a client that overlooks the error must not see a good end.
    """
    if dialect == "openai-responses":
        return named(b"error", responses_error(message, code, 0))
    tree = _tree(dialect, status, message, code, None)
    return named(b"error", tree) if dialect == "anthropic-messages" else event(tree)


def responses_error(message: str, code: str, number: int) -> dict[str, Any]:
    """Write the responses endpoint's `error` event, for a response that never was."""
    fields = {"type": "error", "code": code, "message": message, "param": None}
    return {**fields, "sequence_number": number}


def words(status: int) -> tuple[str, str, str]:
    """Find the words of a status."""
    return WORDS.get(status) or WORDS[400 if status < 500 else 500]


def _tree(dialect: str, status: int, message: str, code: str, param: str | None) -> dict[str, Any]:
    openai, anthropic, gemini = words(status)
    if dialect == "anthropic-messages":
        return {"type": "error", "error": {"type": anthropic, "message": message}}
    if dialect == "gemini":
        return {"error": {"code": status, "message": message, "status": gemini}}
    return {"error": {"message": message, "type": openai, "param": param, "code": code}}
