"""docs/reference/ledger.md names every table, view and column, in order, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lightgate.ledger.sqlite import BUSY_S
from lightgate.ledger.store import schema
from lightgate.ledger.store.retention import Keep

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "ledger.md").read_text("utf-8")
TABLES = {**schema.metadata.tables, **schema.views.tables}
SECTIONS = {
    found[1]: found[2]
    for found in re.finditer(r"^## `(\w+)`[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def test_every_table_has_its_section() -> None:
    assert set(SECTIONS) == set(TABLES)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_has_its_row(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", SECTIONS[name], re.MULTILINE)
    assert [column for column, _ in rows] == TABLES[name].columns.keys()


def test_the_days_are_those_of_the_code() -> None:
    keep = Keep()
    assert f"| rows of `exchanges` and `attempts` | {keep.raw_days} |" in PAGE
    assert f"| sums over 5 minutes | {keep.fine_days} |" in PAGE
    assert f"| sums over an hour | {keep.rollup_days} |" in PAGE
    assert f"waits {BUSY_S:.0f} s" in PAGE
