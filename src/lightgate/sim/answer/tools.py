"""The tools of a request to the simulator: on offer, demanded, forbidden, and their results.

Every dialect keeps them elsewhere; each reader here looks at all of the places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_RESULTS = frozenset(("tool_result", "mcp_tool_result"))  # blocks of Anthropic's messages


class ToolChoice(NamedTuple):
    """The wish of a request about calling tools."""

    demanded: bool = False
    forbidden: bool = False
    name: str | None = None


def read_choice(tree: dict[str, Any]) -> ToolChoice:
    """A word or an object in `tool_choice`; Gemini has a mode and names in `toolConfig`."""
    config = tree.get("toolConfig")
    calling = config.get("functionCallingConfig") if isinstance(config, dict) else None
    if isinstance(calling, dict):
        mode, names = calling.get("mode"), calling.get("allowedFunctionNames")
        first = names[0] if isinstance(names, list) and names else None
        return ToolChoice(mode == "ANY", mode == "NONE", first if isinstance(first, str) else None)
    choice = tree.get("tool_choice")
    if not isinstance(choice, dict):
        return ToolChoice(choice == "required", choice == "none")
    kind, inner = choice.get("type"), choice.get("function")
    name = (inner if isinstance(inner, dict) else choice).get("name")
    demanded = kind in {"any", "tool", "function"}
    return ToolChoice(demanded, kind == "none", name if isinstance(name, str) else None)


class OfferedTool(NamedTuple):
    """A tool that a request offers; OpenAI's responses have free text and namespaces as well."""

    name: str
    free_text: bool = False  # a custom tool: its input is any text instead of JSON
    namespace: str | None = None


def offered_tools(tree: dict[str, Any]) -> tuple[OfferedTool, ...]:
    """The tools on offer, in their order; those of an input item come after the request's own."""
    items = tree.get("input")
    lists = [tree.get("tools")]
    lists += [
        item.get("tools")
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and item.get("type") == "additional_tools"
    ]
    return tuple(tool for tools in lists for tool in _offered(tools, None))


def _offered(tools: Any, namespace: str | None) -> list[OfferedTool]:
    out: list[OfferedTool] = []
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        name, inner = tool.get("name"), tool.get("function")
        if isinstance(declared := tool.get("functionDeclarations"), list):
            out += _offered(declared, None)
        elif tool.get("type") == "namespace":
            out += _offered(tool.get("tools"), name if isinstance(name, str) else None)
        elif isinstance(inner, dict) and isinstance(inner.get("name"), str):
            out.append(OfferedTool(inner["name"]))
        elif isinstance(name, str):
            out.append(OfferedTool(name, tool.get("type") == "custom", namespace))
    return out


def count_results(content: Any) -> int:
    """The results of tools in a conversation: each is an answer to one call."""
    return sum(map(_results_of, content)) if isinstance(content, list) else 0


def _results_of(entry: Any) -> int:
    if not isinstance(entry, dict):
        return 0
    if entry.get("role") == "tool" or str(entry.get("type", "")).endswith("call_output"):
        return 1
    parts = entry.get("content") or entry.get("parts")
    return sum(map(_is_result, parts)) if isinstance(parts, list) else 0


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") in _RESULTS or "functionResponse" in part)
