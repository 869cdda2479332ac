"""The tools of a request to the simulator: on offer, demanded, forbidden, and their results.

Every dialect keeps them elsewhere; each reader here looks at all of the places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_GEMINI_PARTS = (
    ("functionCall", "function_call", True),
    ("functionResponse", "function_response", False),
)


class ToolChoice(NamedTuple):
    """The wish of a request about calling tools."""

    demanded: bool = False
    forbidden: bool = False
    name: str | None = None


def read_choice(tree: dict[str, Any]) -> ToolChoice:
    """A word or an object in `tool_choice`; Gemini has a mode and names in `toolConfig`.

    Google's servers read their names in snake_case as well.
    """
    config: Any = tree.get("toolConfig", tree.get("tool_config"))
    inside: dict[str, Any] = config if isinstance(config, dict) else {}
    calling: Any = inside.get("functionCallingConfig", inside.get("function_calling_config"))
    if isinstance(calling, dict):
        mode = calling.get("mode")
        names = calling.get("allowedFunctionNames", calling.get("allowed_function_names"))
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
        declared = tool.get("functionDeclarations", tool.get("function_declarations"))
        if isinstance(declared, list):
            out += _offered(declared, None)
        elif tool.get("type") == "namespace":
            out += _offered(tool.get("tools"), name if isinstance(name, str) else None)
        elif isinstance(inner, dict) and isinstance(inner.get("name"), str):
            out.append(OfferedTool(inner["name"]))
        elif isinstance(name, str):
            out.append(OfferedTool(name, tool.get("type") == "custom", namespace))
    return out


class ToolResults(NamedTuple):
    """The results of tools in a conversation; a stray one answers no call before it."""

    number: int
    stray: str | None


def read_results(content: Any) -> ToolResults:
    """Count the results; where items are only referred to, their calls are taken as given."""
    called: set[str] = set()
    count, stray = 0, None
    entries = content if isinstance(content, list) else []
    for entry in entries:
        for is_call, key in _tool_entries(entry):
            if is_call:
                called.add(key)
                continue
            count += 1
            if key not in called and "*" not in called:
                stray = stray or key
    return ToolResults(count, stray)


def _tool_entries(entry: Any) -> Iterator[tuple[bool, str]]:
    """(is a call, what call and result share) of every call and result, by an id or a name."""
    if not isinstance(entry, dict):
        return
    kind = str(entry.get("type", ""))
    if kind == "item_reference":
        yield True, "*"
    elif entry.get("role") == "tool":
        yield False, str(entry.get("tool_call_id"))
    elif kind.endswith("call_output"):
        yield False, str(entry.get("call_id"))
    elif kind.endswith("_call"):
        yield True, str(entry.get("call_id"))
    for call in entry.get("tool_calls") or ():
        if isinstance(call, dict):
            yield True, str(call.get("id"))
    parts = entry.get("content") or entry.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            yield from _part_entries(part)


def _part_entries(part: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    if part.get("type") == "tool_use":
        yield True, str(part.get("id"))
    elif part.get("type") == "tool_result":
        yield False, str(part.get("tool_use_id"))
    for camel, snake, is_call in _GEMINI_PARTS:
        inner = part.get(camel, part.get(snake))
        if isinstance(inner, dict):
            yield is_call, str(inner.get("name"))
