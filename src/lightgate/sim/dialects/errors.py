"""Errors in the shape of each dialect, as a body and as an event of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.json import encode

if TYPE_CHECKING:
    from lightgate.sim.world import Family

_OPENAI: Final = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GEMINI: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_body(family: Family, status: int, message: str, request_id: str) -> bytes:
    """The body of an error answer."""
    return encode(_tree(family, status, message, request_id))


def error_event(family: Family, kind: str, message: str, request_id: str) -> bytes:
    """An error event inside a stream of status 200, with the status of an overloaded provider."""
    if kind == "responses":
        fields = {"type": "error", "sequence_number": 0, "code": "server_error"}
        data = encode({**fields, "message": message, "param": None})
        return b"event: error\ndata: %b\n\n" % data
    status = 529 if family == "anthropic" else 503
    data = error_body(family, status, message, request_id)
    name = b"event: error\n" if family == "anthropic" else b""
    return b"%bdata: %b\n\n" % (name, data)


def _tree(family: Family, status: int, message: str, request_id: str) -> dict[str, object]:
    if family == "anthropic":
        kind = _ANTHROPIC.get(status, "api_error")
        error = {"type": kind, "message": message}
        return {"type": "error", "error": error, "request_id": request_id}
    if family == "gemini":
        name = _GEMINI.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": name}}
    kind, code = _OPENAI.get(status, ("server_error", None))
    inside = {"message": message, "type": kind, "param": None, "code": code or status}
    return {"error": inside}
