"""Builds requests of Anthropic messages."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.neutral.build import (
    arguments_object,
    built,
    cannot,
    chosen_tool,
    described,
    image_bytes,
    need,
    own_thoughts,
    place_of,
    put,
    refuse,
    spoken,
    text_only,
)
from lightgate.dialect.request import Text

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Image, Message, Request, Tool

NAME: Final = "anthropic messages"
DEFAULT_MAX_TOKENS: Final = 32_000  # no Claude of today writes less; a cap is required here alone
MESSAGES: Final = "anthropic-messages"
_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_CANNOT: Final = (
    *("prompt", "inputs", "seed", "min_tokens", "ignore_eos", "presence_penalty"),
    *("frequency_penalty", "logprobs", "top_logprobs", "json_object", "verbosity"),
)
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Build POST /messages."""
    refuse(request, NAME, *_CANNOT)
    need(request, NAME, "messages")
    if request.temperature is not None and request.temperature > 1:
        raise cannot(NAME, "temperature", "it goes from 0 to 1")
    _check_history(request)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": _max_tokens(request),
        "messages": _messages(request),
    }
    put(
        body,
        system=_system(request),
        stream=request.stream or None,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        stop_sequences=list(request.stop),
        tools=[_tool(tool) for tool in request.tools],
        tool_choice=_choice(request),
    )
    _thinking(body, request)
    if request.schema is not None:
        form = {"type": "json_schema", "schema": described(request.schema, NAME)}
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    return built("/messages", body, request.extra, stream=request.stream)


def _max_tokens(request: Request) -> int:
    """Return the cap that must be here; other dialects' clients need not name one."""
    if request.max_tokens is None and request.client:
        thinking = request.reasoning if isinstance(request.reasoning, int) else 0
        return DEFAULT_MAX_TOKENS + thinking
    return int(need(request, NAME, "max_tokens"))


def _check_history(request: Request) -> None:
    """Refuse a history that another dialect's client may send and that would be misread here."""
    if request.client in {"", MESSAGES}:
        return
    last = request.messages[-1]
    if last.role == "assistant":
        raise cannot(NAME, place_of(last), "a last turn of the assistant would be continued")
    if last.role == "tool" and isinstance(request.reasoning, int):
        why = "with a budget, the thinking before the last tool call must be handed back"
        raise cannot(NAME, "reasoning", why)


def _choice(request: Request) -> dict[str, Any]:
    name = chosen_tool(request)
    word = request.tool_choice
    alone = request.parallel_tool_calls is False and bool(request.tools) and word != "none"
    if name:
        choice: dict[str, Any] = {"type": "tool", "name": name}
    elif word is not None or alone:
        choice = {"type": _CHOICES[word or "auto"]}
    else:
        return {}
    put(choice, disable_parallel_tool_use=alone or None)
    return choice


def _thinking(body: dict[str, Any], request: Request) -> None:
    wish = request.reasoning
    if wish is None:
        return
    if wish == "none":
        body["thinking"] = {"type": "disabled"}
        return
    if isinstance(wish, int):
        thinking: dict[str, Any] = {"type": "enabled", "budget_tokens": wish}
    elif wish in _EFFORTS:
        thinking = {"type": "adaptive"}
        body["output_config"] = {"effort": wish}
    else:
        raise cannot(NAME, "reasoning", f"{wish!r} is none of its efforts")
    if request.thoughts is not None:
        thinking["display"] = "omitted" if request.thoughts == "omitted" else "summarized"
    body["thinking"] = thinking


def _system(request: Request) -> str | list[dict[str, Any]] | None:
    """Join the system messages; they have a place of their own, before all turns."""
    said = [m for m in request.messages if m.role in {"system", "developer"}]
    texts = [text_only(m, NAME) for m in said]
    if all(isinstance(m.content, str) or len(m.content) < 2 for m in said):
        return "\n\n".join(texts) or None
    blocks: list[str] = []
    for m in said:
        if isinstance(m.content, str):
            blocks.append(m.content)
        else:
            blocks += [part.text for part in m.content if isinstance(part, Text)]
    return [{"type": "text", "text": text} for text in blocks]


def _messages(request: Request) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for said in request.messages:
        if said.name is not None and said.role != "tool":
            raise cannot(NAME, place_of(said, "name"), "messages have none")
        if said.role in {"system", "developer"}:
            continue
        if said.role != "tool":
            results = None
            out.append({"role": said.role, "content": _content(said)})
            continue
        if results is None:  # the results of parallel calls belong into one turn
            results = []
            out.append({"role": "user", "content": results})
        results.append(_result(said))
    return out


def _result(said: Message) -> dict[str, Any]:
    if said.tool_call_id is None:
        raise cannot(NAME, place_of(said), "a tool's result without its 'tool_call_id'")
    words = spoken(said)
    content = words if isinstance(words, str) else [_part(part, said) for part in words]
    out = {"type": "tool_result", "tool_use_id": _id(said.tool_call_id), "content": content}
    put(out, is_error=said.is_error or None)
    return out


def _content(said: Message) -> str | list[dict[str, Any]]:
    if said.tool_calls and said.role != "assistant":
        raise cannot(NAME, place_of(said, "tool_calls"), f"a message of role {said.role!r}")
    words = spoken(said)
    thoughts = own_thoughts(said, MESSAGES)
    if isinstance(words, str):
        if not said.tool_calls and not thoughts:
            return words
        blocks = [{"type": "text", "text": words}] if words else []
    else:
        blocks = [_part(part, said) for part in words]
    calls = [
        {
            "type": "tool_use",
            "id": _id(call.id),
            "name": call.name,
            "input": arguments_object(call, NAME, said.place),
        }
        for call in said.tool_calls
    ]
    return thoughts + blocks + calls


def _id(call: str) -> str:
    """Spell the id of a call in the letters that are allowed here; two stay two."""
    if call and not _ODD.search(call):
        return call
    return f"{_ODD.sub('_', call)}_{zlib.crc32(call.encode()):08x}"


def _part(part: Text | Image, said: Message) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.detail is not None:
        raise cannot(NAME, place_of(said), f"the image's detail {part.detail!r}")
    inline = image_bytes(part)
    if inline is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    media_type, data = inline
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    put(out, description=tool.description or None)
    out["input_schema"] = tool.parameters or {"type": "object", "properties": {}}
    put(out, strict=tool.strict or None)
    return out
