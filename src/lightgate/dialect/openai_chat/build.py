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
    from lightgate.dialect.request import Built, Image, Message, Quirks, Request, Schema, Tool

NAME: Final = "openai chat"
CHAT: Final = "openai-chat"


def build(request: Request, quirks: Quirks) -> Built:
    """Say a request as POST /chat/completions."""
    refuse(request, NAME, "prompt", "inputs", "top_k")
    need(request, NAME, "messages")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [message(said, quirks, NAME) for said in request.messages],
    }
    streaming(body, request, quirks)
    put(body, **{quirks.max_tokens_field: request.max_tokens})
    sampling(body, request, quirks, NAME)
    tools(body, request)
    if request.schema is not None:
        if not quirks.schema:
            raise cannot(NAME, "schema", "this provider does not know it")
        form = {"type": "json_schema", "json_schema": schema_words(request.schema)}
        body["response_format"] = form
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    put(
        body,
        **_reasoning(request, quirks),
        logprobs=request.logprobs or None,
        top_logprobs=request.top_logprobs,
        verbosity=request.verbosity,
    )
    return built("/chat/completions", body, request.extra, stream=request.stream)


def _reasoning(request: Request, quirks: Quirks) -> dict[str, Any]:
    wish = request.reasoning
    if wish is None:
        return {}
    if quirks.reasoning_style == "object":
        return {"reasoning": {"effort": wish} if isinstance(wish, str) else {"max_tokens": wish}}
    if quirks.reasoning_style == "none":
        raise cannot(NAME, "reasoning", "this provider does not know it")
    if not isinstance(wish, str):
        raise cannot(NAME, "reasoning", "an effort in words is known, a budget in tokens is not")
    return {"reasoning_effort": wish}


def message(said: Message, quirks: Quirks, dialect: str) -> dict[str, Any]:
    """Say one turn in chat's words."""
    role = quirks.system_role if said.role in {"system", "developer"} else said.role
    out: dict[str, Any] = {"role": role}
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
    put(
        out,
        name=said.name,
        tool_calls=[
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in said.tool_calls
        ],
    )
    return out


def sampling(body: dict[str, Any], request: Request, quirks: Quirks, dialect: str) -> None:
    """Add the wishes that chat and completions share; UsageError for one the provider lacks."""
    put(
        body,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=list(request.stop),
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
    )
    if request.seed is not None:
        if quirks.seed_field is None:
            raise cannot(dialect, "seed", "this provider has none")
        body[quirks.seed_field] = request.seed
    if request.min_tokens is not None:
        if not quirks.min_tokens:
            raise cannot(dialect, "min_tokens", "this provider does not know it")
        body["min_tokens"] = request.min_tokens
    if request.ignore_eos:
        if not quirks.ignore_eos:
            raise cannot(dialect, "ignore_eos", "this provider does not know it")
        body["ignore_eos"] = True


def streaming(body: dict[str, Any], request: Request, quirks: Quirks) -> None:
    """Ask for a stream, for usage in it, and for no padding, where the provider knows the words."""
    if not request.stream:
        return
    body["stream"] = True
    options: dict[str, Any] = {}
    if quirks.stream_usage:
        options["include_usage"] = True
    if quirks.obfuscation:
        options["include_obfuscation"] = False
    put(body, stream_options=options)


def tools(body: dict[str, Any], request: Request) -> None:
    """Add tools and the choice among them to a chat body."""
    put(body, tools=[{"type": "function", "function": function(tool)} for tool in request.tools])
    name = chosen_tool(request)
    named = {"type": "function", "function": {"name": name}}
    put(body, tool_choice=named if name else request.tool_choice)
    put(body, parallel_tool_calls=request.parallel_tool_calls)


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
