"""Says a request in the words of Gemini's generateContent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

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

NAME: Final = "gemini"
_LEVELS: Final = frozenset({"minimal", "low", "medium", "high"})
_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Say a request as POST /models/{model}:generateContent, or its streamed twin."""
    refuse(request, NAME, "prompt", "inputs", "min_tokens", "ignore_eos")
    need(request, NAME, "messages")
    body: dict[str, Any] = {"contents": _contents(request)}
    system = [m for m in request.messages if m.role in {"system", "developer"}]
    if system:
        body["systemInstruction"] = {"parts": [{"text": text_only(m, NAME)} for m in system]}
    declared = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
    put(
        body,
        tools=[{"functionDeclarations": declared}] if declared else [],
        toolConfig=_choice(request),
        generationConfig=_config(request),
    )
    model = quote(request.model.removeprefix("models/"), safe="")
    verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return built(f"/models/{model}:{verb}", body, request.extra, stream=request.stream)


def _config(request: Request) -> dict[str, Any]:
    config: dict[str, Any] = {}
    put(
        config,
        maxOutputTokens=request.max_tokens,
        temperature=request.temperature,
        topP=request.top_p,
        stopSequences=list(request.stop),
        seed=request.seed,
        thinkingConfig=_thinking(request),
    )
    if request.schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.schema.schema
    return config


def _thinking(request: Request) -> dict[str, Any]:
    wish = request.reasoning
    if wish is None:
        return {}
    if wish in {"none", 0}:
        return {"thinkingBudget": 0}
    if isinstance(wish, int):
        return {"includeThoughts": True, "thinkingBudget": wish}
    if wish in _LEVELS:
        return {"includeThoughts": True, "thinkingLevel": wish}
    raise cannot(NAME, "reasoning", f"{wish!r} is none of its levels")


def _choice(request: Request) -> dict[str, Any]:
    name = chosen_tool(request)
    if name:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    if request.tool_choice is None:
        return {}
    return {"functionCallingConfig": {"mode": _MODES[request.tool_choice]}}


def _contents(request: Request) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    called: dict[str, str] = {}
    results: list[dict[str, Any]] | None = None
    for said in request.messages:
        if said.name is not None and said.role != "tool":
            raise cannot(NAME, "name", "messages have none")
        if said.role in {"system", "developer"}:
            continue
        called |= {call.id: call.name for call in said.tool_calls}
        if said.role != "tool":
            results = None
            role = "model" if said.role == "assistant" else "user"
            out.append({"role": role, "parts": _parts(said)})
            continue
        if results is None:  # the results of parallel calls belong into one turn
            results = []
            out.append({"role": "user", "parts": results})
        results.append(_result(said, called))
    return out


def _result(said: Message, called: dict[str, str]) -> dict[str, Any]:
    """Say a tool's result; it goes by the function's name, which the call may have to tell."""
    name = said.name or called.get(said.tool_call_id or "")
    if not name:
        raise cannot(NAME, "messages", "a tool's result whose function is not known")
    text = text_only(said, NAME)
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = text
    response = value if isinstance(value, dict) else {"result": value}
    return {"functionResponse": {"name": name, "response": response}}


def _parts(said: Message) -> list[dict[str, Any]]:
    if said.tool_calls and said.role != "assistant":
        raise cannot(NAME, "tool_calls", f"a message of role {said.role!r}")
    if isinstance(said.content, str):
        parts = [] if said.tool_calls and not said.content else [{"text": said.content}]
    else:
        parts = [_part(part) for part in said.content]
    calls = [
        {"functionCall": {"name": call.name, "args": arguments_object(call, NAME)}}
        for call in said.tool_calls
    ]
    return parts + calls


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    inline = image_bytes(part)
    if inline is not None:
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    file: dict[str, Any] = {"fileUri": part.url}
    put(file, mimeType=part.media_type)
    return {"fileData": file}


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name}
    put(out, description=description or None, parametersJsonSchema=parameters)
    return out
