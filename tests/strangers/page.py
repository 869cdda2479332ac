"""docs/reference/clients.md: the table of what strangers could do, made from a run.

`make clients` runs all of them and writes the table; the tests compare it with what they see.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strangers.agents.agents import AGENTS
from strangers.agents.run import run_task
from strangers.fence import Fence, fence
from strangers.lab import KINDS, StrangersLab, strangers_lab
from strangers.sdks.clients import CLIENTS, Driven, run_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "clients.md"
BEGIN, END = "<!-- `make clients` writes from here -->\n", "<!-- to here -->\n"
HEAD = (
    "| client | version | as | feature | openai | openai without responses | anthropic | gemini |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


class Row(NamedTuple):
    """One line of the table: a feature of a client in one of its forms, and a cell per gateway."""

    client: str
    version: str
    form: str
    feature: str
    cells: tuple[str, ...]

    def text(self) -> str:
        """The line as Markdown."""
        words = (self.client, self.version, self.form, self.feature, *self.cells)
        return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |\n"


def agent_row(name: str, model: str | None, cells: dict[str, str | None]) -> Row:
    """The row of an agent, of what was wrong with each task."""
    agent = AGENTS[name]
    form = "agent" if model is None else f"agent, {model}"
    return Row(agent.title, agent.version, form, "tool loop", _cells(cells))


def client_rows(name: str, driven: Driven) -> list[Row]:
    """The rows of an SDK or a framework."""
    several = len(driven.versions) > 1
    versions = ", ".join(f"{n} {v}" if several else v for n, v in driven.versions.items())
    return [
        Row(CLIENTS[name].title, versions, form, feature, _cells(cells))
        for form, features in driven.seen.items()
        for feature, cells in features.items()
    ]


def _cells(found: dict[str, str | None]) -> tuple[str, ...]:
    return tuple("" if kind not in found else found[kind] or "ok" for kind in KINDS)


def written() -> list[str]:
    """The lines of the table as the page has it."""
    table = PAGE.read_text("utf-8").split(BEGIN, 1)[1].split(END, 1)[0]
    return table.splitlines(keepends=True)


def run_agent(
    name: str, model: str | None, lab: StrangersLab, outside: Fence, at: Path
) -> dict[str, str | None]:
    """What was wrong with an agent's task through each gateway."""
    return {
        kind: run_task(AGENTS[name], model, url, lab, outside, at / kind).fault
        for kind, url in lab.urls.items()
        if name == "codex" or kind != "openai-chat"
    }


def _rows(lab: StrangersLab, outside: Fence, at: Path) -> Iterator[Row]:
    for name, agent in AGENTS.items():
        for model in (None, agent.older):
            found = run_agent(name, model, lab, outside, at / f"{name}-{model}")
            yield agent_row(name, model, found)
    for name, client in CLIENTS.items():
        yield from client_rows(name, run_driver(client, lab, outside, at / name))


def main() -> None:
    """Run all of them and write the table."""
    with tempfile.TemporaryDirectory() as folder, fence() as outside:
        at = Path(folder)
        with strangers_lab(at) as lab:
            rows = list(_rows(lab, outside, at))
    before, rest = PAGE.read_text("utf-8").split(BEGIN, 1)
    table = HEAD + "".join(row.text() for row in rows)
    PAGE.write_text(before + BEGIN + table + END + rest.split(END, 1)[1], "utf-8")
    short = [row.text() for row in rows if any(cell not in {"ok", ""} for cell in row.cells)]
    sys.stdout.write(
        f"{len(rows)} rows, {len(short)} of them fall short somewhere:\n{''.join(short)}"
    )


if __name__ == "__main__":
    main()
