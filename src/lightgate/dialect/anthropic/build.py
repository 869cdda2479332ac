"""Builds requests of Anthropic messages."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.anthropic.schema import native_schema
from lightgate.dialect.anthropic.thinking import add_sampling, add_thinking
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
    own_thoughts,
    place_of,
    plain_text,
    put,
    refuse,
    spoken,
    system_apart,
    text_only,
)
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.request import Image, Text

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.request import Built, File, Message, Request, Tool

NAME: Final = "anthropic messages"
DEFAULT_MAX_TOKENS: Final = 32_000  # no Claude of today writes less; a cap is required here alone
MESSAGES: Final = "anthropic-messages"
EMPTY: Final = "(empty)"  # a turn of the user must say something
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_REFUSED: Final = ("prompt", "inputs", "min_tokens", "ignore_eos", "logprobs", "top_logprobs")
_UNSAID: Final = ("seed", "presence_penalty", "frequency_penalty", "verbosity")
_HOSTED: Final = {"web_search": {"type": "web_search_20250305", "name": "web_search"}}
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")


def build(request: Request, quirks: Quirks) -> Built:
    """Build POST /messages."""
    out = Omissions.of(request, NAME)
    refuse(request, NAME, *_REFUSED)
    out.unsaid(request, *_UNSAID)
    need(request, NAME, "messages")
    _check_history(request)
    leading, rest = system_apart(request.messages, out)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": _max_tokens(request),
        "messages": _messages(rest, request, out),
    }
    form, in_words = _form(request)
    note_schema(request, out, bound=bool(form))
    put(
        body,
        system=_system(leading, in_words),
        stream=request.stream or None,
        stop_sequences=list(request.stop),
        tools=[*(_tool(tool, request, out) for tool in request.tools), *_own(request, quirks, out)],
        tool_choice=_choice(request),
    )
    add_thinking(body, request, out)
    add_sampling(body, request, out)
    if form:
        body["output_config"] = body.get("output_config", {}) | {"format": form}
    return built("/messages", body, request.extra, stream=request.stream, out=out)


def _max_tokens(request: Request) -> int:
    """Return the cap that must be here; other dialects' clients need not name one."""
    generation = request.generation
    if not request.client:
        return int(need(request, NAME, "max_tokens"))
    if request.max_tokens is not None:
        return generation.cap(request.max_tokens)
    wish = request.reasoning
    thinking = wish if isinstance(wish, int) else 0
    if generation.thinking == "budget" and wish is not None:
        thinking = generation.tokens(wish)
    return generation.cap(DEFAULT_MAX_TOKENS + thinking)


def _form(request: Request) -> tuple[dict[str, Any], str]:
    """Return the form that the answer is bound to, and what asks for it in words instead."""
    if request.schema is None:
        return {}, json_instruction(None) if request.json_object else ""
    if not request.client:
        return {"type": "json_schema", "schema": described(request.schema, NAME)}, ""
    native = native_schema(request.schema.schema) if request.generation.schema else None
    if native is None:
        return {}, json_instruction(request.schema)
    if request.schema.description and "description" not in native:
        native["description"] = request.schema.description
    return {"type": "json_schema", "schema": native}, ""


def _own(request: Request, quirks: Quirks, out: Omissions) -> list[dict[str, Any]]:
    """Return the tools that Anthropic itself carries out."""
    found = []
    for tool in request.hosted:
        if tool in _HOSTED and tool in quirks.hosted:
            found.append(_HOSTED[tool])
        else:
            out.drop(f"hosted.{tool}", "it has no such tool of its own")
    return found


def _check_history(request: Request) -> None:
    """Refuse a history that another dialect's client may send and that would be misread here."""
    last = request.messages[-1]
    if request.client not in {"", MESSAGES} and last.role == "assistant":
        raise cannot(NAME, place_of(last), "a last turn of the assistant would be continued")


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


