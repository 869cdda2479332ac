"""Tools that not every dialect knows, told as plain functions; `forms_of` has the way back.

Codex groups functions in namespaces, Gemini takes dots and colons in names. OpenAI has tools that
take free text, which become functions with one argument, and a shell of its own.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.neutral.json_text import decoded
from lightgate.dialect.request import CallForm, Tool

if TYPE_CHECKING:
    from lightgate.dialect.request import Message, Request

_PLAIN: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")
_INPUT: Final = "input"  # the one argument of a tool that takes free text
SHELL: Final = "local_shell"
_SHELL_FIELDS: Final[dict[str, Any]] = {
    "command": {"type": "array", "items": {"type": "string"}},
    "working_directory": {"type": "string"},
    "timeout_ms": {"type": "integer"},
}


class _Free(msgspec.Struct):
    """The arguments of a tool that takes free text; other names are passed over."""

    input: str


_free: Final = msgspec.json.Decoder(_Free)


def free_tool(name: str, description: str, grammar: str = "") -> Tool:
    """Make a tool that takes free text into a function; its grammar becomes a part of the words."""
    said = {"type": "string", "description": "The whole input of the tool, as plain text."}
    rule = f"The input must follow this grammar:\n{grammar}" if grammar else ""
    return Tool(
        name=name,
        description="\n\n".join(text for text in (description, rule) if text),
        parameters={
            "type": "object",
            "properties": {_INPUT: said},
            "required": [_INPUT],
            "additionalProperties": False,
        },
        form="custom",
    )


def free_arguments(text: str) -> str:
    """Write the free text of a call as the arguments of its function."""
    return msgspec.json.encode({_INPUT: text}).decode()


def free_text(arguments: str) -> str:
    """Read the free text of a call from the arguments of its function."""
    found = decoded(_free, arguments.encode("utf-8", "backslashreplace"))  # half of an emoji
    return arguments if found is None else found.input


def shell_tool() -> Tool:
    """Make OpenAI's local shell, which the client runs, into a function."""
    return Tool(
        name=SHELL,
        description="Runs a command in a shell on the user's machine and returns its output.",
        parameters={"type": "object", "properties": _SHELL_FIELDS, "required": ["command"]},
        form="local_shell",
    )


def plain_name(name: str, namespace: str = "") -> str:
    """Return the name under which every dialect takes a tool; two names stay two."""
    whole = f"{namespace}__{name}" if namespace else name
    if _PLAIN.fullmatch(whole):
        return whole
    check = f"_{zlib.crc32(whole.encode('utf-8', 'surrogatepass')):08x}"
    cleaned = _ODD.sub("_", whole)
    start = cleaned if re.match("[a-zA-Z_]", cleaned) else f"t_{cleaned}"
    return start[: 64 - len(check)] + check


def with_plain_names(request: Request) -> Request:
    """Return the request with plain names for its tools, in the list and in the conversation."""
    odd = [tool for tool in request.tools if plain_name(tool.name) != tool.name]
    calls = any(
        plain_name(call.name) != call.name for said in request.messages for call in said.tool_calls
    )
    if not odd and not calls:
        return request
    chosen = request.tool_choice
    if chosen is not None and any(tool.name == chosen for tool in odd):
        chosen = plain_name(chosen)
    return msgspec.structs.replace(
        request,
        tools=tuple(_renamed(tool) for tool in request.tools),
        tool_choice=chosen,
        messages=tuple(_with_plain_calls(said) for said in request.messages),
    )


def _renamed(tool: Tool) -> Tool:
    name = plain_name(tool.name)
    if name == tool.name:
        return tool
    known = tool.known_as or ("", tool.name)
    return msgspec.structs.replace(tool, name=name, known_as=known)


def _with_plain_calls(said: Message) -> Message:
    name = None if said.name is None or said.role != "tool" else plain_name(said.name)
    calls = tuple(
        msgspec.structs.replace(call, name=plain_name(call.name)) for call in said.tool_calls
    )
    if calls == said.tool_calls and (name is None or name == said.name):
        return said
    return msgspec.structs.replace(said, tool_calls=calls, name=name or said.name)


def forms_of(request: Request) -> dict[str, CallForm]:
    """Return the tools, by their plain names, whose calls the client knows otherwise."""
    return {
        tool.name: CallForm(tool.form, *(tool.known_as or ("", tool.name)))
        for tool in request.tools
        if tool.form != "function" or tool.known_as is not None
    }
