"""Errors of providers and of requests: read in any shape, and put into one short sentence.

A `Fault` is what a provider says went wrong, without secrets. `BadField` and `Untranslatable` are
what is wrong with a client's request that is to be translated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.neutral.json_text import SHALLOW_BYTES, too_deep
from lightgate.dialect.neutral.numbers import any_json
from lightgate.errors import NO_WORDS, ErrorWords, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_LIMIT: Final = 300  # characters; enough for a sentence, too little for a prompt
CODE_LIMIT: Final = 64
DETAILS_LIMIT: Final = 4096
_DEEPEST: Final = 8
READ_LIMIT: Final = 65_536  # bytes of an error page that are looked at
MASK: Final = "***"
_WORD: Final = 16
_LONGEST: Final = 200  # characters of a field's path in an error
UPSTREAM: Final = 502  # the status of a failure that names none

# What looks like a key. Names of models are long, too, but have separators and few mixed runs.
_SECRETS: Final = (
    re.compile(r"(?i)\b(?:bearer|basic)\s+[^\s\"',;]+"),
    re.compile(
        r"(?i)\b(?:x-)?(?:api[-_]?key|access[-_]?token|secret|password)[\"']?\s*[=:]\s*[^\s,;&}]+"
    ),
    re.compile(r"(?i)(?<=[?&])(?:key|token|sig|signature)=[^\s&\"']+"),
    re.compile(r"\b(?:sk|gsk|csk|xai|pplx|nvapi|r8|fw|hf|tgp)[-_][A-Za-z0-9*._-]{6,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{16,}|\bya29\.[A-Za-z0-9._-]+|\beyJ[A-Za-z0-9._-]{16,}"),
    re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    # Looked ahead of at the beginning of a run alone: from every character of it, a run of 6,000
    # letters would take 100 ms.
    re.compile(
        r"(?<![A-Za-z0-9+/])(?=[A-Za-z+/]*[0-9])(?=[0-9+/]*[A-Za-z])[A-Za-z0-9+/]{40,}={0,2}"
    ),
    re.compile(r"(?<![A-Za-z0-9_-])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{48,}"),
    re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{24,}"),
)
_TITLE: Final = re.compile(rb"<title[^<>]*>([^<]{0,4096})</title>", re.IGNORECASE)
_HTML: Final = re.compile(rb"\s*(?:<!doctype html|<html|<head|<body|<\?xml|<!--)", re.IGNORECASE)

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


class BadField(UsageError):  # noqa: N818 - names what is wrong
    """A field of a request is missing or of the wrong kind; `field` is its JSON path."""

    def __init__(self, field: str, why: str) -> None:
        self.field = field[:_LONGEST] or "body"
        name = f"field {self.field!r}" if field else "request body"
        super().__init__(f"The {name} {why}.")


class Untranslatable(UsageError):  # noqa: N818 - reads as what the request is
    """A request sets a field that the other dialect cannot express; `field` names it."""

    label = "untranslatable"

    def __init__(self, field: str, why: str = "", *, dialect: str = "", hint: str = "") -> None:
        self.field = field if len(field) <= _LONGEST else f"{field[:_LONGEST]}..."
        self.why = why
        self.dialect = dialect
        because = f": {why}" if why else ""
        super().__init__(
            f"{dialect} cannot express the field {self.field!r}{because}."
            if dialect
            else f"The field {self.field!r} cannot be said in another dialect{because}.",
            hint=hint
            or "Leave it out, or ask for a model whose provider speaks this request's dialect.",
        )

    def at(self, place: str) -> Untranslatable:
        """Say the same of the place where the client said it."""
        return Untranslatable(place, self.why, dialect=self.dialect)


class NoThread(Untranslatable):
    """A request is one turn of a conversation that Anthropic would keep.

    The label is Anthropic's own word: after it its SDKs send the whole conversation.
    """

    label = "thread_unsupported_request"


class Fault(msgspec.Struct, frozen=True):
    """An error that a provider reports.

    `code` is its own word for it, or ours (malformed, blocked, http_NNN, error). `status` is an
    HTTP status that it named, None where it named none. `words` are its own, as it said them.
    """

    code: str
    message: str
    status: int | None = None
    words: ErrorWords = NO_WORDS


NOT_UTF8: Final = Fault("malformed", "The answer holds bytes that are not UTF-8.")


def clean(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Make one line of a provider's words: keys masked, at most `limit` characters."""
    if len(text) <= _WORD and text.isalpha() and text.isascii():
        return text  # "stop", "length": too short for any secret
    line = " ".join(text[: limit * 20].split())
    for secret in _SECRETS:
        line = secret.sub(MASK, line)
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def fault(status: int, body: bytes) -> Fault:
    """Read an error answer of status 400 or above."""
    found = _from_bytes(body)
    if found is not None:
        code = found.code if found.code != "error" else f"http_{status}"
        message = found.message or f"The provider answered {status}."
        return Fault(code, message, status, found.words)
    return Fault(f"http_{status}", _plain(body) or f"The provider answered {status}.", status)


def malformed(data: bytes) -> Fault:
    """Explain an answer of status 200 that is not of its dialect.

    An error object in another family's shape is that error, not a riddle. What may hold an answer
    is named and not quoted: the sentence goes into records.
    """
    found = _from_bytes(data)
    if found is not None:
        return found
    start = data[:_WORD].lstrip()
    if start.startswith((b"{", b"[")):
        excerpt = "JSON of another shape, or broken JSON"
    elif start.startswith((b"data:", b"event:")):
        excerpt = "a stream of events"
    else:
        excerpt = _plain(data)
    return Fault("malformed", f"Not an answer of this dialect: {excerpt or 'nothing at all'}")


