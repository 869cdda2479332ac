from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

from lightgate.cli.output import Column, emit_table

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, columns: list[Column], names: int) -> list[str]:
    page = Terminal()
    monkeypatch.setattr(sys, "stdout", page)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    emit_table(columns, [("groq", "c=1", "12", "310", "tie")], caption="What it is.", names=names)
    return re.sub(r"\x1b\[[0-9;]*m", "", page.getvalue()).splitlines()


COLUMNS = [
    Column("target"),
    Column("load"),
    Column("n", "right"),
    Column("tokens per second", "right"),
    Column("verdict"),
]


def test_what_a_row_is_about_begins_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, COLUMNS, 2) == [
        "target  load   n",
        "groq    c=1   12",
        "target  load  tokens per second",
        "groq    c=1                 310",
        "target  load  verdict",
        "groq    c=1   tie",
        "What it is.",
    ]


def test_joined_columns_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [*COLUMNS[:3], Column("p99", "right", joined=True), COLUMNS[4]]
    assert shown(monkeypatch, columns, 1)[:2] == [
        "target  load   n  p99  verdict",
        "groq    c=1   12  310  tie",
    ]
