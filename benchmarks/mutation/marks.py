"""Marks in a copy of the sources: which block of code was run is written to a shared file.

Every function of the copy gets a statement at the beginning of each block, `_marks_[7] = 1`.
`_marks_` is a file in memory: a mark costs some tens of nanoseconds, child processes write to the
same file, and a process that is killed has written its marks too.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

COMPOUND: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith)
BEFORE: Final = "from mutation_marks import MARKS as _marks_"
MODULE: Final = """
import mmap
import os
import pathlib


def found():
    if "MUTATION_MARKS" in os.environ:
        return pathlib.Path(os.environ["MUTATION_MARKS"])
    pid = os.getppid()  # a process that gets few variables belongs to the test of an ancestor
    while pid > 1:
        path = pathlib.Path({folder!r}, f"marks-of-{{pid}}")
        if path.exists():
            return path
        try:
            pid = int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return None


MARKS = bytearray({size})
if path := found():
    with path.open("r+b") as file:
        MARKS = mmap.mmap(file.fileno(), 0)
"""


class Blocks(NamedTuple):
    """The blocks of one source text."""

    names: list[str]  # function and number: they survive changes elsewhere in the file
    of_statement: dict[tuple[int, int], int]  # by line and column of a statement
    of_function: dict[str, list[int]]
    tree: ast.Module


def blocks(source: str, first: int = 0) -> Blocks:
    """Number the blocks of a source text from `first`, and put a mark into each."""
    marker = _Marker(first)
    tree = ast.parse(source)
    marker.outside(tree.body, "")
    at = next((n for n, one in enumerate(tree.body) if not _is_first(one)), len(tree.body))
    tree.body.insert(at, ast.parse(BEFORE).body[0])
    ast.fix_missing_locations(tree)
    return Blocks(marker.names, marker.of_statement, marker.of_function, tree)


def _is_first(statement: ast.stmt) -> bool:
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    return future or _is_docstring(statement)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _Marker:
    def __init__(self, first: int) -> None:
        self._first = first
        self.names: list[str] = []
        self.of_statement: dict[tuple[int, int], int] = {}
        self.of_function: dict[str, list[int]] = {}

    def outside(self, body: list[ast.stmt], prefix: str) -> None:
        """Find the functions of a module or class."""
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._suite(statement.body, f"{prefix}{statement.name}")
            elif isinstance(statement, ast.ClassDef):
                self.outside(statement.body, f"{prefix}{statement.name}.")
            elif isinstance(statement, ast.If | ast.Try | ast.With):
                self.outside(statement.body, prefix)

    def _suite(self, body: list[ast.stmt], scope: str) -> None:
        marked: list[ast.stmt] = []
        block: int | None = None
        for statement in list(body):
            if not marked and _is_docstring(statement):
                marked.append(statement)
                continue
            if block is None:
                block = self._new(scope)
                marked.append(_mark(block))
            self.of_statement[statement.lineno, statement.col_offset] = block
            marked.append(statement)
            self._below(statement, scope)
            if isinstance(statement, (*COMPOUND, ast.Match)):
                block = None
        body[:] = marked

    def _below(self, statement: ast.stmt, scope: str) -> None:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            self._suite(statement.body, f"{scope}.{statement.name}")
            return
        if isinstance(statement, ast.ClassDef):
            self.outside(statement.body, f"{scope}.{statement.name}.")
            return
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(statement, field, None):
                self._suite(inner, scope)
        if isinstance(statement, ast.Try):
            for handler in statement.handlers:
                self._suite(handler.body, scope)
        if isinstance(statement, ast.Match):
            for case in statement.cases:
                self._suite(case.body, scope)

    def _new(self, scope: str) -> int:
        number = self._first + len(self.names)
        mine = self.of_function.setdefault(scope, [])
        self.names.append(f"{scope}#{len(mine)}")
        mine.append(number)
        return number


def _mark(block: int) -> ast.stmt:
    return ast.parse(f"_marks_[{block}] = 1").body[0]


def mark_all(source: Path, into: Path) -> tuple[list[str], dict[str, Blocks]]:
    """Write marked copies of all modules below `source`; the names of blocks, and those by file."""
    names: list[str] = []
    found: dict[str, Blocks] = {}
    for path in sorted(source.rglob("*.py")):
        below = path.relative_to(source).as_posix()
        mine = blocks(path.read_text("utf-8"), len(names))
        found[below] = mine
        names += [f"{below}:{name}" for name in mine.names]
        (into / below).write_text(ast.unparse(mine.tree), "utf-8")
    (into.parent / "mutation_marks.py").write_text(
        MODULE.format(size=len(names), folder=str(into.parents[1])), "utf-8"
    )
    return names, found
