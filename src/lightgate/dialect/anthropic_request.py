"""Says a request in the words of Anthropic messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.facts import (
    arguments_object,
    built,
    cannot,
    chosen_tool,
    image_bytes,
    need,
    put,
    refuse,
    text_only,
)
from lightgate.dialect.request import Text

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Message, Part, Request

NAME: Final = "anthropic messages"
_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Say a request as POST /messages."""
    refuse(request, NAME, "prompt", "inputs", "seed", "min_tokens", "ignore_eos")
    need(request, NAME, "messages")
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": need(request, NAME, "max_tokens"),
        "messages": _messages(request),
    }
    put(
        body,
        system=_system(request),
        stream=request.stream or None,
        temperature=request.temperature,
        top_p=request.top_p,
        stop_sequences=list(request.stop),
        tools=[_tool(tool.name, tool.description, tool.parameters) for tool in request.tools],
    )
    name = chosen_tool(request)
    if name:
        body["tool_choice"] = {"type": "tool", "name": name}
    elif request.tool_choice is not None:
        body["tool_choice"] = {"type": _CHOICES[request.tool_choice]}
    _thinking(body, request)
    if request.schema is not None:
        form = {"type": "json_schema", "schema": request.schema.schema}
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    return built("/messages", body, request.extra, stream=request.stream)


def _thinking(body: dict[str, Any], request: Request) -> None:
    wish = request.reasoning
    if wish is None:
        return
    if isinstance(wish, int):
        body["thinking"] = {"type": "enabled", "budget_tokens": wish}
    elif wish == "none":
        body["thinking"] = {"type": "disabled"}
    elif wish in _EFFORTS:
        body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {"effort": wish}
    else:
        raise cannot(NAME, "reasoning", f"{wish!r} is none of its efforts")


def _system(request: Request) -> str | None:
    """Join the system messages; they have a place of their own, before all turns."""
    said = [text_only(m, NAME) for m in request.messages if m.role in {"system", "developer"}]
    return "\n\n".join(said) or None


def _messages(request: Request) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for said in request.messages:
        if said.name is not None and said.role != "tool":
            raise cannot(NAME, "name", "messages have none")
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
        raise cannot(NAME, "messages", "a tool's result without its 'tool_call_id'")
    content = said.content if isinstance(said.content, str) else [_part(p) for p in said.content]
    return {"type": "tool_result", "tool_use_id": said.tool_call_id, "content": content}


def _content(said: Message) -> str | list[dict[str, Any]]:
    if said.tool_calls and said.role != "assistant":
        raise cannot(NAME, "tool_calls", f"a message of role {said.role!r}")
    if isinstance(said.content, str):
        if not said.tool_calls:
            return said.content
        blocks: list[dict[str, Any]] = []
        if said.content:
            blocks.append({"type": "text", "text": said.content})
    else:
        blocks = [_part(part) for part in said.content]
    calls = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": arguments_object(call, NAME),
        }
        for call in said.tool_calls
    ]
    return blocks + calls


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    inline = image_bytes(part)
    if inline is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    media_type, data = inline
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name}
    put(out, description=description or None)
    return out | {"input_schema": parameters or {"type": "object", "properties": {}}}
