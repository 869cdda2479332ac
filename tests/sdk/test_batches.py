"""The official SDKs use the simulator's batch endpoints unchanged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from sdk.environment import HERE, run_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORLD = """
name = "batches"
title = "Batch APIs whose jobs finish at once, or never"
source = "the tests of the SDKs"

[providers.openai]
batch = { finish_s = [0.001, 0.001] }
[providers.openai.models.m]
exact = { ttft_ms = 1, gap_ms = 0 }
shape = { tokens = 5 }
[providers.openai-slow]
like = "openai"
batch = { finish_s = [3600, 3600] }
[providers.anthropic]
like = "openai"
dialect = "anthropic"
[providers.anthropic-slow]
like = "openai"
dialect = "anthropic"
batch = { finish_s = [3600, 3600], cancel_s = 60 }
[providers.google]
like = "openai"
dialect = "gemini"
[providers.google-slow]
like = "openai"
dialect = "gemini"
batch = { finish_s = [3600, 3600] }
"""


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    world = tmp_path_factory.mktemp("world") / "batches.toml"
    world.write_text(WORLD, "utf-8")
    with SimProcess(SimOptions(world=str(world))) as sim:
        yield sim


@pytest.fixture
def told(batches: SimProcess, require: Callable[[str], None]) -> Callable[[str], dict[str, Any]]:
    """What an SDK's driver saw at a provider whose jobs finish at once, and at one that waits."""

    def run(sdk: str) -> dict[str, Any]:
        require(sdk)
        root = "/v1" if sdk == "openai" else ""
        words = [f"{batches.url}/{name}{root}" for name in (sdk, f"{sdk}-slow")]
        done = run_in(sdk, HERE / f"batches_{sdk}.py", *words)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_openai(told: Callable[[str], dict[str, Any]]) -> None:
    assert told("openai") == {
        "status": "completed",
        "counts": {"completed": 3, "failed": 1, "total": 4},
        "tokens": 15,
        "tag": {"tag": "t1"},
        "results": {"a0": 200, "a1": 200, "a2": 404, "a3": 200},
        "listed": True,
        "held": "in_progress",
        "cancelled": "cancelled",
    }


def test_anthropic(told: Callable[[str], dict[str, Any]]) -> None:
    succeeded, errored = "succeeded", "errored"
    assert told("anthropic") == {
        "counts": {"canceled": 0, "errored": 1, "expired": 0, "processing": 0, "succeeded": 3},
        "results": {"a0": succeeded, "a1": succeeded, "a2": errored, "a3": succeeded},
        "tiers": True,
        "listed": True,
        "held": "in_progress",
        "cancelled": "canceling",
        "deleted": "message_batch_deleted",
    }


def test_google(told: Callable[[str], dict[str, Any]]) -> None:
    assert told("google") == {
        "inline": ["JOB_STATE_SUCCEEDED", {"key": "z"}, True],
        "file": ["JOB_STATE_SUCCEEDED", ["k0", "k1", "k2"]],
        "answers": True,
        "listed": ["file", "inline"],
        "held": "JOB_STATE_RUNNING",
        "cancelled": "JOB_STATE_CANCELLED",
    }
