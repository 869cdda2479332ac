"""The environment of each process of `lightgate up`: every secret goes where it is needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.launch import Launch, UpOptions
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV
from lightgate.gateway.process.port import WorkerSockets

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.process.child import ChildSpec


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """A demo with a key of a provider, and a console that asks for a secret."""
    monkeypatch.setenv("GROQ_API_KEY", "gsk-of-the-provider")
    monkeypatch.setenv(CONSOLE_SECRET_ENV, "of the console")
    made = Launch(UpOptions(data=tmp_path / "data", demo=True))
    made.processes.sockets = [WorkerSockets([])]
    return made


def given(spec: ChildSpec) -> set[str]:
    """The names of the variables that a child gets."""
    return (set(os.environ) - spec.without) | set(spec.env)


def test_the_secret_of_the_console_and_the_keys_of_providers_are_apart(up: Launch) -> None:
    processes = up.processes
    specs = [
        *processes.workers(), processes.batches(), processes.console(), processes.simulator(),
        processes.traffic(),
    ]  # fmt: skip
    assert {spec.name for spec in specs if CONSOLE_SECRET_ENV in given(spec)} == {"console"}
    assert {spec.name for spec in specs if "GROQ_API_KEY" in given(spec)} == {"worker-0"}


def test_a_secret_that_is_also_the_key_of_a_provider_reaches_the_console(
    up: Launch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CONSOLE_SECRET_ENV, "gsk-of-the-provider")
    again = Launch(UpOptions(data=tmp_path / "data", demo=True))
    assert CONSOLE_SECRET_ENV in given(again.processes.console())
    assert "GROQ_API_KEY" not in given(again.processes.console())


def test_a_successor_has_the_place_of_its_predecessor_and_another_number(up: Launch) -> None:
    up.processes.sockets = [WorkerSockets([]), WorkerSockets([])]

    def told(specs: list[ChildSpec], option: str) -> list[str]:
        return [spec.argv[spec.argv.index(option) + 1] for spec in specs if "--index" in spec.argv]

    first, second = up.processes.workers(), up.processes.successors()
    assert (told(first, "--index"), told(second, "--index")) == (["0", "1"], ["2", "3"])
    assert told(first, "--place") == told(second, "--place") == ["0", "1"]
