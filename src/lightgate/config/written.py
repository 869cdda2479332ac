"""Writing TOML: the few kinds of values that an imported file has."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST: Final = 100

Value = str | int | float | Decimal | tuple[str, ...] | tuple[float, ...]


def key_text(*names: str) -> str:
    """A key or the inside of a table header."""
    return ".".join(name if _BARE.fullmatch(name) else _quoted(name) for name in names)


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
    """One line of comment, whatever the text holds."""
    return f"# {one_line(text)}"


def one_line(text: str) -> str:
    """The text without anything that could end its line or not be written."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return clean.encode("utf-8", "replace").decode()


def _quoted(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
