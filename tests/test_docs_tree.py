"""The pages about the tree name what is in it: packages, modules, pages."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lightgate"
DOCS = ROOT / "docs"
ARCHITECTURE = (DOCS / "architecture.md").read_text("utf-8")
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "benchmarks" / "README.md"])
ALL_PAGES = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
MODULE = re.compile(r"`((?:\w+/)+\w+\.py)`")


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def packages() -> set[str]:
    found = (init.parent.relative_to(SOURCE) for init in SOURCE.rglob("__init__.py"))
    return {"lightgate" if folder == Path() else folder.as_posix() for folder in found}


def test_every_package_has_its_row() -> None:
    rows = re.findall(r"^\| `([\w/]+)` \|", section(ARCHITECTURE, "Packages"), re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == packages()


@pytest.mark.parametrize("page", [DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"])
def test_every_layer_has_its_row(page: Path) -> None:
    table = page.read_text("utf-8").split("\n| layer |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| [0-9] \| (.+?) \|", table, re.MULTILINE)
    named = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    tops = {name for name in packages() if "/" not in name} - {"lightgate"}
    assert named == tops | {"errors.py"}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = set(MODULE.findall(page.read_text("utf-8")))
    assert [name for name in named if not any((at / name).exists() for at in (SOURCE, ROOT))] == []


def imports(page: Path) -> list[tuple[str, str]]:
    """Names that the Python examples of a page import from Lightgate, with their modules."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    nodes = [node for block in blocks for node in ast.parse(block).body]
    return [
        (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lightgate")
        for alias in node.names
        if node.module is not None
    ]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_name_that_an_example_imports_exists(page: Path) -> None:
    for module, name in imports(page):
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings as GitHub spells them, and those written out."""
    text = page.read_text("utf-8")
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / target).resolve() if target else page
        found = there.exists() and (not anchor or anchor in anchors(there))
        if not found:
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_every_page_is_linked_from_the_index() -> None:
    index = DOCS / "index.md"
    links = LINK.findall(index.read_text("utf-8"))
    linked = {(DOCS / target).resolve() for target, _ in links if target}
    missing = [page for page in PAGES if page != index and page.resolve() not in linked]
    assert [page.relative_to(ROOT).as_posix() for page in missing] == []
