"""Reads the body of Anthropic's POST /messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.anthropic.build import MESSAGES
from lightgate.dialect.anthropic.own_tools import own_tool
from lightgate.dialect.errors import BadField, NoThread, Untranslatable
from lightgate.dialect.neutral.build import NAMELESS
from lightgate.dialect.neutral.dialect import Shape
from lightgate.dialect.neutral.fields import (
    NO_NAME,
    Fields,
    FileName,
    choose,
    closed,
    content_of,
    media_at,
    media_of,
    named,
    text_of,
)
from lightgate.dialect.neutral.json_text import dict_of, dicts_of, value_of
from lightgate.dialect.neutral.seal import opened
from lightgate.dialect.neutral.thoughts import restored
from lightgate.dialect.request import Image, Message, Schema, Text, Thought, Tool, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.dialect.neutral.dialect import Body
    from lightgate.dialect.neutral.fields import Sheet
    from lightgate.dialect.request import Hosted, Part, Role

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_SHOWN: Final = {"summarized": "auto", "omitted": "omitted"}
_HOSTED: Final[tuple[tuple[str, Hosted], ...]] = (
    ("web_search_", "web_search"),
    ("web_fetch_", "web_fetch"),
    ("code_execution_", "code_execution"),
)
# What Anthropic's own tools left in the conversation: calls that it made, and their results.
_OWN_CALLS: Final = ("server_tool_use", "mcp_tool_use")


def read(body: Fields, sheet: Sheet) -> None:
    """Note everything that a messages body says."""
    if body.take("thread") is not None:
        raise NoThread("thread", "Anthropic alone keeps the conversation")
    messages = [*_system(body)]
    for said in body.objects("messages"):
        messages += _turn(said)
    if messages and messages[-1].role == "assistant":
        why = "a last turn of the assistant is continued by Anthropic alone"
        raise Untranslatable(messages[-1].place, why)
    sheet.put("messages", tuple(messages), "messages")
    for name in ("max_tokens", "top_k"):
        sheet.put(name, body.whole(name), name)
    for name in ("temperature", "top_p"):
        sheet.put(name, body.number(name), name)
    sheet.put("stop", body.texts("stop_sequences"), "stop_sequences")
    tools = [found for tool in body.objects("tools") if (found := _tool(tool, sheet)) is not None]
    sheet.put("tools", tuple(tools), "tools")
    _choice(body.object("tool_choice"), sheet)
    _output(body, sheet)
    body.hint("service_tier", "auto", "standard_only")
    body.leave("metadata", "cache_control")
    body.only("inference_geo", "global")  # where the data may go is no hint
    for name in ("context_management", "container", "mcp_servers", "speed"):
        body.hint(name, [], {}, "standard")


def _system(body: Fields) -> Iterator[Message]:
    if not isinstance(body.peek("system"), list):
        text = body.text("system")
        if text:
            yield Message(role="system", content=text, place="system")
        return
    parts: list[Part] = [_text(block) for block in body.objects("system")]
    if parts:
        yield Message(role="system", content=content_of(parts), place="system")


def _text(block: Fields) -> Text:
    kind = block.need_text("type")
    if kind != "text":
        raise Untranslatable(block.at("type"), f"a block of the kind {kind!r}")
    found = text_of(block)
    block.leave("cache_control", "citations")
    block.done()
    return found


def _choice(asked: Fields | None, sheet: Sheet) -> None:
    if asked is None:
        return
    kind = asked.need_text("type")
    if kind == "tool":
        choose(sheet, asked.need_text("name"), asked.at("name"), asked.out)
    elif kind == "any" and "tools" not in sheet.facts and sheet.lost:
        asked.out.drop(asked.at("type"), "no tool is left")
    elif kind in _CHOICES:
        sheet.put("tool_choice", _CHOICES[kind], asked.at("type"))
    else:
        raise BadField(asked.at("type"), "must be 'auto', 'any', 'tool' or 'none'")
    place = asked.at("disable_parallel_tool_use")
    alone = asked.flag("disable_parallel_tool_use")
    sheet.put("parallel_tool_calls", False if alone else None, place)
    asked.done()


def _output(body: Fields, sheet: Sheet) -> None:
    """Note thinking, effort and the form of the answer."""
    config = body.object("output_config")
    effort = None
    form = body.object("output_format")  # its place before output_config
    if config is not None:
        effort = config.text("effort")
        form = config.object("format") or form
        config.done()
    _form(form, sheet)
    thinking = body.object("thinking")
    if thinking is None:
        sheet.put("reasoning", effort, "output_config.effort")
        return
    kind = thinking.need_text("type")
    if kind == "adaptive":
        place = "output_config.effort" if effort else thinking.at("type")
        sheet.put("reasoning", effort or "high", place)
    elif kind == "enabled":
        budget = thinking.whole("budget_tokens")
        if budget is None:
            raise BadField(thinking.at("budget_tokens"), "is needed")
        sheet.put("reasoning", budget or "none", thinking.at("budget_tokens"))
        if effort is not None:  # the number says it more exactly
            body.out.leave("output_config.effort")
    elif kind == "disabled":
        place = "output_config.effort" if effort else thinking.at("type")
        sheet.put("reasoning", effort or "none", place)
    else:
        thinking.out.drop(thinking.at("type"), f"{kind!r}")
    display = thinking.text("display")
    if display is not None and display not in _SHOWN:
        thinking.out.drop(thinking.at("display"), f"{display!r}")
    sheet.put("thoughts", _SHOWN.get(display or ""), thinking.at("display"))
    thinking.done()


def _form(form: Fields | None, sheet: Sheet) -> None:
    if form is None:
        return
    kind = form.need_text("type")
    if kind != "json_schema":
        raise Untranslatable(form.at("type"), f"the form {kind!r}")
    schema = form.json("schema")
    if schema is None:
        raise BadField(form.at("schema"), "is needed")
    form.done()
    asked = Schema(name=NAMELESS, schema=schema, strict=closed(schema))
    sheet.put("schema", asked, form.place)


def _tool(tool: Fields, sheet: Sheet) -> Tool | None:
    kind = tool.text("type") or "custom"
    tool.leave("cache_control", "eager_input_streaming")
    if kind != "custom":
        return _own(tool, kind, sheet)
    found = Tool(
        name=tool.need_text("name"),
        description=tool.text("description") or "",
        parameters=tool.json("input_schema") or {},
        strict=tool.flag("strict"),
    )
    tool.hint("defer_loading", False)
    tool.done()
    return found


def _own(tool: Fields, kind: str, sheet: Sheet) -> Tool | None:
    """Read a tool of Anthropic's own types: a function, one that a provider runs, or lost."""
    name = tool.text("name") or kind
    found = own_tool(kind, name)
    if found is not None:
        tool.done()
        return found
    sheet.lost.add(name)
    for start, hosted in _HOSTED:
        if kind.startswith(start):
            tool.leave(*tool.names)
            sheet.host(hosted, tool.place)
            return None
    tool.out.drop(tool.place, f"{kind!r} is no function")
    return None


