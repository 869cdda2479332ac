"""Coding agents from npm do a task with a tool loop through the gateway, to every dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strangers.agents.agents import AGENTS, READY
from strangers.page import agent_row, run_agent, written
from strangers.sdks.clients import CLIENTS, PASSED_ON, judged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from strangers.fence import Fence
    from strangers.lab import StrangersLab

pytestmark = pytest.mark.sdk


MODELS = [(name, model) for name, agent in AGENTS.items() for model in (None, agent.older)]


@pytest.mark.parametrize(("name", "model"), MODELS, ids=lambda word: word or "own")
def test_an_agent_does_its_task(
    name: str,
    model: str | None,
    lab: StrangersLab,
    outside: Fence,
    missing: Callable[[str], None],
    tmp_path: Path,
) -> None:
    if not all(part.exists() for part in READY):
        missing("Node or the agents are not installed: make .node-agents/stamp")
    asked = len(outside.asked)
    found = run_agent(name, model, lab, outside, tmp_path)
    assert {kind: fault for kind, fault in found.items() if fault} == {}
    assert agent_row(name, model, found).text() in written(), "run `make clients`"
    assert outside.asked[asked:] == [], "it asked for addresses outside"


def test_the_makers_own_types_take_what_reached_the_providers(
    lab: StrangersLab, missing: Callable[[str], None]
) -> None:
    """The requests of all tests above; those that a client wrote in the provider's dialect too."""
    if not lab.heard or not CLIENTS["openai"].ready:
        missing("no request was made, or the SDKs are not installed: make prepared")
    assert set(judged(lab.heard)) - PASSED_ON == set()
