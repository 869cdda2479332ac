"""Where in the text of a TOML file a key stands."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Path = tuple[str, ...]


def line_numbers(text: str) -> dict[Path, int]:
    """The line of every table header and every `key =` of a text that is valid TOML.

    Statements are cut by asking the parser itself: lines are joined until they parse, which is when
    a multi-line string or array has ended.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
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
        header = pending[0].lstrip().startswith("[")
        pending.clear()
        if header:
            table = _path(statement)
            _remember(lines, table, began)
        elif statement:
            _remember(lines, table + _key(statement, line=text.splitlines()[began - 1]), began)
    return lines


def line_of(lines: dict[Path, int], path: Sequence[str | int]) -> int:
    """The line of a key, or of the nearest table around it that has one."""
    names = tuple(str(part) for part in path if not isinstance(part, int))
    for length in range(len(names), 0, -1):
        if names[:length] in lines:
            return lines[names[:length]]
    return 1


def _remember(lines: dict[Path, int], path: Path, number: int) -> None:
    for length in range(1, len(path) + 1):
        lines.setdefault(path[:length], number)
    lines[path] = number


def _path(statement: object) -> Path:
    """Follow the one key of each level."""
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


def _key(statement: dict[str, object], *, line: str) -> Path:
    """The key of `key = value`, without the keys of an inline table on its right side."""
    for end, character in enumerate(line):
        if character == "=":
            try:
                return _path(tomllib.loads(line[:end] + "= 0"))
            except tomllib.TOMLDecodeError:
                continue  # an equals sign inside a quoted key
    return _path(statement)
