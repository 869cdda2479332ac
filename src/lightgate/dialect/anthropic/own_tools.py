"""Tools of Anthropic's own types that the client carries out, as the functions that they are.

The model was trained on their schemas, so that a request names the type alone. Another model needs
the schema; the calls have the same fields.
"""

from __future__ import annotations

from typing import Any, Final

from lightgate.dialect.request import Tool

_TEXT: Final = {"type": "string"}
_LINES: Final = {"type": "array", "items": {"type": "integer"}}


def _fields(**fields: Any) -> dict[str, Any]:
    required = [name for name in ("command", "path") if name in fields]
    if "restart" in fields:
        required = []
    return {"type": "object", "properties": fields, "required": required}


_EDITS: Final = ["view", "create", "str_replace", "insert"]
_KEPT: Final = [*_EDITS, "delete", "rename"]
# By the beginning of the type, whose end is a date.
_KNOWN: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    (
        "bash_",
        "Runs a command in a bash session that stays open, and returns its output.",
        _fields(command=_TEXT, restart={"type": "boolean"}),
    ),
    (
        "text_editor_",
        "Views and edits files.",
        _fields(
            command={"type": "string", "enum": _EDITS},
            path=_TEXT,
            view_range=_LINES,
            file_text=_TEXT,
            old_str=_TEXT,
            new_str=_TEXT,
            insert_line={"type": "integer"},
            insert_text=_TEXT,
        ),
    ),
    (
        "memory_",
        "Reads and writes files of notes that outlive the conversation, under /memories.",
        _fields(
            command={"type": "string", "enum": _KEPT},
            path=_TEXT,
            view_range=_LINES,
            file_text=_TEXT,
            old_str=_TEXT,
            new_str=_TEXT,
            insert_line={"type": "integer"},
            insert_text=_TEXT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
)


def own_tool(kind: str, name: str) -> Tool | None:
    """Return the function that a type of Anthropic's stands for; None where it is none."""
    for start, description, parameters in _KNOWN:
        if kind.startswith(start):
            return Tool(name=name, description=description, parameters=parameters)
    return None