def from_value(value: Any) -> Fault | None:
    """Read a decoded JSON value that may be an error object; None if it does not look like one."""
    if isinstance(value, list):
        return next((found for item in value[:4] if (found := from_value(item))), None)
    if not isinstance(value, dict):
        return None
    for field in ("error", "errors", "detail"):
        inner = value.get(field)
        if isinstance(inner, str) and inner:
            return _made(value, inner)
        if isinstance(inner, dict) and inner:
            return _made(inner, _sentence(inner))
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            return _made(inner[0], _sentence(inner[0]))
    message = value.get("message") or value.get("msg")
    found = None
    if isinstance(message, dict | list):
        found = from_value(message)
    elif isinstance(message, str):
        if message.startswith('{"detail"'):  # JSON inside JSON: Mistral
            found = _from_bytes(message.encode())
        found = found or _made(value, message)
    return found


def error_of(value: Any) -> Fault:
    """Read the value of an `error` field, which is an error whatever it looks like."""
    if isinstance(value, dict):
        return _made(value, _sentence(value))
    text = clean(value) if isinstance(value, str) else ""
    return Fault("error", text or "The provider reported an error without a message.")


def _made(source: dict[str, Any], message: str) -> Fault:
    status = None
    words = []
    for field in ("code", "type", "error_type", "status"):
        word = source.get(field)
        if isinstance(word, str) and word.isdecimal():
            word = int(word[:9])
        if isinstance(word, int) and not isinstance(word, bool):
            status = status or (word if 400 <= word <= 599 else None)
        elif isinstance(word, str) and word and word != "error":
            words.append(word)
    code = clean(words[0], CODE_LIMIT) if words else f"http_{status}" if status else "error"
    own = _words(source)
    if isinstance(source.get("loc"), list) and own.param:
        message = f"{message}: {own.param}"
    return Fault(code, clean(message), status, own)


def _words(source: dict[str, Any]) -> ErrorWords:
    """Keep the names that an error object has for itself; a checked field is named by its place."""
    code, place = source.get("code"), source.get("loc")
    kinds = (source.get(field) for field in ("type", "error_type", "status"))
    kind = next((word for word in kinds if isinstance(word, str) and word != "error"), "")
    param = source.get("param")
    if isinstance(place, list):  # of FastAPI and pydantic: [{"type", "loc", "msg"}]
        steps = [str(step) for step in place[:8] if step != "body"]
        return ErrorWords(clean(kind, CODE_LIMIT), "", clean(".".join(steps), CODE_LIMIT))
    if isinstance(code, bool) or not isinstance(code, str | int) or code == "":
        code = None
    return ErrorWords(
        clean(code, CODE_LIMIT) if isinstance(code, str) else code,
        clean(kind, CODE_LIMIT),
        clean(param, CODE_LIMIT) if isinstance(param, str) else "",
        details=_details(source.get("details")),
    )


def _details(value: Any) -> str:
    """Clean Google's list or Anthropic's object; what is too large for an error is left out."""
    if not isinstance(value, list | dict) or not value:
        return ""
    try:
        text = msgspec.json.encode(_cleaned(value, _DEEPEST)).decode()
    except (ValueError, TypeError):
        return ""
    return text if len(text) <= DETAILS_LIMIT else ""


def _cleaned(value: Any, depth: int) -> Any:
    """Clean every text inside a JSON value; what is nested too deeply is left out."""
    if isinstance(value, str):
        return clean(value)
    if not depth:
        return None
    if isinstance(value, dict):
        return {clean(name): _cleaned(one, depth - 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_cleaned(one, depth - 1) for one in value]
    return value


def _sentence(error: dict[str, Any]) -> str:
    """Find the sentence in an error object; an aggregator hides the real one in `metadata.raw`."""
    for field in ("message", "msg", "detail", "description", "error"):
        text = error.get(field)
        if isinstance(text, str) and text:
            break
    else:
        return "The provider reported an error without a message."
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return f"{text}: {raw}" if isinstance(raw, str) and raw else text


def _from_bytes(body: bytes) -> Fault | None:
    if len(body) > SHALLOW_BYTES and too_deep(body):
        return None
    try:
        return from_value(any_json.decode(body))
    except (ValueError, RecursionError):
        return None


def _plain(body: bytes) -> str:
    """Say what bytes that are no error object look like: a page by its title, a text by itself."""
    head = body[:READ_LIMIT]
    if _HTML.match(head):
        title = _TITLE.search(head)
        import html  # with its thousands of names: for the page of a proxy alone

        text = clean(html.unescape(title[1].decode("utf-8", "replace"))) if title else ""
        return f"an HTML page titled {text!r}" if text else "an HTML page without a title"
    return clean(head.decode("utf-8", "replace"))


def status_of(fault: Fault) -> int:
    """Say which status a provider's error inside a good answer amounts to."""
    return fault.status or _STATUS.get(fault.code.lower(), UPSTREAM)


def word_of(words: Mapping[int, str], status: int) -> str:
    """Find a dialect's word for a status; unlisted ones have that of 400 or of 500."""
    return words.get(status) or words[400 if status < 500 else 500]
