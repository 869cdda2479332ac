"""The page of numbers: every numeric constant of a package, its value and what it means.

`python -m numbers_page` (from tests/) writes docs/reference/numbers.md anew; read what differs.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lightgate"
PAGE = ROOT / "docs" / "reference" / "numbers.md"
PACKAGES = ("clock", "console", "dialect", "gateway", "ledger", "provider", "route", "wire")
HEAD = """# Numbers

Every numeric constant of the packages that carry requests, with its value, for those who tune or
review. They are no settings: a change of one is a change of the code, and a test compares this page
with it. Sizes are in bytes, and the end of a name says the unit of a time: `_S` seconds, `_NS`
nanoseconds. `python -m numbers_page` (in `tests/`) writes this page.
"""


def constants(package: str) -> dict[tuple[str, str], tuple[str, str]]:
    """The value and the remark of every numeric constant, by its module and name."""
    found = {}
    for path in sorted((SOURCE / package).rglob("*.py")):
        lines = path.read_text("utf-8").splitlines()
        for statement in ast.parse("\n".join(lines)).body:
            if not isinstance(statement, ast.AnnAssign) or not _is_final(statement):
                continue
            name = ast.unparse(statement.target)
            below = path.relative_to(SOURCE).as_posix()
            module = importlib.import_module(f"lightgate.{below[:-3].replace('/', '.')}")
            value = getattr(module, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                end = (statement.end_lineno or statement.lineno) - 1
                found[below, name] = (_shown(value), _remark(lines, statement.lineno - 1, end))
    return found


def _is_final(statement: ast.AnnAssign) -> bool:
    return isinstance(statement.annotation, ast.Name) and statement.annotation.id == "Final"


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else repr(value)


def _remark(lines: list[str], first: int, last: int) -> str:
    """The comment behind a constant."""
    for line in lines[first : last + 1]:
        comment = re.search(r"  # (.*)$", line)
        if comment:
            return comment[1].replace("|", "\\|")
    return ""


def listed(package: str) -> dict[tuple[str, str], str]:
    """The constants of a package that the page has, and their values."""
    section = PAGE.read_text("utf-8").split(f"\n## {package}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    return {(path, name): value.strip() for path, name, value in rows}


def check(package: str) -> None:
    """Compare the page with a package; a new constant may wait for the next writing."""
    known = listed(package)
    now = {place: value for place, (value, _) in constants(package).items()}
    assert {place: value for place, value in now.items() if known.get(place, value) != value} == {}
    assert len(known.keys() & now.keys()) > 0.8 * len(now)


def main() -> None:
    parts = [HEAD]
    for package in PACKAGES:
        parts.append(f"## {package}\n\n| module | name | value | meaning |\n|---|---|---|---|")
        rows = constants(package).items()
        parts.append(
            "\n".join(
                f"| `{path}` | `{name}` | {value} | {note} |"
                for (path, name), (value, note) in rows
            )
            + "\n"
        )
    PAGE.write_text("\n".join(parts), "utf-8")


if __name__ == "__main__":
    main()
