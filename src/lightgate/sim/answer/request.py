"""A request to the simulator, read from the body of any dialect.

Only the fields that shape the answer are read; all others are ignored, as providers ignore them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from lightgate.sim.answer.tools import (
    OfferedTool,
    ToolResults,
    offered_tools,
    read_choice,
    read_results,
)

if TYPE_CHECKING:
    from lightgate.sim.world import Family

Kind = Literal[
    "chat",
    "completions",
    "responses",
    "embeddings",
    "input_tokens",
    "speech",
    "transcriptions",
    "translations",
    "messages",
    "count_tokens",
    "gemini",
    "countTokens",
    "embedContent",
    "batchEmbedContents",
]
FAMILY_OF: Final[dict[Kind, Family]] = {
    "chat": "openai",
    "completions": "openai",
    "responses": "openai",
    "embeddings": "openai",
    "input_tokens": "openai",
    "speech": "openai",
    "transcriptions": "openai",
    "translations": "openai",
    "messages": "anthropic",
    "count_tokens": "anthropic",
    "gemini": "gemini",
    "countTokens": "gemini",
    "embedContent": "gemini",
    "batchEmbedContents": "gemini",
}
COUNTS: Final = frozenset(("input_tokens", "count_tokens", "countTokens"))
VECTORS: Final = frozenset(("embeddings", "embedContent", "batchEmbedContents"))
FORMS: Final = frozenset(("transcriptions", "translations"))
SOUND: Final = FORMS | {"speech"}
WHOLE_KINDS: Final = COUNTS | VECTORS  # answers that are never streamed, and have no tokens
BYTES_PER_SECOND: Final = 16_000  # of a recording
NO_THREADS: Final = "thread_unsupported_request"  # after it, Anthropic's SDKs send all messages
LONGEST: Final = 1_000_000  # tokens
MOST_ANSWERS: Final = 128  # to one prompt, in OpenAI's dialect
MOST_CANDIDATES: Final = 8  # the same in Gemini's
_SYSTEM: Final = ("system", "systemInstruction", "instructions")  # each dialect's own


class BadSimRequest(Exception):  # noqa: N818 - the request is bad, not the program
    """A request that gets an error; the message and the status are the answer's."""

    def __init__(
        self, message: str, status: int = 400, details: dict[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.details = details  # of Anthropic's errors


class SimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for tokens."""

    kind: Kind
    model: str  # as written
    stream: bool
    cap: int | None  # most tokens out
    fill: bool  # ignore_eos: the cap is the length
    least: int  # min_tokens: fewest tokens out
    usage_asked: bool
    tokens_in: int
    prompt: str  # all text of it, in order
    tool: bool  # a tool call is demanded
    no_tool: bool  # a tool call is forbidden
    tool_name: str | None  # the tool that is demanded, else the first on offer
    tools: tuple[OfferedTool, ...]  # on offer
    results: ToolResults  # in the conversation so far
    json: bool  # the text must be JSON
    inputs: tuple[str, ...] = ()
    encoding: str = "float"
    dimensions: int | None = None
    previous: str | None = None  # the response that this one goes on from
    store: bool = True  # whether a response may be asked for again
    form: str = ""  # of sound, or of a transcript
    stream_format: str = ""  # of speech: bytes, or "sse"
    seconds: float = 0.0  # of a recording
    answers: int = 1  # to the same prompt

    @property
    def model_name(self) -> str:
        """The model without a fault's suffix."""
        return self.model.partition("!")[0]

    @property
    def fault(self) -> str:
        """The fault in the model's suffix, or nothing."""
        return self.model.partition("!")[2]


def read_request(
    kind: Kind, body: bytes, path_model: str = "", *, stream: bool = False
) -> SimRequest:
    """Read a body; Gemini names model and streaming in the path."""
    recording = b""
    try:
        if kind in FORMS:
            tree, recording = _form_of(body)
        else:
            tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadSimRequest("The body is not valid JSON.") from None
    if not isinstance(tree, dict):
        raise BadSimRequest("The body is not a JSON object.")
    if kind == "countTokens" and isinstance(tree.get("generateContentRequest"), dict):
        tree = tree["generateContentRequest"]
    model = path_model or tree.get("model")
    if not isinstance(model, str) or not model:
        raise BadSimRequest("The field `model` is missing.")
    if kind == "messages" and tree.get("thread") is not None:
        unsupported: dict[str, object] = {"error_code": NO_THREADS, "unsupported": ["thread"]}
        raise BadSimRequest("Conversations are not kept here.", details=unsupported)
    content, field = _content(kind, tree)
    if content is None:
        raise BadSimRequest(f"The field `{field}` is missing.")
    prompt = "".join(map(_text, (*map(tree.get, _SYSTEM), content)))
    choice, cap, tools = read_choice(tree), _cap(kind, tree), offered_tools(tree)
    return SimRequest(
        kind=kind,
        model=model,
        stream=kind == "speech" or (stream if path_model else tree.get("stream") in {True, "true"}),
        cap=cap,
        fill=tree.get("ignore_eos") is True,
        least=_count(tree.get("min_tokens"), "min_tokens", 0, cap or LONGEST) or 0,
        usage_asked=_is_true(tree.get("stream_options"), "include_usage"),
        tokens_in=max(len(prompt) // 4, 1),
        prompt=prompt,
        tool=choice.demanded,
        no_tool=choice.forbidden,
        tool_name=choice.name or next((tool.name for tool in tools), None),
        tools=tools,
        results=read_results(content),
        json=_wants_json(tree),
        inputs=_inputs(kind, content) if kind in VECTORS else (),
        encoding="base64" if tree.get("encoding_format") == "base64" else "float",
        dimensions=_dimensions(tree),
        previous=_previous(tree),
        store=tree.get("store") is not False,
        form=_word(tree.get("response_format")),
        stream_format=_word(tree.get("stream_format")),
        seconds=len(recording) / BYTES_PER_SECOND,
        answers=_answers(kind, tree),
    )


def _content(kind: Kind, tree: dict[str, Any]) -> tuple[Any, str]:
    field = {
        "chat": "messages",
        "completions": "prompt",
        "responses": "input",
        "embeddings": "input",
        "input_tokens": "input",
        "speech": "input",
        "transcriptions": "file",
        "translations": "file",
        "messages": "messages",
        "count_tokens": "messages",
        "gemini": "contents",
        "countTokens": "contents",
        "embedContent": "content",
        "batchEmbedContents": "requests",
    }[kind]
    content = tree.get(field)
    listed = field in {"messages", "contents", "requests"}
    if listed and not (isinstance(content, list) and content):
        content = None
    if kind == "messages" and content is not None and "max_tokens" not in tree:
        return None, "max_tokens"
    return content, field


def _cap(kind: Kind, tree: dict[str, Any]) -> int | None:
    if kind == "gemini":
        config = tree.get("generationConfig")
        value = config.get("maxOutputTokens") if isinstance(config, dict) else None
        return _count(value, "generationConfig.maxOutputTokens", 1, LONGEST)
    fields = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    field = next((name for name in fields if tree.get(name) is not None), "max_tokens")
    return _count(tree.get(field), field, 1, LONGEST)


def _answers(kind: Kind, tree: dict[str, Any]) -> int:
    if kind == "gemini":
        config = tree.get("generationConfig")
        asked = config.get("candidateCount") if isinstance(config, dict) else None
        return _count(asked, "generationConfig.candidateCount", 1, MOST_CANDIDATES) or 1
    if kind in {"chat", "completions"}:
        return _count(tree.get("n"), "n", 1, MOST_ANSWERS) or 1
    return 1


def _count(value: Any, field: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadSimRequest(f"The field `{field}` must be a number from {least} to {most}.")
    return value


def _is_true(tree: Any, field: str) -> bool:
    return isinstance(tree, dict) and tree.get(field) is True


def _wants_json(tree: dict[str, Any]) -> bool:
    wanted = tree.get("response_format")
    if isinstance(tree.get("text"), dict):
        wanted = tree["text"].get("format")
    config = tree.get("generationConfig")
    if isinstance(config, dict) and config.get("responseMimeType") == "application/json":
        return True
    return isinstance(wanted, dict) and wanted.get("type") in {"json_object", "json_schema"}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


class SimFormFile(NamedTuple):
    """The file of a multipart form: its field, its own name and its bytes."""

    field: str = ""
    name: str = ""
    content: bytes = b""


def form_parts(body: bytes) -> tuple[dict[str, str], SimFormFile]:
    """The plain fields of a multipart form, and its file."""
    boundary, _, rest = body.partition(b"\r\n")
    fields: dict[str, str] = {}
    file = SimFormFile()
    for part in rest.split(b"\r\n" + boundary):
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        match = re.search(rb'\bname="([^"]*)"', head)
        named = re.search(rb'filename="([^"]*)"', head)
        if match is None:
            continue
        if named is not None:
            file = SimFormFile(match[1].decode(), named[1].decode(), value)
        else:
            fields[match[1].decode()] = value.decode()
    return fields, file


def _form_of(body: bytes) -> tuple[dict[str, Any], bytes]:
    """The fields of a multipart form, and its recording."""
    fields, file = form_parts(body)
    said = {file.field: f"{len(file.content)} bytes"} if file.field else {}
    return {**fields, **said}, file.content


def _previous(tree: dict[str, Any]) -> str | None:
    found = tree.get("previous_response_id")
    return found if isinstance(found, str) and found else None


def _dimensions(tree: dict[str, Any]) -> int | None:
    requests = tree.get("requests")
    if isinstance(requests, list) and requests and isinstance(requests[0], dict):
        tree = requests[0]
    value = tree.get("dimensions") or tree.get("outputDimensionality")
    return min(value, 4096) if isinstance(value, int) and value > 0 else None


def _inputs(kind: Kind, content: Any) -> tuple[str, ...]:
    items = content if isinstance(content, list) else [content]
    if kind != "embeddings":
        return tuple(_text(item) for item in items)
    if items and all(isinstance(item, int) for item in items):
        items = [items]  # one text as token ids
    return tuple(item if isinstance(item, str) else repr(item) for item in items)


def _text(tree: Any) -> str:
    """All text of a tree, in order; a token id counts as four characters."""
    pieces, todo = [], [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            pieces.append(node)
        elif isinstance(node, list):
            todo.extend(reversed(node))
        elif isinstance(node, dict):
            inner = [node[key] for key in ("content", "text", "parts", "input") if key in node]
            todo.extend(reversed(inner))
        elif isinstance(node, int) and not isinstance(node, bool):
            pieces.append(f"{node % 10_000:4d}")
    return "".join(pieces)
