"""Reads the body of Gemini's generateContent; model and stream are in its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.facts import Untranslatable
from lightgate.dialect.read.content import allow, choose, closed, content_of
from lightgate.dialect.read.fields import BadField, Fields
from lightgate.dialect.read.gemini_turns import Turns
from lightgate.dialect.read.openapi import json_schema
from lightgate.dialect.request import Message, Schema, Text, Tool

if TYPE_CHECKING:
    from lightgate.dialect.read.fields import Sheet
    from lightgate.dialect.request import Part

_MODES: Final = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}
_DYNAMIC: Final = -1  # a thinking budget that the model chooses


def read(body: Fields, sheet: Sheet) -> None:
    """Note everything that a generateContent body says."""
    turns = Turns()
    system = body.object("systemInstruction")
    if system is not None:
        turns.add(_system(system))
    for content in body.objects("contents"):
        turns.content(content)
    sheet.put("messages", turns.messages(), "contents")
    tools = [tool for group in body.objects("tools") for tool in _tools(group)]
    sheet.put("tools", tuple(tools), "tools")
    config = body.object("toolConfig")
    if config is not None:
        _choice(config.object("functionCallingConfig"), sheet)
        config.done()
    generation = body.object("generationConfig")
    if generation is not None:
        _config(generation, sheet)
        generation.done()
    body.only("safetySettings", [])
    body.only("store", False)
    body.ignore("labels")


def _system(system: Fields) -> Message:
    system.ignore("role")
    parts: list[Part] = []
    for part in system.objects("parts"):
        parts.append(Text(part.need_text("text")))
        part.done()
    system.done()
    return Message(role="system", content=content_of(parts), place=system.place)


def _tools(group: Fields) -> list[Tool]:
    found = [_tool(declared) for declared in group.objects("functionDeclarations")]
    group.done()
    return found


def _tool(declared: Fields) -> Tool:
    parameters = declared.json("parametersJsonSchema")
    older = declared.json("parameters")
    if parameters is None and older is not None:
        parameters = json_schema(older, declared.at("parameters"))
    elif older is not None:
        raise BadField(declared.at("parameters"), "contradicts 'parametersJsonSchema'")
    found = Tool(
        name=declared.need_text("name"),
        description=declared.text("description") or "",
        parameters=parameters or {},
    )
    declared.only("behavior", "UNSPECIFIED", "BLOCKING")
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
        choose(sheet, names[0], f"{place}[0]")
    elif mode in _MODES:
        sheet.put("tool_choice", _MODES[mode], asked.at("mode"))
        if names:
            allow(sheet, set(names), place)
    elif mode != "MODE_UNSPECIFIED":
        raise Untranslatable(asked.at("mode"), f"{mode!r}")
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


def _form(config: Fields, sheet: Sheet) -> None:
    kind = config.text("responseMimeType") or "text/plain"
    found = []
    for name in ("responseJsonSchema", "_responseJsonSchema", "responseSchema"):
        schema = config.json(name)
        if schema is not None:
            place = config.at(name)
            found.append(
                (json_schema(schema, place) if name == "responseSchema" else schema, place)
            )
    if len(found) > 1:
        raise BadField(found[1][1], f"contradicts {found[0][1]!r}")
    if kind not in {"text/plain", "application/json"}:
        raise Untranslatable(config.at("responseMimeType"), f"{kind!r}")
    if found:
        if kind != "application/json":
            raise BadField(config.at("responseMimeType"), "must be 'application/json'")
        schema, place = found[0]
        sheet.put("schema", Schema(name="answer", schema=schema, strict=closed(schema)), place)
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
