from __future__ import annotations

import io

import pytest
from rich.console import Console

from lightgate.report.tables.layout import TextColumn, fit, print_columns

NAMES = TextColumn("name", ("groq/llama-3.3-70b-versatile", "vllm"), right=False)
SPEED = TextColumn("tok/s", ("310", "9.5"))
WAIT = TextColumn("TTFT p50", ("176", "1,203"))
SAYS = TextColumn(
    "remark",
    ("http://127.0.0.1:8000 refused the connection because no server listens there", ""),
    right=False,
    prose=True,
)
ALL = [[NAMES], [SPEED], [WAIT], [SAYS]]


def lines(groups: list[list[TextColumn]], width: int) -> list[str]:
    page = io.StringIO()
    print_columns(groups, Console(file=page, width=width, color_system=None))
    return page.getvalue().splitlines()


def test_numbers_go_right_and_nothing_trails() -> None:
    assert lines([[NAMES], [SPEED], [WAIT]], 80) == [
        "name                          tok/s  TTFT p50",
        "groq/llama-3.3-70b-versatile    310       176",
        "vllm                            9.5     1,203",
    ]


def test_what_does_not_fit_is_a_second_part_that_begins_with_the_names() -> None:
    assert lines([[NAMES], [SPEED], [WAIT]], 40) == [
        "name                          tok/s",
        "groq/llama-3.3-70b-versatile    310",
        "vllm                            9.5",
        "name                          TTFT p50",
        "groq/llama-3.3-70b-versatile       176",
        "vllm                             1,203",
    ]


def test_columns_of_a_group_stay_together() -> None:
    parts = list(fit([[NAMES], [SPEED, WAIT]], 40))
    assert [[column.title for column in part] for part in parts] == [["name", "tok/s", "TTFT p50"]]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_words_stay_whole_and_every_cell_is_there(width: int) -> None:
    shown = lines(ALL, width)
    words = " ".join(shown).split()
    for column in (NAMES, SPEED, WAIT, SAYS):
        for cell in column.cells:
            assert set(cell.split()) <= set(words)
    longest = len(NAMES.cells[0]) + 2 + 32
    assert max(map(len, shown)) <= max(width, longest)


def test_prose_is_folded_at_its_spaces_beside_empty_cells() -> None:
    assert lines([[NAMES], [SAYS]], 80) == [
        "name                          remark",
        "groq/llama-3.3-70b-versatile  http://127.0.0.1:8000 refused the connection",
        "                              because no server listens there",
        "vllm",
    ]


def test_a_name_wider_than_the_terminal_is_printed_whole() -> None:
    long = TextColumn("base URL", ("https://" + "a" * 100,), right=False)
    name = TextColumn("name", ("vertex",), right=False)
    assert any("https://" + "a" * 100 in line for line in lines([[name], [long]], 80))


def test_wide_characters_take_two_places() -> None:
    name = TextColumn("name", ("模型", "ab"), right=False)
    assert lines([[name], [TextColumn("n", ("1", "2"))]], 80)[1:] == ["模型  1", "ab    2"]
