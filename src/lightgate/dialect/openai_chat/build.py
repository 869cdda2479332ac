"""Builds requests of OpenAI chat completions, and what other OpenAI endpoints share with them."""

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
from lightgate.dialect.request import Text

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Image, Message, Request, Schema, Tool

NAME: Final = "openai chat"
CHAT: Final = "openai-chat"


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /chat/completions."""
    refuse(request, NAME, "prompt", "inputs", "top_k")
    need(request, NAME, "messages")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [message(said, NAME) for said in request.messages],
    }
    sampling(body, request)
    tools(body, request)
    if request.schema is not None:
        form = {"type": "json_schema", "json_schema": schema_words(request.schema)}
        body["response_format"] = form
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    put(
        body,
        reasoning_effort=request.reasoning,
        logprobs=request.logprobs or None,
        top_logprobs=request.top_logprobs,
        verbosity=request.verbosity,
    )
    quirks.adapt(body, NAME)
    return built("/chat/completions", body, request.extra, stream=request.stream)


def message(said: Message, dialect: str) -> dict[str, Any]:
    """Build one turn."""
    out: dict[str, Any] = {"role": said.role}
    if said.role == "tool":
        if said.tool_call_id is None:
            raise cannot(dialect, place_of(said), "a tool's result without its 'tool_call_id'")
        return out | {"tool_call_id": said.tool_call_id, "content": result_text(said, dialect)}
    if said.tool_call_id is not None:
        raise cannot(dialect, place_of(said, "tool_call_id"), f"a message of role {said.role!r}")
    if said.tool_calls and said.role != "assistant":
        raise cannot(dialect, place_of(said, "tool_calls"), f"a message of role {said.role!r}")
    content = spoken(said)
    if isinstance(content, str):
        out["content"] = content or (None if said.tool_calls else "")
    else:
        out["content"] = [_part(part) for part in content]
    for raw in own_thoughts(said, CHAT):
        out |= raw
    if said.name is not None:
        out["name"] = said.name
    if said.tool_calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in said.tool_calls
        ]
    return out


def sampling(body: dict[str, Any], request: Request) -> None:
    """Add the wishes that chat and completions share."""
    put(
        body,
        stream=request.stream or None,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=list(request.stop),
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        seed=request.seed,
        min_tokens=request.min_tokens,
        ignore_eos=request.ignore_eos or None,
    )


def tools(body: dict[str, Any], request: Request) -> None:
    """Add tools and the choice among them to a chat body."""
    if request.tools:
        listed = [{"type": "function", "function": function(tool)} for tool in request.tools]
        body["tools"] = listed
    if request.tool_choice is not None:
        name = chosen_tool(request)
        named = {"type": "function", "function": {"name": name}}
        body["tool_choice"] = named if name else request.tool_choice
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls


def schema_words(asked: Schema) -> dict[str, Any]:
    """Describe the form of an answer."""
    out: dict[str, Any] = {"name": asked.name, "schema": asked.schema, "strict": asked.strict}
    put(out, description=asked.description or None)
    return out


def function(tool: Tool) -> dict[str, Any]:
    """Describe a function; no parameters means none."""
    out: dict[str, Any] = {"name": tool.name}
    put(out, description=tool.description or None, parameters=tool.parameters, strict=tool.strict)
    return out


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    image: dict[str, Any] = {"url": image_url(part)}
    put(image, detail=part.detail)
    return {"type": "image_url", "image_url": image}
