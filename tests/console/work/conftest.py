"""A gateway in this process for the console's races, with its journals in a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.conftest import start as start  # noqa: PLC0414 - a fixture for the tests here
from lightgate.console.work.own_gateway import OwnGateway
from lightgate.console.work.race_desk import RaceDesk
from lightgate.gateway.served.inner import InnerCaller
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from gateway.conftest import Rig, Start

    Track = Callable[..., Awaitable["RaceRig"]]

SECRET = "0wn-c0nsole"


def _exact(ttft_ms: float, gap_ms: float) -> dict[str, Any]:
    return {"exact": {"ttft_ms": ttft_ms, "gap_ms": gap_ms}, "shape": {"role_ms": 0}}


WORLD: dict[str, Any] = {
    "name": "track", "title": "Racers", "source": "the tests",
    "providers": {
        "lab": {
            "models": {
                "quick": _exact(200, 5),
                "early": _exact(50, 40),  # the first word, and the last finish
                "middle": _exact(300, 10),
                "far": _exact(60_000, 0),
            }
        },
        "anthropic": {"like": "lab", "dialect": "anthropic"},
        "gemini": {"like": "lab", "dialect": "gemini"},
    },
}  # fmt: skip
MODELS = """
[prices."lab/quick"]
input = 1
output = 4
[prices."lab/early"]
input = 1
output = 2
[prices."lab/middle"]
input = 1000
output = 2000
[models.both]
targets = ["lab/quick", "lab/early"]
"""


class RaceRig:
    """A gateway, the ledger of its console, and the desk that starts races."""

    def __init__(self, rig: Rig, ledger: Ledger, secret: str) -> None:
        self.rig = rig
        self.ledger = ledger
        self.gateway = OwnGateway(rig.data, secret, lambda _: f"http://127.0.0.1:{rig.port}")
        self.desk = RaceDesk(self.gateway, ledger)
        self._shipper = Shipper(ledger, rig.data / "journal", lambda _: None)

    async def ship(self) -> bool:
        """Bring the journals into the ledger, as the console does beside a race; nobody left."""
        self._shipper.drain()
        return False


@pytest.fixture
async def track(start: Start, tmp_path: Path) -> AsyncIterator[Track]:
    """Starts a gateway that the console can race on."""
    made: list[RaceRig] = []

    async def begin(*, secret: str = SECRET, **more: Any) -> RaceRig:
        rig = await start(MODELS, world=WORLD, **more)
        rig.state.inner = InnerCaller("", "127.0.0.1", secret)
        ledger = Ledger.open("sqlite", tmp_path / f"ledger{len(made)}")
        made.append(RaceRig(rig, ledger, secret))
        return made[-1]

    yield begin
    for one in made:
        await one.desk.close()
        one.ledger.close()
