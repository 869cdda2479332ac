"""One line of a batch file: read and checked, and the lines of results that are written.

Three forms are read, and may be mixed: OpenAI's (`custom_id`, `method`, `url`, `body`), Anthropic's
(`custom_id`, `params`), and plain prompts (`{"prompt": ...}`, `{"messages": [...]}`, a JSON string,
or a line of text). A line that is wrong becomes a `BadLine` with its number and the reason; the
others are not touched by it. A file is read line by line, so its size does not matter.
"""

from __future__ import annotations

import hashlib
import re
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.dialect.registry import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_BYTES: Final = 8 * 1024 * 1024  # of one line, unless the reader is told otherwise
ID_CHARS: Final = 512  # of a custom_id, same
_KINDS: Final = frozenset(("chat", "completion", "responses", "embedding"))
CHAT: Final = "openai-chat"
MESSAGES: Final = "anthropic-messages"
# What a line's `url` may be: the endpoints whose answers are whole JSON documents.
URLS: Final = {
    f"/v1{one.path}": one.name for one in DIALECTS.values() if one.path and one.kind in _KINDS
}
_LIMITS: Final = ("max_tokens", "output_length", "output_tokens_count")
_OWN_NAMES: Final = frozenset(("prompt", "text", "custom_id", "id", *_LIMITS))
_BOM: Final = b"\xef\xbb\xbf"
_HASH_BYTES: Final = 16
_ANTHROPIC_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Form = Literal["auto", "json", "text"]
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class BatchLine(msgspec.Struct, frozen=True, gc=False):
    """A line that can be sent; `body` is a request's JSON object in the words of `dialect`.

    `number` counts the lines of the file from 1, `model` is the body's own, "" where it names none.
    """

    number: int
    custom_id: str
    dialect: str
    body: bytes
    model: str = ""

    @property
    def url(self) -> str:
        """The path of the endpoint that the line asks."""
        return f"/v1{DIALECTS[self.dialect].path}"


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that cannot be sent: `code` is a word for programs, `message` a sentence."""

    number: int
    custom_id: str | None
    code: str
    message: str


class LineRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader accepts.

    `form`: "json" takes OpenAI's and Anthropic's lines alone, "text" takes every line as a prompt,
    "auto" takes all. `url` is the only endpoint that lines may ask, "" for any. `strict`: OpenAI's
    lines must have `method` and `url`, and Anthropic's ids must be of Anthropic's form.
    """

    form: Form = "auto"
    url: str = ""
    strict: bool = False
    most_bytes: int = LINE_BYTES
    most_id: int = ID_CHARS


