"""The official openai SDK leaves files and batches with the gateway, and fetches the results."""

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
    if not python_of("openai").exists():
        return {}
    folder = tmp_path_factory.mktemp("served")
    (folder / "world.toml").write_text(WORLD, "utf-8")
    with SimProcess(SimOptions(world=str(folder / "world.toml"))) as sim:
        return drive("openai", folder / "data", sim.facts.port)


@pytest.fixture(autouse=True)
def _there(require: Callable[[str], None]) -> None:
    require("openai")


def test_files(seen: dict[str, Any]) -> None:
    assert seen["files"] == {
        "status": "processed", "same": True, "content": True, "paged": True, "oldest": True,
        "expires": 3600, "deleted": True, "left": 0,
    }  # fmt: skip


def test_a_batch_of_good_and_wrong_lines(seen: dict[str, Any]) -> None:
    assert seen["batch"] == {
        "first": "validating", "status": "completed",
        "counts": {"total": 5, "completed": 2, "failed": 3},
        "metadata": {"run": "1"}, "usage": 24, "listed": True,
        "answers": {"a": "chat.completion", "b": "chat.completion"},
        "wrong": {"3": "invalid_json_line", "4": "duplicate_custom_id", "5": "model_not_found"},
    }  # fmt: skip


def test_a_cancelled_batch(seen: dict[str, Any]) -> None:
    told = seen["cancelled"]
    assert (told["asked"], told["done"], told["sum"]) == ("cancelling", "cancelled", 50)
    assert told["codes"] == ["batch_cancelled"]
    assert told["again"]["error"] == "ConflictError"


def test_keys_are_apart(seen: dict[str, Any]) -> None:
    assert seen["others_file"]["error"] == seen["others_content"]["error"] == "NotFoundError"
    assert seen["others_list"] == 0
    assert seen["stranger"]["error"] == "AuthenticationError"


@pytest.mark.parametrize("case", ["purpose", "endpoint"])
def test_what_is_wrong_is_a_bad_request(seen: dict[str, Any], case: str) -> None:
    assert seen[case]["error"] == "BadRequestError"


def test_a_lost_answer_makes_no_second_batch(seen: dict[str, Any]) -> None:
    assert seen["lost"] == {"lost": ["/v1/files", "/v1/batches"], "files": 1, "batches": 1}
