"""Header fields of a client that go on to providers: which ones, in what form, and the hops.

Everything that is not named here stays in the gateway. Which provider is told which field is data
of the catalogue (`passes`).
"""

from __future__ import annotations

import re
from typing import Final

from lightgate.gateway.request.refusal import Refusal, Refusing

Passed = tuple[tuple[bytes, bytes], ...]

HOP: Final = b"x-lightgate-hop"
IDEMPOTENCY: Final = b"idempotency-key"
TRACEPARENT: Final = b"traceparent"
_TEXT: Final = re.compile(rb"[\x20-\x7e]{1,1024}")
_ID: Final = re.compile(rb"[\x21-\x7e]{1,255}")
# W3C Trace Context: version, trace, parent, flags; later versions may add to it.
_TRACE: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]+)?")
# Each field and the form of its values; a value of another form is not passed on.
FIELDS: Final = {
    b"anthropic-beta": _TEXT,
    b"openai-beta": _TEXT,
    b"openai-organization": _ID,
    b"openai-project": _ID,
    IDEMPOTENCY: _ID,
    TRACEPARENT: _TRACE,
    b"tracestate": _TEXT,
    b"http-referer": _TEXT,
    b"x-title": _TEXT,
    b"x-openrouter-title": _TEXT,
    b"x-openrouter-categories": _TEXT,
}
# Fields that are about this one request and change nothing of its answer.
_OF_THE_REQUEST: Final = frozenset((HOP, IDEMPOTENCY, TRACEPARENT, b"tracestate"))
MOST_HOPS: Final = 3  # gateways that a request may have passed before this one
_HOPS: Final = re.compile(rb"[0-9A-Za-z-]{1,64}(?:, ?[0-9A-Za-z-]{1,64})*")


def lines_of(passed: Passed, known: frozenset[bytes]) -> bytes:
    """The header lines for a provider that knows these fields; hops are told to everyone."""
    return b"".join([b"%b: %b\r\n" % pair for pair in passed if pair[0] in known or pair[0] == HOP])


def of_answer(passed: Passed) -> bytes:
    """The fields that the answer may depend on, for the key under which it is shared."""
    return b"".join([b"%b: %b\r\n" % pair for pair in passed if pair[0] not in _OF_THE_REQUEST])


def traceparent_of(passed: Passed) -> str | None:
    """The trace that the client's request belongs to; None where the client named none."""
    return next((value.decode("ascii") for name, value in passed if name == TRACEPARENT), None)


def check_hops(passed: Passed, instance: str) -> None:
    """Refuse a request that this gateway sent itself, or that came through too many gateways."""
    hops: list[bytes] = []
    for name, value in passed:
        if name == HOP:
            hops += value.replace(b" ", b"").split(b",")
    if instance.encode() in hops:
        raise Refusing(
            _loop(
                "This request has come back to the gateway that sent it: the base URL of a provider"
                " leads to the gateway itself. Correct base_url in lightgate.toml."
            )
        )
    if len(hops) > MOST_HOPS:
        raise Refusing(
            _loop(
                f"This request has come through {len(hops)} gateways, and {MOST_HOPS} are allowed."
                " Point the providers' base_url at the providers, not at each other's gateways."
            )
        )


def sound_hops(value: bytes) -> bool:
    """Whether a value is a list of gateways."""
    return _HOPS.fullmatch(value) is not None


def _loop(message: str) -> Refusal:
    return Refusal(status=508, message=message, code="loop", exhausted=True)
