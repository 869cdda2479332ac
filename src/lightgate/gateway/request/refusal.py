"""What a client is told when it does not get an answer: in its own dialect, without secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.dialect.errors import Fault
from lightgate.dialect.translate import error_body, error_event
from lightgate.errors import (
    NO_WORDS,
    AttemptError,
    ErrorWords,
    GatewayBehind,
    HttpRefused,
    LightgateError,
    NoDescriptor,
    StreamError,
    TooLarge,
)
from lightgate.route.health.failure import named_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.wire.origin import Origin

_JSON: Final = b"content-type: application/json\r\n"
_NO_RETRY: Final = b"x-should-retry: false\r\n"
# The provider's own verdict on the request; anything else it says is about itself.
SHORT: Final = 503
OURS_S: Final = 1.0  # a client waits after a shortage of this process, as after load that is shed
_CLIENTS_FAULT: Final = frozenset((400, 404, 413, 415, 422))


class WholeReply(Protocol):
    """What a refusal is sent on: a client's reply, or an answer that several clients share."""

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a complete answer."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not one; `code` is a word for programs, the message a sentence."""

    status: int
    message: str
    code: str
    param: str | None = None
    retry_after_s: float | None = None
    words: ErrorWords = NO_WORDS  # of the provider that refused
    exhausted: bool = False  # our own candidates are: the client need not try again at once
    allow: bytes = b""  # methods that would do

    def send(self, reply: WholeReply, dialect: str, headers: bytes = b"") -> None:
        """Send it as a whole answer; `headers` are whole lines."""
        body = error_body(dialect, self.fault, self.param)
        lines = _JSON + headers
        if self.retry_after_s is not None:
            lines += b"retry-after: %d\r\n" % max(1, -(-self.retry_after_s // 1))
        if self.exhausted:
            lines += _NO_RETRY
        if self.allow:
            lines += b"allow: %b\r\n" % self.allow
        reply.whole(self.status, lines, body)

    def event(self, dialect: str) -> bytes:
        """Say it inside a stream that has begun."""
        return error_event(dialect, self.fault)

    @property
    def fault(self) -> Fault:
        """The refusal as an error of a provider, which dialects have words for."""
        return Fault(self.code, self.message, self.status, self.words)


class Refusing(Exception):  # noqa: N818 - carries an answer, not an error of ours
    """Ends the handling of a request with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


UNAUTHORIZED: Final = Refusal(
    status=401,
    message="The API key is missing or not valid. Send a key of this gateway (`lightgate keys"
    " create`) as authorization: Bearer, x-api-key or x-goog-api-key.",
    code="invalid_api_key",
)


def of_error(error: LightgateError, *, param: str | None = None) -> Refusal:
    """A refusal for an error of our own."""
    message = f"{error.message} {error.hint}".strip()
    wait_s = OURS_S if error.status == SHORT else None
    return Refusal(
        status=error.status, message=message, code=error.label, param=param, retry_after_s=wait_s
    )


def of_attempts(
    failures: Sequence[tuple[str, AttemptError]],
    soonest_s: float | None = None,
    key_names: Mapping[str, str] | None = None,
    origins: Mapping[str, Origin] | None = None,
) -> Refusal:
    """A refusal after every candidate failed; names each target and what happened there.

    `key_names` are the variables that hold the providers' keys, for a key that was refused.
    `origins` are the addresses of the targets, which a client is not told.
    """
    last = failures[-1][1]
    status = status_of(last)
    words = _words_of(last, status)
    places = origins or {}
    if status in _CLIENTS_FAULT and len(failures) == 1:
        target = failures[0][0]
        message = _named(target, last, places.get(target))
        return Refusal(status=status, message=message, code=last.label, words=words, exhausted=True)
    waits = [
        error.retry_after_s
        for _, error in failures
        if isinstance(error, HttpRefused) and error.retry_after_s is not None
    ]
    if soonest_s is not None:
        waits.append(soonest_s)
    ours = isinstance(last, NoDescriptor | GatewayBehind)  # which passes as soon as others end
    if ours:
        waits.append(OURS_S)
    told = "; ".join(_told(target, error, places.get(target)) for target, error in failures)
    return Refusal(
        status=status,
        message=f"No target could answer. {told}{_key_advice(failures, key_names or {})}",
        code=last.label,
        words=words,
        retry_after_s=min(waits) if waits and status not in _CLIENTS_FAULT else None,
        exhausted=not ours,
    )


def _key_advice(failures: Sequence[tuple[str, AttemptError]], key_names: Mapping[str, str]) -> str:
    """A sentence for the gateway's owner where providers refused the gateway's own keys."""
    refused = {
        target.partition("/")[0]
        for target, error in failures
        if isinstance(error, HttpRefused) and error.code in {401, 403}
    }
    if not refused:
        return ""
    names = ", ".join(sorted(key_names.get(name) or f"the key of {name}" for name in refused))
    return f" The gateway's own key was refused there, not yours: check {names} on the gateway."


def _named(target: str, error: AttemptError, origin: Origin | None) -> str:
    """The sentence of an error with the target's name in place of its address.

    Of what a provider says itself no more than the beginning is ours. The ledger has the address.
    """
    if origin is None:
        return error.message
    host = re.escape(f"[{origin.host}]" if ":" in origin.host else origin.host)
    place = rf"(?<![\w.-])(?:https?://)?{host}(?::{origin.port})?(?![\w-]|\.\w)"
    if isinstance(error, HttpRefused | StreamError):
        place = rf"\A{re.escape(origin.authority)}(?= )"
    return re.sub(place, lambda _: target, error.message)


def _told(target: str, error: AttemptError, origin: Origin | None) -> str:
    """What happened at a target, in a sentence that names it."""
    text = _named(target, error, origin)
    return text if text.startswith((f"{target} ", f"{target}:")) else f"{target}: {text}"


def broken_off(target: str, error: AttemptError, origin: Origin | None = None) -> Refusal:
    """A refusal of the rest of an answer that has begun; `origin` is the target's address."""
    status = status_of(error)
    return Refusal(
        status=status,
        message=f"The answer broke off. {_told(target, error, origin)}",
        code=error.label,
        words=_words_of(error, status),
    )


def _words_of(error: AttemptError, status: int) -> ErrorWords:
    """The provider's words for an error; none for one that is about the gateway's own account."""
    code = error.code if isinstance(error, HttpRefused | StreamError) else None
    if code is not None and code != status and code < 500:
        return NO_WORDS
    words = error.words
    if code != status and words.family == "gemini":  # its word is another one for the status
        words = words._replace(kind="")
    return words


def status_of(error: AttemptError) -> int:
    """Our status for an attempt's error; a refused provider key is not the client's fault."""
    code = error.code if isinstance(error, HttpRefused | StreamError) else None
    if isinstance(error, StreamError):
        code = named_status(error.word, code, error.words.kind)
    if code is not None and (code in _CLIENTS_FAULT or code in {429, 508}):
        return code
    if isinstance(error, TooLarge):
        return 502  # the provider's answer was, not the client's request
    return 503 if code in {498, 503, 529} else error.status