class _Refused(Exception):  # noqa: N818 - becomes a BadLine
    """The reason why a line cannot be sent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class LineReader:
    """Reads lines and knows the ids of those before: sixteen bytes of each are kept."""

    def __init__(self, rules: LineRules = LineRules()) -> None:  # noqa: B008 - frozen
        self._rules = rules
        self._seen: set[bytes] = set()
        self._text = rules.form == "text"  # whether a line without JSON's signs is a prompt

    def lines(self, file: IO[bytes]) -> Iterator[BatchLine | BadLine]:
        """Read a file from its beginning; blank lines are passed over but counted."""
        number, most = 0, self._rules.most_bytes
        first = True
        while raw := file.readline(most + 1):
            number += 1
            whole = len(raw) <= most or raw.endswith(b"\n")
            while raw and not raw.endswith(b"\n") and len(raw) > most:
                raw = file.readline(most + 1)
            if not whole:
                size = f"The line is longer than {most:,} bytes."
                yield BadLine(number, None, "line_too_large", size)
                continue
            text = raw.removeprefix(_BOM).strip() if number == 1 else raw.strip()
            if not text:
                continue
            if first and self._rules.form == "auto":
                self._text = text[:1] not in b'{"['
            first = False
            yield self.take(number, text)

    def take(self, number: int, raw: bytes) -> BatchLine | BadLine:
        """Read one line; its number is the place that an error names."""
        custom_id: str | None = None
        try:
            fields = self._fields(number, raw)
            custom_id = self._id(number, fields)
            line = self._line(number, custom_id, fields)
            self._know(custom_id)
        except _Refused as refused:
            return BadLine(number, custom_id, refused.code, refused.message)
        return line

    def _fields(self, number: int, raw: bytes) -> dict[str, msgspec.Raw]:
        """Return the fields of a JSON object; a prompt becomes one with `prompt` alone."""
        form = self._rules.form
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise _Refused("invalid_json_line", "The line is not UTF-8.") from None
        plain = form == "text" or (form == "auto" and self._text and raw[:1] not in b'{"')
        if plain:
            return {"prompt": msgspec.Raw(_encode(text))}
        if raw[:1] == b'"' and form != "json":
            said = _value(msgspec.Raw(raw))
            if not isinstance(said, str):
                raise _Refused("invalid_json_line", "The line is not a whole JSON string.")
            return {"prompt": msgspec.Raw(raw)}
        try:
            return _decode(raw)
        except msgspec.ValidationError:
            raise _Refused("invalid_json_line", "The line is JSON, but not an object.") from None
        except (msgspec.DecodeError, RecursionError) as reason:
            said = "" if isinstance(reason, RecursionError) else f": {reason}"
            raise _Refused("invalid_json_line", f"Line {number} is not JSON{said}.") from None

    def _id(self, number: int, fields: dict[str, msgspec.Raw]) -> str:
        raw = fields.get("custom_id")
        if raw is None and ("body" in fields or "params" in fields):
            raise _Refused("missing_required_parameter", 'The line has no "custom_id".')
        if raw is None:
            raw = fields.get("id")
        if raw is None:
            return f"line-{number}"
        custom_id = _value(raw)
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= self._rules.most_id:
            limit = f"a text of 1 to {self._rules.most_id} characters"
            raise _Refused("invalid_custom_id", f'"custom_id" is not {limit}.')
        return custom_id

    def _line(self, number: int, custom_id: str, fields: dict[str, msgspec.Raw]) -> BatchLine:
        if "params" in fields:
            dialect, body = self._anthropic(custom_id, fields)
        elif "body" in fields or self._rules.form == "json":
            dialect, body = self._openai(fields)
        else:
            dialect, body = CHAT, _plain_body(fields)
        wanted = self._rules.url
        if wanted and URLS.get(wanted) != dialect:
            raise _Refused("mismatched_url", f"The line asks {_url(dialect)}, and not {wanted}.")
        try:
            inner = _decode(body)
        except (msgspec.DecodeError, msgspec.ValidationError):
            where = "params" if "params" in fields else "body"
            raise _Refused("invalid_body", f'"{where}" is not a JSON object.') from None
        model = _value(inner["model"]) if "model" in inner else ""
        if not isinstance(model, str):
            raise _Refused("invalid_body", '"model" is not a text.')
        return BatchLine(number, custom_id, dialect, bytes(body), model)

    def _openai(self, fields: dict[str, msgspec.Raw]) -> tuple[str, msgspec.Raw]:
        if "body" not in fields:
            name = "params" if URLS.get(self._rules.url) == MESSAGES else "body"
            raise _Refused("missing_required_parameter", f'The line has no "{name}".')
        strict = self._rules.strict
        for name in ("method", "url"):
            if strict and name not in fields:
                raise _Refused("missing_required_parameter", f'The line has no "{name}".')
        if "method" in fields and _value(fields["method"]) != "POST":
            raise _Refused("invalid_method", '"method" is not "POST".')
        if "url" not in fields:
            return URLS.get(self._rules.url, CHAT), fields["body"]
        url = _value(fields["url"])
        dialect = URLS.get(url) if isinstance(url, str) else None
        if dialect is None:
            known = ", ".join(URLS)
            raise _Refused("invalid_url", f'"url" is none of {known}.')
        return dialect, fields["body"]

    def _anthropic(self, custom_id: str, fields: dict[str, msgspec.Raw]) -> tuple[str, msgspec.Raw]:
        if self._rules.strict and not _ANTHROPIC_ID.fullmatch(custom_id):
            form = "1 to 64 letters, digits, hyphens and underscores"
            raise _Refused("invalid_custom_id", f'"custom_id" does not consist of {form}.')
        return MESSAGES, fields["params"]

    def _know(self, custom_id: str) -> None:
        """Refuse an id that an earlier line has."""
        known = hashlib.blake2b(custom_id.encode(), digest_size=_HASH_BYTES).digest()
        if known in self._seen:
            raise _Refused("duplicate_custom_id", f"An earlier line has the id {custom_id!r}.")
        self._seen.add(known)


def _url(dialect: str) -> str:
    return f"/v1{DIALECTS[dialect].path}"


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _plain_body(fields: dict[str, msgspec.Raw]) -> msgspec.Raw:
    """Write a chat request from a prompt or from messages; fields of a request stay in it."""
    body = {name: raw for name, raw in fields.items() if name not in _OWN_NAMES}
    prompt = fields.get("prompt", fields.get("text"))
    if (prompt is None) == ("messages" not in fields):
        raise _Refused(
            "missing_required_parameter",
            'The line needs "body", "params", "prompt" or "messages", and only one of them.',
        )
    if prompt is not None:
        said = _value(prompt)
        if not isinstance(said, str) or not said.strip():
            raise _Refused("invalid_body", '"prompt" is not a text.')
        body["messages"] = msgspec.Raw(_encode([{"role": "user", "content": said}]))
    limit = next((fields[name] for name in _LIMITS if name in fields), None)
    if limit is not None:
        body["max_tokens"] = limit
    return msgspec.Raw(_encode(body))


class LineError(msgspec.Struct, frozen=True, gc=False):
    """Why a line has no answer; `line` is its number where the file itself is wrong."""

    code: str
    message: str
    line: int | None = None


class LineResult(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of a line: an answer with its status and body, or an error.

    `body` is a JSON document in the line's dialect, also that of an error answer. An `error` is for
    a line that was never answered: "batch_expired", "batch_cancelled", or a `BadLine`'s code.
    """

    id: str
    custom_id: str | None
    status: int = 0
    request_id: str = ""
    body: bytes = b"null"
    error: LineError | None = None

    @property
    def ok(self) -> bool:
        """Whether the line has its answer."""
        return self.error is None and 200 <= self.status < 300


