"""Reads the body of Gemini's generateContent; model and stream are in its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.gemini.build import GEMINI
from lightgate.dialect.gemini.schema import json_schema
from lightgate.dialect.neutral.build import NAMELESS, put
from lightgate.dialect.neutral.dialect import Shape
from lightgate.dialect.neutral.fields import (
    Fields,
    allow,
    choose,
    closed,
    content_of,
    media_at,
    media_of,
    named,
)
from lightgate.dialect.neutral.json_text import dict_of, dicts_of, value_of
from lightgate.dialect.neutral.seal import opened
from lightgate.dialect.neutral.thoughts import restored
from lightgate.dialect.request import Message, Schema, Text, Thought, Tool, ToolCall
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.neutral.dialect import Body
    from lightgate.dialect.neutral.fields import Sheet
    from lightgate.dialect.request import Hosted, Part

_MODES: Final = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}
_STORED: Final = "generativelanguage.googleapis.com/"  # files that Google alone can open
_DYNAMIC: Final = -1  # a thinking budget that the model chooses
_HOSTED: Final[dict[str, Hosted]] = {
    "googleSearch": "web_search",
    "googleSearchRetrieval": "web_search",
    "urlContext": "web_fetch",
    "codeExecution": "code_execution",
}
_OWN_CALLS: Final = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")


def read(body: Fields, sheet: Sheet) -> None:
    """Note everything that a generateContent body says."""
    turns = _Turns()
    system = body.object("systemInstruction")
    if system is not None:
        turns.add(_system(system))
    for content in body.objects("contents"):
        turns.content(content)
    sheet.put("messages", turns.messages(), "contents")
    tools = [tool for group in body.objects("tools") for tool in _tools(group, sheet)]
    sheet.put("tools", tuple(tools), "tools")
    config = body.object("toolConfig")
    if config is not None:
        _choice(config.object("functionCallingConfig"), sheet)
        config.done()
    generation = body.object("generationConfig")
    if generation is not None:
        _config(generation, sheet)
        generation.done()
    body.hint("safetySettings", [])
    if body.flag("store"):
        body.out.leave("store")
    body.leave("labels")
    body.refuse("cachedContent", "what it stands for is known to Google alone")


def _system(system: Fields) -> Message:
    system.hint("role", "user", "system", "model", "")
    parts: list[Part] = []
    for part in system.objects("parts"):
        parts.append(Text(part.need_text("text")))
        part.done()
    system.done()
    return Message(role="system", content=content_of(parts), place=system.place)


def _tools(group: Fields, sheet: Sheet) -> list[Tool]:
    """Read functions, and tools of Google's own, which another provider may have or not."""
    found = [_tool(declared) for declared in group.objects("functionDeclarations")]
    for name, hosted in _HOSTED.items():
        own = group.object(name)
        if own is not None:
            own.leave(*own.names)
            sheet.host(hosted, own.place)
    group.done()
    return found


def _tool(declared: Fields) -> Tool:
    parameters = declared.json("parametersJsonSchema")
    older = declared.json("parameters")
    if parameters is None and older is not None:
        parameters = json_schema(older, declared.at("parameters"), declared.out)
    elif older is not None:
        raise BadField(declared.at("parameters"), "contradicts 'parametersJsonSchema'")
    found = Tool(
        name=declared.need_text("name"),
        description=declared.text("description") or "",
        parameters=parameters or {},
    )
    declared.hint("behavior", "UNSPECIFIED", "BLOCKING")
    declared.leave("response", "responseJsonSchema")
    declared.done()
    return found


def _choice(asked: Fields | None, sheet: Sheet) -> None:
    if asked is None:
        return
    mode = asked.text("mode") or "MODE_UNSPECIFIED"
    names = asked.texts("allowedFunctionNames")
    place = asked.at("allowedFunctionNames")
    if mode == "VALIDATED":
        _validate(sheet)
    if mode == "ANY" and len(names) == 1:
        choose(sheet, names[0], f"{place}[0]", asked.out)
    elif mode in _MODES:
        sheet.put("tool_choice", _MODES[mode], asked.at("mode"))
        if names:
            allow(sheet, set(names), place)
    elif mode != "MODE_UNSPECIFIED":
        asked.out.drop(asked.at("mode"), f"{mode!r}")
    asked.done()


def _validate(sheet: Sheet) -> None:
    """Ask for strict arguments where a schema meets OpenAI's and Anthropic's rules for them."""
    tools: tuple[Tool, ...] = sheet.facts.get("tools", ())
    checked = (msgspec.structs.replace(t, strict=closed(t.parameters) or None) for t in tools)
    sheet.put("tools", tuple(checked), "tools")


