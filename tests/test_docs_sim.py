"""The pages about the simulator say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from lightgate.cli.sim import command
from lightgate.sim import world as worlds
from lightgate.sim.answer.script import KINDS
from lightgate.sim.faults import ELSEWHERE, FAULTS
from lightgate.sim.log import SimLogEntry
from lightgate.sim.world_file import load, shipped

DOCS = Path(__file__).parents[1] / "docs"
WORLDS = (DOCS / "reference" / "worlds.md").read_text("utf-8")
FAULT_PAGE = (DOCS / "reference" / "faults.md").read_text("utf-8")
GUIDE = (DOCS / "guides" / "simulate.md").read_text("utf-8")
SECTIONS: dict[str, type[worlds.WorldTable]] = {
    "World": worlds.World,
    "Provider": worlds.WorldProvider,
    "Model": worlds.WorldModel,
    "Scripted turn": worlds.ScriptedTurn,
    "Scripted call": worlds.ScriptedCall,
    "Point of a curve": worlds.LoadPoint,
    "Exact script": worlds.Exact,
    "Shape": worlds.AnswerShape,
    "Stall": worlds.Stall,
    "Rate": worlds.WorldRate,
    "Prompt cache": worlds.WorldCache,
    "Batch API": worlds.WorldBatch,
    "Price": worlds.WorldPrice,
    "Fault rule": worlds.FaultRule,
    "Weather": worlds.Weather,
}


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of every row of the tables under a heading, in code type or not."""
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def default_in_words(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default: Any = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, worlds.AnswerShape):
        return "plain"
    numbers = default if isinstance(default, tuple) else (default,)
    if numbers and isinstance(numbers[0], int | float):
        return ", ".join(map(str, numbers))
    return f"`{default}`" if default else "empty"


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_of_a_world_has_its_row(heading: str) -> None:
    fields = msgspec.structs.fields(SECTIONS[heading])
    wanted = [(f"`{field.encode_name}`", default_in_words(field)) for field in fields]
    assert [(row[0], row[2]) for row in rows(WORLDS, heading)] == wanted


def test_no_table_of_a_world_is_left_out() -> None:
    assert set(SECTIONS.values()) == set(worlds.WorldTable.__subclasses__())


@pytest.mark.parametrize("key", ["answer", "dialect", "line_end", "reasoning_field", "usage"])
def test_the_words_of_a_choice_are_listed(key: str) -> None:
    table = worlds.WorldProvider if key == "dialect" else worlds.AnswerShape
    (kind,) = [f.type for f in msgspec.structs.fields(table) if f.name == key]
    listed = next(
        row[1]
        for heading in ("Shape", "Provider")
        for row in rows(WORLDS, heading)
        if row[0] == f"`{key}`"
    )
    assert re.findall(r"`([^`]+)`", listed) == list(kind.__args__)


def test_the_shipped_worlds_are_listed() -> None:
    listed = {row[0].strip("`"): row[1] for row in rows(WORLDS, "Shipped worlds")}
    assert listed == {name: load(name).title for name in shipped()}


def test_every_fault_has_its_row() -> None:
    wanted = [
        [
            f"`{fault.name}`",
            fault.id,
            fault.does,
            fault.takes,
            fault.default,
            fault.outcome or "as without",
            "only" if fault.streams_only else "",
        ]
        for fault in FAULTS.values()
        if fault.on_request
    ]
    section = FAULT_PAGE.split("\n## Faults of a request\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    assert [[cell.strip() for cell in line[1:-1].split("|")] for line in lines] == wanted


def test_every_port_and_every_other_fault_has_its_row() -> None:
    ports = [
        [f"`{fault.name}`", fault.id, fault.does, fault.outcome]
        for fault in FAULTS.values()
        if not fault.on_request
    ]
    assert rows(FAULT_PAGE, "Faults that are ports") == ports
    others = rows(FAULT_PAGE, "Faults that no provider can produce")
    assert others == [list(pair) for pair in ELSEWHERE.items()]


def test_every_kind_of_write_is_explained() -> None:
    named = {
        name for row in rows(GUIDE, "Check a clock") for name in re.findall(r"`([^`]+)`", row[0])
    }
    assert named == set(KINDS)


def test_the_guide_names_options_and_fields_that_exist() -> None:
    options = {
        text
        for option in command.params
        if isinstance(option, click.Option)
        for text in option.opts
    }
    assert set(re.findall(r"--[a-z]+", GUIDE)) <= options
    fields = set(SimLogEntry.__struct_fields__) | {"plan", "tokens"}
    for name in (
        "received_ns",
        "outcome",
        "fault",
        "weather",
        "tokens",
        "tokens_billed",
        "usage",
        "gone",
    ):
        assert f"`{name}`" in GUIDE
        assert name in fields
