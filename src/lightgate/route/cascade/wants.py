"""What a request binds its answer to: a schema, tools, a limit. The checks go by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.read.openapi import json_schema
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_any: Final = msgspec.json.Decoder()
_ANY_OBJECT: Final = {"type": "object"}


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """Null or empty where nothing is asked for.

    `schema` is a JSON schema. `tools` maps a function's name to the schema of its arguments, None
    where it has none. `must_call`: the answer has to be a call. `limit` is the client's own cap on
    tokens.
    """

    schema: dict[str, Any] | None = None
    tools: dict[str, Any] = {}
    must_call: bool = False
    limit: int | None = None


def wants_of(dialect: str, fields: Mapping[str, msgspec.Raw], limit: int | None = None) -> Wants:
    """Read a request's fields; what cannot be read binds nothing here, and never raises."""
    tools = _tools(dialect, _decoded(fields.get("tools")))
    return Wants(
        schema=_schema(dialect, fields),
        tools=tools,
        must_call=bool(tools) and _must_call(dialect, fields),
        limit=limit,
    )


def _schema(dialect: str, fields: Mapping[str, msgspec.Raw]) -> dict[str, Any] | None:
    if dialect == "gemini":
        return _gemini_schema(_dict(_decoded(fields.get("generationConfig"))))
    if dialect == "anthropic-messages":
        config = _dict(_decoded(fields.get("output_config")))
        form = _dict(config.get("format")) or _dict(_decoded(fields.get("output_format")))
    elif dialect == "openai-responses":
        form = _dict(_dict(_decoded(fields.get("text"))).get("format"))
    else:
        form = _dict(_decoded(fields.get("response_format")))
        form = {**form, **_dict(form.get("json_schema"))}
    if form.get("type") == "json_object":
        return dict(_ANY_OBJECT)
    schema = form.get("schema")
    return schema if isinstance(schema, dict) else None


def _gemini_schema(config: dict[str, Any]) -> dict[str, Any] | None:
    for name in ("responseJsonSchema", "_responseJsonSchema"):
        if isinstance(config.get(name), dict):
            return dict(config[name])
    if isinstance(config.get("responseSchema"), dict):
        return _from_openapi(config["responseSchema"])
    return None


def _from_openapi(schema: Any) -> dict[str, Any] | None:
    """Gemini's own kind of schema; one that cannot be read binds nothing."""
    try:
        return json_schema(schema, "schema")
    except (UsageError, RecursionError):
        return None


def _tools(dialect: str, said: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in _dicts(said):
        if dialect == "gemini":
            for declared in _dicts(tool.get("functionDeclarations")):
                plain = declared.get("parametersJsonSchema")
                found[str(declared.get("name"))] = (
                    plain if plain is not None else _from_openapi(declared.get("parameters") or {})
                )
            continue
        function = _dict(tool.get("function")) if dialect == "openai-chat" else tool
        name = function.get("name")
        if isinstance(name, str):
            place = "input_schema" if dialect == "anthropic-messages" else "parameters"
            found[name] = function.get(place)
    return found


def _must_call(dialect: str, fields: Mapping[str, msgspec.Raw]) -> bool:
    if dialect == "gemini":
        config = _dict(_dict(_decoded(fields.get("toolConfig"))).get("functionCallingConfig"))
        return config.get("mode") == "ANY"
    choice = _decoded(fields.get("tool_choice"))
    if dialect == "anthropic-messages":
        return _dict(choice).get("type") in ("any", "tool")
    return choice == "required" or _dict(choice).get("type") == "function"


def _decoded(raw: msgspec.Raw | None) -> Any:
    try:
        return None if raw is None else _any.decode(raw)
    except (ValueError, RecursionError):
        return None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