def _turn(said: Fields) -> list[Message]:
    """Read one turn; a user's may hold the results of tools, which are turns of their own."""
    role = said.need_text("role")
    if role not in {"user", "assistant", "system"}:
        raise Untranslatable(said.at("role"), f"the role {role!r}")
    parts: list[Part] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    if isinstance(said.peek("content"), list):
        for block in said.objects("content"):
            kind = block.need_text("type")
            if kind == "tool_result" and role == "user":
                results.append(_result(block))
            elif kind == "tool_use" and role == "assistant":
                calls.append(_call(block))
            elif role == "assistant" and (kind in _OWN_CALLS or kind.endswith("_tool_result")):
                block.out.leave(block.place)
            else:
                parts += _parts(block, kind, role)
    else:
        parts = [Text(said.need_text("content"))]
    said.done()
    if role == "assistant":
        words = content_of(parts, joined=True)
        calling = tuple(calls)
        place = said.place
        return [Message(role="assistant", content=words, tool_calls=calling, place=place)]
    if results and not parts:
        return results
    spoken: Role = "system" if role == "system" else "user"
    return [*results, Message(role=spoken, content=content_of(parts), place=said.place)]


def _parts(block: Fields, kind: str, role: str) -> list[Part]:
    found: list[Part]
    if kind == "text":
        found = [text_of(block)]
        block.leave("citations")
    elif kind == "image":
        found = [_media(block, "image")]
    elif kind == "document":
        found = _document(block)
    elif kind == "search_result":
        found = _search_result(block)
    elif kind in _THOUGHTS and role == "assistant":
        found = [_thought(block, kind)]
    else:
        raise Untranslatable(block.at("type"), f"a block of the kind {kind!r}")
    block.leave("cache_control")
    block.done()
    return found