def bad_result(bad: BadLine, id: str) -> LineResult:  # noqa: A002 - the name of the field
    """Return the result of a line that cannot be sent."""
    error = LineError(bad.code, bad.message, bad.number)
    return LineResult(id=id, custom_id=bad.custom_id, error=error)


def openai_line(result: LineResult) -> bytes:
    """Write a line of OpenAI's output or error file, with its newline."""
    response = None
    if result.error is None:
        response = {
            "status_code": result.status,
            "request_id": result.request_id,
            "body": msgspec.Raw(result.body),
        }
    error: dict[str, Any] | None = None
    if result.error is not None:
        error = {"code": result.error.code, "message": result.error.message}
        if result.error.line is not None:
            error["line"] = result.error.line
    line = {"id": result.id, "custom_id": result.custom_id, "response": response, "error": error}
    return _one_line(_encode(line))


def anthropic_line(result: LineResult) -> bytes:
    """Write a line of Anthropic's results, with its newline."""
    return _one_line(_encode({"custom_id": result.custom_id, "result": _anthropic_result(result)}))


def _anthropic_result(result: LineResult) -> dict[str, Any]:
    if result.ok:
        return {"type": "succeeded", "message": msgspec.Raw(result.body)}
    error = result.error
    if error is not None and error.code == "batch_expired":
        return {"type": "expired"}
    if error is not None and error.code == "batch_cancelled":
        return {"type": "canceled"}
    if error is not None:
        inner = {"type": "invalid_request_error", "message": error.message}
        said: Any = {"type": "error", "error": inner, "request_id": result.request_id or None}
    else:
        said = msgspec.Raw(result.body)
    return {"type": "errored", "error": said}


def _one_line(encoded: bytes) -> bytes:
    """End a line; a provider's own body may be printed over several."""
    if b"\n" in encoded or b"\r" in encoded:
        encoded = msgspec.json.format(encoded, indent=-1)
    return encoded + b"\n"
