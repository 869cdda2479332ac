"""The tests that reach a mutation: a map of blocks and tests, made once for a state of the tree."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mutation.marks import Blocks, blocks, mark_all

if TYPE_CHECKING:
    from pathlib import Path

    from mutation.operators import Mutation

_PAGES: Final = "/test_docs_"  # files of tests that compare constants with pages
_FETCHED: Final = (".debian",)  # programs that `make test` fetches, and git does not know


class NoTestsError(Exception):
    """No test of a package passes here, so that nothing could be noticed; `said` by pytest."""

    def __init__(self, package: str, said: str) -> None:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        why = lines[-1] if lines else "pytest gave no reason"
        super().__init__(f"No test of tests/{package} can be run here: {why}")


class Tree(NamedTuple):
    """A copy of the working tree, in which anything may be changed."""

    root: Path

    @property
    def source(self) -> Path:
        """The product."""
        return self.root / "src" / "lightgate"

    def environment(self, role: str, **more: str) -> dict[str, str]:
        """The variables of a run of pytest in this copy."""
        paths = [str(self.root / "src"), str(self.root / "benchmarks")]
        return {
            **os.environ,
            **more,
            "PYTHONPATH": os.pathsep.join(paths),
            "MUTATION_ROLE": role,
        }


def copy_tree(root: Path, into: Path) -> Tree:
    """Copy what git knows, and what is new and not ignored."""
    asked = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    named = subprocess.run(asked, check=True, capture_output=True).stdout.decode().split("\0")
    for name in named:
        if name and (root / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, into / name)
    for name in _FETCHED:
        if (root / name).exists():
            (into / name).symlink_to((root / name).resolve())
    return Tree(into)


def pytest_command(package: str, *more: str) -> list[str]:
    """Run the tests of a package with the plugin of this folder."""
    plain = ["-q", "-p", "mutation.plugin", "-p", "no:cacheprovider", "-p", "no:terminalreporter"]
    # A file of tests that cannot be imported here leaves the others to be run.
    plain.append("--continue-on-collection-errors")
    return [sys.executable, "-m", "pytest", *plain, *more, f"tests/{package}"]


class Reach(NamedTuple):
    """Which tests run which block."""

    tests: dict[str, dict[str, list[str]]]  # package, block, tests
    seconds: dict[str, float]
    imported: frozenset[str]  # blocks that run at import
    functions: dict[str, list[str]]  # a name, and the blocks of the functions that mention it
    texts: dict[str, str]  # of the files of tests
    left_out: dict[str, dict[str, str]]  # package, a test or file that did not run, and why

    def of(self, package: str, mutant: Mutation, path: str, mine: Blocks) -> list[str]:
        """The tests of a package that may notice a mutation: the nearest, then the quickest first.

        For a constant those come before that compare constants with pages: the others may be many.
        """
        by_block = self.tests.get(package, {})
        chosen: set[str] = set()
        places = self._blocks(mutant, path, mine)
        if mutant.site.unit is not None and not self.imported.isdisjoint(places):
            # It runs when modules are imported: what it makes is used by the whole module.
            places = [f"{path}:{name}" for name in mine.names]
        for name in places:
            chosen |= set(by_block.get(name, ()))
        if mutant.site.unit is None:
            chosen |= self._naming(package, _bound(mutant.site.statement))
        pages = {name for name in chosen if mutant.site.unit is None and _PAGES in name}

        def place(name: str) -> tuple[bool, int, float, str]:
            return name not in pages, _distance(path, name), self.seconds[name], name

        return sorted(chosen, key=place)

    def _naming(self, package: str, names: list[str]) -> set[str]:
        """The tests in files that name a constant, and those that compare constants with pages."""
        files = {
            path
            for path, text in self.texts.items()
            if _PAGES in path or any(name in text for name in names)
        }
        here = f"tests/{package}/"
        return {
            test for test in self.seconds if test.startswith(here) and test.split("::")[0] in files
        }

    def _blocks(self, mutant: Mutation, path: str, mine: Blocks) -> list[str]:
        site = mutant.site
        if site.unit is not None:
            at = mine.of_statement.get((site.statement.lineno, site.statement.col_offset))
            if at is not None:
                return [f"{path}:{mine.names[at]}"]
        if site.scope in mine.of_function:  # the default of a parameter
            return [f"{path}:{mine.names[at]}" for at in mine.of_function[site.scope]]
        named = [name for bound in _bound(site.statement) for name in self.functions.get(bound, ())]
        return named or [f"{path}:{name}" for name in mine.names]

    def at_import(self, mutant: Mutation, path: str, mine: Blocks) -> bool:
        """Whether the code of a mutation is run when modules are imported."""
        if mutant.site.unit is None:
            return True
        return not self.imported.isdisjoint(self._blocks(mutant, path, mine))


def _distance(path: str, test: str) -> int:
    """How far a test lies from a module: in a file of its name, in its folder, elsewhere."""
    folder, _, name = path.removesuffix(".py").rpartition("/")
    if test.startswith(f"tests/{folder}/test_{name}"):
        return 0
    return 1 if test.startswith(f"tests/{folder}/") else 2


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module or class binds."""
    return [
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _mentions(source: Path) -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(source.rglob("*.py")):
        below, text = path.relative_to(source).as_posix(), path.read_text("utf-8")
        mine = blocks(text)
        for scope, node in _functions(ast.parse(text).body, ""):
            names = [f"{below}:{mine.names[at]}" for at in mine.of_function.get(scope, ())[:1]]
            for one in ast.walk(node):
                for name in (
                    getattr(one, "id", 0),
                    getattr(one, "attr", 0),
                    getattr(one, "arg", 0),
                ):
                    if isinstance(name, str):
                        found[name].update(names)
    return {name: sorted(blocks_of) for name, blocks_of in found.items()}


def _functions(body: list[ast.stmt], prefix: str) -> list[tuple[str, ast.stmt]]:
    found: list[tuple[str, ast.stmt]] = []
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((f"{prefix}{one.name}", one))
        elif isinstance(one, ast.ClassDef):
            found += _functions(one.body, f"{prefix}{one.name}.")
    return found


def state_of(root: Path, package: str) -> str:
    """A name for the sources and the tests of a package as they are."""
    total = hashlib.sha256()
    for folder in (root / "src", root / "tests" / package):
        for path in sorted(folder.rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()[:16]


def reach(tree: Tree, packages: list[str], kept: Path, jobs: int, *, stale: bool) -> Reach:
    """Read the maps of these packages, or make them."""
    maps = {package: _map(tree, package, kept, jobs, stale=stale) for package in packages}
    tests: dict[str, dict[str, list[str]]] = {}
    seconds: dict[str, float] = {}
    imported: set[str] = set()
    left_out = {package: found.get("left_out", {}) for package, found in maps.items()}
    for package, found in maps.items():
        by_block: dict[str, list[str]] = defaultdict(list)
        for test, row in found["tests"].items():
            seconds[test] = row["s"]
            for block in row["hits"]:
                by_block[found["names"][block]].append(test)
        tests[package] = by_block
        imported |= {found["names"][block] for block in found["imported"]}
    texts = {
        path.relative_to(tree.root).as_posix(): path.read_text("utf-8")
        for path in (tree.root / "tests").rglob("test_*.py")
    }
    return Reach(tests, seconds, frozenset(imported), _mentions(tree.source), texts, left_out)


def _map(tree: Tree, package: str, kept: Path, jobs: int, *, stale: bool) -> dict[str, Any]:
    path = kept / f"{package}-{state_of(tree.root, package)}.json"
    if not path.exists():
        older = sorted(kept.glob(f"{package}-*.json"), key=lambda one: one.stat().st_mtime)
        if stale and older:
            return _with_new_tests(tree, package, jobs, json.loads(older[-1].read_text("utf-8")))
        kept.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_made(tree, package, jobs)), "utf-8")
        for one in older[:-2]:
            one.unlink()
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _with_new_tests(tree: Tree, package: str, jobs: int, old: dict[str, Any]) -> dict[str, Any]:
    """An older map, and what the files of tests reach that are new or have changed since."""
    known = old.get("files", {})
    files = _files(tree, package)
    fresh = [name for name, state in files.items() if known.get(name) != state]
    if not fresh:
        return old
    found = _made(tree, package, jobs, fresh)
    old["files"] = files
    for part in ("tests", "left_out"):
        old[part] = {
            test: row
            for test, row in old.get(part, {}).items()
            if (name := test.split("::")[0]) in files and name not in fresh
        }
    old["left_out"] |= found["left_out"]
    places = {name: place for place, name in enumerate(old["names"])}
    for test, row in found["tests"].items():
        names = [found["names"][hit] for hit in row["hits"]]
        for name in names:
            places.setdefault(name, len(places))
        old["tests"][test] = {**row, "hits": [places[name] for name in names]}
    return {**old, "names": list(places)}


