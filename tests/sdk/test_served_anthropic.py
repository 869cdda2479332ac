"""The official anthropic SDK leaves message batches with the gateway, and fetches the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from sdk.environment import python_of
from sdk.served import WORLD, drive

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the SDK saw; nothing where its environment is missing."""
    if not python_of("anthropic").exists():
        return {}
    folder = tmp_path_factory.mktemp("served")
    (folder / "world.toml").write_text(WORLD, "utf-8")
    with SimProcess(SimOptions(world=str(folder / "world.toml"))) as sim:
        return drive("anthropic", folder / "data", sim.facts.port)


@pytest.fixture(autouse=True)
def _there(require: Callable[[str], None]) -> None:
    require("anthropic")


def test_a_batch_of_good_and_wrong_requests(seen: dict[str, Any]) -> None:
    told = seen["batch"]
    assert told.pop("gone")["error"] == "NotFoundError"
    assert told == {
        "first": ["in_progress", 3, None],
        "counts": {"canceled": 0, "errored": 1, "expired": 0, "processing": 0, "succeeded": 2},
        "types": {"a": "succeeded", "b": "succeeded", "c": "errored"},
        "text": "text", "error": "not_found_error", "url": True, "listed": True,
        "deleted": "message_batch_deleted",
    }  # fmt: skip


def test_the_beta_calls_work_too(seen: dict[str, Any]) -> None:
    assert seen["beta"] == ["succeeded"]


def test_a_cancelled_batch(seen: dict[str, Any]) -> None:
    told = seen["cancelled"]
    assert told.pop("early")["error"] == "BadRequestError"
    assert told == {"asked": "canceling", "canceled": True, "sum": 40, "initiated": True}


def test_keys_are_apart(seen: dict[str, Any]) -> None:
    assert seen["others"]["error"] == "NotFoundError"
    assert seen["others_list"] == 0


def test_an_id_that_is_given_twice_is_a_bad_request(seen: dict[str, Any]) -> None:
    assert seen["twice"]["error"] == "BadRequestError"


def test_a_lost_answer_makes_no_second_batch(seen: dict[str, Any]) -> None:
    assert seen["lost"] == {"lost": ["/v1/messages/batches"], "made": 1}
