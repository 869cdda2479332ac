"""Reads the body of POST /chat/completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.neutral.dialect import Shape
from lightgate.dialect.neutral.fields import (
    Fields,
    allow,
    choose,
    content_of,
    file_at,
    image_at,
    media_of,
    named,
    text_of,
)
from lightgate.dialect.neutral.json_text import dict_of, dicts_of, value_of
from lightgate.dialect.neutral.names import free_arguments, free_tool
from lightgate.dialect.neutral.seal import opened
from lightgate.dialect.neutral.thoughts import restored
from lightgate.dialect.openai_chat.build import CHAT
from lightgate.dialect.request import Message, Schema, Text, Thought, Tool, ToolCall

if TYPE_CHECKING:
    from lightgate.dialect.neutral.dialect import Body
    from lightgate.dialect.neutral.fields import Sheet
    from lightgate.dialect.request import Part, Role

LABELS: Final = (  # no effect on what the answer says
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def read(body: Fields, sheet: Sheet) -> None:
    """Note everything that a chat body says."""
    messages = tuple(_message(said) for said in body.objects("messages"))
    sheet.put("messages", messages, "messages")
    cap = body.whole("max_completion_tokens")
    sheet.put("max_tokens", cap, "max_completion_tokens")
    older = body.whole("max_tokens")
    if None not in {cap, older} and cap != older:
        raise BadField("max_tokens", "contradicts 'max_completion_tokens'")
    if cap is None:
        sheet.put("max_tokens", older, "max_tokens")
    sampling(body, sheet)
    for name in ("presence_penalty", "frequency_penalty"):
        sheet.put(name, body.number(name) or None, name)
    sheet.put("seed", body.whole("seed"), "seed")
    stop = body.text("stop") if isinstance(body.peek("stop"), str) else body.texts("stop")
    sheet.put("stop", (stop,) if isinstance(stop, str) else stop, "stop")
    sheet.put("logprobs", body.flag("logprobs") or None, "logprobs")
    sheet.put("top_logprobs", body.whole("top_logprobs"), "top_logprobs")
    sheet.put("reasoning", body.text("reasoning_effort"), "reasoning_effort")
    sheet.put("verbosity", body.text("verbosity"), "verbosity")
    tools = [found for tool in body.objects("tools") if (found := _tool(tool, sheet)) is not None]
    sheet.put("tools", tuple(tools), "tools")
    choice(body, sheet, wrapped=True)
    form(body.object("response_format"), sheet, inner="json_schema")
    _plain(body, sheet)


def sampling(body: Fields, sheet: Sheet) -> None:
    """Note what chat and responses say in the same words."""
    sheet.put("temperature", body.number("temperature"), "temperature")
    sheet.put("top_p", body.number("top_p"), "top_p")
    place = "parallel_tool_calls"
    sheet.put("parallel_tool_calls", body.flag(place), place)
    if body.flag("store"):
        body.out.leave("store")
    body.hint("service_tier", "auto", "default")
    options = body.object("stream_options")
    if options is not None:
        options.ignore("include_usage")  # the gateway adds usage for clients that asked
        options.hint("include_obfuscation", False)
        options.done()
    body.leave(*LABELS)


def _plain(body: Fields, sheet: Sheet) -> None:
    """Take the fields without which the answer would be another, and wishes of OpenAI's own."""
    body.only("n", 1)
    body.only("logit_bias", {})
    body.only("modalities", ["text"])
    body.only("functions", [])
    body.only("function_call", "none")
    body.refuse("audio", "the answer is to be sound")
    search = body.object("web_search_options")
    if search is not None:
        search.leave(*search.names)
        sheet.host("web_search", search.place)
    body.hint("prediction")


