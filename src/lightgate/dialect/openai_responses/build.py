"""Builds requests of OpenAI responses: typed items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.generation import effort_of
from lightgate.dialect.neutral.build import (
    built,
    cannot,
    chosen_tool,
    image_url,
    need,
    own_thoughts,
    place_of,
    put,
    refuse,
    result_text,
    spoken,
)
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.openai_chat.build import capped, file_name, function, schema_words
from lightgate.dialect.request import Image, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, File, Message, Request

NAME: Final = "openai responses"
RESPONSES: Final = "openai-responses"
_UNSAID: Final = ("seed", "top_k", "presence_penalty", "frequency_penalty")
_HOSTED: Final[dict[str, dict[str, Any]]] = {
    "web_search": {"type": "web_search"},
    "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
}
LOGPROBS: Final = "message.output_text.logprobs"


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /responses."""
    out = Omissions.of(request, NAME)
    refuse(request, NAME, "prompt", "inputs", "stop", "min_tokens", "ignore_eos")
    out.unsaid(request, *_UNSAID)
    need(request, NAME, "messages")
    items = [item for said in request.messages for item in _items(said, quirks, out)]
    body: dict[str, Any] = {"model": request.model, "input": items}
    if request.stream:
        body["stream"] = True
        put(body, stream_options=quirks.padding)
    # Functions are strict here unless told otherwise; elsewhere they are not.
    tools: list[dict[str, Any]] = [
        {"type": "function", "strict": False} | function(tool) for tool in request.tools
    ]
    for tool in request.hosted:
        if tool in _HOSTED and tool in quirks.hosted:
            tools.append(_HOSTED[tool])
        else:
            out.drop(f"hosted.{tool}", "it has no such tool of its own")
    put(
        body,
        max_output_tokens=capped(request),
        temperature=request.temperature,
        top_p=request.top_p,
        tools=tools,
    )
    name = chosen_tool(request)
    put(
        body,
        tool_choice={"type": "function", "name": name} if name else request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        include=[LOGPROBS] if request.logprobs else [],
        top_logprobs=request.top_logprobs,
        text=_text(request),
        reasoning=_reasoning(request, out),
    )
    return built("/responses", body, request.extra, stream=request.stream, out=out)


def _text(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.schema is not None:
        out["format"] = {"type": "json_schema"} | schema_words(request.schema)
    elif request.json_object:
        out["format"] = {"type": "json_object"}
    put(out, verbosity=request.verbosity)
    return out


def _reasoning(request: Request, out: Omissions) -> dict[str, Any]:
    wish, generation = request.reasoning, request.generation
    effort: str | None = None
    if generation.thinking == "none":
        if wish not in {None, "none", 0}:
            out.drop("reasoning", "this model does not think")
        return {}
    if wish is not None and generation.thinking == "effort":
        effort = generation.effort(wish)
    elif wish is not None:
        effort = effort_of(wish) if isinstance(wish, int) else wish
    shown = None if request.thoughts == "omitted" else request.thoughts
    told: dict[str, Any] = {}
    put(told, effort=effort, summary=shown)
    return told


def _items(said: Message, quirks: Quirks, out: Omissions) -> Iterator[dict[str, Any]]:
    if said.name is not None and said.role != "tool":
        out.drop(place_of(said, "name"), "messages have none")
    if said.role == "tool":
        if said.tool_call_id is None:
            raise cannot(NAME, place_of(said), "a tool's result without its 'tool_call_id'")
        output = _output(said)
        yield {"type": "function_call_output", "call_id": said.tool_call_id, "output": output}
        return
    yield from own_thoughts(said, RESPONSES, out)
    content = spoken(said)
    if content or not said.tool_calls:
        role = quirks.role(said.role)
        yield {"role": role, "content": _content(content, said)}
    for call in said.tool_calls:
        words = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call"} | words


def _output(said: Message) -> str | list[dict[str, Any]]:
    """Build a tool's result: one text, or parts if there is an image among them."""
    content = spoken(said)
    if isinstance(content, str) or all(isinstance(part, Text) for part in content):
        return result_text(said, NAME)
    parts = (Text("Error:"), *content) if said.is_error else content
    return [_part(part, "input_text", said) for part in parts]


def _content(
    content: str | tuple[Text | Image | File, ...], said: Message
) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    kind = "output_text" if said.role == "assistant" else "input_text"
    return [_part(part, kind, said) for part in content]


def _part(part: Text | Image | File, kind: str, said: Message) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": kind, "text": part.text}
    if isinstance(part, Image):
        out: dict[str, Any] = {"type": "input_image", "image_url": image_url(part)}
        put(out, detail=part.detail)
        return out
    if part.media_type.startswith(("audio/", "video/")):
        raise cannot(NAME, place_of(said), f"a file of the type {part.media_type!r}")
    if not part.url.startswith("data:"):
        told: dict[str, Any] = {"type": "input_file", "file_url": part.url}
        put(told, filename=part.name or None)
        return told
    name = part.name or file_name(part.media_type)
    return {"type": "input_file", "filename": name, "file_data": part.url}
