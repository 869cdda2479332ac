"""The errors that a user, a client or a record can see.

An error is one sentence for a person and, where there is one, a hint that says what to do. Its
class knows the exit code of the command line, the HTTP status of the gateway, a low-cardinality
label for metrics, and (for the errors of one attempt) the outcome class.

    LightgateError                exit 1
    ├── UsageError                exit 2   a word of the command line is wrong
    ├── ConfigError               exit 3   the file or the environment is wrong
    ├── CredentialsError          exit 5   a key is missing or refused
    ├── ThresholdMissed           exit 6   a measured number missed its limit
    ├── NotJudged                 exit 7   too few samples to say whether a limit was kept
    └── AttemptError              one attempt at a provider failed; carries an outcome
        ├── Unreachable           exit 4   no connection could be made
        │   ├── NameUnknown                DNS did not answer or knows no such host
        │   ├── ConnectionFailed           refused, unroutable, or not given by the proxy
        │   └── TlsFailed                  handshake or certificate; never retried in plain text
        ├── DeadlineMissed        timeout  connect, first_byte, idle or total
        ├── PeerReset             reset    the connection broke before the answer was complete
        ├── Truncated             truncated  the answer ended cleanly, without marker or finish
        ├── Malformed             stream_error  not HTTP, not SSE, not JSON, not this dialect
        │   └── TooLarge                   more bytes than the limit allows
        ├── HttpRefused           http_error  a status of 400 and above
        │   └── RateLimited       rate_limited  429, with the wait that the provider named
        ├── StreamError           stream_error  an error object inside an answer of status 200
        ├── EmptyAnswer           empty    200 with neither token nor reason
        └── Cancelled             cancelled  Lightgate closed it
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final, NamedTuple


class Exit(IntEnum):
    """The exit codes of the command line: what a script may rely on."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 3
    UNREACHABLE = 4
    CREDENTIALS = 5
    THRESHOLD = 6
    NOT_JUDGED = 7
    INTERRUPTED = 130


class LightgateError(Exception):
    """The root of all errors; `hint` says what to do."""

    exit_code: ClassVar[int] = Exit.FAILURE
    status: ClassVar[int] = 500
    label: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # An error that another process met is raised anew here, whatever its class asks for.
        return _again, (type(self), self.args, self.__dict__)


def _again(
    kind: type[LightgateError], args: tuple[object, ...], facts: dict[str, object]
) -> object:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class UsageError(LightgateError):
    """A word of the command line is wrong."""

    exit_code = Exit.USAGE
    status = 400
    label = "usage"