def choice(body: Fields, sheet: Sheet, *, wrapped: bool) -> None:
    """Note `tool_choice`: a word, one tool, or the tools allowed.

    Chat wraps what a choice says in an object named as its type; responses does not.
    """
    if isinstance(body.peek("tool_choice"), str):
        word = body.need_text("tool_choice")
        if word not in {"auto", "none", "required"}:
            raise BadField("tool_choice", "must be 'auto', 'none', 'required' or an object")
        _choose_word(body, sheet, word, "tool_choice")
        return
    chosen = body.object("tool_choice")
    if chosen is None:
        return
    kind = chosen.need_text("type")
    if kind not in {"function", "custom", "allowed_tools"}:
        body.out.drop("tool_choice", f"{kind!r} is no function")
        return
    said = chosen.need_object(kind) if wrapped else chosen
    if kind != "allowed_tools":
        choose(sheet, said.need_text("name"), said.at("name"), body.out)
    else:
        mode = said.need_text("mode")
        if mode not in {"auto", "required"}:
            raise BadField(said.at("mode"), "must be 'auto' or 'required'")
        names = {name for tool in said.objects("tools") if (name := _allowed(tool, wrapped))}
        allow(sheet, names, said.at("tools"))
        _choose_word(body, sheet, mode, said.at("mode"))
    said.done()
    chosen.done()


def _choose_word(body: Fields, sheet: Sheet, word: str, place: str) -> None:
    """Note a word; where every tool was dropped there is nothing to choose from."""
    if word == "required" and "tools" not in sheet.facts and sheet.lost:
        body.out.drop(place, "no tool is left")
    else:
        sheet.put("tool_choice", word, place)


def _allowed(tool: Fields, wrapped: bool) -> str | None:
    kind = tool.need_text("type")
    if kind not in {"function", "custom"}:
        tool.out.drop(tool.place, f"{kind!r} is no function")
        return None
    said = tool.need_object(kind) if wrapped else tool
    name = said.need_text("name")
    said.done()
    tool.done()
    return name


def form(asked: Fields | None, sheet: Sheet, *, inner: str) -> None:
    """Note the form of the answer; chat wraps a schema once more, responses does not."""
    if asked is None:
        return
    kind = asked.need_text("type")
    if kind == "json_object":
        sheet.put("json_object", value=True, place=asked.at("type"))
    elif kind == "json_schema":
        said = asked.need_object(inner) if inner else asked
        schema = said.json("schema")
        if schema is None:
            raise BadField(said.at("schema"), "is needed")
        sheet.put(
            "schema",
            Schema(
                name=said.need_text("name"),
                schema=schema,
                strict=said.flag("strict") or False,
                description=said.text("description") or "",
            ),
            said.place,
        )
        said.done()
    elif kind != "text":
        raise Untranslatable(asked.at("type"), f"the form {kind!r}")
    asked.done()


def _tool(tool: Fields, sheet: Sheet) -> Tool | None:
    kind = tool.need_text("type")
    if kind == "custom":
        return custom(tool.need_object("custom"), tool)
    if kind != "function":
        sheet.lost.add(kind)
        tool.out.drop(tool.place, f"{kind!r} is no function")
        return None
    said = tool.need_object("function")
    found = Tool(
        name=said.need_text("name"),
        description=said.text("description") or "",
        parameters=said.json("parameters") or {},
        strict=said.flag("strict"),
    )
    said.done()
    tool.leave("cache_control")
    tool.done()
    return found


def custom(said: Fields, tool: Fields) -> Tool:
    """Read a tool that takes free text; chat wraps it and its grammar once more."""
    name = said.need_text("name")
    description = said.text("description") or ""
    form = said.object("format")
    grammar = "" if form is None else _grammar(form)
    said.done()
    tool.done()
    return free_tool(name, description, grammar)


def _grammar(form: Fields) -> str:
    kind = form.need_text("type")
    if kind not in {"text", "grammar"}:
        form.out.drop(form.place, f"{kind!r}")
        return ""
    rule = form.object("grammar") or form
    syntax, definition = rule.text("syntax") or "text", rule.text("definition")
    rule.done()
    form.done()
    return f"({syntax})\n{definition}" if definition else ""


def _message(said: Fields) -> Message:
    word = said.need_text("role")
    role = _ROLES.get(word)
    if role is None:
        raise Untranslatable(said.at("role"), f"the role {word!r}")
    parts = _parts(said)
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant":
        refusal = said.text("refusal")
        parts += [Text(refusal)] if refusal else []
        parts = _thoughts(said) + parts
        calls = tuple(_call(call) for call in said.objects("tool_calls"))
        said.leave("annotations")
    found = Message(
        role=role,
        content=content_of(parts, joined=role == "assistant"),
        tool_calls=calls,
        tool_call_id=said.need_text("tool_call_id") if role == "tool" else None,
        name=said.text("name"),
        place=said.place,
    )
    said.done()
    return found


