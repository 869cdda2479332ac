"""The body of a client's request: the few fields that are acted on, the rest untouched."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

import msgspec

from lightgate.dialect.neutral.json_text import SHALLOW_BYTES, too_deep
from lightgate.dialect.request import CallForm
from lightgate.errors import UsageError
from lightgate.gateway.request.endpoint import Endpoint
from lightgate.gateway.request.given import Given
from lightgate.route.cascade.complexity import Complexity

Fields = dict[str, msgspec.Raw]

_fields: Final = msgspec.json.Decoder(Fields)
_word: Final = msgspec.json.Decoder(str)
_flag: Final = msgspec.json.Decoder(bool | None)
_number: Final = msgspec.json.Decoder(int | None)
_float: Final = msgspec.json.Decoder(float | None)
_several: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_CAPS: Final = {  # where a dialect says how long an answer may be, the current name last
    "openai-chat": ("max_tokens", "max_completion_tokens"),
    "openai-completions": ("max_tokens",),
    "openai-responses": ("max_output_tokens",),
    "anthropic-messages": ("max_tokens",),
}
_GEMINI_CAP: Final = "maxOutputTokens"
_GEMINI_NAMES: Final = {  # Google reads both spellings, and so must we
    "generation_config": "generationConfig",
    "max_output_tokens": _GEMINI_CAP,
    "candidate_count": "candidateCount",
    "generate_content_request": "generateContentRequest",
    "output_dimensionality": "outputDimensionality",
}
_ACTED_ON: Final = frozenset(
    {"model", "stream", "stream_options", "n", "best_of", "prompt"}.union(*_CAPS.values())
)
_OPENAI: Final = frozenset(("openai-chat", "openai-completions"))
_PLAIN: Final = frozenset(("openai-chat", "anthropic-messages"))
_COMMON: Final = frozenset(  # names that need no look at their spelling
    [
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "n",
        "temperature",
        "top_p",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "user",
        "seed",
        "system",
        "metadata",
        "top_k",
        "stop_sequences",
        "thinking",
        "presence_penalty",
        "frequency_penalty",
        "parallel_tool_calls",
        "reasoning_effort",
    ]
)
_MOST_FIELDS: Final = 256
_SLOWEST: Final = 0.25  # of the usual speed of speech: what OpenAI takes
_TOO_DEEP: Final = "The body is nested too deeply."
_MOST_TOKENS: Final = 2**31  # of one answer; clients that want no limit say 2**31 - 1
_MOST_ANSWERS: Final = 1024
_MOST_PROMPTS: Final = 100_000
BYTES_PER_TOKEN: Final = 4  # of a request's JSON; an estimate for reservations, never a count


Pieces = tuple[bytes | memoryview, ...]  # of a body, sent one after the other


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _GeminiConfig(msgspec.Struct):
    maxOutputTokens: int | None = None  # noqa: N815 - Gemini's own spelling
    candidateCount: int | None = None  # noqa: N815 - same


class _Usual(msgspec.Struct):
    """The fields that are acted on, in a body of the OpenAI or Anthropic kind without faults."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = None


_usual: Final = msgspec.json.Decoder(_Usual)
# Fields that the usual reading does not look at: with one of them, each field is read by itself.
_UNUSUAL: Final = frozenset(("best_of", "prompt", "max_completion_tokens", "max_output_tokens"))
_options: Final = msgspec.json.Decoder(_StreamOptions | None)
_gemini_config: Final = msgspec.json.Decoder(_GeminiConfig | None)


class Sound(NamedTuple):
    """What is known of a request for sound before it is answered.

    `characters` are those that are to be spoken, None for a recording; `size` is its bytes. `text`
    are the bytes of all that is said beside it, and `slower` is how much longer speech is to take.
    """

    characters: int | None
    size: float = 0
    text: int = 0
    slower: float = 1.0


class FormBody(NamedTuple):
    """Where the model stands in a body, and the header line of its type."""

    body: bytes
    start: int
    end: int
    content_type: bytes
    sound: int  # bytes of the largest part: the recording

    def addressed(self, model: str) -> Pieces:
        """The body for another model, in pieces: a recording is large, and not copied."""
        view = memoryview(self.body)
        return view[: self.start], model.encode(), view[self.end :]


