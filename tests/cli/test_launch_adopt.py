"""`up` after an upgrade: the reload is over once the new program has all of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightgate.cli.launch import Launch, UpOptions
from lightgate.gateway.process.handover import Handover, PortHand

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.process.supervisor import ChildSpec

PORT = PortHand(port=1, bound=())


class Told:
    """A supervisor that notes how many reloads it has told of at each step."""

    def __init__(self) -> None:
        self.reloads = 0
        self.replacing = self.replace_again = False
        self.read_again = False
        self.steps: list[tuple[str, int]] = []

    def adopt(self, *running: object) -> None:
        assert (self.replacing, self.replace_again) == (True, True)  # an order now is a further one
        self.steps.append((f"adopted {len(running)}", self.reloads))

    def tell_reload(self) -> None:
        self.steps.append(("snapshot", self.reloads))

    async def start(self, *specs: ChildSpec) -> None:
        self.steps.append((f"started {', '.join(spec.name for spec in specs)}", self.reloads))

    def tell(self) -> None:
        self.steps.append(("told", self.reloads))


async def test_a_reload_is_counted_when_everything_runs(tmp_path: Path) -> None:
    (tmp_path / "lightgate.toml").write_text(
        '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "none"\n'
    )
    up = Launch(UpOptions(config_file=tmp_path / "lightgate.toml", data=tmp_path / "data"))
    supervisor: Any = Told()
    before = Handover(
        lock=0, gateway=PORT, console=PORT, generation=3, reloads=7, started="", children=(),
        replace_again=True,
    )  # fmt: skip
    await up._adopt(supervisor, before)
    assert supervisor.steps == [
        ("adopted 0", 7),
        ("snapshot", 7),
        ("started console, batches", 7),
        ("told", 8),
    ]
    assert (supervisor.replacing, supervisor.replace_again) == (False, True)
    assert up.processes.generation == 3