def _thoughts(said: Fields) -> list[Part]:
    """Read reasoning that was handed out; it goes by either name, its signature by a third."""
    texts = (said.text("reasoning_content"), said.text("reasoning"))
    text = texts[0] or texts[1] or ""
    place = said.at("reasoning_content" if texts[0] else "reasoning")
    details = dicts_of(said.peek("reasoning_details"))
    seals = [opened(str(one.get("signature"))) for one in details]
    found = next((seal for seal in seals if seal is not None), None)
    if found is not None:
        said.ignore("reasoning_details")
        return [restored(found, text, place)]
    said.leave("reasoning_details")
    raw = {"reasoning_content": text}
    return [Thought(dialect=CHAT, raw=raw, place=place)] if text else []


def _parts(said: Fields) -> list[Part]:
    value: Any = said.peek("content")
    if not isinstance(value, list):
        text = said.text("content")
        return [Text(text)] if text else []
    return [_part(part) for part in said.objects("content")]


def _part(part: Fields) -> Part:
    kind = part.need_text("type")
    found: Part
    if kind == "text":
        found = text_of(part)
    elif kind == "refusal":
        found = Text(part.need_text("refusal"))
    elif kind == "image_url":
        image = part.need_object("image_url")
        detail = image.text("detail")
        found = image_at(image.need_text("url"), image.at("url"), detail=detail)
        image.done()
    elif kind == "input_audio":
        found = audio(part.need_object("input_audio"))
    elif kind == "file":
        file = part.need_object("file")
        file.refuse("file_id", "a stored file is known to its provider alone")
        name = named(file, "filename")
        found = file_at(file.need_text("file_data"), file.at("file_data"), name)
        file.done()
    else:
        raise Untranslatable(part.at("type"), f"a part of the kind {kind!r}")
    part.leave("cache_control")
    part.done()
    return found


def audio(said: Fields) -> Part:
    """Read a sound, for chat and responses alike."""
    kind = said.text("format") or "wav"
    found = media_of(f"audio/{kind}", said.need_text("data"), said.at("format"))
    said.done()
    return found


def _call(call: Fields) -> ToolCall:
    kind = call.text("type") or "function"
    if kind == "custom":
        free = call.need_object("custom")
        arguments = free_arguments(free.text("input") or "")
        found = ToolCall(id=call.need_text("id"), name=free.need_text("name"), arguments=arguments)
        free.done()
    elif kind == "function":
        function = call.need_object("function")
        found = ToolCall(
            id=call.need_text("id"),
            name=function.need_text("name"),
            arguments=function.text("arguments") or "",
        )
        function.done()
    else:
        raise Untranslatable(call.at("type"), f"{kind!r} is no function")
    call.ignore("index")
    call.done()
    return found


# What is looked at without translating.


def form_schema(form: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema in a decoded form of the answer; any object has the plainest of all."""
    if form.get("type") == "json_object":
        return {"type": "object"}
    schema = form.get("schema")
    return schema if isinstance(schema, dict) else None


def _schema(body: Body) -> dict[str, Any] | None:
    form = dict_of(value_of(body.get("response_format")))
    return form_schema({**form, **dict_of(form.get("json_schema"))})


def functions_of(functions: list[dict[str, Any]]) -> dict[str, Any]:
    """Map the names of decoded functions to the schemas of their arguments."""
    named = [one for one in functions if isinstance(one.get("name"), str)]
    return {one["name"]: one.get("parameters") for one in named}


def _functions(tools: Any) -> dict[str, Any]:
    return functions_of([dict_of(tool.get("function")) for tool in dicts_of(tools)])


def must_call(body: Body) -> bool:
    """Say whether the answer has to be a call, for chat and responses alike."""
    choice = value_of(body.get("tool_choice"))
    return choice == "required" or dict_of(choice).get("type") == "function"


def _effort(body: Body) -> str:
    word = value_of(body.get("reasoning_effort"))
    return word if isinstance(word, str) else ""


SHAPE: Final = Shape(
    schemas=("response_format",),
    schema=_schema,
    functions=_functions,
    must_call=must_call,
    effort=_effort,
)
