"""Builds requests of Gemini's generateContent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lightgate.dialect.neutral.build import (
    arguments_object,
    built,
    cannot,
    chosen_tool,
    described,
    image_bytes,
    need,
    place_of,
    put,
    refuse,
    text_only,
)
from lightgate.dialect.request import Text, Thought

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Message, Part, Request, Tool

GEMINI: Final = "gemini"
# Gemini 3 refuses a call of the current turn without the seal that it gave out. For calls that
# another model made, clients of Gemini put this word in the seal's place.
FOREIGN_SEAL: Final = "skip_thought_signature_validator"
_LEVELS: Final = frozenset({"minimal", "low", "medium", "high"})
_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def build(request: Request, quirks: Quirks) -> Built:  # noqa: ARG001 - every builder is called alike
    """Build POST /models/{model}:generateContent, or its streamed twin."""
    refuse(request, GEMINI, "prompt", "inputs", "min_tokens", "ignore_eos", "verbosity")
    need(request, GEMINI, "messages")
    if request.parallel_tool_calls is False and request.tools and request.tool_choice != "none":
        raise cannot(GEMINI, "parallel_tool_calls", "it cannot be told to make one call at a time")
    body: dict[str, Any] = {"contents": _contents(request)}
    system = [m for m in request.messages if m.role in {"system", "developer"}]
    if system:
        body["systemInstruction"] = {"parts": [part for m in system for part in _system(m)]}
    declared = [_tool(tool) for tool in request.tools]
    put(
        body,
        tools=[{"functionDeclarations": declared}] if declared else [],
        toolConfig=_choice(request),
        generationConfig=_config(request),
    )
    model = quote(request.model.removeprefix("models/"), safe="")
    verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return built(f"/models/{model}:{verb}", body, request.extra, stream=request.stream)


def _system(said: Message) -> list[dict[str, Any]]:
    whole = text_only(said, GEMINI)
    if isinstance(said.content, str):
        return [{"text": whole}]
    return [{"text": part.text} for part in said.content if isinstance(part, Text)]


def _config(request: Request) -> dict[str, Any]:
    config: dict[str, Any] = {}
    put(
        config,
        maxOutputTokens=request.max_tokens,
        temperature=request.temperature,
        topP=request.top_p,
        topK=request.top_k,
        stopSequences=list(request.stop),
        seed=request.seed,
        presencePenalty=request.presence_penalty,
        frequencyPenalty=request.frequency_penalty,
        responseLogprobs=request.logprobs or None,
        logprobs=request.top_logprobs,
        thinkingConfig=_thinking(request),
    )
    if request.schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = described(request.schema, GEMINI)
    elif request.json_object:
        config["responseMimeType"] = "application/json"
    return config


def _thinking(request: Request) -> dict[str, Any]:
    wish = request.reasoning
    if wish in {"none", 0}:
        return {"thinkingBudget": 0}
    shown = {"includeThoughts": True} if request.thoughts != "omitted" else {}
    if wish is None:
        return shown if request.thoughts is not None else {}
    if isinstance(wish, int):
        return shown | {"thinkingBudget": wish}
    if wish in _LEVELS:
        return shown | {"thinkingLevel": wish}
    raise cannot(GEMINI, "reasoning", f"{wish!r} is none of its levels")


def _choice(request: Request) -> dict[str, Any]:
    name = chosen_tool(request)
    if name:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    word = request.tool_choice
    if word in {None, "auto"} and any(tool.strict for tool in request.tools):
        return {"functionCallingConfig": {"mode": "VALIDATED"}}
    return {"functionCallingConfig": {"mode": _MODES[word]}} if word is not None else {}


def _contents(request: Request) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    called: dict[str, tuple[int, str]] = {}
    results: list[tuple[int, dict[str, Any]]] = []

    def answered() -> None:
        """Put the results of parallel calls in one turn, in the order of the calls."""
        if results:
            results.sort(key=lambda pair: pair[0])
            out.append({"role": "user", "parts": [part for _, part in results]})
            results.clear()

    for said in request.messages:
        if said.name is not None and said.role != "tool":
            raise cannot(GEMINI, place_of(said, "name"), "messages have none")
        if said.role in {"system", "developer"}:
            continue
        for call in said.tool_calls:
            called[call.id] = (len(called), call.name)
        if said.role == "tool":
            order, name = called.get(said.tool_call_id or "", (len(called), ""))
            results.append((order, _result(said, said.name or name)))
            continue
        answered()
        role = "model" if said.role == "assistant" else "user"
        out.append({"role": role, "parts": _parts(said, request.client)})
    answered()
    return out


def _result(said: Message, name: str) -> dict[str, Any]:
    """Build a tool's result by the name of its function, which the call may have to supply."""
    if not name:
        raise cannot(GEMINI, place_of(said), "a tool's result whose function is not known")
    text = text_only(said, GEMINI)
    if said.is_error:
        return {"functionResponse": {"name": name, "response": {"error": text}}}
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = text
    # Only an object is taken for JSON: "1.10" may be a version, and is left as it was said.
    response = value if isinstance(value, dict) else {"result": text}
    return {"functionResponse": {"name": name, "response": response}}


def _parts(said: Message, client: str) -> list[dict[str, Any]]:
    if said.tool_calls and said.role != "assistant":
        raise cannot(GEMINI, place_of(said, "tool_calls"), f"a message of role {said.role!r}")
    if isinstance(said.content, str):
        parts = [] if said.tool_calls and not said.content else [{"text": said.content}]
    else:
        own = [p for p in said.content if not isinstance(p, Thought) or p.dialect == GEMINI]
        parts = [_part(part, said) for part in own]
    for number, call in enumerate(said.tool_calls):
        args = arguments_object(call, GEMINI, said.place)
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": args}}
        foreign = client not in {"", GEMINI} and number == 0
        put(part, thoughtSignature=call.signature or (FOREIGN_SEAL if foreign else None))
        parts.append(part)
    return parts


def _part(part: Part, said: Message) -> dict[str, Any]:
    if isinstance(part, Thought):
        return part.raw
    if isinstance(part, Text):
        out: dict[str, Any] = {"text": part.text}
        put(out, thoughtSignature=part.signature)
        return out
    if part.detail is not None:
        raise cannot(GEMINI, place_of(said), f"the image's detail {part.detail!r}")
    inline = image_bytes(part)
    if inline is not None:
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    file: dict[str, Any] = {"fileUri": part.url}
    put(file, mimeType=part.media_type)
    return {"fileData": file}


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    put(out, description=tool.description or None, parametersJsonSchema=tool.parameters)
    return out