def _config(config: Fields, sheet: Sheet) -> None:
    for fact, name in (
        ("max_tokens", "maxOutputTokens"),
        ("top_k", "topK"),
        ("seed", "seed"),
        ("top_logprobs", "logprobs"),
    ):
        sheet.put(fact, config.whole(name), config.at(name))
    for fact, name in (("temperature", "temperature"), ("top_p", "topP")):
        sheet.put(fact, config.number(name), config.at(name))
    for fact, name in (
        ("presence_penalty", "presencePenalty"),
        ("frequency_penalty", "frequencyPenalty"),
    ):
        sheet.put(fact, config.number(name) or None, config.at(name))
    sheet.put("stop", config.texts("stopSequences"), config.at("stopSequences"))
    asked = config.flag("responseLogprobs") or None
    sheet.put("logprobs", asked, config.at("responseLogprobs"))
    _form(config, sheet)
    _thinking(config.object("thinkingConfig"), sheet)
    config.only("candidateCount", 1)
    config.only("responseModalities", ["TEXT"], ["text"])
    config.refuse("speechConfig", "the answer is to be sound")


def _form(config: Fields, sheet: Sheet) -> None:
    kind = config.text("responseMimeType") or "text/plain"
    found = []
    for name in ("responseJsonSchema", "_responseJsonSchema", "responseSchema"):
        schema = config.json(name)
        if schema is not None:
            place = config.at(name)
            found.append(
                (
                    json_schema(schema, place, config.out) if name == "responseSchema" else schema,
                    place,
                )
            )
    if len(found) > 1:
        raise BadField(found[1][1], f"contradicts {found[0][1]!r}")
    if kind not in {"text/plain", "application/json"}:
        raise Untranslatable(config.at("responseMimeType"), f"{kind!r}")
    if found:
        if kind != "application/json":
            raise BadField(config.at("responseMimeType"), "must be 'application/json'")
        schema, place = found[0]
        sheet.put("schema", Schema(name=NAMELESS, schema=schema, strict=closed(schema)), place)
    elif kind == "application/json":
        sheet.put("json_object", value=True, place=config.at("responseMimeType"))


def _thinking(asked: Fields | None, sheet: Sheet) -> None:
    if asked is None:
        return
    budget = asked.whole("thinkingBudget")
    level = (asked.text("thinkingLevel") or "").lower()
    if budget is not None and level:
        raise BadField(asked.at("thinkingLevel"), "contradicts 'thinkingBudget'")
    if level and level != "thinking_level_unspecified":
        sheet.put("reasoning", level, asked.at("thinkingLevel"))
    if budget is not None and budget != _DYNAMIC:
        sheet.put("reasoning", budget or "none", asked.at("thinkingBudget"))
    shown = asked.flag("includeThoughts")
    word = None if shown is None else "auto" if shown else "omitted"
    sheet.put("thoughts", word, asked.at("includeThoughts"))
    asked.done()


class _Turns:
    """Builds the conversation; a call without an id gets one from its number.

    A result without an id answers the first open call of its function.
    """

    def __init__(self) -> None:
        self._said: list[Message] = []
        self._ids: set[str] = set()
        self._open: dict[str, list[str]] = {}  # ids of calls without a result, by function

    def messages(self) -> tuple[Message, ...]:
        """Return the conversation."""
        return tuple(self._said)

    def add(self, message: Message) -> None:
        """Add a turn that is read already."""
        self._said.append(message)

    def content(self, content: Fields) -> None:
        """Read one entry of `contents`."""
        role = content.text("role") or "user"
        if role == "system":
            self._said.append(_system(content))
            return
        if role not in {"user", "model", "function"}:
            raise Untranslatable(content.at("role"), f"the role {role!r}")
        parts: list[Part] = []
        calls: list[ToolCall] = []
        results: list[Message] = []
        for part in content.objects("parts"):
            self._part(part, role, (parts, calls, results))
        content.done()
        if role == "model":
            words = content_of(parts, joined=True)
            message = Message(
                role="assistant", content=words, tool_calls=tuple(calls), place=content.place
            )
            self._said.append(message)
            return
        self._said += results
        if parts or not results:
            self._said.append(Message(role="user", content=content_of(parts), place=content.place))

    def _part(
        self, part: Fields, role: str, found: tuple[list[Part], list[ToolCall], list[Message]]
    ) -> None:
        """Read one part: something said, a call, or the result of one."""
        parts, calls, results = found
        signature = part.text("thoughtSignature")
        seal = opened(signature) if signature else None
        if seal is not None:
            parts.append(restored(seal, _beside(parts), part.at("thoughtSignature")))
            signature = None
        if role == "model" and part.peek("functionCall") is not None:
            calls.append(self._call(part, signature))
        elif role != "model" and part.peek("functionResponse") is not None:
            results.append(self._result(part))
        elif any(part.peek(name) is not None for name in _OWN_CALLS):
            part.out.leave(part.place)
            return
        elif seal is None or part.peek("text"):
            parts.append(_part(part, signature, role))
        else:
            part.ignore("text", "thought")
        part.leave("videoMetadata", "mediaResolution", "partMetadata")
        part.done()

    def _call(self, part: Fields, signature: str | None) -> ToolCall:
        call = part.need_object("functionCall")
        name = call.need_text("name")
        given = call.text("id") or self._made_up()
        self._ids.add(given)
        self._open.setdefault(name, []).append(given)
        args = msgspec.json.encode(call.json("args") or {}).decode()
        call.done()
        part.ignore("thought")
        place = part.at("thoughtSignature") if signature else ""
        return ToolCall(id=given, name=name, arguments=args, signature=signature, place=place)

    def _made_up(self) -> str:
        number = len(self._ids)
        while f"call_{number}" in self._ids:
            number += 1
        return f"call_{number}"

    def _result(self, part: Fields) -> Message:
        result = part.need_object("functionResponse")
        name = result.need_text("name")
        waiting = self._open.get(name, [])
        given = result.text("id")
        if given is None:
            given = waiting[0] if waiting else None
        if given not in self._ids or given is None:
            raise BadField(result.place, "answers no call of this conversation")
        if given in waiting:
            waiting.remove(given)
        response = result.json("response") or {}
        failed = set(response) == {"error"}
        value: Any = response["error"] if failed else response
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        result.hint("willContinue", False)
        result.hint("scheduling", "SCHEDULING_UNSPECIFIED")
        media = [_part(one, None, "user") for one in result.objects("parts")]
        result.done()
        return Message(
            role="tool",
            content=content_of([Text(text), *media]),
            tool_call_id=given,
            name=name,
            is_error=failed,
            place=result.place,
        )


