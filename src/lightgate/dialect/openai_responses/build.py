"""Builds requests of OpenAI responses: typed items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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
from lightgate.dialect.openai_chat.build import function, schema_words
from lightgate.dialect.request import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Image, Message, Request

NAME: Final = "openai responses"
RESPONSES: Final = "openai-responses"
_CANNOT: Final = (
    *("prompt", "inputs", "stop", "seed", "min_tokens", "ignore_eos", "top_k"),
    *("presence_penalty", "frequency_penalty"),
)
LOGPROBS: Final = "message.output_text.logprobs"


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /responses."""
    refuse(request, NAME, *_CANNOT)
    need(request, NAME, "messages")
    items = [item for said in request.messages for item in _items(said, quirks)]
    body: dict[str, Any] = {"model": request.model, "input": items}
    if request.stream:
        body["stream"] = True
        put(body, stream_options=quirks.padding)
    put(
        body,
        max_output_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        # Functions are strict here unless told otherwise; elsewhere they are not.
        tools=[{"type": "function", "strict": False} | function(tool) for tool in request.tools],
    )
    name = chosen_tool(request)
    put(
        body,
        tool_choice={"type": "function", "name": name} if name else request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        include=[LOGPROBS] if request.logprobs else [],
        top_logprobs=request.top_logprobs,
        text=_text(request),
        reasoning=_reasoning(request),
    )
    return built("/responses", body, request.extra, stream=request.stream)


def _text(request: Request) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if request.schema is not None:
        out["format"] = {"type": "json_schema"} | schema_words(request.schema)
    elif request.json_object:
        out["format"] = {"type": "json_object"}
    put(out, verbosity=request.verbosity)
    return out


def _reasoning(request: Request) -> dict[str, Any]:
    if isinstance(request.reasoning, int):
        raise cannot(NAME, "reasoning", "an effort in words is known, a budget in tokens is not")
    shown = None if request.thoughts == "omitted" else request.thoughts
    out: dict[str, Any] = {}
    put(out, effort=request.reasoning or None, summary=shown)
    return out


def _items(said: Message, quirks: Quirks) -> Iterator[dict[str, Any]]:
    if said.name is not None and said.role != "tool":
        raise cannot(NAME, place_of(said, "name"), "messages have none")
    if said.role == "tool":
        if said.tool_call_id is None:
            raise cannot(NAME, place_of(said), "a tool's result without its 'tool_call_id'")
        output = _output(said)
        yield {"type": "function_call_output", "call_id": said.tool_call_id, "output": output}
        return
    yield from own_thoughts(said, RESPONSES)
    content = spoken(said)
    if content or not said.tool_calls:
        role = quirks.role(said.role)
        yield {"role": role, "content": _content(content, said.role)}
    for call in said.tool_calls:
        words = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call"} | words


def _output(said: Message) -> str | list[dict[str, Any]]:
    """Build a tool's result: one text, or parts if there is an image among them."""
    content = spoken(said)
    if isinstance(content, str) or all(isinstance(part, Text) for part in content):
        return result_text(said, NAME)
    parts = (Text("Error:"), *content) if said.is_error else content
    return [_part(part, "input_text") for part in parts]


def _content(content: str | tuple[Text | Image, ...], role: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    kind = "output_text" if role == "assistant" else "input_text"
    return [_part(part, kind) for part in content]


def _part(part: Text | Image, kind: str) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": kind, "text": part.text}
    out: dict[str, Any] = {"type": "input_image", "image_url": image_url(part)}
    put(out, detail=part.detail)
    return out
