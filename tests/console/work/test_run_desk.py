from __future__ import annotations

import asyncio
import json
import shlex
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import SYSTEM
from lightgate.config.load import load_config
from lightgate.console.work.follow import RunFollower
from lightgate.console.work.race_desk import Crowded
from lightgate.console.work.run_desk import KEY_ENV, RunAsked, RunDesk, plan_run
from lightgate.console.work.run_note import read_note
from lightgate.console.work.runs import RunUnknown, one_run
from lightgate.errors import UsageError
from lightgate.provider.target import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from console.work.conftest import Track

# In the place of `lightgate`: it says what it was given, and waits for its end.
BENCH = """
import json, os, pathlib, signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
words = sys.argv[1:]
out = pathlib.Path(words[words.index("--out") + 1])
facts = {"words": words, "env": {n: v for n, v in os.environ.items() if "LIGHTGATE" in n}}
print("begun", file=sys.stderr, flush=True)
(out / "said.new").write_text(json.dumps(facts))
(out / "said.new").rename(out / "said.json")
sys.stdin.read()
"""


def asked(**changes: Any) -> RunAsked:
    return RunAsked(**{"targets": ("lab/quick",), "concurrency": (1, 4), "requests": 10, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"targets": ()}, "1 to 4 targets"),
        ({"targets": ("lab/quick", "lab/quick")}, "each once"),
        ({"targets": ("nobody/x",)}, "does not serve"),
        ({"concurrency": ()}, "1 to 4 loads"),
        ({"concurrency": (1, 65)}, "1 to 64 requests in flight"),
        ({"concurrency": (0,)}, "1 to 64 requests in flight"),
        ({"requests": 1001}, "1 to 1,000 requests"),
        ({"max_tokens": 0}, "max tokens are 1 to 4,096"),
        ({"prompt_tokens": 5000}, "prompt tokens are 1 to 4,096"),
        ({"targets": ("lab/middle",)}, "agree to that first"),
    ],
)
async def test_limits(track: Track, changes: dict[str, Any], says: str) -> None:
    made = await track()
    with pytest.raises(UsageError, match=says):
        RunDesk(made.gateway, SYSTEM).check(asked(**changes))


async def test_the_estimate_is_the_commands_own(track: Track, tmp_path: Path) -> None:
    made = await track()
    plan = plan_run(made.gateway, asked(targets=("lab/quick", "lab/early")))
    told = plan.estimate()
    assert told.requests == 2 * 2 * 10
    assert told.most_requests > told.requests  # warm-up, ramps, probes
    assert told.said.startswith(f"At most {told.most_requests} requests; at most")
    assert told.unknown == ()
    url = f"http://127.0.0.1:{made.rig.port}/v1"
    assert told.line.startswith(f"lightgate bench 'lab-quick={url}#lab/quick' ")
    assert resolve(shlex.split(told.line)[2], env={}).model == "lab/quick"
    words = plan.arguments()
    assert Decimal(words[words.index("--max-cost") + 1]) >= told.est_usd > 0
    dear = plan_run(made.gateway, asked(targets=("lab/middle",), agreed_usd=Decimal(900)))
    words = dear.arguments()
    assert words[words.index("--max-cost") + 1] == "900.00"
    unknown = plan_run(made.gateway, asked(targets=("lab/far",)))
    assert unknown.estimate().unknown == ("lab/far",)
    assert "--max-cost" not in unknown.arguments()  # it could not be kept
    # The command's own configuration is one that it can read.
    path = tmp_path / "gateway.toml"
    path.write_text(plan.config("http://127.0.0.1:1/v1", keyed=True))
    config = load_config(path)
    assert config.providers["gateway"].base_url == "http://127.0.0.1:1/v1"
    assert set(config.prices) == {"gateway/lab/quick", "gateway/lab/early"}


class TestProcess:
    """With a process in the place of the command."""

    async def begun(self, track: Track, tmp_path: Path) -> tuple[RunDesk, Any, Path]:
        made = await track()
        script = tmp_path / "bench.py"
        script.write_text(BENCH)
        desk = RunDesk(made.gateway, SYSTEM, (str(script),))
        started = await desk.start(desk.check(asked()))
        folder = made.rig.data / "runs" / started.id
        while not (folder / "said.json").exists():
            await asyncio.sleep(0.01)
        return desk, started, folder

    async def test_it_is_started_followed_and_stopped(
        self, track: Track, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LIGHTGATE_CONSOLE_SECRET", "of the console")
        monkeypatch.setenv("LIGHTGATE_CONSOLE_CALLER", "of the console")
        desk, started, folder = await self.begun(track, tmp_path)
        data = folder.parents[1]
        assert one_run(data, started.id).row.state == "running"
        assert RunFollower(data, started.id).look().state == "running"
        said = json.loads((folder / "said.json").read_text())
        assert said["words"][:2] == ["bench", "gateway/lab/quick"]
        assert said["env"][KEY_ENV].startswith("lightgate-console.")
        assert "of the console" not in said["env"].values()
        assert said["env"]["LIGHTGATE_ENDS_WITH_PARENT"] == "1"
        assert not any("0wn-c0nsole" in word for word in said["words"])
        with pytest.raises(Crowded):
            await desk.start(desk.check(asked()))
        with pytest.raises(RunUnknown):
            await desk.stop("another")
        await desk.stop(started.id)
        note = read_note(folder)
        assert note is not None
        assert (note.exit_code, note.said) == (130, ("begun",))
        assert RunFollower(data, started.id).look().state == "failed"  # it measured nothing

    async def test_it_ends_with_the_console(self, track: Track, tmp_path: Path) -> None:
        desk, _, folder = await self.begun(track, tmp_path)
        await desk.close()
        note = read_note(folder)
        assert note is not None
        assert note.exit_code == 130


def test_a_benchmark_ends_with_its_parent() -> None:
    """`lightgate bench` reads the variable under its own name, to stay quick without it."""
    from lightgate.cli.bench import PARENT_DEATH_ENV
    from lightgate.gateway.process import lock

    assert PARENT_DEATH_ENV == lock.PARENT_DEATH_ENV