class Written(msgspec.Struct, frozen=True):
    """A body, the JSON paths of what it does not say, and tools that the client knows otherwise.

    `pieces` are a large body that is never put together: its fields, as the client sent them.
    `digest` is the SHA-256 of a large body, in hex, where its target has requests signed.
    """

    body: bytes
    dropped: tuple[str, ...] = ()
    forms: dict[str, CallForm] = {}
    pieces: Pieces = ()
    digest: str = ""


class LargeFacts(msgspec.Struct):
    """What was found in a large body when it was read; None, where nobody wanted to know.

    `billed` and `tools` are as in `hosted`. `refers`: its input names items of earlier responses.
    `count` are its tokens, estimated, and `shared` is the key under which its answer is shared.
    """

    billed: tuple[Given, bool] | None = None
    tools: dict[str, int] = {}
    complexity: Complexity | None = None
    refers: bool = False
    count: int | None = None
    shared: bytes | None = None


class ClientRequest(msgspec.Struct, kw_only=True):
    """A request's facts. `fields` is its body, taken apart one level deep and not looked into."""

    endpoint: Endpoint
    model: str
    streamed: bool
    max_tokens: int | None
    include_usage: bool  # the client asked for OpenAI's extra chunk
    fields: Fields
    body: bytes
    tokens_in: int  # a guess, for reservations
    trimmed: int = 0  # bytes of the prompt that were left out
    form: FormBody | None = None  # where the body is one
    answers: int = 1  # that were asked for; each may be as long as `max_tokens`
    found: LargeFacts | None = None  # of a large body, which is not looked into again
    # Of a large body, what each target is told: by its name, and whether its answer is a stream.
    written: dict[tuple[str, bool], Written | UsageError] | None = None

    @property
    def refers(self) -> bool:
        """Whether the input names items of earlier responses instead of saying them."""
        if self.found is not None:
            return self.found.refers
        return b'"item_reference"' in bytes(self.fields.get("input", b""))

    @property
    def sound(self) -> Sound:
        """What is known of a request for sound."""
        if self.form is not None:
            return Sound(None, self.form.sound, max(0, len(self.body) - self.form.sound))
        raw, speed = self.fields.get("input"), self.fields.get("speed")
        spoken = None if raw is None else _read(_word, raw, "input", "a text")
        times = None if speed is None else _read(_float, speed, "speed", "a number")
        slower = 1.0 if times is None else 1 / min(1.0, max(times, _SLOWEST))
        return Sound(len(spoken or ""), 0, len(self.body), slower)


def read_request_body(endpoint: Endpoint, body: bytes) -> ClientRequest:
    """Read the facts of a body; UsageError says what is wrong with it and where."""
    fields = _take_apart(body)
    dialect = endpoint.dialect
    if dialect in _PLAIN and _UNUSUAL.isdisjoint(fields):
        try:
            usual = _usual.decode(body)
        except ValueError:
            pass  # read field by field: the error names the one that is wrong
        else:
            if usual.model.isprintable():
                if not fields.keys() <= _COMMON:
                    _check_names(fields)
                options = usual.stream_options
                return ClientRequest(
                    endpoint=endpoint,
                    model=usual.model,
                    streamed=bool(usual.stream),
                    max_tokens=usual.max_tokens,
                    include_usage=bool(options and options.include_usage and dialect in _OPENAI),
                    fields=fields,
                    body=body,
                    tokens_in=len(body) // BYTES_PER_TOKEN + 1,
                )
    return _read_each(endpoint, fields, body)


