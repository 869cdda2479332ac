"""docs/glossary.md explains every name that records, the configuration and the commands use."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.main import VERBS
from lightgate.clock import load, timing
from lightgate.clock.attempt import Role, Source
from lightgate.clock.marks import StampSource
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import TokensSource
from lightgate.config.model import Config, ModelTable
from lightgate.config.values import Policy
from lightgate.ledger.runs.run import VerdictName
from lightgate.ledger.store.schema import metadata

if TYPE_CHECKING:
    from types import ModuleType

PAGE = (Path(__file__).parents[1] / "docs" / "glossary.md").read_text("utf-8")
ROW = re.compile(r"^\| (.+?) \| (.+?) \| \[.+\]\(.+\) \|$", re.MULTILINE)
ROWS = [(word.strip("`"), sentence) for word, sentence in ROW.findall(PAGE)]
UNITS = {"ms", "ms_between", "counting"}  # a change of units, a difference, a filter: no metrics


NUMBERS = re.findall(r"^ *\| (\w+) \| .* \|$", timing.Timing.__doc__ or "", re.MULTILINE)[1:]


def formulas(module: ModuleType) -> set[str]:
    members = inspect.getmembers(module, inspect.isfunction)
    return {
        name
        for name, function in members
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def wanted() -> dict[str, set[str]]:
    """The names that a user meets, by where they come from."""
    return {
        "metrics": set(NUMBERS) | (formulas(timing) | formulas(load)) - UNITS,
        "outcomes": {one.value for one in Outcome},
        "roles": set(typing.get_args(Role)),
        "sources": set(typing.get_args(Source)),
        "stamps": set(typing.get_args(StampSource)),
        "token counts": set(typing.get_args(TokensSource)),
        "policies": set(typing.get_args(Policy)),
        "sections of the configuration": set(Config.model_fields),
        "keys of a model": set(ModelTable.model_fields),
        "tables of the ledger": set(metadata.tables),
        "verbs": {verb.name for verb in VERBS},
        "verdicts": set(typing.get_args(VerdictName)),
        "cache": {"hit", "miss", "join", "off"},
    }


@pytest.mark.parametrize("kind", wanted())
def test_every_name_is_explained(kind: str) -> None:
    assert wanted()[kind] - {word for word, _ in ROWS} == set()


def test_every_word_stands_once_and_in_order() -> None:
    words = [word for word, _ in ROWS]
    assert [word for word in set(words) if words.count(word) > 1] == []
    for section in PAGE.split("\n## ")[1:]:
        listed = [word.strip("`").lower() for word, _ in ROW.findall(section)]
        assert listed == sorted(listed)


def test_every_row_is_one_sentence() -> None:
    assert [word for word, sentence in ROWS if ". " in sentence] == []
