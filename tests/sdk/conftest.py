"""A small simulator and a gateway in their own processes, and the SDKs' drivers in theirs."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lightgate.sim.serve import Options
from lightgate.sim.spawn import SimProcess
from sdk.gate import Gate, gateway
from sdk.reciter import Reciter, reciting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORLD = """
name = "conformance"
title = "Every shape of answer, quickly"
source = "the tests of the SDKs"

[providers.lab.models.plain]
exact = { ttft_ms = 2, gap_ms = 1 }
shape = { tokens = 12 }
[providers.lab.models.long]
exact = { ttft_ms = 2, gap_ms = 0 }
shape = { tokens = 40, chunk = 3 }
[providers.lab.models.think]
exact = { ttft_ms = 2, gap_ms = 1 }
shape = { tokens = 10, reasoning = 0.4 }
[providers.lab.models.mixed]
exact = { ttft_ms = 2, gap_ms = 1 }
shape = { tokens = 20, answer = "mixed" }
[providers.lab.models.rough]
exact = { ttft_ms = 2, gap_ms = 2 }
shape = { tokens = 12, events = 2, comments = true, line_end = "crlf", wide = true, split_ms = 1 }

[providers.keyed]
like = "lab"
key = "sk-right"
[providers.claude]
like = "lab"
dialect = "anthropic"
[providers.keyed-claude]
like = "lab"
dialect = "anthropic"
key = "sk-right"
[providers.gem]
like = "lab"
dialect = "gemini"
"""


class Driven(NamedTuple):
    """What an SDK saw, and what the simulator says it did, both by case."""

    cases: dict[str, Any]
    log: dict[str, dict[str, Any]]
    models: list[str]


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    world = tmp_path_factory.mktemp("world") / "conformance.toml"
    world.write_text(WORLD, "utf-8")
    with SimProcess(Options(world=str(world))) as sim:
        yield sim


@pytest.fixture(scope="session")
def drive(simulator: SimProcess) -> Callable[[str, str, str], Driven | None]:
    """Run a driver once, from its SDK's environment; None where that is missing."""

    def run(sdk: str, base: str, keyed: str) -> Driven | None:
        python = ROOT / f".venv-sdk-{sdk}" / "bin" / "python"
        if not python.exists():
            return None
        # No proxy, no key and no setting of the developer's shell may reach the SDK.
        env = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "")}
        done = subprocess.run(
            [python, HERE / f"drive_{sdk}.py", base, keyed],
            capture_output=True, text=True, timeout=110, check=False, env=env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with urllib.request.urlopen(f"{simulator.url}/sim/log") as answer:  # noqa: S310 - our own
            entries = json.load(answer)["entries"]
        models = [line.split(".")[-1][:-1] for line in WORLD.splitlines() if ".lab.models." in line]
        return Driven(
            json.loads(done.stdout)["cases"],
            {entry["request_id"]: entry for entry in entries},
            models,
        )

    return run


@pytest.fixture(scope="session")
def reciter() -> Iterator[Reciter]:
    """A provider that says golden answers and keeps what it was asked."""
    with reciting() as provider:
        yield provider


@pytest.fixture(scope="session")
def gate(
    simulator: SimProcess, reciter: Reciter, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gate]:
    """A gateway in front of the simulator and the reciter, in its own process."""
    with gateway(tmp_path_factory.mktemp("gate"), simulator.facts.port, reciter.port) as running:
        yield running


@pytest.fixture(scope="module")
def driven_through(request: pytest.FixtureRequest, gate: Gate) -> dict[str, Any] | None:
    """What the SDK that a test module names saw through the gateway; None where it is missing."""
    sdk = request.module.SDK
    python = ROOT / f".venv-sdk-{sdk}" / "bin" / "python"
    if not python.exists():
        return None
    done = subprocess.run(
        [python, HERE / f"through_{sdk}.py", json.dumps({"url": gate.url, "keys": gate.keys})],
        capture_output=True, text=True, timeout=110, check=False, env=bare_env(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cases: dict[str, Any] = json.loads(done.stdout)
    return cases


@pytest.fixture
def seen(
    request: pytest.FixtureRequest,
    driven_through: dict[str, Any] | None,
    missing: Callable[[str], None],
) -> dict[str, Any]:
    """The cases of a test module's SDK by name."""
    if driven_through is None:
        sdk = request.module.SDK
        missing(f"the {sdk} SDK's environment is missing: make .venv-sdk-{sdk}/stamp")
    assert driven_through is not None
    return driven_through


def bare_env() -> dict[str, str]:
    """No proxy, no key and no setting of the developer's shell may reach an SDK."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "")}
    return env | {"PYTHONPATH": str(HERE.parent)}