def _system(said: list[Message], in_words: str) -> str | list[dict[str, Any]] | None:
    """Join the system messages; they have a place of their own, before all turns."""
    texts = [text_only(m, NAME) for m in said]
    if all(isinstance(m.content, str) or len(m.content) < 2 for m in said):
        return "\n\n".join(text for text in (*texts, in_words) if text) or None
    blocks: list[str] = []
    for m in said:
        if isinstance(m.content, str):
            blocks.append(m.content)
        else:
            blocks += [part.text for part in m.content if isinstance(part, Text)]
    return [{"type": "text", "text": text} for text in (*blocks, in_words) if text]


def _messages(messages: list[Message], request: Request, out: Omissions) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for said in messages:
        if said.role != "tool":
            results = None
            content = _content(said, request, out)
            if not content and request.client:
                if said.role == "assistant":
                    continue
                content = EMPTY
            told.append({"role": said.role, "content": content})
            continue
        if results is None:  # the results of parallel calls belong into one turn
            results = []
            told.append({"role": "user", "content": results})
        results.append(_result(said, out))
    return told


def _result(said: Message, out: Omissions) -> dict[str, Any]:
    if said.tool_call_id is None:
        raise cannot(NAME, place_of(said), "a tool's result without its 'tool_call_id'")
    words = spoken(said)
    content = words if isinstance(words, str) else [_part(part, said, out) for part in words]
    told = {"type": "tool_result", "tool_use_id": _id(said.tool_call_id), "content": content}
    put(told, is_error=said.is_error or None)
    return told


def _content(said: Message, request: Request, out: Omissions) -> str | list[dict[str, Any]]:
    if said.tool_calls and said.role != "assistant":
        raise cannot(NAME, place_of(said, "tool_calls"), f"a message of role {said.role!r}")
    words = spoken(said)
    thoughts = own_thoughts(said, MESSAGES, out)
    if isinstance(words, str):
        if not said.tool_calls and not thoughts:
            return words
        blocks = [{"type": "text", "text": words}] if words else []
    else:
        # An empty text is refused here, and says nothing.
        parts = [part for part in words if not isinstance(part, Text) or part.text]
        blocks = [_part(part, said, out) for part in parts]
    lenient = bool(request.client)
    calls = [
        {
            "type": "tool_use",
            "id": _id(call.id),
            "name": call.name,
            "input": arguments_object(call, NAME, said.place, lenient=lenient),
        }
        for call in said.tool_calls
    ]
    return thoughts + blocks + calls


def _id(call: str) -> str:
    """Spell the id of a call in the letters that are allowed here; two stay two."""
    if call and not _ODD.search(call):
        return call
    return f"{_ODD.sub('_', call)}_{zlib.crc32(call.encode()):08x}"


def _part(part: Text | Image | File, said: Message, out: Omissions) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    image = isinstance(part, Image)
    if isinstance(part, Image):
        if part.detail is not None:
            out.drop(part.place or place_of(said), f"the image's detail {part.detail!r}")
        inline = image_bytes(part)
    else:
        if part.media_type not in {"application/pdf", "text/plain"}:
            raise cannot(NAME, place_of(said), f"a file of the type {part.media_type!r}")
        inline = file_bytes(part)
    source: dict[str, Any]
    if inline is None:
        source = {"type": "url", "url": part.url}
    elif not image and inline[0] == "text/plain":
        return {"type": "text", "text": plain_text(inline[1])}
    else:
        source = {"type": "base64", "media_type": inline[0], "data": inline[1]}
    told: dict[str, Any] = {"type": "image" if image else "document", "source": source}
    if not isinstance(part, Image):
        put(told, title=part.name or None)
    return told


def _tool(tool: Tool, request: Request, out: Omissions) -> dict[str, Any]:
    told: dict[str, Any] = {"name": tool.name}
    put(told, description=tool.description or None)
    told["input_schema"] = tool.parameters or {"type": "object", "properties": {}}
    strict = tool.strict or None
    if strict and request.client:
        native = native_schema(tool.parameters) if request.generation.schema else None
        if native != tool.parameters:
            out.leave("tools[*].strict")
            strict = None
    put(told, strict=strict)
    return told