def _part(part: Fields, signature: str | None, role: str) -> Part:
    thought = part.flag("thought")
    if part.peek("inlineData") is not None:
        return _data(part)
    if part.peek("fileData") is not None:
        return _file(part)
    text = part.text("text")
    if text is None:
        part.done()  # names what it is, if it is anything
        if signature is None:
            raise BadField(part.place, "is empty")
    if role != "model":
        return Text(text or "")
    if thought or not text:  # a seal may come alone, at the end of a stream
        raw: dict[str, Any] = {"text": text or ""}
        put(raw, thought=thought or None, thoughtSignature=signature)
        return Thought(dialect=GEMINI, raw=raw, place=part.place)
    return Text(text, signature, part.at("thoughtSignature") if signature else "")


def _data(part: Fields) -> Part:
    data = part.need_object("inlineData")
    name = named(data, "displayName")
    found = media_of(data.need_text("mimeType"), data.need_text("data"), data.at("mimeType"), name)
    data.done()
    return found


def _file(part: Fields) -> Part:
    file = part.need_object("fileData")
    kind = file.text("mimeType") or "application/pdf"
    url = file.need_text("fileUri")
    if _STORED in url:
        raise Untranslatable(file.at("fileUri"), "a stored file is known to its provider alone")
    name = named(file, "displayName")
    file.done()
    return media_at(url, kind, file.at("fileUri"), name)


def _beside(parts: list[Part]) -> str:
    """Return the thoughts that stand before a signature."""
    raws = [part.raw for part in parts if isinstance(part, Thought) and part.dialect == GEMINI]
    return "".join(str(raw.get("text", "")) for raw in raws if raw.get("thought"))


# What is looked at without translating.


def _schema(body: Body) -> dict[str, Any] | None:
    config = dict_of(value_of(body.get("generationConfig")))
    for name in ("responseJsonSchema", "_responseJsonSchema"):
        if isinstance(config.get(name), dict):
            return dict_of(config[name])
    return _readable(config["responseSchema"]) if dict_of(config.get("responseSchema")) else None


def _functions(tools: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in dicts_of(tools):
        for declared in dicts_of(tool.get("functionDeclarations")):
            plain = declared.get("parametersJsonSchema")
            older = declared.get("parameters") or {}
            found[str(declared.get("name"))] = _readable(older) if plain is None else plain
    return found


def _readable(schema: Any) -> dict[str, Any] | None:
    """Translate Gemini's own kind of schema; one that cannot be read binds nothing."""
    try:
        return json_schema(schema, "schema")
    except (UsageError, RecursionError):
        return None


def _must_call(body: Body) -> bool:
    config = dict_of(dict_of(value_of(body.get("toolConfig"))).get("functionCallingConfig"))
    return config.get("mode") == "ANY"


SHAPE: Final = Shape(
    turns="contents",
    instructions=("systemInstruction", "system_instruction"),
    schemas=("generationConfig",),
    schema_sign=b"Schema",
    nested="functionDeclarations",
    schema=_schema,
    functions=_functions,
    must_call=_must_call,
)
