"""The layout of src/: small packages and modules, no import cycle, one name for one thing.

Layers and rooms are held by import-linter (pyproject.toml); it has no words for these rules.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

import lightgate
from conftest import LONG
from lightgate.cli.main import VERBS

SRC = Path(__file__).parent.parent / "src" / "lightgate"
MOST_MODULES = 15  # a folder that is read at a glance
MOST_LINES = 600
# cli has one module per verb, which main imports by its name, and what several verbs use.
SHARED_BY_VERBS = {"importing", "main", "options", "output"}
PARTS_OF_VERBS = {
    "launch": "up",
    "early_orders": "up",
    "processes": "launch",
    "greeting": "launch",
    "caps": "models",
    "priors": "models",
    "bench_file": "bench",
    "bench_consent": "bench",
    "bench_checks": "bench",
    "bench_quick": "bench",
    "bench_wish": "bench",
    "batch_run": "batch",
    "batch_via": "batch_run",
    "examine": "config",
    "first_config": "init",
    "in_force": "launch",
    "stores": "doctor",
}


@cache
def modules() -> dict[str, list[str]]:
    """The modules of every package, by its path below src/lightgate."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in SRC.rglob("*.py"):
        if path.stem != "__init__":
            found[path.parent.relative_to(SRC).as_posix()].append(path.stem)
    return found


@cache
def imports() -> dict[str, set[str]]:
    """Which module imports which, also for its annotations alone; without the package's name."""
    graph = grimp.build_graph("lightgate", exclude_type_checking_imports=False, cache_dir=None)
    return {
        _short(name): {_short(used) for used in graph.find_modules_directly_imported_by(name)}
        for name in graph.modules
    }


def _short(module: str) -> str:
    return module.removeprefix("lightgate.")


def test_a_package_is_small() -> None:
    counts = {package: len(names) for package, names in modules().items() if package != "cli"}
    assert {package: count for package, count in counts.items() if count > MOST_MODULES} == {}


def test_cli_has_a_module_for_each_verb() -> None:
    verbs = {verb.name for verb in VERBS}
    assert set(modules()["cli"]) == verbs | SHARED_BY_VERBS | set(PARTS_OF_VERBS)
    for part, verb in PARTS_OF_VERBS.items():
        users = {module for module, used in imports().items() if f"cli.{part}" in used}
        assert f"cli.{verb}" in users


def test_a_module_is_small() -> None:
    lines = {path.relative_to(SRC): path.read_text().count("\n") for path in SRC.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        raise AssertionError(" imported by ".join(error.args[1])) from None


def test_a_class_has_a_name_of_its_own() -> None:
    """Names with an underscore are their module's own."""
    names = Counter(
        statement.name
        for path in SRC.rglob("*.py")
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_class_has_a_slot_that_its_base_has() -> None:
    """Both would write to one attribute, each believing that it is its own."""
    twice = set()
    for found in pkgutil.walk_packages(lightgate.__path__, "lightgate."):
        if found.name.endswith("__main__") or ".migrations" in found.name:
            continue
        module = importlib.import_module(found.name)
        for name, one in inspect.getmembers(module, inspect.isclass):
            own = set(one.__dict__.get("__slots__", ()))
            for base in one.__mro__[1:] if one.__module__ == found.name else ():
                shared = own & set(base.__dict__.get("__slots__", ()))
                twice |= {(found.name, name, slot) for slot in shared}
    assert twice == set()


def test_the_files_of_long_tests_are_there() -> None:
    tests = Path(__file__).parent
    assert [name for name in LONG if not (tests / name).is_file()] == []


def test_no_benchmark_has_the_name_of_a_package_of_the_tests() -> None:
    """Where both are on the path, the benchmark hides the package."""
    packages = {path.name for path in Path(__file__).parent.iterdir() if path.is_dir()}
    programs = {path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("*.py")}
    assert not packages & programs