def _files(tree: Tree, package: str) -> dict[str, str]:
    """The files of tests of a package, and a name for what each of them says."""
    return {
        path.relative_to(tree.root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted((tree.root / "tests" / package).rglob("test_*.py"))
    }


def _made(tree: Tree, package: str, jobs: int, files: list[str] | None = None) -> dict[str, Any]:
    print(f"making the map of tests/{package}", file=sys.stderr, flush=True)
    marked = tree.root.parent / f"marked-{package}"
    shutil.copytree(tree.root, marked, symlinks=True)
    copy = Tree(marked)
    names, _ = mark_all(tree.source, copy.source)
    environment = copy.environment(
        "map", MUTATION_FOLDER=str(marked), MUTATION_SIZE=str(len(names))
    )
    command = pytest_command(
        package, "-n", str(jobs), "--dist", "loadfile", f"--basetemp={marked}/made"
    )
    command = command if files is None else [*command[:-1], *files]
    ran = subprocess.run(
        command,
        cwd=marked,
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    tests: dict[str, Any] = {}
    imported: set[int] = set()
    left_out: dict[str, str] = {}
    for part in marked.glob("map-*.json"):
        found = json.loads(part.read_text("utf-8"))
        tests.update({name: row for name, row in found["tests"].items() if row["passed"]})
        imported.update(found["imported"])
        left_out.update(found["left_out"])
    shutil.rmtree(marked)
    if files is None and not tests:
        raise NoTestsError(package, ran.stderr)
    return {
        "names": names, "tests": tests, "imported": sorted(imported), "left_out": left_out,
        "files": _files(tree, package),
    }  # fmt: skip
