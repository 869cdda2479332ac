"""The tables of a package: its constants that are no numbers, and the defaults of its records.

A list of words, statuses or fields decides what becomes of a request, and one entry of it that is
lost or misspelt shows in few tests. `fixtures/tables` has all of them as they were last looked
at; sentences are left out, since their wording is no behaviour. `python -m kept_tables` (from
tests/) writes them anew: read what differs.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import json
import re
import struct
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec

from numbers_page import PACKAGES, SOURCE

FOLDER = Path(__file__).parent / "fixtures" / "tables"
PLAIN = (str, bytes, int, float, type(None))
MIGRATION = "ledger/migrations/env.py"  # a script, which only alembic can run
NOT_OURS = {"_STATUS_LINES", "BOOT"}  # a table of Python's, which grows; the name of a process life
_HIDDEN = object()


def tables(package: str) -> dict[str, dict[str, Any]]:
    """What is kept, by module and name."""
    found = {}
    for path in sorted((SOURCE / package).rglob("*.py")):
        below = path.relative_to(SOURCE).as_posix()
        if below == MIGRATION:
            continue
        name = below.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = importlib.import_module(f"lightgate.{name}")
        rows = _rows(module, ast.parse(path.read_text("utf-8")).body)
        if rows:
            found[below] = rows
    return found


def _rows(module: Any, body: list[ast.stmt]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            value = getattr(module, target.id) if isinstance(target, ast.Name) else _HIDDEN
            if isinstance(target, ast.Name) and target.id not in NOT_OURS and _is_table(value):
                rows[target.id] = shown(value)
        elif isinstance(statement, ast.ClassDef):
            rows |= _defaults(statement.name, getattr(module, statement.name))
            rows |= _parameters(statement, getattr(module, statement.name), f"{statement.name}.")
    module_body = ast.Module(body, [])
    return rows | _parameters(module_body, module, "")


def _is_table(value: Any) -> bool:
    """Whether this is data; numbers are on a page of their own."""
    if isinstance(value, bool | str | bytes | re.Pattern | struct.Struct | msgspec.Struct):
        return True
    return isinstance(value, Mapping | AbstractSet | tuple | list) and not inspect.isclass(value)


def _defaults(name: str, kind: type) -> dict[str, Any]:
    """The defaults of a record's fields, and the plain attributes of a class."""
    if issubclass(kind, enum.Enum):
        return {f"{name}.{one.name}": shown(one.value) for one in kind}
    if issubclass(kind, msgspec.Struct):
        known = kind.__struct_defaults__
        last = kind.__struct_fields__[len(kind.__struct_fields__) - len(known) :]
        return {
            f"{name}.{field}": shown(value)
            for field, value in zip(last, known, strict=True)
            if value is not msgspec.NODEFAULT
        }
    given = getattr(kind, "_field_defaults", None)
    if given is None:
        given = {
            field: value
            for field, value in vars(kind).items()
            if not field.startswith(("__", "_is_"))
            and isinstance(value, (*PLAIN, frozenset, tuple))
        }
    return {f"{name}.{field}": shown(value) for field, value in given.items()}


def _parameters(node: ast.AST, owner: Any, prefix: str) -> dict[str, Any]:
    """The defaults of the parameters of functions."""
    rows = {}
    for one in getattr(node, "body", ()):
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        function = inspect.getattr_static(owner, one.name, None)
        function = getattr(function, "__func__", getattr(function, "__wrapped__", function))
        if not inspect.isfunction(function):
            continue
        for parameter in inspect.signature(function).parameters.values():
            default = parameter.default
            if isinstance(default, (*PLAIN, tuple)):
                rows[f"{prefix}{one.name}({parameter.name})"] = shown(default)
    return rows


def shown(value: Any, *, inside: bool = False) -> Any:
    """A value as JSON; sentences and what is no data are named by their kind alone."""
    match value:
        case enum.Enum():
            made: Any = f"{type(value).__name__}.{value.name}"
        case str():
            made = value if " " not in value else "(sentence)"
        case bool() | int() | None:
            made = value
        case bytes() | float():
            made = repr(value)
        case re.Pattern() | struct.Struct():
            made = [repr(getattr(value, name, None)) for name in ("format", "pattern", "flags")]
        case Mapping():
            made = _pairs(value)
        case AbstractSet():
            made = sorted((shown(one) for one in value), key=repr)
        case msgspec.Struct():
            name = getattr(value, "name", None) if inside else None
            made = [type(value).__name__, name or _pairs(msgspec.structs.asdict(value))]
        case tuple() | list():
            made = [shown(one, inside=inside) for one in value]
        case _:
            made = f"({getattr(value, '__qualname__', type(value).__name__)})"
    return made


def _pairs(value: Mapping[Any, Any]) -> dict[str, Any]:
    """A mapping; a record inside that has a name is shown where it is made."""
    names = [name if isinstance(name, str) else json.dumps(shown(name)) for name in value]
    shapes = [shown(one, inside=True) for one in value.values()]
    return dict(zip(names, shapes, strict=True))


def path_of(package: str) -> Path:
    """The file of a package."""
    return FOLDER / f"{package}.json"


def check(package: str) -> None:
    """Compare the file with a package; what is new may wait for the next writing."""
    kept = json.loads(path_of(package).read_text("utf-8"))
    now = json.loads(json.dumps(tables(package)))
    changed = {
        f"{module}: {name}": (kept[module][name], value)
        for module, rows in now.items()
        for name, value in rows.items()
        if kept.get(module, {}).get(name, value) != value
    }
    assert changed == {}, "If this is meant: python -m kept_tables, in tests/."
    names = {(module, name) for module, rows in now.items() for name in rows}
    known = {(module, name) for module, rows in kept.items() for name in rows}
    assert len(known & names) > 0.8 * len(names)


def _lines(rows: dict[str, Any]) -> str:
    """A line for each name: what differs is easily read."""
    return ",\n".join(
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in rows.items()
    )


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        modules = [
            f"{json.dumps(module)}: {{\n{_lines(rows)}\n}}"
            for module, rows in tables(package).items()
        ]
        path_of(package).write_text("{\n" + ",\n".join(modules) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
