"""The page on answers says what the tables in code say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dialect.translate.tables import READ, USAGE, WORDS, WRITE
from lightgate.clock.tokens import Usage
from lightgate.dialect.registry import TRANSLATED as DIALECTS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "translation-answers.md"


def rows(heading: str) -> list[str]:
    """The rows of a section's tables that begin with a name in code type."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def row(*cells: str) -> str:
    return "| " + " | ".join(", ".join(f"`{w}`" for w in cell.split()) for cell in cells) + " |"


def test_reasons() -> None:
    written = [row(r, *(WRITE[d][r] for d in DIALECTS)) for r in WRITE["gemini"]]
    read: dict[tuple[str, str], list[str]] = {}
    for dialect, words in READ.items():
        for word, reason in words.items():
            read.setdefault((dialect, reason), []).append(word)
    told = [row(dialect, reason, " ".join(words)) for (dialect, reason), words in read.items()]
    assert rows("Why an answer ended") == written + told


def test_the_columns_are_the_dialects() -> None:
    assert f"| reason | {' | '.join(DIALECTS)} |" in PAGE.read_text("utf-8").splitlines()


def test_errors() -> None:
    assert rows("Errors") == [row(str(status), *words) for status, words in WORDS.items()]


def names(value: dict[str, Any]) -> set[str]:
    inside = [names(one) for one in value.values() if isinstance(one, dict)]
    return set(value).union(*inside)


def test_usage_names_every_field_that_is_written() -> None:
    full = Usage(
        tokens_in=9, tokens_out=8, tokens_reasoning=1, tokens_cached=2, tokens_cache_write=3
    )
    section = PAGE.read_text("utf-8").split("\n## Usage\n\n")[1].split("\n\n")[0]
    cells = [line.split("|")[1:-1] for line in section.splitlines()[2:]]
    said = {d: " ".join(line[at + 1] for line in cells) for at, d in enumerate(DIALECTS)}
    written = {dialect: words(full) for dialect, words in USAGE.items()}
    ours = {"total_tokens", "totalTokenCount"}  # sums, which need no row
    for dialect, value in written.items():
        leaves = {name for name in names(value) if not name.endswith("_details")} - ours
        assert set(re.findall(r"`(\w+)`", said[dialect])) == leaves
