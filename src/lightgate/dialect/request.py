"""A request in no dialect, and what a dialect makes of it.

`Request` is the seam for translation between dialects: every dialect builds a provider's request
from it, and `lightgate.dialect.translate.read_request` reads a client's body into it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["chat", "completion", "responses", "embedding", "count"]
Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolWord = Literal["auto", "none", "required"]
Untold = Literal["drop", "refuse"]
Shown = Literal["omitted", "auto", "concise", "detailed"]


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of text inside a message; `signature` is what Gemini signed it with."""

    text: str
    signature: str | None = None


class Image(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image, by address or by value; exactly one of `url` and `data` is set.

    `media_type` goes with `data` and is required there; base64 is the builder's business.
    `detail` is OpenAI's wish for its resolution.
    """

    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    detail: str | None = None


class Thought(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thought"):
    """Reasoning that a model handed out and wants back: `raw`, in the words of `dialect` alone."""

    dialect: str
    raw: dict[str, Any]


Part = Text | Image | Thought


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model made; `arguments` is the JSON text exactly as it wrote it.

    `signature` is Gemini's seal on it.
    """

    id: str
    name: str
    arguments: str
    signature: str | None = None


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

    `strict`: its arguments are made to follow the schema; None leaves that to the provider.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool | None = None


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
    were left out while it was read.
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


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a dialect's words; `path` is relative to the provider's base URL.

    `dropped` are the client's JSON paths of what it does not say.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    dropped: tuple[str, ...] = ()
