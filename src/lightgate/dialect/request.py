"""A request in no dialect, and what a dialect makes of it.

`Request` is the seam for translation between dialects: every dialect builds a provider's request
from it, and `lightgate.dialect.translate.read_request` reads a client's body into it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from lightgate.dialect.generation import Generation

Kind = Literal[
    "chat",
    "completion",
    "responses",
    "embedding",
    "count",
    "speech",
    "transcription",
    "translation",
]
# Endpoints that a provider has only where its row says so; the others are tried everywhere.
RARE: Final = frozenset(("responses", "count", "speech", "transcription", "translation"))
Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolWord = Literal["auto", "none", "required"]
Untold = Literal["drop", "refuse"]
Shown = Literal["omitted", "auto", "concise", "detailed"]
Hosted = Literal["web_search", "web_fetch", "code_execution"]
Form = Literal["function", "custom", "local_shell"]


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of text inside a message; `signature` is what Gemini signed it with.

    `place` is where a client said that signature.
    """

    text: str
    signature: str | None = None
    place: str = ""


class Image(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image, by address or by value; exactly one of `url` and `data` is set.

    `media_type` goes with `data` and is required there; base64 is the builder's business.
    `detail` is OpenAI's wish for its resolution, `place` where a client said that.
    """

    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    detail: str | None = None
    place: str = ""


class File(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    """A document or a sound; `url` is an http, https or data: address.

    `place` is where a client said its name.
    """

    url: str
    media_type: str = "application/pdf"
    name: str = ""
    place: str = ""


class Thought(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thought"):
    """Reasoning that a model handed out and wants back: `raw`, in the words of `dialect` alone.

    `place` is where a client said it.
    """

    dialect: str
    raw: dict[str, Any]
    place: str = ""


Part = Text | Image | File | Thought


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model made; `arguments` is the JSON text exactly as it wrote it.

    `signature` is Gemini's seal on it, and `place` where a client said that.
    """

    id: str
    name: str
    arguments: str
    signature: str | None = None
    place: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn; a tool's result has the role `tool` and names the call that it answers.

    `is_error` marks the result of a tool that failed. `place` is where a client said it.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    place: str = ""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call; `parameters` is a JSON schema.

    `strict`: its arguments are made to follow the schema; None leaves that to the provider. `form`
    and `known_as` are how the client knows it: as a tool that takes free text (custom), as its own
    shell, or by a name that no other dialect has (a namespace and a name in it).
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool | None = None
    form: Form = "function"
    known_as: tuple[str, str] | None = None  # the namespace, which may be empty, and the name


class CallForm(msgspec.Struct, frozen=True):
    """How a call of a function is said to the client, which knows the tool otherwise."""

    form: Form
    namespace: str
    name: str


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON schema that the answer must follow."""

    name: str
    schema: dict[str, Any]
    strict: bool = True
    description: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request in no dialect; None or empty means "not asked for".

    `tool_choice` is auto, none, required, or the name of one of `tools`. `reasoning` is an effort
    in words (none, minimal, low, medium, high, ...) or a budget in tokens. `extra` are fields for
    the body in the provider's own words; they are merged last, objects into objects, and win.

    `json_object` wants any JSON object where `schema` wants a certain one. `thoughts` says whether
    reasoning is shown. `client` is the dialect that it was read from, empty if it is our own, and
    `places` maps a field of this record to where the client said it. `untranslatable` says what
    becomes of a wish that the target cannot be told, and `dropped` are the paths of those that
    were left out while it was read. `hosted` are tools that the provider itself carries out.
    `generation` says what the model takes.
    """

    model: str
    messages: tuple[Message, ...] = ()
    kind: Kind = "chat"
    stream: bool = True
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool = False
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    schema: Schema | None = None
    reasoning: str | int | None = None
    inputs: tuple[str, ...] = ()
    dimensions: int | None = None
    prompt: str | None = None
    extra: dict[str, Any] = {}
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    json_object: bool = False
    verbosity: str | None = None
    thoughts: Shown | None = None
    client: str = ""
    places: dict[str, str] = {}
    untranslatable: Untold = "refuse"
    dropped: tuple[str, ...] = ()
    hosted: tuple[Hosted, ...] = ()
    generation: Generation = Generation()


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a dialect's words; `path` is relative to the provider's base URL.

    `dropped` are the client's JSON paths of what it does not say. `forms` are the tools, by the
    name that they have here, whose calls the client knows otherwise.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    dropped: tuple[str, ...] = ()
    forms: dict[str, CallForm] = {}
