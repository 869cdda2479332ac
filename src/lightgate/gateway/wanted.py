"""What a client wants: the few fields of its body that the gateway acts on, the rest untouched."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lightgate.errors import UsageError
from lightgate.gateway.paths import Path

Fields = dict[str, msgspec.Raw]

_fields: Final = msgspec.json.Decoder(Fields)
_word: Final = msgspec.json.Decoder(str)
_flag: Final = msgspec.json.Decoder(bool | None)
_number: Final = msgspec.json.Decoder(int | None)
_encode: Final = msgspec.json.Encoder().encode
_CAPS: Final = {  # where a dialect says how long an answer may be, the current name last
    "openai-chat": ("max_tokens", "max_completion_tokens"),
    "openai-completions": ("max_tokens",),
    "openai-responses": ("max_output_tokens",),
    "anthropic-messages": ("max_tokens",),
}
_GEMINI_CAP: Final = "maxOutputTokens"
BYTES_PER_TOKEN: Final = 4  # of a request's JSON; an estimate for reservations, never a count


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _GeminiConfig(msgspec.Struct):
    maxOutputTokens: int | None = None  # noqa: N815 - Gemini's own spelling


_options: Final = msgspec.json.Decoder(_StreamOptions | None)
_gemini_config: Final = msgspec.json.Decoder(_GeminiConfig | None)


class Wanted(msgspec.Struct, kw_only=True):
    """A request's facts. `fields` is its body, taken apart one level deep and not looked into."""

    path: Path
    model: str
    streamed: bool
    max_tokens: int | None
    include_usage: bool  # the client asked for OpenAI's extra chunk
    fields: Fields
    body: bytes
    tokens_in: int  # a guess, for reservations


def read_wanted(path: Path, body: bytes) -> Wanted:
    """Read the facts of a body; UsageError says what is wrong with it and where."""
    fields = _take_apart(body)
    model = path.model if path.model is not None else _model(fields)
    streamed = path.stream
    if streamed is None:
        raw = fields.get("stream")
        streamed = bool(_read(_flag, raw, "stream", "true or false")) if raw is not None else False
    include_usage = False
    raw = fields.get("stream_options")
    if raw is not None and path.dialect in {"openai-chat", "openai-completions"}:
        options = _read(_options, raw, "stream_options", "an object")
        include_usage = bool(options is not None and options.include_usage)
    return Wanted(
        path=path,
        model=model,
        streamed=streamed and path.kind != "embedding",
        max_tokens=_max_tokens(path.dialect, fields),
        include_usage=include_usage,
        fields=fields,
        body=body,
        tokens_in=len(body) // BYTES_PER_TOKEN + 1,
    )


def with_cap(dialect: str, fields: Fields, cap: int, field: str) -> Fields:
    """The fields with a limit on the answer's tokens; `field` is the name where none was given."""
    limit = msgspec.Raw(b"%d" % cap)
    if dialect == "gemini":
        raw = fields.get("generationConfig")
        config = _take_apart(bytes(raw)) if raw is not None and bytes(raw) != b"null" else {}
        config[_GEMINI_CAP] = limit
        return {**fields, "generationConfig": msgspec.Raw(_encode(config))}
    names = _CAPS.get(dialect, ())
    present = [name for name in names if name in fields]
    capped = dict(fields)
    for name in present or [field if dialect == "openai-chat" else names[-1]]:
        capped[name] = limit
    return capped


def _take_apart(body: bytes) -> Fields:
    if not body:
        raise UsageError("The request has no body.", hint="Send a JSON object.")
    try:
        if not body.isascii():
            body.decode("utf-8")
        return _fields.decode(body)
    except UnicodeDecodeError as error:
        raise UsageError(f"The body is not UTF-8: byte {error.start} is not part of it.") from None
    except msgspec.ValidationError:
        raise UsageError("The body is not a JSON object.", hint="Send {...}.") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise UsageError("The body is nested too deeply.") from None


def _model(fields: Fields) -> str:
    raw = fields.get("model")
    if raw is None:
        raise UsageError(
            "The request names no model.", hint="Set `model`; GET /v1/models lists them."
        )
    model: str = _read(_word, raw, "model", "a string")
    if not model or len(model) > 256 or not model.isprintable():
        raise UsageError("`model` is empty, or holds what no model's name does.")
    return model


def _max_tokens(dialect: str, fields: Fields) -> int | None:
    if dialect == "gemini":
        raw = fields.get("generationConfig")
        config = (
            None if raw is None else _read(_gemini_config, raw, "generationConfig", "an object")
        )
        return None if config is None else _positive(config.maxOutputTokens, _GEMINI_CAP)
    found: int | None = None
    for name in _CAPS.get(dialect, ()):
        raw = fields.get(name)
        if raw is not None:
            asked = _positive(_read(_number, raw, name, "a whole number"), name)
            found = asked if asked is not None else found
    return found


def _positive(value: int | None, name: str) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"`{name}` is below 1.")
    return value


def _read(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw, name: str, form: str) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise UsageError(f"`{name}` is not {form}.") from None
