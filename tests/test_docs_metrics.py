"""docs/reference/metrics.md says what the code does, and all of it."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections import Counter
from pathlib import Path

import pytest

from lightgate.clock import bounds, compare, load, timing
from lightgate.clock.attempt import AttemptRecord
from lightgate.clock.load import BANDS
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import ranks, smallest_n
from lightgate.clock.tokens import TokensSource

if typing.TYPE_CHECKING:
    from types import FunctionType, ModuleType

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "metrics.md").read_text("utf-8")
NUMBER = re.compile(r"^ *\| (\w+) \| (.*) \|$", re.MULTILINE)  # a row of Timing's docstring
ANCHOR = re.compile(r'<a id="([a-z0-9_]+)"></a>`([a-z0-9_]+)`')
UNITS = {"ms", "ms_between", "counting"}  # a change of units, a difference, a filter: no formula


def table(head: str) -> list[list[str]]:
    """The cells of the table whose header row starts like this."""
    start = PAGE.index(f"\n{head}") + 1
    lines = PAGE[start:].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def named(head: str) -> dict[str, list[str]]:
    """The rows of a table with anchors, by name, without the name's own cell."""
    rows = {}
    for first, *rest in table(head):
        found = ANCHOR.fullmatch(first)
        assert found is not None, first
        rows[found[2]] = rest
    return rows


def formulas(module: ModuleType) -> dict[str, FunctionType]:
    return {
        name: function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


ONE = named("| name | formula | record field | remarks |")
GRADES = named('| name | formula | remarks |\n|---|---|---|\n| <a id="band"')
MANY = named('| name | formula | remarks |\n|---|---|---|\n| <a id="throughput"')
BOUNDS = named('| name | formula | remarks |\n|---|---|---|\n| <a id="bound_ms"')
CODE = {
    **dict(NUMBER.findall(timing.Timing.__doc__ or "")[1:]),  # without the table's head
    **{
        name: " ".join((function.__doc__ or "").split())
        for module in (timing, load, bounds)
        for name, function in formulas(module).items()
    },
}
ROWS = ONE | MANY | GRADES | BOUNDS


def test_every_anchor_is_its_name_and_unique() -> None:
    pairs = ANCHOR.findall(PAGE)
    assert [anchor for anchor, name in pairs if anchor != name] == []
    assert [name for name, n in Counter(anchor for anchor, _ in pairs).items() if n > 1] == []
    assert PAGE.count("<a id=") == len(pairs)


def test_every_formula_has_its_row_and_every_row_its_formula() -> None:
    assert set(ROWS) == set(CODE) - UNITS


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_formula_on_the_page_is_the_one_in_the_code(name: str) -> None:
    formula = ROWS[name][0].strip("`").lower()
    assert formula in CODE[name].lower()


@pytest.mark.parametrize("name", sorted(ONE))
def test_record_fields_exist(name: str) -> None:
    field = ONE[name][1].strip("`")
    by_name = [
        one for one in AttemptRecord.__struct_fields__ if re.fullmatch(f"{name}_(ms|tps)", one)
    ]
    assert by_name == ([] if field == "\N{EN DASH}" else [field])


def test_every_instant_has_its_row() -> None:
    rows = named("| name | the moment when | record field |")
    fields = [name for name in AttemptRecord.__struct_fields__ if name.startswith("t_")]
    assert [f"{name}_ns" for name in rows] == fields
    assert [cells[-1].strip("`") for cells in rows.values()] == fields
    kept = named('| name | is |\n|---|---|\n| <a id="pool_wait_ns"')
    assert {name.removeprefix("t_") for name in rows} | set(kept) == set(Marks.__slots__)


def test_every_rung_of_the_ladder_has_its_row_in_order() -> None:
    assert tuple(named("| `tokens_source` |")) == typing.get_args(TokensSource)


def test_outcomes_are_the_codes() -> None:
    rows = {cells[0].strip("`"): cells[-1] for cells in table("| outcome |")}
    assert rows == {one.value: "yes" if one.is_failure else "no" for one in Outcome}


def test_grade_bands_are_the_codes() -> None:
    assert [(int(one), float(floor)) for one, floor in table("| grade |")] == list(BANDS)


def test_interval_thresholds_are_the_codes() -> None:
    rows = table("| quantile | n at least |")
    assert len(rows) == 5
    for name, n in rows:
        assert smallest_n(float(name.removeprefix("p")) / 100) == int(n)
    assert ranks(1000, 0.99) == (983, 997)
    assert "983rd and the 997th" in PAGE


def test_comparisons_have_their_rows() -> None:
    assert set(named('| name | is |\n|---|---|\n| <a id="compare"')) == set(formulas(compare))


@pytest.mark.parametrize("row", table("| constant |"), ids=lambda row: row[0].strip("`"))
def test_constants_are_the_codes(row: list[str]) -> None:
    module, name = row[0].strip("`").split(".")
    assert getattr(importlib.import_module(f"lightgate.clock.{module}"), name) == float(row[1])
