"""What the OpenAI endpoints share: usage, and the words of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.clock.tokens import Usage
from lightgate.dialect.facts import (
    cannot,
    chosen_tool,
    image_url,
    own_thoughts,
    place_of,
    put,
    result_text,
    spoken,
)
from lightgate.dialect.request import Text

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Image, Message, Request, Schema, Tool

CHAT: Final = "openai-chat"
MOST: Final = 1 << 40  # tokens; more than this is no count


def count(value: Any) -> int | None:
    """Read a token count; None for what cannot be one."""
    if value is None:
        return None
    if type(value) is int:
        return value if 0 <= value <= MOST else None
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool) or not 0 <= value <= MOST:
        return None
    return int(value)


def sub(value: dict[str, Any], field: str) -> dict[str, Any]:
    """Return an object inside an object, empty where there is none."""
    inner = value.get(field)
    return inner if isinstance(inner, dict) else {}


def chat_usage(value: Any) -> Usage | None:
    """Read the usage object of chat, completions and embeddings, with DeepSeek's cache fields."""
    if not isinstance(value, dict) or not value:
        return None
    details = sub(value, "prompt_tokens_details")
    cached = count(details.get("cached_tokens"))
    if cached is None:
        cached = count(value.get("prompt_cache_hit_tokens"))
    reasoning = count(sub(value, "completion_tokens_details").get("reasoning_tokens"))
    if reasoning is None:
        reasoning = count(value.get("reasoning_tokens"))
    return Usage(
        tokens_in=count(value.get("prompt_tokens")),
        tokens_out=count(value.get("completion_tokens")),
        tokens_reasoning=reasoning,
        tokens_cached=cached,
        tokens_cache_write=count(details.get("cache_write_tokens")),
    )


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
