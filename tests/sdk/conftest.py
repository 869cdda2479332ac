"""A small simulator and a gateway in their own processes, and the SDKs' drivers in theirs."""

from __future__ import annotations

import functools
import json
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from sdk.environment import HERE, python_of, run_in
from sdk.gate import Gate, gateway
from sdk.reciter import Reciter, reciting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

# The providers that an SDK speaks to without a gateway: an open one, and one that wants a key.
DIRECT = {"openai": ("lab", "keyed"), "anthropic": ("claude", "keyed-claude")}
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


@pytest.fixture
def require(missing: Callable[[str], None]) -> Callable[[str], None]:
    """Go on only where an SDK's environment is there."""

    def look(sdk: str) -> None:
        if not python_of(sdk).exists():
            missing(f"the {sdk} SDK's environment is missing: make .venv-sdk-{sdk}/stamp")

    return look


@pytest.fixture
def sdk(request: pytest.FixtureRequest) -> str:
    """The SDK that a test module is about, unless a test names its own."""
    name: str = request.module.SDK
    return name


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    world = tmp_path_factory.mktemp("world") / "conformance.toml"
    world.write_text(WORLD, "utf-8")
    with SimProcess(SimOptions(world=str(world))) as sim:
        yield sim


@pytest.fixture(scope="session")
def drive(simulator: SimProcess) -> Callable[[str], tuple[CompletedProcess[str], dict[str, Any]]]:
    """Run an SDK's driver, once, against the simulator; its log is the one right after the run."""

    @functools.cache
    def run(sdk: str) -> tuple[CompletedProcess[str], dict[str, Any]]:
        addresses = [simulator.facts.providers[name] for name in DIRECT[sdk]]
        done = run_in(sdk, HERE / f"drive_{sdk}.py", *addresses)
        with urllib.request.urlopen(f"{simulator.url}/sim/log") as answer:  # noqa: S310 - our own
            entries = json.load(answer)["entries"]
        return done, {entry["request_id"]: entry for entry in entries}

    return run


@pytest.fixture
def driven(
    sdk: str,
    require: Callable[[str], None],
    drive: Callable[[str], tuple[CompletedProcess[str], dict[str, Any]]],
) -> Driven:
    """What came of an SDK's calls to the simulator."""
    require(sdk)
    done, log = drive(sdk)
    assert done.returncode == 0, done.stderr
    models = [line.split(".")[-1][:-1] for line in WORLD.splitlines() if ".lab.models." in line]
    return Driven(json.loads(done.stdout)["cases"], log, models)


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


@pytest.fixture(scope="session")
def drive_through(gate: Gate) -> Callable[[str], CompletedProcess[str]]:
    """Run an SDK's driver, once, against the gateway."""

    @functools.cache
    def run(sdk: str) -> CompletedProcess[str]:
        facts = json.dumps({"url": gate.url, "keys": gate.keys})
        return run_in(sdk, HERE / f"through_{sdk}.py", facts)

    return run


@pytest.fixture
def seen(
    sdk: str,
    require: Callable[[str], None],
    drive_through: Callable[[str], CompletedProcess[str]],
) -> dict[str, Any]:
    """What came of an SDK's calls through the gateway, by case."""
    require(sdk)
    done = drive_through(sdk)
    assert done.returncode == 0, done.stderr
    cases: dict[str, Any] = json.loads(done.stdout)
    return cases