def _thought(block: Fields, kind: str) -> Thought:
    raw: dict[str, Any] = {"type": kind}
    for name in ("thinking", "signature", "data"):
        value = block.text(name)
        raw |= {name: value} if value is not None else {}
    signature, text = raw.get("signature"), raw.get("thinking", "")
    seal = opened(signature) if signature else None
    if seal is not None:
        return restored(seal, text, block.place)
    if kind == "thinking" and not signature:  # of a server that signs nothing
        return Thought(dialect="openai-chat", raw={"reasoning_content": text}, place=block.place)
    return Thought(dialect=MESSAGES, raw=raw, place=block.place)


def _document(block: Fields) -> list[Part]:
    """Read a document; one that is text becomes text, under its title."""
    name = named(block, "title")
    title = name.text
    block.leave("context")
    citations = block.object("citations")
    if citations is not None and citations.flag("enabled"):
        block.out.drop(citations.place)
    source = block.peek("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if kind not in ("text", "content"):  # no set: it may be anything, a list even
        return [_media(block, "document", name)]
    said = block.need_object("source")
    said.ignore("type", "media_type")
    texts: list[Part] = [Text(f"{title}:")] if title else []
    if kind == "text" or not isinstance(said.peek("content"), list):
        texts.append(Text(said.need_text("data" if kind == "text" else "content")))
    else:
        for inner in said.objects("content"):
            texts += _parts(inner, inner.need_text("type"), "user")
    said.done()
    return texts


def _search_result(block: Fields) -> list[Part]:
    """Read a search result as what it says, under its title and its source."""
    title, source = block.text("title") or "", block.text("source") or ""
    block.leave("citations")
    said = [_text(inner) for inner in block.objects("content")]
    return [Text(f"{title} ({source}):"), *said]


def _media(block: Fields, what: str, name: FileName = NO_NAME) -> Part:
    source = block.need_object("source")
    kind = source.need_text("type")
    found: Part
    if kind == "url":
        media_type = "image/*" if what == "image" else "application/pdf"
        found = media_at(source.need_text("url"), media_type, source.at("url"), name)
        if isinstance(found, Image):
            found = Image(url=found.url)
    elif kind == "base64":
        media_type = source.need_text("media_type")
        if what == "image" and not media_type.startswith("image/"):
            raise BadField(source.at("media_type"), "must be an image's")
        found = media_of(media_type, source.need_text("data"), source.at("media_type"), name)
    else:
        raise Untranslatable(source.at("type"), f"{what} from {kind!r}")
    source.done()
    return found


def _call(block: Fields) -> ToolCall:
    found = ToolCall(
        id=block.need_text("id"),
        name=block.need_text("name"),
        arguments=msgspec.json.encode(block.json("input") or {}).decode(),
    )
    block.leave("cache_control")
    caller = block.object("caller")
    if caller is not None:
        caller.hint("type", "direct")
        caller.done()
    block.done()
    return found


def _result(block: Fields) -> Message:
    parts: list[Part]
    if isinstance(block.peek("content"), list):
        parts = []
        for inner in block.objects("content"):
            parts += _parts(inner, inner.need_text("type"), "tool")
    else:
        parts = [Text(block.text("content") or "")]
    found = Message(
        role="tool",
        content=content_of(parts),
        tool_call_id=block.need_text("tool_use_id"),
        is_error=block.flag("is_error") or False,
        place=block.place,
    )
    block.leave("cache_control")
    block.done()
    return found


# What is looked at without translating.


def _schema(body: Body) -> dict[str, Any] | None:
    config = dict_of(value_of(body.get("output_config")))
    form = dict_of(config.get("format")) or dict_of(value_of(body.get("output_format")))
    if form.get("type") == "json_object":
        return {"type": "object"}
    schema = form.get("schema")
    return schema if isinstance(schema, dict) else None


def _functions(tools: Any) -> dict[str, Any]:
    named = [tool for tool in dicts_of(tools) if isinstance(tool.get("name"), str)]
    return {tool["name"]: tool.get("input_schema") for tool in named}


def _must_call(body: Body) -> bool:
    return dict_of(value_of(body.get("tool_choice"))).get("type") in ("any", "tool")


def _effort(body: Body) -> str:
    asked = dict_of(value_of(body.get("thinking")))
    return "high" if asked.get("type") in ("enabled", "adaptive") else ""


SHAPE: Final = Shape(
    instructions=("system",),
    schemas=("output_config", "output_format"),
    schema_sign=b'"schema"',
    schema=_schema,
    functions=_functions,
    must_call=_must_call,
    effort=_effort,
)
