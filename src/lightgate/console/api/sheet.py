"""Answers as CSV for spreadsheets, which must never take a recorded text for a formula."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def inert(value: object) -> object:
    """A cell: a text that a spreadsheet would run has an apostrophe before it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def flat(record: Any, before: str = "") -> dict[str, object]:
    """The fields of a record as cells; those of a record in it have its name before theirs."""
    cells: dict[str, object] = {}
    for name, value in msgspec.to_builtins(record, builtin_types=(Decimal,)).items():
        cells |= _cells(f"{before}{name}", value)
    return cells


def _cells(name: str, value: Any) -> dict[str, object]:
    if isinstance(value, dict):
        if value.keys() == {"v", "lo", "hi", "n"}:
            return {name: value["v"], f"{name}_lo": value["lo"], f"{name}_hi": value["hi"],
                    f"{name}_n": value["n"]}  # fmt: skip
        found: dict[str, object] = {}
        for inner, one in value.items():
            found |= _cells(f"{name}_{inner}", one)
        return found
    if isinstance(value, list):
        return {name: " ".join("" if one is None else str(one) for one in value)}
    return {name: value}


def sheet(rows: Iterable[dict[str, object]], columns: tuple[str, ...] = ()) -> Iterator[str]:
    """The lines of a table; its columns are those of the first row unless they are named."""
    for at, row in enumerate(rows):
        if at == 0:
            columns = columns or tuple(row)
            yield _line(columns)
        yield _line([inert(row.get(name)) for name in columns])


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()