def _read_each(endpoint: Endpoint, fields: Fields, body: bytes) -> ClientRequest:
    """Read the facts of a body field by field."""
    if endpoint.model is not None:
        fields = _gemini(fields)
    else:
        _check_names(fields)
    model = endpoint.model if endpoint.model is not None else _model(fields)
    streamed = endpoint.stream
    if streamed is None:
        raw = fields.get("stream")
        streamed = bool(_read(_flag, raw, "stream", "true or false")) if raw is not None else False
    include_usage = False
    raw = fields.get("stream_options")
    if raw is not None and endpoint.dialect in {"openai-chat", "openai-completions"}:
        options = _read(_options, raw, "stream_options", "an object")
        include_usage = bool(options is not None and options.include_usage)
    return ClientRequest(
        endpoint=endpoint,
        model=model,
        streamed=streamed and (endpoint.tokens or bool(endpoint.sound)),
        max_tokens=_max_tokens(endpoint.dialect, fields),
        include_usage=include_usage,
        fields=fields,
        body=body,
        tokens_in=len(body) // BYTES_PER_TOKEN + 1,
        answers=_answers(endpoint.dialect, fields),
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
    if len(body) > SHALLOW_BYTES and too_deep(body):
        raise UsageError(_TOO_DEEP)
    try:
        if not body.isascii():
            body.decode("utf-8")
        return _fields.decode(body)
    except UnicodeDecodeError as error:
        raise UsageError(f"The body is not UTF-8: byte {error.start} is not part of it.") from None
    except msgspec.ValidationError:
        raise UsageError("The body is not a JSON object.", hint="Send {...}.") from None
    except ValueError as error:
        raise UsageError(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise UsageError(_TOO_DEEP) from None


def _check_names(fields: Fields) -> None:
    """Some providers read names in any case: what we act on must be what they act on."""
    if len(fields) > _MOST_FIELDS:
        raise UsageError(f"The body has more than {_MOST_FIELDS} fields.")
    for name in fields:
        if name.isascii() and name.islower():
            continue
        if name not in _ACTED_ON and name.casefold() in _ACTED_ON:
            raise UsageError(f"Write the field {name!r} as `{name.casefold()}`.")


def _gemini(fields: Fields) -> Fields:
    """The fields in one spelling, each once: what is read here is what the provider gets."""
    fields = _one_spelling(fields)
    config = fields.get("generationConfig")
    if config is not None and bytes(config) != b"null":
        try:
            inner = _one_spelling(_fields.decode(config))
        except (ValueError, RecursionError):
            raise UsageError("`generationConfig` is not an object.") from None
        fields["generationConfig"] = msgspec.Raw(_encode(inner))
    return fields


def _one_spelling(fields: Fields) -> Fields:
    if len(fields) > _MOST_FIELDS:
        raise UsageError(f"The body has more than {_MOST_FIELDS} fields.")
    spelled: Fields = {}
    for name, value in fields.items():
        ours = _GEMINI_NAMES.get(name, name)
        if ours in spelled or (ours != name and ours in fields):
            raise UsageError(f"`{ours}` is given twice.")
        spelled[ours] = value
    return spelled


def _answers(dialect: str, fields: Fields) -> int:
    """How many answers are asked for; a completion has so many for each of its prompts."""
    if dialect == "gemini":
        raw = fields.get("generationConfig")
        config = (
            None if raw is None else _read(_gemini_config, raw, "generationConfig", "an object")
        )
        asked = None if config is None else config.candidateCount
        return _positive(asked, "candidateCount", _MOST_ANSWERS) or 1
    counts = [1]
    for name in ("n", "best_of"):
        raw = fields.get(name)
        if raw is not None and dialect in {"openai-chat", "openai-completions"}:
            asked = _positive(_read(_number, raw, name, "a whole number"), name, _MOST_ANSWERS)
            counts.append(asked or 1)
    prompt = fields.get("prompt") if dialect == "openai-completions" else None
    return max(counts) * (1 if prompt is None else _prompts(bytes(prompt)))


def _prompts(raw: bytes) -> int:
    """How many prompts stand in the field of that name: a text or a list of tokens is one."""
    if not raw.startswith(b"[") or not raw[1:].lstrip().startswith((b'"', b"[")):
        return 1
    if raw.count(b'"') + raw.count(b"[") > _MOST_PROMPTS:
        raise UsageError("`prompt` holds too many prompts.")
    return max(1, len(_read(_several, msgspec.Raw(raw), "prompt", "a text or a list")))


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
            # Of two, nobody knows which one the provider follows.
            found = asked if found is None or (asked is not None and asked > found) else found
    return found


def _positive(value: int | None, name: str, most: int = _MOST_TOKENS) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"`{name}` is below 1.")
    if value is not None and value > most:
        raise UsageError(f"`{name}` is above {most}.")
    return value


def _read(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw, name: str, form: str) -> Any:
    try:
        return decoder.decode(raw)
    except (ValueError, RecursionError):
        raise UsageError(f"`{name}` is not {form}.") from None
