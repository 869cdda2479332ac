"""Builds requests of Gemini's generateContent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lightgate.dialect.neutral.build import (
    arguments_object,
    built,
    cannot,
    chosen_tool,
    described,
    file_bytes,
    image_bytes,
    json_instruction,
    need,
    note_schema,
    place_of,
    put,
    refuse,
    system_apart,
    text_only,
)
from lightgate.dialect.neutral.json_text import object_within
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.request import File, Image, Text, Thought

if TYPE_CHECKING:
    import msgspec

    from lightgate.dialect.generation import Generation
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, Message, Part, Request, Tool

GEMINI: Final = "gemini"
# Gemini 3 refuses a call of the current turn without the seal that it gave out. For calls that
# another model made, clients of Gemini put this word in the seal's place.
FOREIGN_SEAL: Final = "skip_thought_signature_validator"
_LEVELS: Final = ("minimal", "low", "medium", "high")
_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_HOSTED: Final = {
    "web_search": "googleSearch",
    "web_fetch": "urlContext",
    "code_execution": "codeExecution",
}


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /models/{model}:generateContent, or its streamed twin."""
    out = Omissions.of(request, GEMINI)
    refuse(request, GEMINI, "prompt", "inputs", "min_tokens", "ignore_eos")
    out.unsaid(request, "verbosity")
    need(request, GEMINI, "messages")
    if request.parallel_tool_calls is False and request.tools and request.tool_choice != "none":
        out.drop("parallel_tool_calls", "it cannot be told to make one call at a time")
    leading, rest = system_apart(request.messages, out)
    body: dict[str, Any] = {"contents": _contents(rest, request, out)}
    system = [part for m in leading for part in _system(m)]
    bound = not (request.tools and request.client) or request.generation.schema_with_tools
    if not bound and (request.schema or request.json_object):
        system.append({"text": json_instruction(request.schema)})
    note_schema(request, out, bound=bound)
    if system:
        body["systemInstruction"] = {"parts": system}
    put(
        body,
        tools=_tools(request, quirks, out),
        toolConfig=_choice(request),
        generationConfig=_config(request, out, bound=bound),
    )
    model = quote(request.model.removeprefix("models/"), safe="")
    verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return built(f"/models/{model}:{verb}", body, request.extra, stream=request.stream, out=out)


def _tools(request: Request, quirks: Quirks, out: Omissions) -> list[dict[str, Any]]:
    """List functions, or tools of Google's own: before Gemini 3 there cannot be both."""
    declared = [_tool(tool) for tool in request.tools]
    found: list[dict[str, Any]] = [{"functionDeclarations": declared}] if declared else []
    for tool in request.hosted:
        if tool in quirks.hosted and not declared:
            found.append({_HOSTED[tool]: {}})
        else:
            why = "not beside functions" if declared else "it has no such tool of its own"
            out.drop(f"hosted.{tool}", why)
    return found


def _system(said: Message) -> list[dict[str, Any]]:
    whole = text_only(said, GEMINI)
    if isinstance(said.content, str):
        return [{"text": whole}]
    return [{"text": part.text} for part in said.content if isinstance(part, Text)]


def _config(request: Request, out: Omissions, *, bound: bool) -> dict[str, Any]:
    """Say how to answer; `bound`: a form of the answer can be asked for."""
    config: dict[str, Any] = {}
    cap = request.max_tokens
    put(
        config,
        maxOutputTokens=cap if cap is None or not request.client else request.generation.cap(cap),
        temperature=request.temperature,
        topP=request.top_p,
        topK=request.top_k,
        stopSequences=list(request.stop),
        seed=request.seed,
        presencePenalty=request.presence_penalty,
        frequencyPenalty=request.frequency_penalty,
        responseLogprobs=request.logprobs or None,
        logprobs=request.top_logprobs,
        thinkingConfig=_thinking(request, out),
    )
    if request.schema is not None and bound:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = described(request.schema, GEMINI)
    elif request.json_object and bound:
        config["responseMimeType"] = "application/json"
    return config


def _thinking(request: Request, out: Omissions) -> dict[str, Any]:
    """Say how much to think, and whether it is shown."""
    wish = request.reasoning
    if request.generation.thinking == "none":
        if wish not in {None, "none", 0}:
            out.drop("reasoning", "this model does not think")
        return {}
    if wish in {"none", 0} and request.generation.off:
        return {"thinkingBudget": 0}
    shown = {"includeThoughts": True} if request.thoughts != "omitted" else {}
    if wish is None:
        return shown if request.thoughts is not None else {}
    return shown | _measure(wish, request.generation, out)