class ConfigError(LightgateError):
    """The configuration is wrong; `problems` lists every problem with its place."""

    exit_code = Exit.CONFIG
    label = "config"

    def __init__(self, message: str, *, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class CredentialsError(LightgateError):
    """A key is missing or was refused."""

    exit_code = Exit.CREDENTIALS
    status = 401
    label = "credentials"


class ThresholdMissed(LightgateError):  # noqa: N818 - a missed limit is a result, not a defect
    """A measured number missed its limit."""

    exit_code = Exit.THRESHOLD
    label = "threshold"


class NotJudged(LightgateError):  # noqa: N818 - too few samples are a result, not a defect
    """Whether a limit was kept could not be said: too few samples."""

    exit_code = Exit.NOT_JUDGED
    label = "not_judged"


class ErrorWords(NamedTuple):
    """A provider's own words for an error, cleaned; `kind` is its `type`, or Google's `status`.

    `family` is the family of dialects that they belong to, empty where no provider said anything.
    `details` are a JSON text: Google's say which quota and how long to wait, Anthropic's a code.
    """

    code: str | int | None = None
    kind: str = ""
    param: str = ""
    family: str = ""
    details: str = ""

    @property
    def said(self) -> bool:
        """Whether the provider named the error, beside its sentence."""
        return bool(self.code is not None or self.kind or self.param)


NO_WORDS: Final = ErrorWords()


class AttemptError(LightgateError):
    """One attempt at a provider failed; `words` are the provider's own for it."""

    status = 502
    label = "attempt"
    outcome: ClassVar[str] = "stream_error"
    words: ErrorWords = NO_WORDS


class Unreachable(AttemptError):  # noqa: N818 - reads as what the endpoint is
    """No connection could be made."""

    exit_code = Exit.UNREACHABLE
    label = "connect"
    outcome = "reset"


class NameUnknown(Unreachable):
    """DNS did not answer or knows no such host."""

    label = "dns"


class ConnectionFailed(Unreachable):
    """The connection was refused, unroutable, or not given by the proxy."""


class NoDescriptor(AttemptError):  # noqa: N818 - reads as what is missing
    """This process may open no more files; the provider has nothing to do with it."""

    status = 503
    label = "shortage"
    outcome = "reset"


class GatewayBehind(AttemptError):  # noqa: N818 - names the event
    """A deadline passed while this process was too busy to read; the provider may have answered."""

    status = 503
    label = "overloaded"
    outcome = "timeout"


class TlsFailed(Unreachable):
    """The handshake or the certificate failed; plain text is never tried instead."""

    label = "tls"


class DeadlineMissed(AttemptError):  # noqa: N818 - names the event
    """A deadline passed; `phase` is connect, first_byte, idle or total."""

    exit_code = Exit.UNREACHABLE
    status = 504
    label = "timeout"
    outcome = "timeout"

    def __init__(self, message: str, *, phase: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.phase = phase


class PeerReset(AttemptError):  # noqa: N818 - names the event
    """The connection broke before the answer was complete; `early` when no byte of it had come."""

    label = "reset"
    outcome = "reset"

    def __init__(self, message: str, *, hint: str = "", early: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.early = early


class Truncated(AttemptError):  # noqa: N818 - names the event
    """The answer ended cleanly, with neither its terminal marker nor a finish reason."""

    label = "truncated"
    outcome = "truncated"


class Malformed(AttemptError):  # noqa: N818 - names the event
    """The answer is not HTTP, not SSE, not JSON or not this dialect."""

    label = "malformed"


class TooLarge(Malformed):
    """The answer has more bytes than the limit allows."""

    status = 413
    label = "too_large"


class HttpRefused(AttemptError):  # noqa: N818 - names the event
    """The provider answered with a status of 400 or above; `retry_after_s` is the wait it named."""

    label = "http_error"
    outcome = "http_error"

    def __init__(
        self,
        message: str,
        *,
        code: int,
        hint: str = "",
        retry_after_s: float | None = None,
        words: ErrorWords = NO_WORDS,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.words = words
        self.retry_after_s = retry_after_s


class RateLimited(HttpRefused):
    """The provider answered 429."""

    status = 429
    label = "rate_limited"
    outcome = "rate_limited"

    def __init__(
        self,
        message: str,
        *,
        code: int = 429,
        hint: str = "",
        retry_after_s: float | None = None,
        words: ErrorWords = NO_WORDS,
    ) -> None:
        super().__init__(message, code=code, hint=hint, retry_after_s=retry_after_s, words=words)


class StreamError(AttemptError):
    """An error object arrived inside an answer of status 200.

    `code` is the status that it named, `word` its own word for the error; empty where it had none.
    """

    label = "stream_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: int | None = None,
        word: str = "",
        words: ErrorWords = NO_WORDS,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.word = word
        self.words = words


class EmptyAnswer(AttemptError):  # noqa: N818 - names the event
    """The answer has status 200, not a single token, and no reason for that."""

    label = "empty"
    outcome = "empty"


class Cancelled(AttemptError):  # noqa: N818 - names the event
    """Lightgate closed the attempt itself."""

    status = 499
    label = "cancelled"
    outcome = "cancelled"
