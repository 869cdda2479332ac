"""The guide says how clients are told of the gateway in the same words as the tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from strangers.agents.agents import AGENTS

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "guides" / "agents-and-frameworks.md").read_text("utf-8")
GATEWAY = "http://127.0.0.1:8080"


def section(title: str) -> str:
    return GUIDE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_told_as_the_guide_says(name: str) -> None:
    agent = AGENTS[name]
    text, told = section(agent.title), agent.told(GATEWAY, "lg-…")
    for variable, value in told.variables.items():
        assert f"{variable}={value}" in text or (value == "lg-…" and variable in text)
    for file, content in told.files.items():
        assert f"~/{file}" in text
        (block,) = re.findall(r"```(?:toml|json)\n(.*?)```", text, re.DOTALL)
        assert (
            (json.loads(block) == json.loads(content))
            if file.endswith("json")
            else block == content
        )