def _measure(wish: str | int, generation: Generation, out: Omissions) -> dict[str, Any]:
    """Put a wish into a number of tokens or a level, by the model's generation."""
    kind = generation.thinking
    if kind == "budget" or (kind == "any" and isinstance(wish, int)):
        return {"thinkingBudget": generation.tokens(wish)}
    level = generation.effort(wish)
    if level in _LEVELS:
        return {"thinkingLevel": level}
    out.drop("reasoning", f"{wish!r} is none of its levels")
    return {}


def _choice(request: Request) -> dict[str, Any]:
    name = chosen_tool(request)
    if name:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    word = request.tool_choice
    if word in {None, "auto"} and any(tool.strict for tool in request.tools):
        return {"functionCallingConfig": {"mode": "VALIDATED"}}
    return {"functionCallingConfig": {"mode": _MODES[word]}} if word is not None else {}


def _contents(messages: list[Message], request: Request, out: Omissions) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    called: dict[str, tuple[int, str]] = {}
    results: list[tuple[int, list[dict[str, Any]]]] = []

    def answered() -> None:
        """Put the results of parallel calls in one turn, in the order of the calls."""
        if results:
            results.sort(key=lambda pair: pair[0])
            parts = [part for _, some in results for part in some]
            # What is attached comes after all results, which belong together.
            parts.sort(key=lambda part: "functionResponse" not in part)
            told.append({"role": "user", "parts": parts})
            results.clear()

    for said in messages:
        for call in said.tool_calls:
            called[call.id] = (len(called), call.name)
        if said.role == "tool":
            order, name = called.get(said.tool_call_id or "", (len(called), ""))
            results.append((order, _result(said, said.name or name, out)))
            continue
        answered()
        role = "model" if said.role == "assistant" else "user"
        told.append({"role": role, "parts": _parts(said, request, out)})
    answered()
    return told


def _result(said: Message, name: str, out: Omissions) -> list[dict[str, Any]]:
    """Build a tool's result by the name of its function, which the call may have to supply.

    Images and files of the result are parts beside it.
    """
    if not name:
        raise cannot(GEMINI, place_of(said), "a tool's result whose function is not known")
    content = said.content if isinstance(said.content, tuple) else (Text(said.content),)
    media = [_part(part, said, out) for part in content if isinstance(part, Image | File)]
    text = "".join(part.text for part in content if isinstance(part, Text))
    response: msgspec.Raw | dict[str, Any] = {"error": text} if said.is_error else _response(text)
    return [{"functionResponse": {"name": name, "response": response}}, *media]


def _response(text: str) -> msgspec.Raw | dict[str, Any]:
    # Only an object is taken for JSON: "1.10" may be a version, and is left as it was said.
    return object_within(text, odd=False) or {"result": text}


def _parts(said: Message, request: Request, out: Omissions) -> list[dict[str, Any]]:
    if said.tool_calls and said.role != "assistant":
        raise cannot(GEMINI, place_of(said, "tool_calls"), f"a message of role {said.role!r}")
    client = request.client
    seals: list[str] = []
    if isinstance(said.content, str):
        parts = [] if said.tool_calls and not said.content else [{"text": said.content}]
    else:
        parts = []
        for part in said.content:
            if isinstance(part, Thought) and part.dialect != GEMINI:
                out.leave(part.place or place_of(said))
            elif isinstance(part, Thought) and said.tool_calls and _is_seal(part):
                seals.append(part.raw["thoughtSignature"])  # it belongs to the call
            else:
                parts.append(_part(part, said, out))
    lenient = bool(client)
    for number, call in enumerate(said.tool_calls):
        args = arguments_object(call, GEMINI, said.place, lenient=lenient)
        told: dict[str, Any] = {"functionCall": {"name": call.name, "args": args}}
        foreign = FOREIGN_SEAL if client not in {"", GEMINI} and number == 0 else None
        seal = seals[-1] if seals and number == 0 else foreign
        put(told, thoughtSignature=call.signature or seal)
        parts.append(told)
    return parts


def _is_seal(part: Thought) -> bool:
    """Say whether reasoning is a signature alone."""
    return "thoughtSignature" in part.raw and not part.raw.get("text")


def _part(part: Part, said: Message, out: Omissions) -> dict[str, Any]:
    if isinstance(part, Thought):
        return part.raw
    if isinstance(part, Text):
        told: dict[str, Any] = {"text": part.text}
        put(told, thoughtSignature=part.signature)
        return told
    media_type = part.media_type
    if isinstance(part, Image):
        if part.detail is not None:
            out.drop(part.place or place_of(said), f"the image's detail {part.detail!r}")
        inline = image_bytes(part)
    else:
        if part.name:  # the API takes none
            out.leave(part.place or place_of(said))
        inline = file_bytes(part)
    if inline is not None:
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    file: dict[str, Any] = {"fileUri": part.url}
    put(file, mimeType=media_type)
    return {"fileData": file}


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    put(out, description=tool.description or None, parametersJsonSchema=tool.parameters)
    return out
