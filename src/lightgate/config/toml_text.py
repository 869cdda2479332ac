"""The text of a TOML file: the lines of its keys, and values as they are written."""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST: Final = 100  # columns; a longer list goes over several lines

KeyPath = tuple[str, ...]
Value = str | int | float | Decimal | tuple[str, ...] | tuple[float, ...]


def line_numbers(text: str) -> dict[KeyPath, int]:
    """The line of every table header and every `key =` of a text that is valid TOML.

    Statements are cut by the parser itself: lines are joined until they parse, which is when a
    multi-line string or array has ended.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    pending: list[str] = []
    began = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending:
            began = number
        pending.append(line)
        try:
            statement = tomllib.loads("\n".join(pending))
        except tomllib.TOMLDecodeError:
            continue
        first = pending[0]
        pending.clear()
        if first.lstrip().startswith("["):
            table = path = _keys(statement)
        elif statement:
            path = table + _left_side(statement, first)
        else:
            continue  # a comment or an empty line
        for length in range(1, len(path)):
            lines.setdefault(path[:length], began)
        lines[path] = began
    return lines


def line_of(lines: dict[KeyPath, int], path: Sequence[str | int]) -> int:
    """The line of a key, or of the nearest table around it that has one."""
    names = tuple(str(part) for part in path if not isinstance(part, int))
    found = (lines.get(names[:length]) for length in range(len(names), 0, -1))
    return next((line for line in found if line is not None), 1)


def _keys(statement: object) -> KeyPath:
    """The one key of each level of a parsed statement."""
    path: list[str] = []
    while statement:
        if isinstance(statement, list):
            statement = statement[0]
        elif isinstance(statement, dict):
            name, statement = next(iter(statement.items()))
            path.append(name)
        else:
            break
    return tuple(path)


def _left_side(statement: dict[str, object], line: str) -> KeyPath:
    """The key of `key = value`, without the keys of an inline table on its right side."""
    for end, character in enumerate(line):
        if character == "=":
            try:
                return _keys(tomllib.loads(line[:end] + "= 0"))
            except tomllib.TOMLDecodeError:
                continue  # an equals sign inside a quoted key
    return _keys(statement)


def key_text(*names: str) -> str:
    """A key or the inside of a table header."""
    return ".".join(name if _BARE.fullmatch(name) else _quoted(name) for name in names)


def key_path(parts: Sequence[str | int]) -> str:
    """The path of a value for problems and explanations, such as `models.fast.targets[0]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]":  # pydantic's own word for a key that is wrong itself
            text += f".{key_text(part)}" if text else key_text(part)
    return text or "(the file)"


def value_text(value: Value) -> str:
    """The right side of `key = value`; a long list goes over several lines."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        parts = [value_text(part) for part in value]
        line = f"[{', '.join(parts)}]"
        return line if len(line) < _LONGEST else "[\n  " + ",\n  ".join(parts) + ",\n]"
    number = Decimal(str(value))
    return format(number.to_integral() if number == number.to_integral() else number, "f")


def table_text(
    path: Sequence[str], values: Mapping[str, Value | None], remarks: Sequence[str] = ()
) -> str:
    """One table with comments above it; a value of None is left out."""
    lines = [comment(remark) for remark in remarks]
    lines.append(f"[{key_text(*path)}]")
    lines += [
        f"{key_text(name)} = {value_text(value)}"
        for name, value in values.items()
        if value is not None
    ]
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """A text as one line of comment; line ends become spaces."""
    return f"# {one_line(text)}"


def one_line(text: str) -> str:
    """The text without characters that could end its line or not be written."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return clean.encode("utf-8", "replace").decode()


def _quoted(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
