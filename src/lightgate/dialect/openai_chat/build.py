"""Builds requests of OpenAI chat completions, and what other OpenAI endpoints share with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.generation import effort_of
from lightgate.dialect.neutral.build import (
    built,
    cannot,
    chosen_tool,
    file_bytes,
    image_url,
    json_instruction,
    need,
    note_schema,
    own_thoughts,
    place_of,
    put,
    refuse,
    result_text,
    spoken,
    with_instruction,
    with_media_apart,
)
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.request import Image, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, File, Message, Request, Schema, Tool

NAME: Final = "openai chat"
CHAT: Final = "openai-chat"
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
# What reasoning models of OpenAI take with its default alone.
_SAMPLING: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /chat/completions."""
    # As `Omissions.of`, without its call: the harness builds a body for every request.
    out = Omissions(refuses=request.untranslatable == "refuse", dialect=NAME, places=request.places)
    refuse(request, NAME, "prompt", "inputs")
    if request.top_k is not None:
        out.drop("top_k")
    for tool in request.hosted:
        out.drop(f"hosted.{tool}", "it has no such tool of its own")
    need(request, NAME, "messages")
    told: Sequence[Message] = request.messages
    if len(told) > 1 or told[0].role == "tool":  # else there is no result of a tool
        told = with_media_apart(told)
    if request.schema is not None and not quirks.schema:
        told = with_instruction(told, json_instruction(request.schema))
        note_schema(request, out, bound=False)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [message(said, NAME, out) for said in told],
    }
    sampling(body, request)
    tools(body, request)
    put(
        body,
        response_format=_form(request, quirks) if request.schema or request.json_object else None,
        reasoning_effort=None if request.reasoning is None else _effort(request, quirks, out),
        logprobs=request.logprobs or None,
        top_logprobs=request.top_logprobs,
        verbosity=request.verbosity,
    )
    if request.client and request.generation.sampling == "none":
        _without_sampling(body, out)
    quirks.adapt(body, out)
    return built("/chat/completions", body, request.extra, stream=request.stream, out=out)


def _form(request: Request, quirks: Quirks) -> dict[str, Any]:
    """Say which form the answer has; where a schema is not known, any JSON and words do."""
    if request.schema is not None and quirks.schema:
        return {"type": "json_schema", "json_schema": schema_words(request.schema)}
    return {"type": "json_object"} if request.schema or request.json_object else {}


def _effort(request: Request, quirks: Quirks, out: Omissions) -> str | int | None:
    """Put a wish for reasoning into the words of the model's generation."""
    wish, generation = request.reasoning, request.generation
    if wish is None or quirks.reasoning_style == "object":
        return wish
    if generation.thinking == "none" and quirks.reasoning_style != "none":
        if wish not in {"none", 0}:
            out.drop("reasoning", "this model does not think, or cannot be told how much")
        return None
    if generation.thinking == "effort":
        return generation.effort(wish)
    return effort_of(wish) if isinstance(wish, int) else wish


def _without_sampling(body: dict[str, Any], out: Omissions) -> None:
    for name in _SAMPLING:
        if name in body and body.pop(name) != 1:
            out.drop(name, "this model takes none")


def message(said: Message, dialect: str, out: Omissions) -> dict[str, Any]:
    """Build one turn."""
    told: dict[str, Any] = {"role": said.role}
    if said.role == "tool":
        if said.tool_call_id is None:
            raise cannot(dialect, place_of(said), "a tool's result without its 'tool_call_id'")
        return told | {"tool_call_id": said.tool_call_id, "content": result_text(said, dialect)}
    if said.tool_call_id is not None:
        raise cannot(dialect, place_of(said, "tool_call_id"), f"a message of role {said.role!r}")
    if said.tool_calls and said.role != "assistant":
        raise cannot(dialect, place_of(said, "tool_calls"), f"a message of role {said.role!r}")
    content = spoken(said)
    if isinstance(content, str):
        told["content"] = content or (None if said.tool_calls else "")
    else:
        told["content"] = [_part(part, said, out) for part in content]
    for raw in own_thoughts(said, CHAT, out):
        told |= raw
    if said.name is not None:
        told["name"] = said.name
    if said.tool_calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in said.tool_calls
        ]
    return told


def sampling(body: dict[str, Any], request: Request) -> None:
    """Add the wishes that chat and completions share."""
    put(
        body,
        stream=request.stream or None,
        max_tokens=capped(request) if request.client else request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=list(request.stop),
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        seed=request.seed,
        min_tokens=request.min_tokens,
        ignore_eos=request.ignore_eos or None,
    )


def capped(request: Request) -> int | None:
    """Return the limit on tokens, for a client no higher than the model's longest answer."""
    asked = request.max_tokens
    return request.generation.cap(asked) if asked is not None and request.client else asked


def tools(body: dict[str, Any], request: Request) -> None:
    """Add tools and the choice among them to a chat body; without tools there is no choice."""
    if request.tools:
        listed = [{"type": "function", "function": function(tool)} for tool in request.tools]
        body["tools"] = listed
    elif request.client:
        return
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


def _part(part: Text | Image | File, said: Message, out: Omissions) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        image: dict[str, Any] = {"url": image_url(part)}
        put(image, detail=part.detail)
        return {"type": "image_url", "image_url": image}
    inline = file_bytes(part)
    if inline is None:
        raise cannot(NAME, place_of(said), "a file that is given by its address")
    media_type, data = inline
    if media_type in _SOUNDS:
        if part.name:
            out.leave(part.place or place_of(said))
        sound = {"data": data, "format": _SOUNDS[media_type]}
        return {"type": "input_audio", "input_audio": sound}
    if media_type.startswith(("audio/", "video/")):
        raise cannot(NAME, place_of(said), f"a file of the type {media_type!r}")
    file = {"filename": part.name or file_name(media_type), "file_data": part.url}
    return {"type": "file", "file": file}


def file_name(media_type: str) -> str:
    """Return a name for a file that has none; OpenAI wants one."""
    return f"file.{media_type.rpartition('/')[2]}"
