"""The reference names every field, quirk, flag and dialect that the code has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lightgate.dialect import kinds, registry
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.request import Request

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (FOLDER / "dialects.md").read_text("utf-8")
PROVIDERS = (FOLDER / "providers.md").read_text("utf-8")
FACTS = ["usage", "usage_running", "finish", "error", "done", "weight", "chars", "reasoning_weight"]


def first_cells(page: str = PAGE) -> set[str]:
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    return {word.strip(" `") for cell in rows for word in cell.replace(" in words", "").split(",")}


@pytest.mark.parametrize(
    ("struct", "page"), [(Request, PAGE), (Quirks, PROVIDERS)], ids=["Request", "Quirks"]
)
def test_every_field_has_its_row(struct: type[msgspec.Struct], page: str) -> None:
    missing = set(struct.__struct_fields__) - first_cells(page)
    assert not missing


def test_every_fact_of_a_scanner_has_its_row() -> None:
    assert set(FACTS) <= first_cells()


def test_every_flag_and_dialect_is_named() -> None:
    flags = [name for name in vars(kinds) if name.isupper() and name not in {"NONE", "NAMES"}]
    assert [name for name in flags if f"`{name}`" not in PAGE] == []
    names = [dialect.name for dialect in registry.DIALECTS.values()]
    assert [name for name in names if f"| {name} |" not in PAGE] == []


def test_quirks_defaults_are_as_documented() -> None:
    for field, value in msgspec.structs.asdict(Quirks()).items():
        shown = str(value).lower() if isinstance(value, bool) else f"`{value}`"
        assert f"| `{field}` | {'empty' if value == '' else shown} |" in PROVIDERS
